// ZeRO stages 1 and 2 as DeepSpeed 0.19.2 runs them: parameters replicated, gradients reduced in buckets and kept by
// the owner of each partition, optimizer state partitioned, parameters gathered after the step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shard/backend.h"
#include "shard/zero/engine.h"

namespace regather::shard {

class ZeroOptimizerPartition : public Backend {
 public:
  enum class Stage {
    optimizer = 1,  // gradients stay whole until the step's last backward ends
    gradients = 2,  // each backward reduces them, and those of other ranks' partitions are freed bucket by bucket
  };

  ZeroOptimizerPartition(comm::World& world, model::Module& root, Stage stage, const BackendOptions& options);
  ~ZeroOptimizerPartition() override;

  Tensor forward(const std::function<Tensor()>& body) override;
  // Throws Error when a gradient comes twice in one backward at stage 2, and when none comes.
  void backward(const Tensor& loss) override;
  void step() override;
  void zero_gradients() override;
  bool is_whole(const Tensor&) override { return true; }
  Tensor gathered(const std::vector<Tensor>&, const std::function<Tensor()>& body) override { return body(); }
  Named full_gradients() override;
  Named full_parameters() override;
  std::vector<std::string> broken_invariants() override;

 private:
  // A trainable parameter and its place in the flat group of all of them.
  struct Slice {
    std::string name;
    Tensor parameter;
    int64_t offset = 0;
    bool reduced = false;  // in this backward
  };

  void arrived(Slice& slice);
  void add_to_bucket(Slice& slice);
  void reduce_bucket();
  void keep_own_part(const Slice& slice, const Tensor& gradient);
  // This rank's partition of the flat group: [first, first + partition_numel_).
  int64_t first() const { return partition_numel_ * world_.rank(); }
  bool owns_part_of(const Slice& slice) const;
  Named gather_by_name(const Tensor& partition);

  comm::World& world_;
  model::Module& root_;
  Stage stage_;
  OptimizerOptions optimizer_;
  Accumulation accumulation_;
  OutputScale scale_;
  std::vector<std::unique_ptr<Slice>> slices_;
  int64_t partition_numel_ = 0;
  Tensor master_;    // [partition_numel_] float32, this rank's partition
  Tensor gradient_;  // the same: averaged over ranks, summed over the micro-batches of a step
  AdamWState state_;
  std::vector<Slice*> bucket_;
  int64_t bucket_numel_ = 0;
  bool bucket_ready_ = false;  // set up when the first gradient of a step arrives
};

}  // namespace regather::shard
