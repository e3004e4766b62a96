#include "train/mechanism.h"

#include <c10/util/Exception.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <typeinfo>

namespace regather::train {
namespace {

std::string type_name(const std::exception& error) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : typeid(error).name();
}

std::string without_addresses(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    if (text.compare(i, 2, "0x") == 0) {
      result += "0x…";
      for (i += 2; i < text.size() && std::isxdigit(static_cast<unsigned char>(text[i])) != 0;) ++i;
    } else {
      result += text[i++];
    }
  }
  return result;
}

}  // namespace

std::string mechanism_of(const Departure& departure, const Evidence& evidence) {
  const auto saw = [&](const char* mechanism) {
    return std::any_of(evidence.observations.begin(), evidence.observations.end(),
                       [&](const shard::Observation& o) { return o.mechanism == mechanism; });
  };
  const Signature& signature = departure.signature;
  const bool error = departure.outcome == Outcome::error;
  if (evidence.checkpoint_without_graph &&
      ((error && signature.phase == Phase::backward) || evidence.missing_gradients)) {
    return "no_grad_input";
  }
  if (error && signature.phase == Phase::backward && saw("recompute_dtype")) return "recompute_dtype";
  if (error && signature.type.ends_with("CheckpointError")) {
    return saw("recompute_freed_frozen") ? "recompute_freed_frozen" : "recompute_changed";
  }
  if (error && signature.phase == Phase::backward && saw("recompute_freed_trainable")) {
    return "recompute_freed_trainable";
  }
  if (error && (signature.phase == Phase::forward || signature.phase == Phase::backward) && saw("head_double_touch")) {
    return "head_double_touch";
  }
  if (error && signature.phase == Phase::forward && saw("head_read_partitioned")) return "head_read_partitioned";
  if (error && (signature.phase == Phase::forward || signature.phase == Phase::backward) && saw("mixed_dtensor")) {
    return "mixed_dtensor";
  }
  if (error && signature.phase == Phase::backward && saw("head_grad_on_partitioned")) return "head_grad_on_partitioned";
  if (error && signature.phase == Phase::backward && evidence.gradient_twice) return "reduced_twice";
  if (departure.outcome == Outcome::wrong_gradient && saw("reducer_unarmed")) return "reducer_unarmed";
  if ((departure.outcome == Outcome::wrong_gradient || (error && signature.phase == Phase::backward)) &&
      saw("unit_bypassed")) {
    return "unit_bypassed";
  }
  if (departure.outcome == Outcome::wrong_gradient && saw("recompute_unhooked")) return "recompute_unhooked";
  if (departure.outcome == Outcome::wrong_gradient && saw("accumulation_overwritten"))
    return "accumulation_overwritten";
  if (departure.outcome == Outcome::wrong_gradient && saw("accumulation_scaled")) return "accumulation_scaled";
  // DDP's reducer is done once every parameter has come, and ignores what comes again.
  if (departure.outcome == Outcome::wrong_gradient && evidence.gradient_twice) return "reduced_twice";
  // libtorch's matrix products and attention say so in these words.
  if (error && signature.text.find("same dtype") != std::string::npos) return "mixed_dtype";
  if (error && signature.phase == Phase::forward && evidence.checkpoint_without_graph) return "no_grad_input";
  if (departure.outcome == Outcome::invariant && signature.phase == Phase::invariant) return "lifecycle";
  return "";
}

ErrorText describe(const std::exception& error) {
  std::string text;
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error)) {
    text = torch_error->what_without_backtrace();
  } else {
    text = error.what();
  }
  return {type_name(error), without_addresses(text)};
}

}  // namespace regather::train
