// A parameter as FSDP2 keeps it: sharded between uses, whole while its unit runs, swapped in the modules that have it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "model/module.h"
#include "shard/adamw.h"
#include "shard/fsdp2/precision.h"

namespace regather::shard {

class ShardParameter {
 public:
  // A module that has the parameter, and under which name of its own. A tied one is in several.
  struct Holder {
    model::Module* module;
    std::string name;
  };

  // Shards `parameter`, alike on every rank, by rows and puts the sharded one into its holders. Throws Error for a
  // parameter without dimensions, c10::Error for one of a dtype that cannot require grad.
  ShardParameter(comm::World& world, std::string name, const at::Tensor& parameter, std::vector<Holder> holders,
                 const MixedPrecision& precision);

  const std::string& name() const { return name_; }
  // Both are leaves that live as long as this. The whole one is the tensor that the model was built with, so hooks on
  // it keep firing; while sharded it has its sizes but no memory, and what autograd saved of it comes back with the
  // data. The sharded one keeps the parameter's dtype, the whole one has that of the precision.
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

  // The whole gradient that backwards have left here, out of it; undefined when there is none.
  at::Tensor take_gradient();
  // Ends a backward without reduction: puts its gradient aside in the reduction's dtype, added to what is there. Where
  // that dtype is the gradient's own it stays at the whole parameter, and autograd adds the next one. As upstream, asks
  // the whole parameter without asking whether there has ever been one: throws Error when no gather has made it.
  void keep_gradient();
  bool has_gradient() const { return kept_.defined() || whole_.grad().defined(); }
  // What the gradients are reduced in.
  at::ScalarType reduce_dtype() const { return reduce_dtype_.value_or(whole_.scalar_type()); }

  // Adds a reduced gradient, shaped like padded_shard(), to the sharded parameter's.
  void accumulate(const at::Tensor& padded_gradient);
  // The sharded gradient came, in part at least, out of a reduction.
  bool is_reduced() const { return is_reduced_; }
  void clear_gradient();

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
  at::Tensor data_;                             // shares whole_'s storage
  std::optional<at::ScalarType> reduce_dtype_;  // unless the gradient's own
  at::Tensor kept_;                             // a whole gradient that waits for a reduction
  bool is_whole_ = false;
  bool was_whole_ = false;
  bool is_reduced_ = false;
};

}  // namespace regather::shard
