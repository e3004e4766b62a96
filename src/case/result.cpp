#include "case/result.h"

#include <fmt/ranges.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"

namespace regather {
namespace {

using Json = nlohmann::ordered_json;  // written: members stay in order
using Parsed = nlohmann::json;        // read: a hostile line with many members stays quick to look up in

constexpr int kSchema = 1;
constexpr std::array kOutcomes{"pass", "wrong_gradient", "nonfinite",   "error",     "hang",  "crash",
                               "oom",  "invariant",      "unsupported", "unchecked", "notrun"};
constexpr std::array kPhases{"build", "forward", "backward", "gradients", "step", "invariant"};

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json write(const Where& w) {
  if (w == Where{}) return nullptr;
  return {{"module", or_null(w.module)}, {"parameter", or_null(w.parameter)}, {"collective", or_null(w.collective)}};
}

Json write(const Signature& s) {
  return {{"mechanism", or_null(s.mechanism)},
          {"phase", name(s.phase)},
          {"step", s.step},
          {"rank", s.rank},
          {"type", s.type},
          {"text", s.text},
          {"upstream", or_null(s.upstream)},
          {"where", write(s.where)}};
}

Json write(const Departure& d) { return {{"outcome", name(d.outcome)}, {"signature", write(d.signature)}}; }

Json write(const GradientSummary& g) {
  return {{"compared", g.compared},
          {"worst", g.worst},
          {"relative_l2", g.relative_l2},
          {"cosine", g.cosine},
          {"tolerance", g.tolerance},
          {"share", g.share},
          {"max_abs", g.max_abs},
          {"at", g.at},
          {"got", g.got},
          {"want", g.want},
          {"missing", g.missing},
          {"unexpected", g.unexpected},
          {"nonfinite", g.nonfinite}};
}

// Reads the members of one object, naming the path of what is absent or of the wrong type.
class Reader {
 public:
  Reader(const Parsed& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object()) fail("", "an object", object);
  }

  const Parsed& member(const char* key) const {
    const auto at = object_.find(key);
    if (at == object_.end()) throw UsageError(fmt::format("result line: '{}{}' is absent", path_, key));
    return *at;
  }

  std::string text(const char* key) const {
    const Parsed& value = member(key);
    if (!value.is_string()) fail(key, "a string", value);
    return value.get<std::string>();
  }

  std::string text_or_null(const char* key) const { return member(key).is_null() ? std::string() : text(key); }

  template <class Integer>
  Integer integer(const char* key) const {
    return integer_of<Integer>(key, member(key));
  }

  template <class Integer>
  Integer integer_of(const char* key, const Parsed& value) const {
    const bool fits = value.is_number_unsigned()
                          ? std::in_range<Integer>(value.get<uint64_t>())
                          : value.is_number_integer() && std::in_range<Integer>(value.get<int64_t>());
    if (!fits) fail(key, "an integer in range", value);
    return static_cast<Integer>(value.get<int64_t>());
  }

  double number(const char* key) const { return number_of(key, member(key)); }

  double number_of(const char* key, const Parsed& value) const {
    if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (!value.is_number()) fail(key, "a number or null", value);
    return value.get<double>();
  }

  const Parsed& array(const char* key) const {
    const Parsed& value = member(key);
    if (!value.is_array()) fail(key, "an array", value);
    return value;
  }

  std::optional<Reader> object_or_null(const char* key) const {
    const Parsed& value = member(key);
    if (value.is_null()) return std::nullopt;
    return Reader(value, path_ + key + ".");
  }

  // Also nothing where lines of earlier versions and of other stacks do not have it.
  std::optional<Reader> object_if_any(const char* key) const {
    return object_.contains(key) ? object_or_null(key) : std::nullopt;
  }

  [[noreturn]] void fail(std::string_view key, std::string_view expected, const Parsed& given) const {
    std::string shown = given.dump(-1, ' ', false, Parsed::error_handler_t::replace);
    if (shown.size() > 60) shown = shown.substr(0, 60) + "...";
    throw UsageError(fmt::format("result line: '{}{}' is {}: expected {}", path_, key, shown, expected));
  }

