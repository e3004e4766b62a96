// What a rank brings to a collective over shared memory: what it called, and a copy of the bytes that it gives.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/meeting.h"

namespace regather::comm {

enum class Kind { all_gather, reduce_scatter, all_reduce, reduce, broadcast, gather, scatter, all_to_all, barrier };
const char* kind_name(Kind kind);

// One tensor of a collective, as every rank must describe it alike (all_to_all excepted).
struct Piece {
  c10::ScalarType dtype;
  std::vector<int64_t> sizes;
  int64_t numel;
  size_t bytes;   // of the whole piece
  size_t offset;  // in the payload, when the rank gives it
};

// The payload is a copy made at the call: peers never touch this rank's tensors, which may change, shrink or die at
// once. (A program that changes an input before its wait is wrong over NCCL; here it is not noticed.)
class Contribution : public Offer {
 public:
  explicit Contribution(Kind kind) : kind_(kind) {}

  // Describes one more tensor; `give` also copies its elements. Throws Error unless it is a contiguous CPU tensor.
  void add(const at::Tensor& tensor, bool give);
  void set_reduction(c10d::ReduceOp::RedOpType op) { op_ = op; }
  void set_root(int64_t root) { root_ = root; }
  // all_to_all: elements for each rank and from each rank.
  void set_splits(std::vector<int64_t> sent, std::vector<int64_t> received);
  void copy_payload();  // after the last add()

  Kind kind() const { return kind_; }
  c10d::ReduceOp::RedOpType reduction() const { return op_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  const std::byte* data(size_t piece, size_t skip = 0) const { return payload_.get() + pieces_[piece].offset + skip; }
  size_t payload_bytes() const { return payload_bytes_; }
  // Bytes into the payload of what this rank sends to `rank`.
  size_t sent_offset(int rank) const;

  // The sum (or other reduction) of a whole exchange, worked out by the first rank that needs it and kept here, on rank
  // 0's contribution.
  struct Reduced {
    std::once_flag once;
    std::unique_ptr<std::byte[]> bytes;
  };
  Reduced& reduced() const { return reduced_; }

  const char* name() const override { return kind_name(kind_); }
  std::string text() const override;
  bool agrees(const Offer& other, int rank, int other_rank) const override;

 private:
  Kind kind_;
  c10d::ReduceOp::RedOpType op_ = c10d::ReduceOp::UNUSED;
  int64_t root_ = -1;
  std::vector<Piece> pieces_;
  std::vector<at::Tensor> given_;  // until copied; undefined where only described
  std::vector<int64_t> sent_;
  std::vector<int64_t> received_;
  std::unique_ptr<std::byte[]> payload_;
  size_t payload_bytes_ = 0;
  mutable Reduced reduced_;
};

// Throws Error naming the collective unless `tensor` is a contiguous strided CPU tensor.
void check_tensor(const at::Tensor& tensor, const char* name);

}  // namespace regather::comm
