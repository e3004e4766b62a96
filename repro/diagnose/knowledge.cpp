#include "repro/diagnose/knowledge.h"

#include <fmt/ranges.h>
#include <re2/filtered_re2.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/embedded.h"
#include "base/error.h"
#include "case/mechanism.h"
#include "matrix/judge/members.h"
#include "repro/diagnose/needles.h"
#include "repro/register.h"

namespace regather {
const std::vector<EmbeddedFile>& embedded_knowledge();
}

namespace regather::repro {
namespace {

using Json = nlohmann::json;
using matrix::Members;

constexpr int64_t kPatternMemory = 512 << 10;
constexpr std::array kKinds{"error", "warning", "symptom"};

re2::RE2::Options options() {
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kPatternMemory);
  return options;
}

// As few and as long literals as there are of which every match holds one.
std::vector<std::string> literals_of(const std::string& text) {
  re2::FilteredRE2 filter(static_cast<int>(Needles::kShortest));
  int number = 0;
  filter.Add(text, options(), &number);
  std::vector<std::string> atoms;
  filter.Compile(&atoms);
  std::vector<bool> kept(atoms.size(), true);
  // Whether a text with none of the kept atoms, and all of the others, cannot match.
  const auto suffice = [&] {
    std::vector<int> others;
    for (size_t i = 0; i < atoms.size(); ++i) {
      if (!kept[i]) others.push_back(static_cast<int>(i));
    }
    std::vector<int> possible;
    filter.AllPotentials(others, &possible);
    return possible.empty();
  };
  if (atoms.empty() || !suffice()) {
    throw UsageError(fmt::format("'{}' can match without any literal of {} bytes, by which logs are searched", text,
                                 Needles::kShortest));
  }
  std::vector<size_t> by_length(atoms.size());
  std::iota(by_length.begin(), by_length.end(), size_t{0});
  std::ranges::sort(by_length, {}, [&](size_t i) { return std::pair(atoms[i].size(), atoms[i]); });
  for (const size_t i : by_length) {
    kept[i] = false;
    if (!suffice()) kept[i] = true;
  }
  std::vector<std::string> literals;
  for (size_t i = 0; i < atoms.size(); ++i) {
    if (kept[i]) literals.push_back(atoms[i]);
  }
  return literals;
}

Sought sought(Members& in, int groups) {
  Sought result{.text = in.text("match"), .pattern = nullptr, .literals = {}};
  result.pattern = std::make_shared<const re2::RE2>(result.text, options());
  if (!result.pattern->ok()) {
    throw UsageError(fmt::format("'{}' is no regular expression (RE2): {}", result.text, result.pattern->error()));
  }
  if (result.pattern->NumberOfCapturingGroups() < groups) {
    throw UsageError(fmt::format("'{}': expected {} groups", result.text, groups));
  }
  result.literals = literals_of(result.text);
  return result;
}

size_t context_number(const Knowledge& k, const std::string& name) {
  const auto at = std::ranges::find(k.contexts, name, &Context::name);
  if (at == k.contexts.end()) throw UsageError(fmt::format("'{}' is not a context", name));
  return static_cast<size_t>(at - k.contexts.begin());
}

std::vector<size_t> contexts(const Knowledge& k, const Json& list) {
  if (!list.is_array()) throw UsageError(fmt::format("'{}': expected a list of contexts", list.dump()));
  std::vector<size_t> numbers;
  for (const Json& name : list) {
    if (!name.is_string()) throw UsageError(fmt::format("'{}': expected the name of a context", name.dump()));
    numbers.push_back(context_number(k, name.get<std::string>()));
  }
  return numbers;
}

ContextSets context_sets(const Knowledge& k, Members& in, const char* key) {
  const Json* list = in.find(key);
  if (list == nullptr) return {};
  if (!list->is_array()) in.fail(key, "a list of lists of contexts");
  ContextSets sets;
  for (const Json& set : *list) sets.push_back(contexts(k, set));
  return sets;
}

double share(Members& in, const char* key) {
  const Json& value = in.member(key);
  if (!value.is_number() || value.get<double>() < 0 || value.get<double>() > 1) in.fail(key, "a number from 0 to 1");
  return value.get<double>();
}

Sign parse_sign(const Knowledge& k, Members& in) {
  Sign sign;
  sign.name = in.text("name");
  const auto kind = std::ranges::find(kKinds, in.text("kind"));
  if (kind == kKinds.end()) in.fail("kind", "error, warning or symptom");
  sign.kind = static_cast<SignKind>(kind - kKinds.begin());
  sign.mechanism = in.text_or_empty("mechanism");
  if (!sign.mechanism.empty()) {
    find_mechanism(sign.mechanism);
    if (k.about(sign.mechanism).empty()) throw UsageError(fmt::format("'mechanisms' lacks {}", sign.mechanism));
  } else if (sign.kind != SignKind::symptom) {
    throw UsageError("'mechanism' is absent: only a symptom may have none");
  }
  if (const Json* multiple = in.find("multiple")) sign.multiple = *multiple == true;
  sign.match = sought(in, sign.multiple ? 2 : 0);
  if (const std::string how = in.text_or_empty("recompute"); !how.empty()) sign.recompute = parse_recomputed(how);
  sign.near = context_sets(k, in, "near");
  sign.needs = context_sets(k, in, "needs");
  if (const Json* unless = in.find("unless")) sign.unless = contexts(k, *unless);
  sign.confidence = share(in, "confidence");
  sign.alone = share(in, "alone");
  sign.bare = share(in, "bare");
  in.nothing_else();
  return sign;
}

template <class Parse>
void parse_each(Members& in, const char* key, Parse parse) {
  for (Members& element : in.objects(key)) {
    try {
      parse(element);
    } catch (const UsageError& e) {
      throw UsageError(fmt::format("{}: {}", key, e.what()));
    }
  }
}

Knowledge read(const Json& json) {
  Members in(json, "");
  if (in.member("schema") != 1) in.fail("schema", "1");
  Knowledge k;
  const Json& mechanisms = in.member("mechanisms");
  Members about(mechanisms, "mechanisms.");
  for (const auto& [name, text] : mechanisms.items()) {
    find_mechanism(name);
    k.mechanisms.emplace_back(name, about.text(name.c_str()));
  }
  parse_each(in, "contexts", [&](Members& c) {
    k.contexts.push_back({.name = c.text("name"), .what = c.text("what"), .match = sought(c, 0)});
    c.nothing_else();
  });
  parse_each(in, "versions", [&](Members& v) {
    k.versions.push_back(sought(v, 2));
    v.nothing_else();
  });
  parse_each(in, "advice", [&](Members& a) {
    k.advice.push_back({.when = contexts(k, a.member("when")), .collect = a.text("collect")});
    a.nothing_else();
  });
  parse_each(in, "signatures", [&](Members& s) { k.signs.push_back(parse_sign(k, s)); });
  in.nothing_else();
  return k;
}

void check_register(const Knowledge& k) {
  for (const Entry& entry : known_entries()) {
    for (const LogSign& log : entry.logs) {
      const Sign* sign = k.find_sign(log.signature);
      const auto fail = [&](const std::string& what) {
        throw UsageError(fmt::format("register entry '{}': signature '{}' {}", entry.id, log.signature, what));
      };
      if (sign == nullptr) fail("is not in repro/diagnose/knowledge.json");
      if (!sign->mechanism.empty() && std::ranges::find(entry.mechanisms, sign->mechanism) == entry.mechanisms.end()) {
        fail(fmt::format("is of {}, which the entry does not have", sign->mechanism));
      }
      for (const std::string& tell : log.tells) context_number(k, tell);
    }
  }
}

}  // namespace

bool Sought::in(std::string_view line) const { return re2::RE2::PartialMatch({line.data(), line.size()}, *pattern); }

const std::string& Knowledge::about(std::string_view mechanism) const {
  static const std::string nothing;
  const auto at = std::ranges::find(mechanisms, mechanism, [](const auto& m) { return std::string_view(m.first); });
  return at == mechanisms.end() ? nothing : at->second;
}

const Sign* Knowledge::find_sign(std::string_view name) const {
  const auto at = std::ranges::find(signs, name, [](const Sign& s) { return std::string_view(s.name); });
  return at == signs.end() ? nullptr : &*at;
}

Knowledge parse_knowledge(std::string_view text) {
  try {
    return read(Json::parse(text));
  } catch (const Json::exception& e) {
    throw UsageError(fmt::format("knowledge of logs: not JSON: {}", e.what()));
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("knowledge of logs: {}", e.what()));
  }
}

const Knowledge& knowledge() {
  static const Knowledge k = [] {
    Knowledge parsed = parse_knowledge(embedded_knowledge().front().text);
    check_register(parsed);
    return parsed;
  }();
  return k;
}

}  // namespace regather::repro
