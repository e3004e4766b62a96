// Names and arguments of the operators.
//
// hidden [..., H] (grpo, dpo, kto: [B, T, H]), weight [V, H], targets int64 of hidden's shape less H, bias [V]; values
// per token in float32, of targets' shape. `workspace`: bytes beside inputs and results that a pass may use; whole
// sequences (dpo: pairs) of dpo and kto take what they need. Meanings and defaults are those of kernels/linear_loss.h.
#include <torch/library.h>

#include <string>
#include <utility>

namespace {

const std::string kHead = "(Tensor hidden, Tensor weight, Tensor targets, ";
const std::string kRest =
    "Tensor? bias=None, int ignore_index=-100, int workspace=536870912, bool float_weight_gradient=False, "
    "bool deterministic=False) -> ";

const std::string kSft;
const std::string kGrpo =
    "Tensor advantages, Tensor? old_log_probabilities=None, Tensor? reference_log_probabilities=None, "
    "float epsilon_low=0.2, float epsilon_high=0.2, float beta=0.04, ";
const std::string kDpo = "Tensor reference_log_probabilities, float beta=0.1, ";
const std::string kKto = "Tensor reference_log_probabilities, Tensor desirable, Tensor kl, float beta=0.1, ";

}  // namespace

TORCH_LIBRARY(regather, library) {
  for (const auto& [name, own] : {std::pair<std::string, std::string>{"linear_sft", kSft},
                                  {"linear_grpo", kGrpo},
                                  {"linear_dpo", kDpo},
                                  {"linear_kto", kKto}}) {
    // The loss, differentiable once by hidden, weight and bias, and the targets' log-probabilities, which are not.
    library.def((name + kHead + own + kRest + "(Tensor loss, Tensor log_probabilities)").c_str());
    library.def(("_" + name + kHead + own + kRest +
                 "(Tensor loss, Tensor hidden_gradient, Tensor weight_gradient, Tensor bias_gradient, "
                 "Tensor log_probabilities)")
                    .c_str());
  }
  // Of a reference model: no gradients.
  library.def(
      "linear_log_probabilities(Tensor hidden, Tensor weight, Tensor targets, Tensor? bias=None, "
      "int ignore_index=-100) -> Tensor");
  library.def("_scale_stash(Tensor(a!) stash, Tensor by) -> ()");
  // Whether every product met so far on this device has come to its fastest kernel.
  library.def("_products_settled(Tensor on) -> bool");
}
