#include "shard/fsdp2/fsdp2.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "case/fault.h"
#include "model/qwen2.h"
#include "shard/fsdp2/sharded_tensor.h"
#include "shard/parameters.h"

namespace regather::shard {
namespace {

// `module` and all regather modules below it.
void append_tree(model::Module& module, std::vector<model::Module*>& out) {
  out.push_back(&module);
  for (const auto& child : module.module_children()) append_tree(*child, out);
}

std::vector<model::Module*> tree(model::Module& root) {
  std::vector<model::Module*> all;
  append_tree(root, all);
  return all;
}

Named named(const std::vector<std::string>& names, const std::vector<Tensor>& tensors,
            std::optional<at::ScalarType> dtype = std::nullopt) {
  Named result;
  for (size_t i = 0; i < names.size(); ++i) {
    const Tensor& tensor = tensors[i];
    result.emplace_back(names[i], tensor.defined() && dtype ? tensor.to(*dtype) : tensor);
  }
  return result;
}

}  // namespace

std::vector<model::Module*> default_units(model::Module& root, bool with_head) {
  std::vector<model::Module*> units;
  std::vector<model::Module*> heads;
  for (model::Module* module : tree(root)) {
    if (dynamic_cast<model::DecoderLayer*>(module) != nullptr) units.push_back(module);
    if (auto* model = dynamic_cast<model::CausalLM*>(module); model != nullptr && with_head) {
      heads.push_back(&model->head());
    }
  }
  units.insert(units.end(), heads.begin(), heads.end());
  return units;
}

Fsdp2::Fsdp2(comm::World& world, model::Module& root, const BackendOptions& options,
             const std::vector<model::Module*>& units)
    : root_(root),
      optimizer_(options.optimizer),
      accumulation_(options.accumulation),
      precision_(options.precision),
      schedule_(options.precision, options.recompute ? options.recompute : std::make_shared<RecomputePolicy>(),
                [this](const Unit& unit) { observe("recompute_dtype", unit.name()); }) {
  shard_parameters(world);
  std::unordered_map<const torch::nn::Module*, std::string> names;
  for (const auto& item : root.named_modules(/*name_prefix=*/"", /*include_self=*/false))
    names.emplace(item.value().get(), item.key());
  for (model::Module* module : units) {
    REGATHER_CHECK(names.contains(module), "fsdp2", "a unit is not a module below the root");
    add_unit(world, *module, names.at(module));
  }
  add_unit(world, root, "");
  hooked_ = tree(root);
  for (model::Module* module : hooked_) {
    module->set_read_hook([this](model::Module&, const Tensor& parameter) { read(parameter); });
  }
}

Fsdp2::~Fsdp2() {
  for (model::Module* module : hooked_) module->clear_hooks();
}

void Fsdp2::shard_parameters(comm::World& world) {
  std::unordered_map<const at::TensorImpl*, std::vector<ShardParameter::Holder>> holders;
  for (model::Module* module : tree(root_)) {
    for (const auto& item : module->named_parameters(/*recurse=*/false)) {
      holders[item.value().unsafeGetTensorImpl()].push_back({module, item.key()});
    }
  }
  for (const auto& [name, parameter] : named_parameters_once(root_)) {
    parameters_.push_back(std::make_unique<ShardParameter>(
        world, name, parameter, std::move(holders[parameter.unsafeGetTensorImpl()]), precision_));
  }
}

void Fsdp2::add_unit(comm::World& world, model::Module& module, const std::string& name) {
  std::unordered_set<const at::TensorImpl*> below;
  for (const auto& parameter : module.parameters()) below.insert(parameter.unsafeGetTensorImpl());
  std::vector<ShardParameter*> own;
  for (const auto& parameter : parameters_) {
    const bool taken = unit_of(parameter->sharded()) != nullptr;
    if (!taken && below.contains(parameter->sharded().unsafeGetTensorImpl())) own.push_back(parameter.get());
  }
  const bool is_root = &module == &root_;
  units_.push_back(
      std::make_unique<Unit>(world, name, std::move(own), /*reshard_after_forward=*/!is_root, gather_counts_));
  schedule_.add(*units_.back(), module);
}

Unit* Fsdp2::unit_of(const Tensor& parameter) const {
  for (const auto& unit : units_) {
    for (const ShardParameter* own : unit->parameters()) {
      if (own->sharded().is_same(parameter) || own->whole().is_same(parameter)) return unit.get();
    }
  }
  return nullptr;
}

// A module asks for a parameter of a unit that is not whole now: whatever it does with it beside a plain tensor fails.
void Fsdp2::read(const Tensor& parameter) {
  if (!is_sharded(parameter)) return;
  for (const auto& known : parameters_) {
    if (known->sharded().is_same(parameter)) observe("mixed_dtensor", known->name());
  }
}

Tensor Fsdp2::forward(const std::function<Tensor()>& body) {
  return root_.call(Tensor(), [&](const Tensor&) { return body(); });
}

void Fsdp2::backward(const Tensor& loss) {
  // Also when an error passes: it may come from there.
  struct Look {
    Fsdp2& fsdp;
    ~Look() { fsdp.observe_unreduced(); }
  } look{*this};
  // All but a step's last micro-batch leave their gradients unreduced.
  if (accumulation_.steps() > 1) schedule_.set_requires_gradient_sync(accumulation_.at_boundary());
  accumulation_.divided(loss).backward();
  accumulation_.end_backward();
}

void Fsdp2::observe_unreduced() {
  const bool reduced_all = schedule_.requires_gradient_sync() && !schedule_.is_open();
  for (const auto& parameter : parameters_) {
    // Somebody used the sharded parameter as a tensor, around its unit.
    if (parameter->sharded().grad().defined() && !parameter->is_reduced()) observe("unit_bypassed", parameter->name());
    // It came through a rerun that has no hooks, after the unit's post-backward.
    if (reduced_all && parameter->has_gradient()) observe("recompute_unhooked", parameter->name());
  }
}

const Tensor& Fsdp2::unshard(const Tensor& parameter) {
  Unit* unit = unit_of(parameter);
  REGATHER_CHECK(unit != nullptr, "fsdp2", "there is no such parameter to gather");
  unit->start_unshard();
  unit->finish_unshard();
  for (const ShardParameter* own : unit->parameters()) {
    if (own->sharded().is_same(parameter)) return own->whole();
  }
  return parameter;
}

void Fsdp2::step() {
  const at::NoGradGuard no_grad;
  bool skip = fault_is(Fault::lost_update);
  for (const auto& parameter : parameters_) {
    const Tensor& gradient = parameter->sharded().grad();
    if (!gradient.defined()) continue;
    if (std::exchange(skip, false)) continue;
    if (fault_is(Fault::stale_shard) && parameter->name().ends_with("q_proj.weight")) continue;
    Tensor local = local_shard(parameter->sharded());
    adamw(local, local_shard(gradient), parameter->optimizer, optimizer_);
  }
  accumulation_.end_step();
  if (fault_is(Fault::keep_gathered)) {
    units_.back()->start_unshard();
    units_.back()->finish_unshard();
  }
  count();
}

void Fsdp2::zero_gradients() {
  if (fault_is(Fault::keep_gradients)) return;
  for (const auto& parameter : parameters_) parameter->clear_gradient();
}

bool Fsdp2::is_whole(const Tensor& parameter) {
  const Unit* unit = unit_of(parameter);
  return unit == nullptr ? !is_sharded(parameter) : unit->is_whole();
}

Named Fsdp2::full_gradients() {
  std::vector<std::string> names;
  std::vector<Tensor> gradients;
  for (const auto& parameter : parameters_) {
    if (!parameter->sharded().requires_grad()) continue;
    names.push_back(parameter->name());
    gradients.push_back(parameter->sharded().grad());
  }
  return named(names, full_tensors(gradients), at::kFloat);
}

Named Fsdp2::full_parameters() {
  std::vector<std::string> names;
  std::vector<Tensor> parameters;
  for (const auto& parameter : parameters_) {
    names.push_back(parameter->name());
    parameters.push_back(parameter->sharded());
  }
  return named(names, full_tensors(parameters));
}

std::vector<std::string> Fsdp2::broken_invariants() {
  std::vector<std::string> broken;
  if (schedule_.is_open()) broken.emplace_back("a backward has not come to its end");
  for (const auto& unit : units_) {
    const std::string name = unit->name().empty() ? "the root" : unit->name();
    if (unit->is_whole()) broken.push_back(fmt::format("{} is still gathered", name));
    if (unit->is_fetching()) broken.push_back(fmt::format("{} is still being fetched", name));
    if (unit->phase != Unit::Phase::idle || unit->in_backward) {
      broken.push_back(fmt::format("{} is still in its forward or backward", name));
    }
  }
  for (const auto& parameter : parameters_) {
    if (parameter->has_gradient()) {
      broken.push_back(fmt::format("{} still has its whole gradient", parameter->name()));
    }
  }
  return broken;
}

void Fsdp2::count() {
  counters_["gathers"] = static_cast<double>(gather_counts_.gathers);
  counters_["releases"] = static_cast<double>(gather_counts_.releases);
  counters_["peak_gathered_bytes"] = static_cast<double>(gather_counts_.peak_bytes);
}

}  // namespace regather::shard
