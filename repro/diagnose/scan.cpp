#include "repro/diagnose/scan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "repro/diagnose/incident.h"

namespace regather::repro {
namespace {

constexpr size_t kBlock = 1 << 20;
constexpr size_t kAround = 64 << 10;  // bytes on either side of a hit that are in memory
constexpr size_t kMostVersions = 256;
constexpr size_t kMostIncidents = 256;
constexpr size_t kLongestShown = 240;
constexpr uint64_t kMostMatches = 4096;    // of one signature, or tracebacks
constexpr uint64_t kMostMisses = 200'000;  // of a pattern whose literals stand everywhere

constexpr std::string_view kTraceback = "traceback (most recent call last)";

std::string shown(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  if (text.size() <= kLongestShown) return std::string(text);
  size_t end = kLongestShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;  // not inside a character
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace

Scanner::Scanner(const Knowledge& knowledge) : knowledge_(knowledge), buffer_(kBlock + 3 * kAround) {
  watched_.push_back({.kind = Kind::traceback, .number = 0});
  for (size_t i = 0; i < knowledge.contexts.size(); ++i) watched_.push_back({.kind = Kind::context, .number = i});
  for (size_t i = 0; i < knowledge.versions.size(); ++i) watched_.push_back({.kind = Kind::version, .number = i});
  for (size_t i = 0; i < knowledge.signs.size(); ++i) watched_.push_back({.kind = Kind::sign, .number = i});
}

void Scanner::arm() {
  std::map<std::string, std::vector<size_t>> literals;
  for (size_t i = 0; i < watched_.size(); ++i) {
    const Watched& w = watched_[i];
    if (!w.active) continue;
    switch (w.kind) {
      case Kind::traceback:
        literals[std::string(kTraceback)].push_back(i);
        break;
      case Kind::context:
        for (const auto& literal : knowledge_.contexts[w.number].match.literals) literals[literal].push_back(i);
        break;
      case Kind::version:
        for (const auto& literal : knowledge_.versions[w.number].literals) literals[literal].push_back(i);
        break;
      case Kind::sign:
        for (const auto& literal : knowledge_.signs[w.number].match.literals) literals[literal].push_back(i);
        break;
    }
  }
  std::vector<std::string> needles;
  watched_by_.clear();
  for (auto& [literal, by] : literals) {
    needles.push_back(literal);
    watched_by_.push_back(std::move(by));
  }
  needles_ = std::make_unique<Needles>(needles);
  stale_ = false;
}

void Scanner::retire(size_t watched) {
  watched_[watched].active = false;
  stale_ = true;
}

uint64_t Scanner::line_number(size_t at) {
  // Lines are counted forward once; places before that are counted back.
  if (at >= counted_) {
    line_ += static_cast<uint64_t>(std::count(buffer_.data() + counted_, buffer_.data() + at, '\n'));
    counted_ = at;
    return line_;
  }
  return line_ - static_cast<uint64_t>(std::count(buffer_.data() + at, buffer_.data() + counted_, '\n'));
}

void Scanner::scan(const std::string& name, const ReadBytes& read) {
  name_ = name;
  held_ = done_ = counted_ = 0;
  line_ = 1;
  covered_ = 0;
  for (bool end = false; !end;) {
    while (held_ < buffer_.size()) {
      const size_t got = read(buffer_.data() + held_, buffer_.size() - held_);
      if (got == 0) {
        end = true;
        break;
      }
      held_ += got;
      findings_.bytes += got;
    }
    search(end ? held_ : held_ - kAround);
    // What stays is what a hit after it may look back on.
    const size_t drop = done_ > kAround ? done_ - kAround : 0;
    line_number(std::max(counted_, drop));
    std::memmove(buffer_.data(), buffer_.data() + drop, held_ - drop);
    held_ -= drop;
    done_ -= drop;
    counted_ -= drop;
  }
  if (held_ > 0) findings_.lines += line_number(held_) - (buffer_[held_ - 1] == '\n' ? 1 : 0);
}

void Scanner::scan_config(const std::string& name, std::string_view text) {
  name_ = name;
  for (size_t i = 0; i < watched_.size(); ++i) {
    Watched& w = watched_[i];
    if (w.kind != Kind::context || !w.active) continue;
    const Sought& match = knowledge_.contexts[w.number].match;
    re2::StringPiece found;
    if (!re2::RE2::PartialMatch({text.data(), text.size()}, *match.pattern)) continue;
    for (Span line = line_at(text, 0); line.begin < text.size(); line = line_after(text, line)) {
      const std::string clean = clean_line(line.of(text)).text;
      if (!match.in(clean)) continue;
      const auto number = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(line.begin), '\n');
      findings_.contexts.push_back({w.number, {name_, static_cast<uint64_t>(number), shown(clean)}});
      retire(i);
      break;
    }
  }
}

// Deals with every hit before `limit`.
void Scanner::search(size_t limit) {
  std::vector<size_t> found;
  std::vector<size_t> watched;
  while (done_ < limit) {
    if (stale_) arm();
    const size_t at = needles_->find(window(), done_, found);
    if (at >= limit) break;
    watched.clear();
    for (const size_t needle : found) {
      for (const size_t w : watched_by_[needle]) watched.push_back(w);
    }
    look_at(at, watched);
    done_ = at + 1;
  }
  done_ = std::max(done_, limit);
}

void Scanner::look_at(size_t at, const std::vector<size_t>& watched) {
  const Span span = line_at(window(), at);
  const CleanLine clean = clean_line(span.of(window()));
  const Surroundings around{window(), [this](const Span& line, std::string_view text) {
                              return LineRef{name_, line_number(line.begin), shown(text)};
                            }};
  for (const size_t i : watched) {
    Watched& w = watched_[i];
    ++w.hits;
    switch (w.kind) {
      case Kind::traceback:
        add(read_traceback(knowledge_, around, span));
        ++w.matches;
        break;
      case Kind::context:
        if (!knowledge_.contexts[w.number].match.in(clean.text)) break;
        findings_.contexts.push_back({w.number, around.name(span, clean.text)});
        retire(i);
        break;
      case Kind::version:
        if (!knowledge_.versions[w.number].in(clean.text)) break;
        ++w.matches;
        note_versions(knowledge_.versions[w.number], clean.text, around.name(span, clean.text));
        break;
      case Kind::sign:
        // A line of a message that a traceback has led to is known already.
        if (line_number(span.begin) <= covered_ || !knowledge_.signs[w.number].match.in(clean.text)) break;
        add(read_text(knowledge_, around, span));
        ++w.matches;
        break;
    }
    if (w.matches > kMostMatches || (w.kind != Kind::sign && w.hits - w.matches > kMostMisses)) retire(i);
  }
}

void Scanner::note_versions(const Sought& form, const std::string& text, const LineRef& at) {
  re2::StringPiece rest(text);
  std::string package;
  std::string version;
  while (findings_.versions.size() < kMostVersions &&
         re2::RE2::FindAndConsume(&rest, *form.pattern, &package, &version)) {
    std::ranges::transform(package, package.begin(),
                           [](unsigned char c) { return c == '_' || c == ' ' ? '-' : std::tolower(c); });
    if (package == "pytorch") package = "torch";
    if (package == "liger") package = "liger-kernel";
    const auto same = [&](const SeenVersion& v) { return v.package == package && v.version == version; };
    if (std::ranges::none_of(findings_.versions, same)) findings_.versions.push_back({package, version, at});
  }
}

// The same text again, of another rank or attempt, is counted, not kept.
void Scanner::add(Incident incident) {
  covered_ = std::max(covered_, incident.last_line);
  const auto same = [&](const Incident& known) {
    return known.at.log == incident.at.log && known.type == incident.type && known.signs == incident.signs &&
           known.at.text == incident.at.text;
  };
  if (const auto at = std::ranges::find_if(findings_.incidents, same); at != findings_.incidents.end()) {
    ++at->repeats;
  } else if (findings_.incidents.size() < kMostIncidents) {
    findings_.incidents.push_back(std::move(incident));
  }
}

}  // namespace regather::repro
