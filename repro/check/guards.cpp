#include "repro/check/guards.h"

#include "matrix/judge/conditions.h"
#include "repro/check/call_path.h"

namespace regather::check {
namespace {

bool has_adapters(const Setting& setting) {
  return setting.axes.frozen == Frozen::lora || setting.axes.frozen == Frozen::quantised;
}

}  // namespace

std::optional<Refusal> refusal(const Setting& setting, const std::string& versions) {
  if (versions.empty()) return std::nullopt;
  const bool preference = setting.trainer == "dpo" || setting.trainer == "kto";
  if (preference && setting.fused == "liger" && has_adapters(setting) && overlap(versions, "<1.8.0")) {
    const bool dpo = setting.trainer == "dpo";
    return Refusal{within(versions, "<1.8.0") ? versions : "<1.8.0", dpo ? "NotImplementedError" : "ValueError",
                   dpo ? "Liger DPO loss is not implemented for PEFT models"
                       : "use_liger_kernel=True cannot be used with Peft models",
                   dpo ? "trl 1.6.0 and 1.7.0, trl/trainer/dpo_trainer.py"
                       : "trl 1.6.0 and 1.7.0, trl/experimental/kto/kto_trainer.py"};
  }
  return std::nullopt;
}

Case guarded(const Setting& setting, const std::string& versions, std::vector<Assumption>& assumed) {
  Case c = setting.axes;
  if (c.backend != Backend::zero3 || !has_adapters(setting) || c.checkpoint != Checkpoint::nonreentrant) return c;
  // SFTTrainer since 0.28, the others since 1.9.
  const bool forces = !versions.empty() && (setting.trainer == "sft" || within(versions, ">=1.9.0"));
  if (!forces) return c;
  const auto at = setting.versions.find("transformers");
  const bool reads = at != setting.versions.end() && matrix::VersionRange("<5.23").holds(at->second);
  if (setting.kwargs_given || reads) {
    c.checkpoint = Checkpoint::reentrant;
    assumed.push_back(
        {"use_reentrant becomes true",
         "TRL forces it for adapters on ZeRO-3 (trl 1.6.0 to 1.16.0, trl/trainer/sft_trainer.py; the other "
         "trainers since 1.9.0)"});
  } else {
    assumed.push_back(
        {"use_reentrant stays false, though TRL means to force it",
         "TRL writes gradient_checkpointing_kwargs, and transformers since 5.23.0 reads "
         "activation_checkpointing_kwargs, which stay apart where no file gives any (seen on trl 1.6.0 with "
         "transformers 5.24.0)"});
  }
  return c;
}

}  // namespace regather::check
