#include "repro/entry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "case/fixes.h"
#include "case/mechanism.h"
#include "matrix/judge/members.h"

namespace regather::repro {
namespace {

using Json = nlohmann::json;
using matrix::Members;

constexpr std::array kStatuses{"reproduced", "recognised", "refuted", "open"};

Status parse_status(Members& in) {
  const auto at = std::ranges::find(kStatuses, in.text("status"));
  if (at == kStatuses.end()) in.fail("status", "reproduced, recognised, refuted or open");
  return static_cast<Status>(at - kStatuses.begin());
}

Pattern parse_pattern(Members& in) {
  Pattern pattern;
  if (const std::string outcome = in.text_or_empty("outcome"); !outcome.empty()) {
    pattern.outcome = parse_outcome(outcome);
  }
  if (const std::string phase = in.text_or_empty("phase"); !phase.empty()) pattern.phase = parse_phase(phase);
  pattern.mechanism = in.text_or_empty("mechanism");
  if (!pattern.mechanism.empty()) find_mechanism(pattern.mechanism);
  pattern.type = in.text_or_empty("type");
  pattern.text = in.text_or_empty("text");
  in.nothing_else();
  if (!pattern.outcome && !pattern.phase && pattern.mechanism.empty() && pattern.type.empty() && pattern.text.empty()) {
    throw UsageError("'signatures': a signature that gives nothing would match everything");
  }
  return pattern;
}

VersionClaim parse_claim(Members& in) {
  const std::string range = in.text("range");
  VersionClaim claim{.package = in.text("package"),
                     .range = range,
                     .parsed = matrix::VersionRange(range),
                     .cause = in.text("cause"),
                     .measured = in.text("source") == "measured"};
  if (!claim.measured && in.text("source") != "cited") in.fail("source", "cited or measured");
  in.nothing_else();
  return claim;
}

Workaround parse_workaround(Members& in) {
  Workaround workaround{.what = in.text("what"), .price = in.text("price")};
  in.nothing_else();
  return workaround;
}

LogSign parse_log_sign(Members& in) {
  LogSign sign{.signature = in.text("signature"), .tells = in.texts("tells")};
  in.nothing_else();
  return sign;
}

template <class Parse>
auto parse_all(Members& in, const char* key, Parse parse) {
  std::vector<decltype(parse(in))> result;
  for (Members& element : in.objects(key)) result.push_back(parse(element));
  return result;
}

void parse_axes(Members in, Entry& entry) {
  for (const Axis& axis : axes()) {
    if (in.find(axis.name.c_str()) == nullptr) continue;
    const std::vector<std::string> values = in.texts(axis.name.c_str());
    Case scratch;
    for (const std::string& value : values) set_axis(scratch, axis.name, value);
    entry.axes.emplace_back(axis.name, values);
  }
  in.nothing_else();
}

std::vector<Case> parse_cases(Members& in, const char* key) {
  std::vector<Case> result;
  for (const std::string& text : in.texts(key)) result.push_back(parse_id(text));
  return result;
}

void check_cases(const Entry& entry) {
  const bool any = !entry.without.empty() || !entry.with.empty() || !entry.control.empty();
  switch (entry.status) {
    case Status::reproduced:
      if (entry.without.empty()) throw UsageError("'cases.without': expected a case, since the status is reproduced");
      if (entry.signatures.empty()) throw UsageError("'signatures': expected one, since the status is reproduced");
      if (entry.with.size() != entry.without.size()) {
        throw UsageError(fmt::format("'cases.with' has {} cases: expected {}, one for each of 'cases.without'",
                                     entry.with.size(), entry.without.size()));
      }
      for (size_t i = 0; i < entry.with.size(); ++i) {
        if (entry.with[i] == entry.without[i]) {
          throw UsageError(fmt::format("'cases.with[{}]': the same as without, '{}'", i, id(entry.with[i])));
        }
      }
      break;
    case Status::recognised:
      if (any) throw UsageError("'cases': expected none, since the status is recognised");
      if (entry.logs.empty()) throw UsageError("'logs': expected one, since the status is recognised");
      break;
    case Status::refuted:
      if (entry.without.empty()) throw UsageError("'cases.without': expected a case, since the status is refuted");
      [[fallthrough]];
    case Status::open:
      if (!entry.with.empty()) {
        throw UsageError(fmt::format("'cases.with': expected none, since the status is {}", name(entry.status)));
      }
  }
}

Entry read(const Json& json) {
  Members in(json, "");
  if (in.member("schema") != 1) in.fail("schema", "1");
  Entry entry;
  entry.id = in.text("id");
  entry.aliases = in.texts("aliases");
  entry.title = in.text("title");
  entry.status = parse_status(in);
  entry.why = in.text("why");
  entry.mechanisms = in.texts("mechanisms");
  for (const std::string& mechanism : entry.mechanisms) find_mechanism(mechanism);
  parse_axes(Members(in.member("axes"), "axes."), entry);
  entry.versions = parse_all(in, "versions", parse_claim);
  entry.symptom = in.text("symptom");
  entry.upstream = in.text_or_empty("upstream");
  entry.signatures = parse_all(in, "signatures", parse_pattern);
  entry.logs = parse_all(in, "logs", parse_log_sign);
  entry.workarounds = parse_all(in, "workarounds", parse_workaround);
  entry.references = in.texts("references");
  Members cases(in.member("cases"), "cases.");
  entry.without = parse_cases(cases, "without");
  entry.with = parse_cases(cases, "with");
  entry.control = parse_cases(cases, "control");
  cases.nothing_else();
  in.nothing_else();
  check_cases(entry);
  return entry;
}

}  // namespace

const char* name(Status status) { return kStatuses.at(static_cast<size_t>(status)); }

bool Pattern::matches(const CaseResult& result) const {
  if (outcome && *outcome != result.outcome) return false;
  const bool asks_signature = phase || !mechanism.empty() || !type.empty() || !text.empty();
  if (!result.signature) return !asks_signature;
  const Signature& s = *result.signature;
  return (!phase || *phase == s.phase) && (mechanism.empty() || mechanism == s.mechanism) &&
         (type.empty() || type == s.type) && s.text.find(text) != std::string::npos;
}

Entry parse_entry(const std::string& name, std::string_view text) {
  try {
    return read(Json::parse(text));
  } catch (const Json::exception& e) {
    throw UsageError(fmt::format("register entry '{}': not JSON: {}", name, e.what()));
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("register entry '{}': {}", name, e.what()));
  }
}

std::string repair(const Case& without, const Case& with) {
  std::vector<std::string> parts;
  const std::vector<AxisValue> before = axis_values(without);
  const std::vector<AxisValue> after = axis_values(with);
  for (size_t i = 0; i < after.size(); ++i) {
    if (before[i].value != after[i].value) parts.push_back(after[i].axis + "=" + after[i].value);
  }
  Fixes added;
  std::ranges::set_difference(with.fixes, without.fixes, std::back_inserter(added));
  if (!added.empty()) parts.push_back(print_fixes(added));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace regather::repro
