// Partitions parameters into flat padded shards, gathers and frees them: the status machine of each parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "model/module.h"
#include "shard/zero/param_state.h"

namespace regather::shard {

class Partition {
 public:
  // Takes every parameter of `root` (tied ones once) and partitions it.
  Partition(comm::World& world, const model::Module& root, int64_t persistence_threshold);

  const std::vector<std::unique_ptr<ParamState>>& states() const { return states_; }
  // Null when the tensor is not a parameter of this model.
  ParamState* find(const at::Tensor& parameter) const;

  // Starts one gather of those that are partitioned, in order of id; they are in flight until wait(). As upstream, the
  // data of one that is gathered alone is its buffer from now on, whatever has arrived of it; in company it stays
  // empty.
  void start_gather(std::vector<ParamState*> states);
  // Makes an in-flight parameter available, and all others of the same gather. No-op when it is already.
  void wait(const ParamState& state);
  // Both, at once, for those that are partitioned. Those in flight are left to whoever awaits them.
  void gather(std::vector<ParamState*> states);

  // Frees the whole parameter; the shard stays as it is. Throws Error while modules use it, and while it is in flight.
  void release(ParamState& state);

  // Copies of whole tensors from everybody's `shards`, one a state, each [shard_numel]: one collective a dtype. By
  // name.
  std::vector<std::pair<std::string, at::Tensor>> gather_copies(const std::vector<const ParamState*>& states,
                                                                const std::vector<at::Tensor>& shards);

  int64_t gathers = 0;
  int64_t releases = 0;
  int64_t gathered_bytes = 0;
  int64_t peak_gathered_bytes = 0;

 private:
  void take(int id, const std::string& name, const at::Tensor& parameter, int64_t persistence_threshold);
  // One collective a dtype, as upstream; the work of each input.
  std::vector<comm::Work> all_gather(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs);

  comm::World& world_;
  std::vector<std::unique_ptr<ParamState>> states_;
  std::unordered_map<const at::TensorImpl*, ParamState*> by_tensor_;
};

}  // namespace regather::shard
