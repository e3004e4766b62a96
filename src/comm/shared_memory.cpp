#include "comm/shared_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <utility>

#include "base/error.h"
#include "comm/reduce.h"
#include "comm/shared_work.h"

namespace regather::comm {
namespace {

using Op = c10d::ReduceOp::RedOpType;
using c10d::OpType;

const Contribution& of(const Exchange& exchange, int rank) {
  return static_cast<const Contribution&>(exchange.offer(rank));
}

std::vector<Target> targets(const std::vector<at::Tensor>& tensors) { return {tensors.begin(), tensors.end()}; }

// Each rank's bytes of one piece, in rank order.
std::vector<const std::byte*> rows(const Exchange& exchange, int size, size_t piece, size_t skip) {
  std::vector<const std::byte*> rows;
  rows.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) rows.push_back(of(exchange, rank).data(piece, skip));
  return rows;
}

// The reduction of every piece, laid out like a payload; the first rank that asks computes it for all.
const std::byte* reduced(const Exchange& exchange, int size) {
  const Contribution& first = of(exchange, 0);
  Contribution::Reduced& result = first.reduced();
  std::call_once(result.once, [&] {
    result.bytes = std::make_unique_for_overwrite<std::byte[]>(first.payload_bytes());
    for (size_t piece = 0; piece < first.pieces().size(); ++piece) {
      const Piece& shape = first.pieces()[piece];
      comm::reduce(shape.dtype, first.reduction(), rows(exchange, size, piece, 0), result.bytes.get() + shape.offset,
                   shape.numel);
    }
  });
  return result.bytes.get();
}

void check_count(const char* name, size_t got, size_t want) {
  REGATHER_CHECK(got == want, "comm", "{} of {} tensors: expected {}", name, got, want);
}

void check_like(const char* name, const at::Tensor& tensor, int64_t numel, c10::ScalarType dtype) {
  check_tensor(tensor, name);
  REGATHER_CHECK(tensor.numel() == numel && tensor.scalar_type() == dtype, "comm",
                 "{}: a tensor has {} elements of {}: expected {} of {}", name, tensor.numel(),
                 c10::toString(tensor.scalar_type()), numel, c10::toString(dtype));
}

void check_root(const char* name, int64_t root, int size) {
  REGATHER_CHECK(root >= 0 && root < size, "comm", "{}: root {} in a world of {}", name, root, size);
}

}  // namespace

SharedMemory::SharedMemory(std::shared_ptr<Meeting> meeting, int rank)
    : Backend(rank, meeting->size()), meeting_(std::move(meeting)) {}

SharedMemory::~SharedMemory() { meeting_->leave(rank_); }

Work SharedMemory::start(OpType type, std::unique_ptr<Contribution> contribution, Tensors outputs, Deliver deliver) {
  contribution->copy_payload();
  std::shared_ptr<Exchange> exchange = meeting_->arrive(rank_, std::move(contribution));
  sequence_ = exchange->sequence();
  return c10::make_intrusive<SharedWork>(rank_, type, meeting_, std::move(exchange), std::move(outputs),
                                         std::move(deliver));
}

Work SharedMemory::all_reduce(OpType type, Tensors& tensors, Op op) {
  auto contribution = std::make_unique<Contribution>(Kind::all_reduce);
  contribution->set_reduction(op);
  for (const at::Tensor& tensor : tensors) {
    contribution->add(tensor, true);
    check_reduction(tensor.scalar_type(), op, "all_reduce");
  }
  return start(type, std::move(contribution), tensors, [to = targets(tensors), size = size_](const Exchange& exchange) {
    const std::byte* sums = reduced(exchange, size);
    for (size_t piece = 0; piece < to.size(); ++piece) {
      to[piece].write(sums + of(exchange, 0).pieces()[piece].offset, to[piece].bytes());
    }
  });
}

Work SharedMemory::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  check_count("all_reduce", tensors.size(), 1);
  return all_reduce(OpType::ALLREDUCE, tensors, options.reduceOp);
}

Work SharedMemory::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return all_reduce(OpType::ALLREDUCE_COALESCED, tensors, options.reduceOp);
}

Work SharedMemory::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  check_count("reduce", tensors.size(), 1);
  check_root("reduce", options.rootRank, size_);
  auto contribution = std::make_unique<Contribution>(Kind::reduce);
  contribution->set_reduction(options.reduceOp);
  contribution->set_root(options.rootRank);
  contribution->add(tensors[0], true);
  check_reduction(tensors[0].scalar_type(), options.reduceOp, "reduce");
  Deliver deliver;
  if (options.rootRank == rank_) {
    deliver = [to = Target(tensors[0]), size = size_](const Exchange& exchange) {
      to.write(reduced(exchange, size), to.bytes());
    };
  }
  return start(OpType::REDUCE, std::move(contribution), tensors, std::move(deliver));
}

