// A torch module with forward hooks and a parameter getter that a sharding backend can watch.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace regather::model {

using at::Tensor;

class Module : public torch::nn::Module {
 public:
  using Body = std::function<Tensor(const Tensor&)>;
  // Receives the module and the tensor that goes in (pre) or comes out (post), and returns the tensor to use instead;
  // the tensor may be undefined (a body that takes or returns none).
  using Hook = std::function<Tensor(Module&, const Tensor&)>;
  using ReadHook = std::function<void(Module&, const Tensor&)>;

  using torch::nn::Module::Module;

  // Pre-forward hooks in order of registration, forward, post-forward hooks in order of registration.
  Tensor operator()(const Tensor& input);
  // The same around any body: a backend runs a function "inside the wrapper's forward" with it.
  Tensor call(const Tensor& input, const Body& body);
  virtual Tensor forward(const Tensor& input) = 0;

  // Puts map(x) in place of every tensor x that the call in progress takes besides its input (a layer's positions and
  // mask), for that call: what a pre-forward hook changes of keyword arguments. Nothing for a module without any.
  virtual void map_other_inputs(const Body& map) { static_cast<void>(map); }

  void add_pre_forward(Hook hook) { pre_forward_.push_back(std::move(hook)); }
  void add_post_forward(Hook hook) { post_forward_.push_back(std::move(hook)); }
  // Called each time a parameter of this module is read through read().
  void set_read_hook(ReadHook hook) { on_read_ = std::move(hook); }
  void clear_hooks();

  // Every use of a parameter goes through here, so that a backend sees it (DeepSpeed watches module._parameters).
  const Tensor& read(const Tensor& parameter);

  // Puts `value` in place of the parameter that this module registered as `name`, which must exist: the setattr by
  // which a backend swaps a sharded parameter for the whole one and back.
  void set_own_parameter(const std::string& name, Tensor value);

  // The name under which this module has registered the parameter at this address, "" when it has not.
  std::string name_of(const void* parameter) const;

  // Direct children that are regather modules, in order of registration.
  std::vector<std::shared_ptr<Module>> module_children() const;

 protected:
  // What this module has registered as `name`; undefined when nothing. Layers keep no handle of their own beside it.
  const Tensor& own_parameter(const char* name) const;

 private:
  std::vector<Hook> pre_forward_;
  std::vector<Hook> post_forward_;
  ReadHook on_read_;
};

}  // namespace regather::model
