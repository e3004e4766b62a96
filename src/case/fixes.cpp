#include "case/fixes.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace regather {

const std::vector<FixInfo>& known_fixes() {
  static const std::vector<FixInfo> all{
      {"forward_method",
       "FSDP2: a method of the model other than forward runs without the root's hooks",
       {Backend::fsdp2}},
      {"gather",
       "ZeRO-3: a fused loss reads the head directly while its parameter is partitioned, thus empty",
       {Backend::zero3}},
      {"kl_backbone",
       "ZeRO-3, KTO: the KL term's call of the model ends the noting of direct reads before the fused loss makes its "
       "own",
       {Backend::zero3}},
      {"recompute_cast",
       "FSDP2, bf16: a recompute's pre-forward returns before it casts the inputs (pytorch#159359)",
       {Backend::fsdp2}},
      {"recompute_hold",
       "ZeRO-3: the recompute's forward releases a frozen parameter that the checkpoint still holds",
       {Backend::zero3}},
      {"recompute_owner",
       "the same, attributing each recomputed frozen parameter to the backward that releases it",
       {Backend::zero3}},
      {"recompute_prompt",
       "the same, releasing each such parameter right after its last use in backward",
       {Backend::zero3}},
      {"recompute_rearm",
       "FSDP2: a second pass under one reentrant checkpoint gets no hooks in its recompute; its gradients are not "
       "reduced",
       {Backend::fsdp2}},
      {"recompute_unshard",
       "FSDP2 before torch 2.11: a second recompute in one backward finds its unit sharded and does not gather it "
       "(pytorch#187437)",
       {Backend::fsdp2}},
      {"redirect", "a loss on the unwrapped model runs with the wrapper's hooks and reducer unarmed"},
      {"sync",
       "DDP: the reducer is unarmed by a direct loss; gradients are averaged explicitly after backward",
       {Backend::ddp}},
      {"unshard_head", "FSDP2: a head that is a unit of its own is read outside that unit's forward", {Backend::fsdp2}},
  };
  return all;
}

bool FixInfo::acts_on(Backend backend) const {
  return backends.empty() || std::ranges::find(backends, backend) != backends.end();
}

Fixes recommended_fixes(Backend backend, Loss loss) {
  switch (backend) {
    case Backend::zero3:
      return loss == Loss::kto ? Fixes{"gather", "kl_backbone", "recompute_hold", "redirect"}
                               : Fixes{"gather", "recompute_hold", "redirect"};
    case Backend::single:
      return {};
    case Backend::ddp:
    case Backend::zero1:
    case Backend::zero2:
    case Backend::fsdp2:
    case Backend::fsdp1:
      break;
  }
  return {"redirect"};
}

Fixes recommended_fixes(const Case& c) {
  Fixes fixes = recommended_fixes(c.backend, c.loss);
  if (c.call != Call::direct) std::erase(fixes, "redirect");
  return fixes;
}

Fixes parse_fixes(std::string_view text) {
  if (text == "none") return {};
  Fixes fixes;
  for (size_t begin = 0;;) {
    const size_t end = text.find('+', begin);
    const std::string_view name = text.substr(begin, end - begin);
    const auto& known = known_fixes();
    if (std::ranges::find(known, name, &FixInfo::name) == known.end()) {
      std::vector<std::string_view> names;
      for (const FixInfo& fix : known) names.push_back(fix.name);
      throw UsageError(fmt::format("'{}' is not a fix: expected none, or names joined by + out of {}", name,
                                   fmt::join(names, ", ")));
    }
    if (std::ranges::find(fixes, name) != fixes.end()) {
      throw UsageError(fmt::format("fix '{}' stands twice in '{}'", name, text));
    }
    fixes.emplace_back(name);
    if (end == std::string_view::npos) break;
    begin = end + 1;
  }
  std::ranges::sort(fixes);
  return fixes;
}

std::string print_fixes(const Fixes& fixes) {
  return fixes.empty() ? "none" : fmt::format("{}", fmt::join(fixes, "+"));
}

}  // namespace regather
