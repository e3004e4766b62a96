#include "matrix/judge/expectation.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <charconv>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "case/mechanism.h"
#include "matrix/judge/json_list.h"
#include "matrix/judge/members.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::json;

constexpr size_t kLongestPattern = 1000;
constexpr int64_t kPatternMemory = 1 << 20;

// YYYY-MM-DD of a day that there is.
std::string date(Members& in, const char* key) {
  std::string text = in.text(key);
  const auto digits = [&](size_t begin, size_t count) {
    int number = -1;
    const char* first = text.data() + begin;
    const auto [end, error] = std::from_chars(first, first + count, number);
    return error == std::errc() && end == first + count ? number : -1;
  };
  if (text.size() == 10 && text[4] == '-' && text[7] == '-') {
    const int year = digits(0, 4);
    const int month = digits(5, 2);
    const int day = digits(8, 2);
    const bool numbers = year >= 0 && month >= 0 && day >= 0;
    if (numbers && (std::chrono::year(year) / month / day).ok()) return text;
  }
  in.fail(key, "a date as in 2026-12-31");
}

std::shared_ptr<const re2::RE2> compile(const std::string& text) {
  if (text.size() > kLongestPattern) {
    throw UsageError(fmt::format("'signature.text' has {} characters: at most {}", text.size(), kLongestPattern));
  }
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kPatternMemory);
  auto pattern = std::make_shared<const re2::RE2>(text, options);
  if (!pattern->ok()) {
    throw UsageError(fmt::format("'signature.text' is no regular expression (RE2): {}", pattern->error()));
  }
  return pattern;
}

ExpectedSignature parse_signature(const Json& json) {
  Members in(json, "signature.");
  ExpectedSignature signature;
  if (!in.member("mechanism").is_null()) {
    signature.mechanism = in.text("mechanism");
    find_mechanism(signature.mechanism);
  }
  signature.phase = parse_phase(in.text("phase"));
  signature.type = in.text_or_empty("type");
  signature.text = in.text_or_empty("text");
  if (!signature.text.empty()) signature.pattern = compile(signature.text);
  in.nothing_else();
  return signature;
}

// Whether a failure with this outcome says where and why; a worker that has died may not.
bool speaks(Outcome outcome) {
  return outcome == Outcome::wrong_gradient || outcome == Outcome::nonfinite || outcome == Outcome::error ||
         outcome == Outcome::invariant;
}

void parse_selector(Members& in, Expectation& to) {
  const std::string filter = in.text_or_empty("select");
  const std::string one = in.text_or_empty("case");
  if (filter.empty() == one.empty()) throw UsageError("expected either 'select', a filter, or 'case', an id");
  to.selector = filter.empty() ? one : filter;
  to.selects =
      filter.empty() ? Filter([c = parse_id(one)](const Case& other) { return other == c; }) : parse_filter(filter);
}

Expectation parse_entry(const Json& json) {
  Members in(json, "");
  Expectation entry;
  parse_selector(in, entry);
  entry.outcome = parse_outcome(in.text("outcome"));
  if (entry.outcome == Outcome::unsupported || entry.outcome == Outcome::notrun) {
    throw UsageError(fmt::format("'outcome' is {}: expected what a case that has run can do", name(entry.outcome)));
  }
  if (const Json* signature = in.find("signature")) entry.signature = parse_signature(*signature);
  if (entry.outcome == Outcome::pass && entry.signature) throw UsageError("'signature': a pass has none");
  if (speaks(entry.outcome) && !entry.signature) {
    throw UsageError(fmt::format("'signature' is absent: outcome {} needs one", name(entry.outcome)));
  }
  entry.issues = in.texts("issues");
  entry.reason = in.text("reason");
  entry.since = date(in, "since");
  if (in.find("review_by") != nullptr) entry.review_by = date(in, "review_by");
  if (const Json* when = in.find("when")) entry.when = parse_conditions(*when);
  in.nothing_else();
  return entry;
}

}  // namespace

bool ExpectedSignature::matches(const Signature& signature) const {
  return signature.mechanism == mechanism && signature.phase == phase && (type.empty() || signature.type == type) &&
         (!pattern || re2::RE2::PartialMatch(signature.text, *pattern));
}

bool Expectation::met_by(const CaseResult& result) const {
  if (result.outcome != outcome) return false;
  return !signature || (result.signature && signature->matches(*result.signature));
}

Expectations parse_expectations(const std::string& file, std::string_view text) {
  Expectations expectations;
  expectations.file = file;
  std::string where = fmt::format("expectations '{}'", file);
  try {
    const JsonList list = read_json_list(text, "expectations");
    Members in(list.head, "");
    if (in.member("schema") != 1) in.fail("schema", "1");
    expectations.about = in.text("about");
    expectations.definition = in.text("definition");
    if (const Json* complete = in.find("complete")) {
      if (!complete->is_boolean()) in.fail("complete", "true or false");
      expectations.complete = complete->get<bool>();
    }
    in.member("expectations");
    in.nothing_else();
    for (const ListElement& element : list.elements) {
      const size_t number = expectations.entries.size() + 1;
      where = fmt::format("expectations '{}', line {}, entry {}", file, element.line, number);
      Expectation entry = parse_entry(Json::parse(element.text));
      entry.where = fmt::format("{}:{} (entry {}, '{}')", file, element.line, number, entry.selector);
      expectations.entries.push_back(std::move(entry));
    }
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("{}: {}", where, e.what()));
  }
  return expectations;
}

std::string print_expected(const Expectation& expectation) {
  std::string text = name(expectation.outcome);
  if (!expectation.signature) return text;
  const ExpectedSignature& s = *expectation.signature;
  text += fmt::format(" in {} [{}]", name(s.phase), s.mechanism.empty() ? "no mechanism" : s.mechanism);
  if (!s.type.empty()) text += ", type " + s.type;
  if (!s.text.empty()) text += ", text /" + s.text + "/";
  return text;
}

}  // namespace regather::matrix
