#include "autograd/saved_hooks.h"

#include <torch/csrc/autograd/engine.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/whereabouts.h"

namespace regather::autograd {
namespace {

thread_local std::vector<HookSource*> sources;

// In torch's anomaly mode every node gets one where it is made, and the node whose backward fails is asked to print it.
struct MadeIn : torch::autograd::AnomalyMetadata {
  void store_stack() override { place = here; }
  void print_stack(const std::string&) override { note_failure(place); }
  void assign_parent(const std::shared_ptr<torch::autograd::Node>&) override {}

  Place place;
};

class HookedEngine : public torch::autograd::Engine {
 public:
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return std::make_unique<MadeIn>();
  }
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

LocateBackward::LocateBackward() : before_(torch::autograd::AnomalyMode::is_enabled()) {
  torch::autograd::AnomalyMode::set_enabled(true, /*check_nan=*/false);
}
LocateBackward::~LocateBackward() { torch::autograd::AnomalyMode::set_enabled(before_, /*check_nan=*/false); }

}  // namespace regather::autograd
