// A c10d backend for ranks that are threads of one process.
//
// Asynchronous on purpose, and deterministically so: a call copies this rank's input, leaves it at the meeting and
// returns; the output keeps its old contents until the rank itself asks for it. Results are written
//   - by wait(), or by isCompleted() when it answers true, on the calling thread;
//   - for a work whose getFuture() was called: before the future completes, on the thread of whichever rank arrives
//     last (at once when all have arrived). Futures have no hook at their wait, and c10d::Reducer waits on the future
//     alone; callbacks therefore may run on another rank's thread, as they may on any transport.
// A work dropped without either never writes: a missing wait is a wrong result each time, not now and then.
//
// Who synchronises: one Meeting (meeting.h) for all ranks; each backend object and its works belong to one rank's
// thread. Errors (MismatchError, DeadlineError, PeerError of errors.h) come from wait() and from futures, never from
// the call; the call itself throws Error for arguments that are wrong on this rank alone.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "comm/meeting.h"
#include "comm/world.h"

namespace regather::comm {

class SharedMemory : public c10d::Backend {
 public:
  SharedMemory(std::shared_ptr<Meeting> meeting, int rank);
  ~SharedMemory() override;  // leaves the meeting

  using Tensors = std::vector<at::Tensor>;

  const std::string getBackendName() const override { return "shared_memory"; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }

  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) override;
  Work reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                      const c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::ReduceScatterOptions& options) override;
  Work gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Work scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                     std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  Work barrier(const c10d::BarrierOptions& options) override;

 private:
  using Deliver = std::function<void(const Exchange&)>;
  Work start(c10d::OpType type, std::unique_ptr<Contribution> contribution, Tensors outputs, Deliver deliver);
  Work all_reduce(c10d::OpType type, Tensors& tensors, c10d::ReduceOp::RedOpType op);

  std::shared_ptr<Meeting> meeting_;
  uint64_t sequence_ = 0;
};

}  // namespace regather::comm
