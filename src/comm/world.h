// One rank's view of the world: its collectives, counted, traced in the black box, with a deadline.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace regather::comm {

using Work = c10::intrusive_ptr<c10d::Work>;

class Observed;

struct CollectiveCount {
  int64_t calls = 0;
  int64_t bytes = 0;  // of this rank's input
};

class World {
 public:
  // `group` carries a backend for tensors on `device`, an Observed, that counts into `counts` (see observed.h). Throws
  // Error when it does not. A World belongs to its rank's thread.
  World(int rank, int size, c10::intrusive_ptr<c10d::ProcessGroup> group,
        std::shared_ptr<std::map<std::string, CollectiveCount>> counts, at::Device device = at::kCPU);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const { return group_; }

  // All return at once; the result may be read after wait() on the work. Tensors are contiguous. Errors of other ranks
  // (errors.h) come from the wait.
  Work all_gather(at::Tensor& output, const at::Tensor& input);  // output: size() * input's elements, by rank
  Work all_gather(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs);  // coalesced, pairwise as above
  Work reduce_scatter(at::Tensor& output, const at::Tensor& input);  // sum; input: size() * output's elements
  Work reduce_scatter(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs);  // coalesced
  Work all_reduce(at::Tensor& tensor);                                                     // sum, in place
  Work broadcast(at::Tensor& tensor, int root);
  void barrier();

  // Every rank's value of `mine`, in rank order; blocks. For invariants and checks across ranks.
  std::vector<int64_t> all_gather_int(int64_t mine);
  std::vector<std::string> all_gather_text(const std::string& mine);

  // Calls and bytes by kind since construction ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "barrier");
  // all_gather_int and all_gather_text count as "check".
  const std::map<std::string, CollectiveCount>& counts() const { return *counts_; }

 private:
  at::Tensor gather_for_check(const at::Tensor& mine);

  int rank_;
  int size_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  Observed* backend_;  // owned by the group
  std::shared_ptr<std::map<std::string, CollectiveCount>> counts_;
  at::Device device_;
};

// The world of one rank over `transport`, which takes tensors on `device`: observed, and the default backend of a
// process group, so that the c10d operators (what c10d::Reducer calls) reach it.
World make_world(c10::intrusive_ptr<c10d::Backend> transport, c10d::ProcessGroup::BackendType type,
                 at::Device device = at::kCPU);

}  // namespace regather::comm
