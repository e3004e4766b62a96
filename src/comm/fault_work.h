// The works that seeded faults hand back in place of the real one.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <mutex>
#include <vector>

#include "comm/world.h"

namespace regather::comm {

// Claims to be complete with whatever `outputs` hold. The real work, if any, is kept alive but never waited for; its
// future stays the real one.
class DoneWork : public c10d::Work {
 public:
  explicit DoneWork(std::vector<at::Tensor> outputs, comm::Work real = {});
  bool wait(std::chrono::milliseconds) override { return true; }
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  void synchronize() override {}
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<at::Tensor> outputs_;
  comm::Work real_;
};

// The real work, whose outputs are multiplied by `factor` once they have arrived.
class ScaledWork : public c10d::Work {
 public:
  ScaledWork(std::vector<at::Tensor> outputs, double factor, comm::Work real);
  bool wait(std::chrono::milliseconds timeout) override;
  bool isCompleted() override;
  bool isSuccess() const override { return real_->isSuccess(); }
  std::exception_ptr exception() const override { return real_->exception(); }
  void synchronize() override { wait(kNoTimeout); }
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void scale();

  std::vector<at::Tensor> outputs_;
  double factor_;
  comm::Work real_;
  std::once_flag scaled_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace regather::comm
