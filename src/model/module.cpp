#include "model/module.h"

#include "base/error.h"
#include "base/whereabouts.h"

namespace regather::model {
namespace {
// Containers (the decoder's list of layers) carry names but no forward: their children count as the parent's own.
void append_children(const torch::nn::Module& module, std::vector<std::shared_ptr<Module>>& out) {
  for (const auto& child : module.children()) {
    if (auto ours = std::dynamic_pointer_cast<Module>(child)) {
      out.push_back(std::move(ours));
    } else {
      append_children(*child, out);
    }
  }
}
}  // namespace

Tensor Module::operator()(const Tensor& input) {
  return call(input, [this](const Tensor& x) { return forward(x); });
}

Tensor Module::call(const Tensor& input, const Body& body) {
  InModule inside(this);
  Tensor value = input;
  for (const auto& hook : pre_forward_) value = hook(*this, value);
  value = body(value);
  for (const auto& hook : post_forward_) value = hook(*this, value);
  inside.done();
  return value;
}

void Module::clear_hooks() {
  pre_forward_.clear();
  post_forward_.clear();
  on_read_ = nullptr;
}

const Tensor& Module::read(const Tensor& parameter) {
  here.parameter = &parameter;
  if (on_read_) on_read_(*this, parameter);
  return parameter;
}

void Module::set_own_parameter(const std::string& name, Tensor value) {
  Tensor* own = parameters_.find(name);
  REGATHER_CHECK(own != nullptr, "model", "{} has no parameter '{}'", this->name(), name);
  *own = std::move(value);
}

const Tensor& Module::own_parameter(const char* name) const {
  static const Tensor none;
  const Tensor* own = parameters_.find(name);
  return own == nullptr ? none : *own;
}

std::string Module::name_of(const void* parameter) const {
  for (const auto& own : parameters_) {
    if (&own.value() == parameter) return own.key();
  }
  return "";
}

std::vector<std::shared_ptr<Module>> Module::module_children() const {
  std::vector<std::shared_ptr<Module>> out;
  append_children(*this, out);
  return out;
}

}  // namespace regather::model
