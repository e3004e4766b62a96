// A backend that counts and traces every collective and passes it on; and the one place where comm's seeded faults act.
//
//   drop_all_reduce   all_reduce of floating tensors returns at once, having done nothing, on every rank
//   late_rank_scale   rank 1 alone sees floating sums and averages of all_reduce and reduce_scatter 5e-5 too large
//   lose_fourth_rank  rank 3 brings zeros to floating sums and averages of all_reduce and reduce_scatter
//   lost_wait         all_reduce and reduce_scatter of floating tensors hand back a work whose wait() returns at once
//                     with nothing delivered. What reduce_scatter's output held before is chance, so it is cleared.
//                     Futures stay real (c10d::Reducer waits on those alone), and gathers are spared: a stale gather is
//                     uninitialised memory.
// Integer collectives stay sound under every fault: checks across ranks depend on them.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/world.h"

namespace regather::comm {

// Belongs to one rank's thread, as do its counts. Throws what the wrapped backend throws.
class Observed : public c10d::Backend {
 public:
  using Counts = std::map<std::string, CollectiveCount>;
  using Tensors = std::vector<at::Tensor>;
  Observed(c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<Counts> counts);

  const std::string getBackendName() const override { return inner_->getBackendName(); }
  const c10::intrusive_ptr<c10d::Backend>& inner() const { return inner_; }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { inner_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return inner_->getSequenceNumberForGroup(); }
  void abort() override { inner_->abort(); }
  void shutdown() override { inner_->shutdown(); }

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

  // An all_gather that belongs to a check and not to what is checked: counted as "check".
  Work check_gather(at::Tensor& output, at::Tensor& input);

 private:
  void enter(const char* name, int64_t bytes);
  template <typename Call>
  Work reduce_call(const char* name, const Tensors& inputs, const Tensors& outputs, c10d::ReduceOp::RedOpType op,
                   bool in_place, const Call& call);

  c10::intrusive_ptr<c10d::Backend> inner_;
  std::shared_ptr<Counts> counts_;
  uint64_t sequence_ = 0;
};

}  // namespace regather::comm
