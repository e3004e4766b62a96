#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "autograd/checkpoint.h"
#include "autograd/generator.h"
#include "autograd/saved_hooks.h"
#include "base/whereabouts.h"

namespace regather::autograd {
namespace {

// Unwinds the recompute once the last needed tensor has been seen. Not a std::exception: nothing may mistake it for
// one.
struct StopRecompute {};

struct Metadata {
  std::vector<int64_t> shape;
  at::ScalarType dtype;
  at::Device device;
  Place saved_in = here;

  explicit Metadata(const at::Tensor& x) : shape(x.sizes().vec()), dtype(x.scalar_type()), device(x.device()) {}
  bool operator==(const Metadata& other) const {
    return shape == other.shape && dtype == other.dtype && device == other.device;
  }

  // As Python prints it, since people search for this text.
  std::string text() const {
    static const std::map<at::ScalarType, const char*> names = {{at::kFloat, "float32"},     {at::kDouble, "float64"},
                                                                {at::kBFloat16, "bfloat16"}, {at::kHalf, "float16"},
                                                                {at::kLong, "int64"},        {at::kBool, "bool"}};
    const auto named = names.find(dtype);
    return fmt::format("{{'shape': torch.Size([{}]), 'dtype': torch.{}, 'device': device(type='{}')}}",
                       fmt::join(shape, ", "), named == names.end() ? c10::toString(dtype) : named->second,
                       device.str());
  }
};

// Stands in a saved variable for the tensor at one position.
struct Placeholder {
  explicit Placeholder(size_t at) : position(at) {}
  size_t position;
  std::set<int> unpacked_by;  // graph tasks
};

struct Recompute {
  std::vector<at::Tensor> tensors;  // by position; undefined where the placeholder is gone
  size_t saved = 0;                 // so far, also beyond the positions of the forward
};

// One checkpointed call.
class Frame : public std::enable_shared_from_this<Frame> {
 public:
  Frame(Block block, const at::Tensor& input, const CheckpointOptions& options)
      : block_(std::move(block)),
        input_(input, false),  // through the hooks of an enclosing checkpoint, as everything that is saved
        random_state_(rank_generator().get_state()),
        options_(options) {}

  at::Tensor run_forward(const at::Tensor& input);

  std::shared_ptr<Placeholder> pack(const at::Tensor& x);
  at::Tensor unpack(Placeholder& placeholder);
  void keep_recomputed(int task, const at::Tensor& x);

 private:
  void recompute(int task);
  void check(const Recompute& done) const;

  Block block_;
  torch::autograd::SavedVariable input_;
  at::Tensor random_state_;
  CheckpointOptions options_;
  std::vector<std::weak_ptr<Placeholder>> placeholders_;
  std::vector<Metadata> metadata_;
  std::map<int, Recompute> recomputes_;  // by graph task
  bool forward_completed_ = false;
};

class ForwardHooks : public torch::autograd::SavedVariableHooks {
 public:
  explicit ForwardHooks(std::shared_ptr<Frame> frame) : frame_(std::move(frame)) {}
  void call_pack_hook(const at::Tensor& x) override { placeholder_ = frame_->pack(x); }
  at::Tensor call_unpack_hook() override { return frame_->unpack(*placeholder_); }

 private:
  std::shared_ptr<Frame> frame_;
  std::shared_ptr<Placeholder> placeholder_;
};

class RecomputeHooks : public torch::autograd::SavedVariableHooks {
 public:
  RecomputeHooks(Frame& frame, int task) : frame_(frame), task_(task) {}
  void call_pack_hook(const at::Tensor& x) override {
    own_ = x.detach();
    frame_.keep_recomputed(task_, x);
  }
  // Only a nested backward inside the recompute unpacks what the recompute's own graph saved.
  at::Tensor call_unpack_hook() override { return own_; }

