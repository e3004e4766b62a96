#include "comm/fault_work.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <utility>

namespace regather::comm {

DoneWork::DoneWork(std::vector<at::Tensor> outputs, comm::Work real)
    : outputs_(std::move(outputs)), real_(std::move(real)) {}

c10::intrusive_ptr<c10::ivalue::Future> DoneWork::getFuture() {
  if (real_) return real_->getFuture();
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
  future->markCompleted(c10::IValue(outputs_));
  return future;
}

ScaledWork::ScaledWork(std::vector<at::Tensor> outputs, double factor, comm::Work real)
    : outputs_(std::move(outputs)), factor_(factor), real_(std::move(real)) {}

void ScaledWork::scale() {
  std::call_once(scaled_, [this] {
    // Below autograd, as a transport writes.
    const at::AutoDispatchBelowADInplaceOrView below;
    for (at::Tensor& output : outputs_) output.mul_(factor_);
  });
}

bool ScaledWork::wait(std::chrono::milliseconds timeout) {
  const bool done = real_->wait(timeout);
  scale();
  return done;
}

bool ScaledWork::isCompleted() {
  if (!real_->isCompleted()) return false;
  if (real_->isSuccess()) scale();
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> ScaledWork::getFuture() {
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
  auto self = c10::intrusive_ptr<ScaledWork>::unsafe_reclaim_from_nonowning(this);
  real_->getFuture()->addCallback([self = std::move(self)](c10::ivalue::Future& real) {
    if (real.hasError()) return self->future_->setError(real.exception_ptr());
    self->scale();
    self->future_->markCompleted(real.value());
  });
  return future_;
}

}  // namespace regather::comm
