#include "autograd/saved_hooks.h"

#include <torch/csrc/autograd/engine.h>

#include <mutex>
#include <vector>

namespace regather::autograd {
namespace {

thread_local std::vector<HookSource*> sources;

class HookedEngine : public torch::autograd::Engine {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return sources.empty() ? nullptr : sources.back()->make();
  }
};

torch::autograd::Engine& engine() {
  // Never destroyed: threads that outlive main may still hold graphs.
  static auto* hooked = new HookedEngine;
  return *hooked;
}

}  // namespace

ScopedHooks::ScopedHooks(HookSource& source) { sources.push_back(&source); }
ScopedHooks::~ScopedHooks() { sources.pop_back(); }

void install_engine() {
  static std::once_flag once;
  std::call_once(once, [] { torch::autograd::set_default_engine_stub(engine); });
}

}  // namespace regather::autograd
