// A parameter as FSDP2 keeps it: sharded between uses, whole while its unit runs, swapped in the modules that have it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/world.h"
#include "model/module.h"
#include "shard/adamw.h"

namespace regather::shard {

class ShardParameter {
 public:
  // A module that has the parameter, and under which name of its own. A tied one is in several.
  struct Holder {
    model::Module* module;
    std::string name;
  };

  // Shards `parameter`, alike on every rank, by rows and puts the sharded one into its holders. Throws Error for a
  // parameter without dimensions.
  ShardParameter(comm::World& world, std::string name, const at::Tensor& parameter, std::vector<Holder> holders);

  const std::string& name() const { return name_; }
  // Both are leaves that live as long as this. The whole one is the tensor that the model was built with, so hooks on
  // it keep firing; while sharded it has its sizes but no memory, and what autograd saved of it comes back with the
  // data.
  const at::Tensor& sharded() const { return sharded_; }
  const at::Tensor& whole() const { return whole_; }

  // [padded_numel / the rest of the shape, ...]: this rank's rows, then zeros up to rows_per_rank.
  const at::Tensor& padded_shard() const { return padded_; }
  int64_t padded_numel() const { return padded_.numel(); }
  int64_t numel() const { return whole_.numel(); }
  int64_t whole_bytes() const { return numel() * static_cast<int64_t>(whole_.element_size()); }

  // Takes the memory of the whole parameter; its values go into whole_data(), which no saved tensor's version counts.
  void allocate();
  const at::Tensor& whole_data() const { return data_; }
  // Swaps it into the holders, and back out, giving the memory back.
  void use_whole();
  void use_sharded();
  bool is_whole() const { return is_whole_; }

  // Adds a reduced gradient, shaped like padded_shard(), to the sharded parameter's.
  void accumulate(const at::Tensor& padded_gradient);

  AdamWState optimizer;

 private:
  void put(const at::Tensor& parameter);
  void free();

  comm::World& world_;
  std::string name_;
  std::vector<Holder> holders_;
  at::Tensor padded_;
  at::Tensor sharded_;
  at::Tensor whole_;
  at::Tensor data_;  // shares whole_'s storage
  bool is_whole_ = false;
};

}  // namespace regather::shard
