// A stack, one a thread, of hooks on what autograd saves: the C++ side of torch.autograd.graph.saved_tensors_hooks.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace regather::autograd {

// Makes the pair of pack and unpack hooks for one saved tensor.
class HookSource {
 public:
  virtual ~HookSource() = default;
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> make() = 0;
};

// While it lives, what this thread's operators save goes through `source`; the innermost scope wins.
class ScopedHooks {
 public:
  explicit ScopedHooks(HookSource& source);
  ~ScopedHooks();
  ScopedHooks(const ScopedHooks&) = delete;
  ScopedHooks& operator=(const ScopedHooks&) = delete;
};

// While one lives, a node of the graph whose backward fails notes the module that made it (base/whereabouts.h): torch's
// anomaly mode, which costs an allocation a node. Of the process, not of a thread.
class LocateBackward {
 public:
  LocateBackward();
  ~LocateBackward();
  LocateBackward(const LocateBackward&) = delete;
  LocateBackward& operator=(const LocateBackward&) = delete;

 private:
  bool before_;
};

// Makes the engine that asks the stack the process's default. Idempotent; call it before any backward.
void install_engine();

}  // namespace regather::autograd
