#include "case/support.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace regather {
namespace {

using namespace std::string_view_literals;

constexpr std::array kBuiltFixes{"forward_method"sv,    "gather"sv,         "kl_backbone"sv,
                                 "recompute_cast"sv,    "recompute_hold"sv, "recompute_rearm"sv,
                                 "recompute_unshard"sv, "redirect"sv,       "unshard_head"sv};

std::string value_of(const Case& c, std::string_view axis) {
  for (const AxisValue& v : axis_values(c)) {
    if (v.axis == axis) return v.value;
  }
  return {};
}

std::string missing(std::string_view what) { return fmt::format("{} is not in the reference runtime yet", what); }

}  // namespace

std::optional<std::string> unsupported(const Case& c) {
  if (c.backend == Backend::fsdp1) return missing("backend fsdp1");
  if (c.backend == Backend::single && c.world != 1) {
    return fmt::format("backend single is one unsharded rank: world=1, not {}", c.world);
  }
  if (c.kernel == Kernel::chunked && c.loss != Loss::sft) {
    return fmt::format("the chunked kernel (a checkpoint a chunk) computes sft alone, not {}", value_of(c, "loss"));
  }
  if (c.dtype == DType::fp16) return missing("dtype fp16");
  if (c.unit != Unit::layers && c.head == Head::tied) {
    return "a tied head is the embedding's parameter, which the root's unit has: it cannot be a unit of its own";
  }
  for (const std::string& fix : c.fixes) {
    if (std::ranges::find(kBuiltFixes, fix) == kBuiltFixes.end()) return missing(fmt::format("fix {}", fix));
  }
  return std::nullopt;
}

}  // namespace regather