Work SharedMemory::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  check_root("broadcast", options.rootRank, size_);
  const int root = static_cast<int>(options.rootRank);
  auto contribution = std::make_unique<Contribution>(Kind::broadcast);
  contribution->set_root(root);
  for (const at::Tensor& tensor : tensors) contribution->add(tensor, rank_ == root);
  Deliver deliver;
  if (rank_ != root) {
    deliver = [to = targets(tensors), root](const Exchange& exchange) {
      for (size_t piece = 0; piece < to.size(); ++piece) {
        to[piece].write(of(exchange, root).data(piece), to[piece].bytes());
      }
    };
  }
  return start(OpType::BROADCAST, std::move(contribution), tensors, std::move(deliver));
}

Work SharedMemory::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions&) {
  check_count("all_gather", inputs.size(), 1);
  check_count("all_gather", outputs.size(), 1);
  check_count("all_gather", outputs[0].size(), static_cast<size_t>(size_));
  auto contribution = std::make_unique<Contribution>(Kind::all_gather);
  contribution->add(inputs[0], true);
  for (const at::Tensor& output : outputs[0]) {
    check_like("all_gather", output, inputs[0].numel(), inputs[0].scalar_type());
  }
  return start(OpType::ALLGATHER, std::move(contribution), outputs[0],
               [to = targets(outputs[0])](const Exchange& exchange) {
                 for (size_t rank = 0; rank < to.size(); ++rank) {
                   to[rank].write(of(exchange, static_cast<int>(rank)).data(0), to[rank].bytes());
                 }
               });
}

Work SharedMemory::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

Work SharedMemory::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions&) {
  check_count("all_gather", outputs.size(), inputs.size());
  auto contribution = std::make_unique<Contribution>(Kind::all_gather);
  for (size_t piece = 0; piece < inputs.size(); ++piece) {
    contribution->add(inputs[piece], true);
    check_like("all_gather", outputs[piece], inputs[piece].numel() * size_, inputs[piece].scalar_type());
  }
  return start(OpType::_ALLGATHER_BASE, std::move(contribution), outputs,
               [to = targets(outputs), size = size_](const Exchange& exchange) {
                 for (size_t piece = 0; piece < to.size(); ++piece) {
                   const size_t bytes = to[piece].bytes() / static_cast<size_t>(size);
                   for (int rank = 0; rank < size; ++rank) {
                     to[piece].write(of(exchange, rank).data(piece), bytes, bytes * static_cast<size_t>(rank));
                   }
                 }
               });
}

Work SharedMemory::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                  const c10d::ReduceScatterOptions& options) {
  check_count("reduce_scatter", outputs.size(), 1);
  check_count("reduce_scatter", inputs.size(), 1);
  check_count("reduce_scatter", inputs[0].size(), static_cast<size_t>(size_));
  auto contribution = std::make_unique<Contribution>(Kind::reduce_scatter);
  contribution->set_reduction(options.reduceOp);
  for (const at::Tensor& input : inputs[0]) {
    contribution->add(input, true);
    check_reduction(input.scalar_type(), options.reduceOp, "reduce_scatter");
  }
  const at::Tensor& own = inputs[0][static_cast<size_t>(rank_)];
  check_like("reduce_scatter", outputs[0], own.numel(), own.scalar_type());
  return start(OpType::REDUCE_SCATTER, std::move(contribution), outputs,
               [to = Target(outputs[0]), rank = rank_, size = size_](const Exchange& exchange) {
                 const auto piece = static_cast<size_t>(rank);
                 const Contribution& first = of(exchange, 0);
                 comm::reduce(first.pieces()[piece].dtype, first.reduction(), rows(exchange, size, piece, 0), to.data(),
                              first.pieces()[piece].numel);
               });
}

Work SharedMemory::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                        const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

Work SharedMemory::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  check_count("reduce_scatter", outputs.size(), inputs.size());
  auto contribution = std::make_unique<Contribution>(Kind::reduce_scatter);
  contribution->set_reduction(options.reduceOp);
  for (size_t piece = 0; piece < inputs.size(); ++piece) {
    contribution->add(inputs[piece], true);
    check_reduction(inputs[piece].scalar_type(), options.reduceOp, "reduce_scatter");
    check_like("reduce_scatter", inputs[piece], outputs[piece].numel() * size_, outputs[piece].scalar_type());
    check_tensor(outputs[piece], "reduce_scatter");
  }
  return start(OpType::_REDUCE_SCATTER_BASE, std::move(contribution), outputs,
               [to = targets(outputs), rank = rank_, size = size_](const Exchange& exchange) {
                 const Contribution& first = of(exchange, 0);
                 for (size_t piece = 0; piece < to.size(); ++piece) {
                   const size_t skip = to[piece].bytes() * static_cast<size_t>(rank);
                   comm::reduce(first.pieces()[piece].dtype, first.reduction(), rows(exchange, size, piece, skip),
                                to[piece].data(), first.pieces()[piece].numel / size);
                 }
               });
}

