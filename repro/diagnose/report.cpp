#include "repro/diagnose/report.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

namespace regather::repro {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostOthers = 8;

const char* word(double confidence) {
  return confidence >= 0.85 ? "almost certain" : confidence >= kKnown ? "likely" : "possible";
}

// The first two sentences of an answer: what the mechanism is.
std::string print_versions(const VersionNote& note) {
  if (note.seen == nullptr) return fmt::format("{} {}: no version of it stands in the logs", note.package, note.ranges);
  return fmt::format("{} {}: {} is {} ({}:{})", note.package, note.ranges, note.seen->version,
                     note.affected ? "one of them" : "none of them", note.seen->at.log, note.seen->at.line);
}

std::string print_best(const Knowledge& knowledge, const Candidate& c) {
  const Entry& entry = *c.entry;
  std::string text = fmt::format("{}: {}\n  {} ({:.2f}), mechanism {}\n", entry.id, entry.title, word(c.confidence),
                                 c.confidence, c.sign->mechanism);
  for (size_t i = 0; i < c.evidence.size(); ++i) {
    text += fmt::format("  {:<11} {}:{}  {}\n", i == 0 ? "evidence" : "", c.evidence[i].log, c.evidence[i].line,
                        c.evidence[i].text);
  }
  text += fmt::format("  {:<11} {}\n", "mechanism", knowledge.about(c.sign->mechanism));
  for (size_t i = 0; i < c.versions.size(); ++i) {
    text += fmt::format("  {:<11} {}\n", i == 0 ? "versions" : "", print_versions(c.versions[i]));
  }
  for (size_t i = 0; i < entry.workarounds.size(); ++i) {
    const Workaround& w = entry.workarounds[i];
    text += fmt::format("  {:<11} {} (price: {})\n", i == 0 ? "workarounds" : "", w.what, w.price);
  }
  if (entry.without.empty()) {
    text += fmt::format("  {:<11} none: {}\n", "case", entry.why);
  } else {
    text += fmt::format("  {:<11} {}\n", "case", id(entry.without.front()));
  }
  text += fmt::format("  {:<11} regather repro '{}'\n", "command", entry.id);
  for (const std::string& reference : entry.references) text += fmt::format("  {:<11} {}\n", "", reference);
  return text;
}

std::string print_other(const Candidate& c) {
  return fmt::format("  {:<30} {:.2f}  {}{}\n", c.entry->id, c.confidence, c.entry->title,
                     c.missing.empty() ? "" : fmt::format("; would show {}", fmt::join(c.missing, ", ")));
}

Json to_json(const LineRef& line) { return {{"log", line.log}, {"line", line.line}, {"text", line.text}}; }

Json to_json(const Knowledge& knowledge, const Candidate& c) {
  Json evidence = Json::array();
  for (const LineRef& line : c.evidence) evidence.push_back(to_json(line));
  Json versions = Json::array();
  for (const VersionNote& note : c.versions) {
    versions.push_back({{"package", note.package},
                        {"affected", note.ranges},
                        {"seen", note.seen == nullptr ? Json() : Json(note.seen->version)},
                        {"is_affected", note.seen == nullptr ? Json() : Json(note.affected)}});
  }
  Json workarounds = Json::array();
  for (const Workaround& w : c.entry->workarounds) workarounds.push_back({{"what", w.what}, {"price", w.price}});
  return {{"id", c.entry->id},
          {"mechanism", c.sign->mechanism},
          {"confidence", c.confidence},
          {"evidence", evidence},
          {"about", knowledge.about(c.sign->mechanism)},
          {"title", c.entry->title},
          {"status", name(c.entry->status)},
          {"missing", c.missing},
          {"versions", versions},
          {"workarounds", workarounds},
          {"case", c.entry->without.empty() ? Json() : Json(id(c.entry->without.front()))},
          {"command", fmt::format("regather repro '{}'", c.entry->id)}};
}

}  // namespace

std::string print(const Knowledge& knowledge, const Diagnosis& d) {
  std::string text;
  size_t shown = 0;
  if (!d.unknown) {
    text += print_best(knowledge, d.candidates[shown++]);
  } else if (d.first == nullptr) {
    text += "no known cause: no error stands in the logs\n";
  } else {
    text += fmt::format("no known cause; the first error is {}:{}  {}\n", d.first->at.log, d.first->at.line,
                        d.first->message.substr(0, d.first->message.find('\n')).substr(0, 240));
  }
  if (shown < d.candidates.size()) {
    text += d.unknown ? "possible, not established:\n" : "other issues with these signs:\n";
    for (size_t i = shown; i < d.candidates.size() && i < shown + kMostOthers; ++i)
      text += print_other(d.candidates[i]);
    if (d.candidates.size() > shown + kMostOthers) {
      text += fmt::format("  and {} more (--json)\n", d.candidates.size() - shown - kMostOthers);
    }
  }
  for (const std::string& note : d.notes) text += fmt::format("note: {}\n", note);
  if (!d.collect.empty()) text += "to collect next:\n";
  for (const std::string& item : d.collect) text += fmt::format("  - {}\n", item);
  return text;
}

Json to_json(const Knowledge& knowledge, const Diagnosis& d, const Findings& findings) {
  Json candidates = Json::array();
  for (const Candidate& c : d.candidates) candidates.push_back(to_json(knowledge, c));
  Json versions = Json::array();
  for (const SeenVersion& v : findings.versions) {
    versions.push_back({{"package", v.package}, {"version", v.version}, {"at", to_json(v.at)}});
  }
  return {{"candidates", candidates},
          {"unknown", d.unknown},
          {"first_error", d.first == nullptr ? Json() : to_json(d.first->at)},
          {"notes", d.notes},
          {"collect", d.collect},
          {"versions", versions},
          {"lines", findings.lines},
          {"bytes", findings.bytes}};
}

}  // namespace regather::repro
