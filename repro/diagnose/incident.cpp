#include "repro/diagnose/incident.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "repro/diagnose/fixed_pattern.h"

namespace regather::repro {
namespace {

constexpr size_t kMostFrames = 400;     // lines of a traceback
constexpr size_t kMostBefore = 80;      // lines that stand for frames
constexpr size_t kMostMessage = 60;     // lines of a message
constexpr size_t kMostStray = 40;       // lines of others inside a traceback
constexpr size_t kFarthest = 60 << 10;  // bytes from the line of interest
constexpr size_t kLongestFrame = 1 << 10;
constexpr size_t kLongestMessage = 16 << 10;

struct Piece {
  Span span;
  CleanLine clean;
};

bool matches(const std::string& text, const re2::RE2& pattern) { return re2::RE2::PartialMatch(text, pattern); }

// "RuntimeError: ...", "torch.OutOfMemoryError", "subprocess.CalledProcessError: ...".
bool is_exception(const std::string& text, std::string* type = nullptr) {
  static const FixedPattern pattern(
      R"(^((?:[A-Za-z_]\w*\.)*_?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Iteration|Warning|Unsupported|Failure|Failed|Abort|Timeout|Group)|)"
      R"((?:[a-z_]\w*\.)+[A-Z]\w*)(?::(?:\s|$)|\s*$))");
  return type == nullptr ? re2::RE2::PartialMatch(text, pattern) : re2::RE2::PartialMatch(text, pattern, type);
}

bool is_frame(const std::string& text) {
  if (text.empty()) return false;
  // Boxes, as rich draws them, begin with E2 94 or E2 95.
  const bool box = text.size() > 2 && text[0] == '\xe2' && (text[1] == '\x94' || text[1] == '\x95');
  return text[0] == ' ' || text[0] == '\t' || text[0] == '|' || box;
}

bool ends_message(const std::string& text) {
  static const FixedPattern pattern(
      R"(^(?:During handling of the above|The above exception was the direct|Exception ignored in|[EWI]\d{4} \d\d:|)"
      R"(\[?(?:INFO|WARNING|ERROR|DEBUG)[\]:| ]|wandb:|\s*\d{1,3}%\|)|Traceback \(most recent call last\))");
  return matches(text, pattern) || is_exception(text);
}

// Behind a carriage return the source is that of the whole line.
Piece piece_at(std::string_view text, const Span& span) {
  Piece piece{span, clean_line(span.of(text))};
  Span whole = span;
  while (piece.clean.source.empty() && whole.begin > 0 && text[whole.begin - 1] == '\r' &&
         span.begin - whole.begin < kLongestLine) {
    whole = line_before(text, whole);
    piece.clean.source = clean_line(whole.of(text)).source;
  }
  return piece;
}

// The message that begins at `first`: the lines of its source after it, to the next thing.
std::vector<Piece> read_message(std::string_view text, Piece first) {
  const std::string source = first.clean.source;
  const size_t begin = first.span.begin;
  std::vector<Piece> message{std::move(first)};
  size_t size = message[0].clean.text.size();
  bool blank = false;
  for (Span span = line_after(text, message[0].span); span.begin < text.size() && span.begin - begin < kFarthest;
       span = line_after(text, span)) {
    Piece piece = piece_at(text, span);
    if (piece.clean.source != source) continue;
    if (piece.clean.text.empty()) {
      if (std::exchange(blank, true)) break;
      continue;
    }
    size += piece.clean.text.size();
    if (ends_message(piece.clean.text) || message.size() == kMostMessage || size > kLongestMessage) break;
    blank = false;
    message.push_back(std::move(piece));
  }
  return message;
}

// The last line of progress before the incident, if its source wrote it.
uint64_t progress_before(const Surroundings& around, const Span& line, const std::string& source) {
  static const FixedPattern pattern(R"('loss': |[0-9]it/s|[0-9]s/it|(?i:\bstep[ =:]+[0-9]+|\biteration\s+[0-9]+))");
  const size_t from = line.begin > kFarthest ? line.begin - kFarthest : 0;
  const std::string_view before = around.text.substr(from, line.begin - from);
  re2::StringPiece rest(before.data(), before.size());
  size_t last = std::string_view::npos;
  while (re2::RE2::FindAndConsume(&rest, pattern)) last = before.size() - rest.size();
  if (last == std::string_view::npos) return 0;
  const Span span = line_at(around.text, from + last - 1);
  return clean_line(span.of(around.text)).source == source ? around.name(span, {}).line : 0;
}

void note_near(const Knowledge& knowledge, const Surroundings& around, const std::vector<const Piece*>& pieces,
               Incident& to) {
  std::string all;
  for (const Piece* piece : pieces) {
    all.append(piece->clean.text, 0, kLongestFrame);
    all += '\n';
  }
  for (size_t i = 0; i < knowledge.contexts.size(); ++i) {
    const Sought& match = knowledge.contexts[i].match;
    if (!match.in(all)) continue;
    const auto at = std::ranges::find_if(pieces, [&](const Piece* piece) { return match.in(piece->clean.text); });
    if (at != pieces.end()) to.near.push_back({i, around.name((*at)->span, (*at)->clean.text)});
  }
}

bool is_multiple(const Sign& sign, const std::string& message) {
  int64_t one = 0;
  int64_t many = 0;
  return re2::RE2::PartialMatch(message, *sign.match.pattern, &one, &many) && one > 0 && many % one == 0;
}

// What the message says: which signatures match, in what way the recomputed tensors differ.
Incident make(const Knowledge& knowledge, const Surroundings& around, const std::vector<Piece>& frames,
              const std::vector<Piece>& message) {
  Incident incident;
  incident.at = around.name(message[0].span, message[0].clean.text);
  incident.last_line = around.name(message.back().span, {}).line;
  incident.source = message[0].clean.source;
  for (const Piece& piece : message) incident.message += (incident.message.empty() ? "" : "\n") + piece.clean.text;
  incident.recompute = compare_metadata(incident.message);
  for (size_t i = 0; i < knowledge.signs.size(); ++i) {
    const Sign& sign = knowledge.signs[i];
    const bool recomputed = sign.recompute == Recomputed::unasked || sign.recompute == incident.recompute;
    if (recomputed && sign.match.in(incident.message) && (!sign.multiple || is_multiple(sign, incident.message))) {
      incident.signs.push_back(i);
    }
  }
  is_exception(message[0].clean.text, &incident.type);
  std::vector<const Piece*> pieces;
  for (const Piece& piece : frames) pieces.push_back(&piece);
  for (const Piece& piece : message) pieces.push_back(&piece);
  note_near(knowledge, around, pieces, incident);
  incident.progress_before =
      progress_before(around, frames.empty() ? message[0].span : frames[0].span, incident.source);
  return incident;
}

// A text that is known is taken for the exception though its type does not stand before it.
bool is_known(const Knowledge& knowledge, const std::string& text) {
  return std::ranges::any_of(knowledge.signs,
                             [&](const Sign& sign) { return sign.kind == SignKind::error && sign.match.in(text); });
}

// The last line before this one that its source wrote and that is not empty.
std::string text_before(std::string_view text, Span line, const std::string& source) {
  for (size_t i = 0; i < kMostStray && line.begin > 0; ++i) {
    line = line_before(text, line);
    CleanLine clean = clean_line(line.of(text));
    if (clean.source == source && !clean.text.empty()) return clean.text;
  }
  return {};
}

}  // namespace

Incident read_traceback(const Knowledge& knowledge, const Surroundings& around, const Span& line) {
  const std::string_view text = around.text;
  std::vector<Piece> frames{piece_at(text, line)};
  const std::string source = frames[0].clean.source;
  size_t strays = 0;
  for (Span span = line_after(text, line); span.begin < text.size() && span.begin - line.begin < kFarthest;
       span = line_after(text, span)) {
    Piece piece = piece_at(text, span);
    if (piece.clean.source != source || piece.clean.text.empty()) continue;
    if (is_exception(piece.clean.text) || (!is_frame(piece.clean.text) && is_known(knowledge, piece.clean.text))) {
      Incident incident = make(knowledge, around, frames, read_message(text, std::move(piece)));
      incident.traceback = true;
      const std::string before = text_before(text, line, source);
      incident.ignored = before.find("Exception ignored in") != std::string::npos;
      incident.chained = before.starts_with("During handling of the above exception") ||
                         before.starts_with("The above exception was the direct cause");
      return incident;
    }
    const bool frame = is_frame(piece.clean.text) || piece.clean.text.find("Traceback (most") != std::string::npos;
    if (!frame && ++strays > kMostStray) break;
    if (frame && frames.size() < kMostFrames) frames.push_back(std::move(piece));
  }
  Incident incident = make(knowledge, around, frames, {frames[0]});
  incident.last_line = around.name(frames.back().span, {}).line;
  incident.traceback = true;
  incident.truncated = true;
  return incident;
}

Incident read_text(const Knowledge& knowledge, const Surroundings& around, const Span& line) {
  Piece first = piece_at(around.text, line);
  std::vector<Piece> frames;
  bool traceback = false;
  for (Span span = line_before(around.text, line);
       span.end > 0 && frames.size() < kMostBefore && line.begin - span.begin < kFarthest;
       span = line_before(around.text, span)) {
    Piece piece = piece_at(around.text, span);
    if (piece.clean.source != first.clean.source) continue;
    traceback = traceback || piece.clean.text.starts_with("  File \"");
    frames.push_back(std::move(piece));
    if (span.begin == 0) break;
  }
  std::ranges::reverse(frames);
  Incident incident = make(knowledge, around, frames, read_message(around.text, std::move(first)));
  incident.traceback = traceback;
  return incident;
}

}  // namespace regather::repro
