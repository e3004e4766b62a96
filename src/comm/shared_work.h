// The work of a collective over shared memory: when and by whom its result is written.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/meeting.h"

namespace regather::comm {

// Where a result goes: the memory that the tensor had at the call, kept alive, whatever becomes of the tensor. (A
// parameter that is emptied meanwhile is left alone; a kernel on a device would write to the old address as well.)
class Target {
 public:
  explicit Target(const at::Tensor& tensor);
  // Throws Error when the storage itself was resized since, which would leave the address dangling.
  void write(const std::byte* from, size_t bytes, size_t skip = 0) const;
  size_t bytes() const { return bytes_; }
  std::byte* data() const;  // as write()

 private:
  c10::Storage storage_;
  const void* base_;
  std::byte* data_;
  size_t bytes_;
};

class SharedWork : public c10d::Work {
 public:
  using Deliver = std::function<void(const Exchange&)>;
  SharedWork(int rank, c10d::OpType type, std::shared_ptr<Meeting> meeting, std::shared_ptr<Exchange> exchange,
             std::vector<at::Tensor> outputs, Deliver deliver);

  bool wait(std::chrono::milliseconds timeout) override;
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  void synchronize() override { wait(kNoTimeout); }
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return exchange_->sequence(); }

 private:
  void deliver();

  std::shared_ptr<Meeting> meeting_;
  std::shared_ptr<Exchange> exchange_;
  std::vector<at::Tensor> outputs_;
  Deliver deliver_;
  std::once_flag delivered_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace regather::comm