Work SharedMemory::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  check_count("gather", inputs.size(), 1);
  check_root("gather", options.rootRank, size_);
  auto contribution = std::make_unique<Contribution>(Kind::gather);
  contribution->set_root(options.rootRank);
  contribution->add(inputs[0], true);
  if (options.rootRank != rank_) return start(OpType::GATHER, std::move(contribution), {}, {});
  check_count("gather", outputs.size(), 1);
  check_count("gather", outputs[0].size(), static_cast<size_t>(size_));
  for (const at::Tensor& output : outputs[0]) {
    check_like("gather", output, inputs[0].numel(), inputs[0].scalar_type());
  }
  return start(OpType::GATHER, std::move(contribution), outputs[0],
               [to = targets(outputs[0])](const Exchange& exchange) {
                 for (size_t rank = 0; rank < to.size(); ++rank) {
                   to[rank].write(of(exchange, static_cast<int>(rank)).data(0), to[rank].bytes());
                 }
               });
}

Work SharedMemory::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  check_count("scatter", outputs.size(), 1);
  check_root("scatter", options.rootRank, size_);
  const int root = static_cast<int>(options.rootRank);
  auto contribution = std::make_unique<Contribution>(Kind::scatter);
  contribution->set_root(root);
  if (rank_ == root) {
    check_count("scatter", inputs.size(), 1);
    check_count("scatter", inputs[0].size(), static_cast<size_t>(size_));
    for (const at::Tensor& input : inputs[0]) {
      check_like("scatter", input, outputs[0].numel(), outputs[0].scalar_type());
      contribution->add(input, true);
    }
  } else {
    check_tensor(outputs[0], "scatter");
    for (int rank = 0; rank < size_; ++rank) contribution->add(outputs[0], false);
  }
  return start(OpType::SCATTER, std::move(contribution), outputs,
               [to = Target(outputs[0]), root, rank = rank_](const Exchange& exchange) {
                 to.write(of(exchange, root).data(static_cast<size_t>(rank)), to.bytes());
               });
}

Work SharedMemory::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                 std::vector<int64_t>& input_splits, const c10d::AllToAllOptions&) {
  check_tensor(output, "all_to_all");
  check_tensor(input, "all_to_all");
  REGATHER_CHECK(output.scalar_type() == input.scalar_type(), "comm", "all_to_all from {} to {}: expected one dtype",
                 c10::toString(input.scalar_type()), c10::toString(output.scalar_type()));
  // Splits count rows of the first dimension; empty means even.
  const auto elements = [&](const at::Tensor& tensor, const std::vector<int64_t>& splits, const char* side) {
    const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    std::vector<int64_t> counts = splits;
    if (counts.empty()) counts.assign(static_cast<size_t>(size_), rows / size_);
    REGATHER_CHECK(counts.size() == static_cast<size_t>(size_) &&
                       std::accumulate(counts.begin(), counts.end(), int64_t{0}) == rows,
                   "comm", "all_to_all: {} splits [{}] do not add up to {} rows over {} ranks", side,
                   fmt::join(counts, ", "), rows, size_);
    for (int64_t& count : counts) count *= rows == 0 ? 0 : tensor.numel() / rows;
    return counts;
  };
  std::vector<int64_t> sent = elements(input, input_splits, "input");
  std::vector<int64_t> received = elements(output, output_splits, "output");
  auto contribution = std::make_unique<Contribution>(Kind::all_to_all);
  contribution->add(input, true);
  contribution->set_splits(std::move(sent), received);
  return start(OpType::ALLTOALL_BASE, std::move(contribution), {output},
               [to = Target(output), received = std::move(received), rank = rank_,
                item = input.element_size()](const Exchange& exchange) {
                 size_t skip = 0;
                 for (size_t from = 0; from < received.size(); ++from) {
                   const size_t bytes = static_cast<size_t>(received[from]) * item;
                   const Contribution& theirs = of(exchange, static_cast<int>(from));
                   to.write(theirs.data(0, theirs.sent_offset(rank)), bytes, skip);
                   skip += bytes;
                 }
               });
}

Work SharedMemory::barrier(const c10d::BarrierOptions&) {
  return start(OpType::BARRIER, std::make_unique<Contribution>(Kind::barrier), {}, {});
}

}  // namespace regather::comm
