#include "comm/observed.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <utility>

#include "base/blackbox.h"
#include "case/fault.h"
#include "comm/fault_work.h"

namespace regather::comm {
namespace {

// Within ten times the tolerance of float32 gradients (1e-5), so that only an exact comparison sees it.
constexpr double kLateScale = 1.0 + 5e-5;

int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  return bytes;
}

// Several that belong together.
class Works : public c10d::Work {
 public:
  explicit Works(std::vector<comm::Work> works) : works_(std::move(works)) {}
  bool wait(std::chrono::milliseconds timeout) override {
    for (const comm::Work& work : works_) work->wait(timeout);
    return true;
  }

 private:
  std::vector<comm::Work> works_;
};

bool floating(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return tensor.defined() && tensor.is_floating_point(); });
}

std::vector<at::Tensor> flat(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> tensors;
  for (const auto& list : lists) tensors.insert(tensors.end(), list.begin(), list.end());
  return tensors;
}

}  // namespace

Observed::Observed(c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<Counts> counts)
    : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), counts_(std::move(counts)) {}

void Observed::enter(const char* name, int64_t bytes) {
  CollectiveCount& count = (*counts_)[name];
  ++count.calls;
  count.bytes += bytes;
  trace_collective(rank_, name, ++sequence_);
}

template <typename Call>
Work Observed::reduce_call(const char* name, const Tensors& inputs, const Tensors& outputs,
                           c10d::ReduceOp::RedOpType op, bool in_place, const Call& call) {
  enter(name, bytes_of(inputs));
  const bool faulty = floating(outputs);
  if (faulty && in_place && fault_is(Fault::drop_all_reduce)) return c10::make_intrusive<DoneWork>(outputs);
  const bool sum = op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG;
  if (faulty && sum && rank_ == 3 && fault_is(Fault::lose_fourth_rank)) {
    const at::AutoDispatchBelowADInplaceOrView below;
    for (const at::Tensor& input : inputs) input.zero_();
  }
  Work work = call();
  if (faulty && fault_is(Fault::lost_wait)) {
    if (!in_place) {
      const at::AutoDispatchBelowADInplaceOrView below;
      for (const at::Tensor& output : outputs) output.zero_();
    }
    return c10::make_intrusive<DoneWork>(outputs, std::move(work));
  }
  if (faulty && sum && rank_ == 1 && fault_is(Fault::late_rank_scale)) {
    return c10::make_intrusive<ScaledWork>(outputs, kLateScale, std::move(work));
  }
  return work;
}

Work Observed::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return reduce_call("all_reduce", tensors, tensors, options.reduceOp, true,
                     [&] { return inner_->allreduce(tensors, options); });
}

Work Observed::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return reduce_call("all_reduce", tensors, tensors, options.reduceOp, true,
                     [&] { return inner_->allreduce_coalesced(tensors, options); });
}

Work Observed::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                              const c10d::ReduceScatterOptions& options) {
  return reduce_call("reduce_scatter", flat(inputs), outputs, options.reduceOp, false,
                     [&] { return inner_->reduce_scatter(outputs, inputs, options); });
}

Work Observed::_reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  return reduce_call("reduce_scatter", {input}, {output}, options.reduceOp, false,
                     [&] { return inner_->_reduce_scatter_base(output, input, options); });
}

Work Observed::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                               const c10d::ReduceScatterOptions& options) {
  return reduce_call("reduce_scatter", inputs, outputs, options.reduceOp, false,
                     [&] { return inner_->reduce_scatter_tensor_coalesced(outputs, inputs, options); });
}

Work Observed::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  enter("reduce", bytes_of(tensors));
  return inner_->reduce(tensors, options);
}

Work Observed::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  enter("broadcast", bytes_of(tensors));
  return inner_->broadcast(tensors, options);
}

Work Observed::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  enter("all_gather", bytes_of(inputs));
  return inner_->allgather(outputs, inputs, options);
}

Work Observed::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  enter("all_gather", bytes_of({input}));
  return inner_->_allgather_base(output, input, options);
}

Work Observed::check_gather(at::Tensor& output, at::Tensor& input) {
  enter("check", bytes_of({input}));
  return inner_->_allgather_base(output, input);
}

Work Observed::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                               const c10d::AllgatherOptions& options) {
  enter("all_gather", bytes_of(inputs));
  // gloo's own takes pointers to a GPU's memory for the host's.
  if (!inputs.empty() && inputs[0].is_cuda() && inner_->getBackendName() == "gloo") {
    std::vector<Work> works;
    for (size_t i = 0; i < inputs.size(); ++i) works.push_back(inner_->_allgather_base(outputs[i], inputs[i], options));
    return c10::make_intrusive<Works>(std::move(works));
  }
  return inner_->allgather_into_tensor_coalesced(outputs, inputs, options);
}

Work Observed::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  enter("gather", bytes_of(inputs));
  return inner_->gather(outputs, inputs, options);
}

Work Observed::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  enter("scatter", bytes_of(flat(inputs)));
  return inner_->scatter(outputs, inputs, options);
}

Work Observed::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                             std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  enter("all_to_all", bytes_of({input}));
  return inner_->alltoall_base(output, input, output_splits, input_splits, options);
}

Work Observed::barrier(const c10d::BarrierOptions& options) {
  enter("barrier", 0);
  return inner_->barrier(options);
}

}  // namespace regather::comm