 private:
  Frame& frame_;  // used by pack alone, while the recompute runs
  int task_;
  at::Tensor own_;
};

struct ForwardSource : HookSource {
  explicit ForwardSource(std::shared_ptr<Frame> of) : frame(std::move(of)) {}
  std::unique_ptr<torch::autograd::SavedVariableHooks> make() override { return std::make_unique<ForwardHooks>(frame); }
  std::shared_ptr<Frame> frame;
};

struct RecomputeSource : HookSource {
  RecomputeSource(Frame& of, int in) : frame(of), task(in) {}
  std::unique_ptr<torch::autograd::SavedVariableHooks> make() override {
    return std::make_unique<RecomputeHooks>(frame, task);
  }
  Frame& frame;
  int task;
};

at::Tensor Frame::run_forward(const at::Tensor& input) {
  ForwardSource source(shared_from_this());
  const ScopedHooks hooks(source);
  at::Tensor output = block_(input);
  forward_completed_ = true;
  return output;
}

std::shared_ptr<Placeholder> Frame::pack(const at::Tensor& x) {
  auto placeholder = std::make_shared<Placeholder>(placeholders_.size());
  placeholders_.emplace_back(placeholder);
  metadata_.emplace_back(x);
  return placeholder;
}

void Frame::keep_recomputed(int task, const at::Tensor& x) {
  Recompute& recompute = recomputes_.at(task);
  const size_t position = recompute.saved++;
  if (position >= placeholders_.size()) {
    if (!forward_completed_) return;  // backward inside the block's own forward: nobody asks for this one
    throw CheckpointError(fmt::format(
        "checkpoint: the recompute saves more tensors than the forward did ({}): the block does not do the same twice",
        placeholders_.size()));
  }
  // The policy of torch.utils.checkpoint: a frozen parameter stays the live object, so what empties it empties this.
  if (!placeholders_[position].expired()) recompute.tensors[position] = x.requires_grad() ? x.detach() : x;
  if (options_.early_stop && recompute.saved == placeholders_.size()) throw StopRecompute{};
}

void Frame::recompute(int task) {
  Recompute& recompute = recomputes_[task];
  recompute.tensors.resize(placeholders_.size());
  try {
    const at::Tensor input = input_.unpack();
    const ScopedRandomState restored(random_state_);
    const at::AutoGradMode with_grad(true);
    RecomputeSource source(*this, task);
    const ScopedHooks hooks(source);
    try {
      block_(input);
    } catch (const StopRecompute&) {
      forget_failure();
    }
    check(recompute);
  } catch (...) {
    recomputes_.erase(task);
    throw;
  }
}

void Frame::check(const Recompute& done) const {
  if (!forward_completed_) return;
  if (done.saved != placeholders_.size()) {
    throw CheckpointError(
        fmt::format("torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
                    "recomputation.\nNumber of tensors saved during forward: {}\nNumber of tensors saved during "
                    "recomputation: {}.",
                    placeholders_.size(), done.saved));
  }
  if (!options_.determinism_check) return;
  std::string mismatches;
  for (size_t position = 0; position < placeholders_.size(); ++position) {
    if (placeholders_[position].expired()) continue;
    const Metadata recomputed(done.tensors[position]);
    if (recomputed == metadata_[position]) continue;
    note_failure(metadata_[position].saved_in);
    mismatches += fmt::format("tensor at position {}:\nsaved metadata: {}\nrecomputed metadata: {}\n", position,
                              metadata_[position].text(), recomputed.text());
  }
  if (mismatches.empty()) return;
  throw CheckpointError(
      "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the "
      "forward pass.\n" +
      mismatches);
}

at::Tensor Frame::unpack(Placeholder& placeholder) {
  // -1 outside a graph task (somebody reads a node's saved tensors by hand); such a read recomputes each time.
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == -1) recomputes_.erase(task);
  if (!recomputes_.contains(task)) recompute(task);
  if (task != -1 && !placeholder.unpacked_by.insert(task).second) {
    throw CheckpointError(fmt::format(
        "checkpoint: the tensor at position {} is asked for twice in one backward; it was released after the first use",
        placeholder.position));
  }
  return std::exchange(recomputes_.at(task).tensors[placeholder.position], at::Tensor());
}

}  // namespace

at::Tensor checkpoint_nonreentrant(const Block& block, const at::Tensor& input, const CheckpointOptions& options) {
  if (!at::GradMode::is_enabled()) return block(input);
  return std::make_shared<Frame>(block, input, options)->run_forward(input);
}

bool in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

}  // namespace regather::autograd
