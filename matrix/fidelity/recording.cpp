#include "matrix/fidelity/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/embedded.h"
#include "base/error.h"

namespace regather {
const std::vector<EmbeddedFile>& embedded_recordings();
}

namespace regather::matrix {
namespace {

using Json = nlohmann::ordered_json;
using Parsed = nlohmann::json;

constexpr size_t kLongestText = 200;

// Digits after each of these words are the rows of a chunk, which differ between implementations.
constexpr std::string_view kRows[] = {"got input (", "mat ("};

std::string masked(std::string text) {
  for (const std::string_view word : kRows) {
    const size_t begin = text.find(word);
    if (begin == std::string::npos) continue;
    const size_t first = begin + word.size();
    const size_t last = text.find_first_not_of("0123456789", first);
    if (last != std::string::npos && last > first) text.replace(first, last - first, "N");
  }
  return text;
}

Json cut(Json signature) {
  for (const char* key : {"text", "upstream"}) {
    Json& text = signature.at(key);
    if (text.is_string())
      text = text.get<std::string>().substr(0, text.get<std::string>().find('\n')).substr(0, kLongestText);
  }
  return signature;
}

// What of the gradients is compared (agreement.h), to the digits that matter there.
constexpr const char* kGradients[] = {"compared", "worst",      "relative_l2", "tolerance",
                                      "missing",  "unexpected", "nonfinite"};

double rounded(double number) { return std::isfinite(number) ? std::stod(fmt::format("{:.7g}", number)) : number; }

Json print_gradients(const Json& gradients) {
  Json part;
  for (const char* key : kGradients) part[key] = gradients.at(key);
  if (part["relative_l2"].is_number()) part["relative_l2"] = rounded(part["relative_l2"].get<double>());
  return part;
}

// Another rank's copy of the same failure says nothing more.
bool repeats(const Json& later, const Json& outcome, const Json& signature) {
  if (signature.is_null() || later.at("outcome") != outcome) return false;
  const Json& s = later.at("signature");
  return s.at("phase") == signature.at("phase") && s.at("step") == signature.at("step");
}

Json print_cell(const RecordedCell& cell) {
  const Json whole = to_json(cell.real);
  Json json{{"id", whole.at("id")}};
  if (!cell.built_in.empty()) json["built_in"] = cell.built_in;
  json["outcome"] = whole.at("outcome");
  json["signature"] = whole.at("signature").is_null() ? Json() : cut(whole.at("signature"));
  json["also"] = Json::array();
  for (const Json& later : whole.at("also")) {
    if (repeats(later, whole.at("outcome"), whole.at("signature"))) continue;
    json["also"].push_back({{"outcome", later.at("outcome")}, {"signature", cut(later.at("signature"))}});
  }
  json["gradients"] = whole.at("gradients").is_null() ? Json() : print_gradients(whole.at("gradients"));
  json["loss"] = whole.at("loss");
  json["runtime_relative_l2"] = cell.runtime_l2 ? Json(rounded(*cell.runtime_l2)) : Json();
  json["milliseconds"] = std::round(cell.real.milliseconds);
  return json;
}

RecordedCell parse_cell(const Parsed& json) {
  const Case c = parse_id(json.at("id").get<std::string>());
  // The rest of a line of cases.jsonl, so that one reader checks both.
  CaseResult empty;
  empty.which = c;
  Parsed line = to_json(empty);
  for (const char* key : {"outcome", "signature", "also", "loss", "milliseconds"}) line[key] = json.at(key);
  if (const Parsed& gradients = json.at("gradients"); !gradients.is_null()) {
    empty.gradients.emplace();
    line["gradients"] = Parsed(to_json(empty)).at("gradients");
    for (const char* key : kGradients) line["gradients"][key] = gradients.at(key);
  }
  RecordedCell cell;
  cell.real = result_from_json(line);
  cell.built_in = json.value("built_in", Fixes{});
  std::ranges::sort(cell.built_in);
  if (const Parsed& apart = json.at("runtime_relative_l2"); !apart.is_null()) cell.runtime_l2 = apart.get<double>();
  cell.runtime_case();
  return cell;
}

}  // namespace

Case RecordedCell::runtime_case() const {
  Case c = real.which;
  for (const std::string& fix : built_in) {
    if (!c.has(fix)) c.fixes.push_back(fix);
  }
  std::ranges::sort(c.fixes);
  return parse_id(id(c));  // refuses what is no case
}

RecordedCell cell_of(const CaseResult& result, std::string_view line) {
  RecordedCell cell;
  cell.real = result;
  const Parsed json = Parsed::parse(line, nullptr, false);
  if (json.is_object()) cell.built_in = json.value("built_in", Fixes{});
  if (const auto apart = result.counters.find("runtime_relative_l2"); apart != result.counters.end()) {
    cell.runtime_l2 = apart->second;
  }
  return cell;
}

Recording parse_recording(const std::string& name, std::string_view text) {
  Recording recording;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.empty()) continue;
    try {
      const Parsed json = Parsed::parse(line);
      if (recording.header.empty()) {
        if (json.at("recording") != 1) throw UsageError("'recording': expected 1");
        json.at("set").get_to(recording.set);
        recording.header = line;
        continue;
      }
      recording.cells.push_back(parse_cell(json));
    } catch (const std::exception& e) {
      throw UsageError(fmt::format("recording '{}', line {}: {}", name, number, e.what()));
    }
  }
  if (recording.header.empty()) throw UsageError(fmt::format("recording '{}' is empty: expected a header line", name));
  return recording;
}

std::string print_recording(const std::string& set, const Json& environment, const std::vector<RecordedCell>& cells) {
  const auto print = [](const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; };
  std::string text = print(
      {{"recording", 1}, {"set", set}, {"python", environment.at("python")}, {"packages", environment.at("packages")}});
  for (const RecordedCell& cell : cells) text += print(print_cell(cell));
  return text;
}

std::vector<Recording> known_recordings() {
  std::vector<Recording> list;
  for (const EmbeddedFile& file : embedded_recordings()) {
    list.push_back(parse_recording(std::string(file.name), file.text));
  }
  return list;
}

std::string first_words(std::string_view text) {
  return masked(std::string(text.substr(0, text.find('\n')).substr(0, kLongestText)));
}

}  // namespace regather::matrix
