#include "case/case.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/error.h"
#include "case/fixes.h"

namespace regather {
namespace {

constexpr std::array kWorlds{2, 1, 4, 8};
// Two at least: what the first step leaves behind must show in the second.
constexpr std::array kSteps{2, 3};
constexpr size_t kLongestId = 1024;

// An axis and how the index of its value is read from a case and written to it.
struct Field {
  Axis axis;
  size_t (*get)(const Case&);
  void (*set)(Case&, size_t);
};

// Enumerators stand in the order of the axis's values; a bool's default has index 0.
template <auto Member>
Field field(std::string name, std::vector<std::string> values, bool always_printed = false) {
  using Value = std::remove_cvref_t<decltype(Case{}.*Member)>;
  if constexpr (std::is_same_v<Value, bool>) {
    return {{std::move(name), std::move(values), always_printed},
            [](const Case& c) { return static_cast<size_t>(c.*Member != Case{}.*Member); },
            [](Case& c, size_t index) { c.*Member = (index == 0) == Case{}.*Member; }};
  } else {
    return {{std::move(name), std::move(values), always_printed},
            [](const Case& c) { return static_cast<size_t>(c.*Member); },
            [](Case& c, size_t index) { c.*Member = static_cast<Value>(index); }};
  }
}

template <auto Member, const auto& Values>
Field number_field(std::string name) {
  std::vector<std::string> texts;
  for (const int value : Values) texts.push_back(std::to_string(value));
  return {{name, std::move(texts)},
          [](const Case& c) {
            const auto at = std::ranges::find(Values, c.*Member);
            REGATHER_CHECK(at != Values.end(), "case", "{} is not a value of one of the case's axes", c.*Member);
            return static_cast<size_t>(at - Values.begin());
          },
          [](Case& c, size_t index) { c.*Member = Values.at(index); }};
}

const std::vector<Field>& fields() {
  static const std::vector<Field> all{
      field<&Case::backend>("backend", {"ddp", "zero1", "zero2", "zero3", "fsdp2", "fsdp1", "single"}, true),
      field<&Case::loss>("loss", {"sft", "grpo", "dpo", "kto"}, true),
      field<&Case::kernel>("kernel", {"fused", "eager", "chunked"}),
      field<&Case::checkpoint>("checkpoint", {"none", "reentrant", "nonreentrant"}),
      field<&Case::frozen>("frozen", {"none", "norms", "lora", "head", "embedding", "quantised"}),
      field<&Case::head>("head", {"untied", "tied"}),
      field<&Case::head_bias>("head_bias", {"no", "yes"}),
      field<&Case::call>("call", {"direct", "engine", "method"}),
      field<&Case::reference>("reference", {"separate", "shared"}),
      field<&Case::dtype>("dtype", {"fp32", "bf16", "fp16"}),
      number_field<&Case::world, kWorlds>("world"),
      field<&Case::accumulate>("accumulate", {"1", "2", "manual2"}),
      field<&Case::persistence>("persistence", {"0", "upstream", "huge"}),
      field<&Case::early_stop>("early_stop", {"on", "off"}),
      field<&Case::input_grad>("input_grad", {"yes", "no"}),
      field<&Case::checkpoint_at>("checkpoint_at", {"forward", "call", "parent"}),
      field<&Case::unit>("unit", {"layers", "head", "head_full_tensor"}),
      field<&Case::two_passes>("passes", {"1", "2"}),
      field<&Case::layer_input>("layer_input", {"same", "fp32"}),
      field<&Case::fully_shard>("fully_shard", {"2.11", "2.10"}),
      number_field<&Case::steps, kSteps>("steps"),
  };
  return all;
}

const std::string& value_of(const Field& f, const Case& c) { return f.axis.values.at(f.get(c)); }

const Field& find_field(std::string_view axis) {
  for (const Field& f : fields()) {
    if (f.axis.name == axis) return f;
  }
  std::vector<std::string_view> names;
  for (const Field& f : fields()) names.push_back(f.axis.name);
  throw UsageError(fmt::format("'{}' is not an axis: expected one of {}", axis, fmt::join(names, ", ")));
}

// The parts between slashes; empty ones too, so that '//' is not taken for '/'.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find('/', begin)) != std::string_view::npos; begin = end + 1) {
    parts.push_back(text.substr(begin, end - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

}  // namespace

bool Case::has(std::string_view fix) const { return std::ranges::find(fixes, fix) != fixes.end(); }

const std::vector<Axis>& axes() {
  static const std::vector<Axis> all = [] {
    std::vector<Axis> list;
    for (const Field& f : fields()) list.push_back(f.axis);
    return list;
  }();
  return all;
}

std::string id(const Case& c) {
  std::string text;
  for (const Field& f : fields()) {
    if (f.axis.always_printed) {
      text += value_of(f, c) + "/";
    } else if (f.get(c) != 0) {
      text += f.axis.name + "=" + value_of(f, c) + "/";
    }
  }
  return text + "fix=" + print_fixes(c.fixes);
}

Case parse_id(std::string_view text) {
  if (text.size() > kLongestId) {
    throw UsageError(fmt::format("a case id of {} characters, starting with '{}': no id is longer than {}", text.size(),
                                 text.substr(0, 40), kLongestId));
  }
  try {
    const std::vector<std::string_view> parts = split(text);
    if (parts.size() < 3) throw UsageError("expected backend/loss, then axis=value parts, then fix=NAMES or fix=none");
    Case c;
    set_axis(c, "backend", parts[0]);
    set_axis(c, "loss", parts[1]);
    std::vector<std::string_view> seen{"backend", "loss"};
    for (size_t i = 2; i + 1 < parts.size(); ++i) {
      const size_t equals = parts[i].find('=');
      if (equals == std::string_view::npos) throw UsageError(fmt::format("'{}': expected axis=value", parts[i]));
      const std::string_view axis = parts[i].substr(0, equals);
      if (std::ranges::find(seen, axis) != seen.end()) {
        throw UsageError(fmt::format("'{}' gives {} a second time", parts[i], axis));
      }
      seen.push_back(axis);
      set_axis(c, axis, parts[i].substr(equals + 1));
    }
    if (!parts.back().starts_with("fix=")) {
      throw UsageError(
          fmt::format("'{}' stands last: expected fix=NAMES (joined by +) or fix=none there", parts.back()));
    }
    c.fixes = parse_fixes(parts.back().substr(4));
    if (const auto why = illegal(c)) throw UsageError(*why);
    return c;
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("case '{}': {}", text, e.what()));
  }
}

std::vector<AxisValue> axis_values(const Case& c) {
  std::vector<AxisValue> values;
  for (const Field& f : fields()) values.push_back({f.axis.name, value_of(f, c)});
  return values;
}

void set_axis(Case& c, std::string_view axis, std::string_view value) {
  const Field& f = find_field(axis);
  const auto at = std::ranges::find(f.axis.values, value);
  if (at == f.axis.values.end()) {
    throw UsageError(
        fmt::format("'{}' is not a value of {}: expected one of {}", value, axis, fmt::join(f.axis.values, ", ")));
  }
  f.set(c, static_cast<size_t>(at - f.axis.values.begin()));
}

std::optional<std::string> illegal(const Case& c) {
  if (c.head == Head::tied && c.frozen == Frozen::head) {
    return "head=tied with frozen=head: a tied head is the embedding; frozen=embedding freezes both";
  }
  if (c.call == Call::engine && c.has("redirect")) {
    return "call=engine with fix redirect: the loss already runs inside the wrapper's forward, there is nothing to "
           "redirect";
  }
  if (c.call == Call::method && c.has("redirect")) {
    return "call=method with fix redirect: the method is called on the wrapped model itself, there is nothing to "
           "redirect; forward_method registers it";
  }
  if (c.reference == Reference::shared && c.loss != Loss::dpo && c.loss != Loss::kto) {
    return "reference=shared: only dpo and kto have a reference model";
  }
  if (c.reference == Reference::shared && c.frozen != Frozen::lora && c.frozen != Frozen::quantised) {
    return "reference=shared without frozen=lora or quantised: the shared reference is the policy with its adapters "
           "off, and there are none";
  }
  return std::nullopt;
}

}  // namespace regather