 private:
  const Parsed& object_;
  std::string path_;
};

Where read_where(const Reader& in) {
  return {.module = in.text_or_null("module"),
          .parameter = in.text_or_null("parameter"),
          .collective = in.text_or_null("collective")};
}

Signature read_signature(const Reader& in) {
  const auto where = in.object_if_any("where");
  return {.mechanism = in.text_or_null("mechanism"),
          .phase = parse_phase(in.text("phase")),
          .step = in.integer<int>("step"),
          .rank = in.integer<int>("rank"),
          .type = in.text("type"),
          .text = in.text("text"),
          .upstream = in.text_or_null("upstream"),
          .where = where ? read_where(*where) : Where{}};
}

GradientSummary read_gradients(const Reader& in) {
  GradientSummary g{.compared = in.integer<int>("compared"),
                    .worst = in.text("worst"),
                    .relative_l2 = in.number("relative_l2"),
                    .cosine = in.number("cosine"),
                    .tolerance = in.number("tolerance"),
                    .share = in.number("share"),
                    .max_abs = in.number("max_abs"),
                    .at = {},
                    .got = in.number("got"),
                    .want = in.number("want"),
                    .missing = in.integer<int>("missing"),
                    .unexpected = in.integer<int>("unexpected"),
                    .nonfinite = in.integer<int>("nonfinite")};
  for (const Parsed& index : in.array("at")) g.at.push_back(in.integer_of<int64_t>("at", index));
  return g;
}

template <size_t N>
size_t index_of(const std::array<const char*, N>& names, std::string_view text, std::string_view what) {
  for (size_t i = 0; i < N; ++i) {
    if (text == names[i]) return i;
  }
  throw UsageError(fmt::format("'{}' is not {}: expected one of {}", text, what, fmt::join(names, ", ")));
}

}  // namespace

const char* name(Outcome outcome) { return kOutcomes.at(static_cast<size_t>(outcome)); }
const char* name(Phase phase) { return kPhases.at(static_cast<size_t>(phase)); }

Outcome parse_outcome(std::string_view text) { return static_cast<Outcome>(index_of(kOutcomes, text, "an outcome")); }
Phase parse_phase(std::string_view text) { return static_cast<Phase>(index_of(kPhases, text, "a phase")); }

nlohmann::ordered_json to_json(const CaseResult& result) {
  Json axes = Json::object();
  for (const AxisValue& v : axis_values(result.which)) axes[v.axis] = v.value;
  Json also = Json::array();
  for (const Departure& d : result.also) also.push_back(write(d));
  Json loss;
  if (result.loss) loss = {{"got", result.loss->got}, {"want", result.loss->want}};
  return {{"schema", kSchema},
          {"id", id(result.which)},
          {"axes", std::move(axes)},
          {"fixes", result.which.fixes},
          {"device", result.device},
          {"stack", result.stack},
          {"attempt", result.attempt},
          {"outcome", name(result.outcome)},
          {"signature", result.signature ? write(*result.signature) : Json()},
          {"also", std::move(also)},
          {"gradients", result.gradients ? write(*result.gradients) : Json()},
          {"loss", std::move(loss)},
          {"counters", result.counters},
          {"milliseconds", result.milliseconds},
          {"peak_bytes", result.peak_bytes ? Json(*result.peak_bytes) : Json()},
          {"reason", or_null(result.reason)}};
}

std::string to_line(const CaseResult& result) {
  return to_json(result).dump(-1, ' ', false, Json::error_handler_t::replace);
}

CaseResult result_from_json(const nlohmann::json& line) {
  const Reader in(line, "");
  if (const int schema = in.integer<int>("schema"); schema != kSchema) {
    throw UsageError(fmt::format("result line: schema {}: this version reads schema {}", schema, kSchema));
  }
  CaseResult result;
  result.which = parse_id(in.text("id"));
  result.device = in.text("device");
  result.stack = in.text("stack");
  result.attempt = in.integer<int>("attempt");
  result.outcome = parse_outcome(in.text("outcome"));
  if (const auto s = in.object_or_null("signature")) result.signature = read_signature(*s);
  for (const Parsed& entry : in.array("also")) {
    const Reader d(entry, "also.");
    result.also.push_back(
        {parse_outcome(d.text("outcome")), read_signature(Reader(d.member("signature"), "also.signature."))});
  }
  if (const auto g = in.object_or_null("gradients")) result.gradients = read_gradients(*g);
  if (const auto l = in.object_or_null("loss")) result.loss = LossPair{l->number("got"), l->number("want")};
  if (const Parsed& counters = in.member("counters"); counters.is_object()) {
    for (const auto& [key, value] : counters.items()) result.counters[key] = in.number_of(key.c_str(), value);
  } else {
    in.fail("counters", "an object", counters);
  }
  result.milliseconds = in.number("milliseconds");
  if (!in.member("peak_bytes").is_null()) result.peak_bytes = in.integer<int64_t>("peak_bytes");
  result.reason = in.text_or_null("reason");
  return result;
}

CaseResult result_from_line(std::string_view line) {
  const Parsed parsed = Parsed::parse(line, nullptr, false);
  if (parsed.is_discarded()) {
    throw UsageError(fmt::format("result line '{}{}' is not JSON", line.substr(0, 60), line.size() > 60 ? "..." : ""));
  }
  return result_from_json(parsed);
}

}  // namespace regather
