#include "comm/shared_work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <cstring>
#include <utility>

#include "base/error.h"

namespace regather::comm {

Target::Target(const at::Tensor& tensor)
    : storage_(tensor.storage()),
      base_(storage_.data()),
      data_(static_cast<std::byte*>(tensor.mutable_data_ptr())),
      bytes_(tensor.nbytes()) {}

std::byte* Target::data() const {
  REGATHER_CHECK(storage_.data() == base_, "comm",
                 "the storage of a collective's output was resized before its wait: keep it until then");
  return data_;
}

void Target::write(const std::byte* from, size_t bytes, size_t skip) const {
  if (bytes > 0) std::memcpy(data() + skip, from, bytes);
}

SharedWork::SharedWork(int rank, c10d::OpType type, std::shared_ptr<Meeting> meeting,
                       std::shared_ptr<Exchange> exchange, std::vector<at::Tensor> outputs, Deliver deliver)
    : Work(rank, type),
      meeting_(std::move(meeting)),
      exchange_(std::move(exchange)),
      outputs_(std::move(outputs)),
      deliver_(std::move(deliver)) {}

void SharedWork::deliver() {
  std::call_once(delivered_, [this] {
    if (deliver_) deliver_(*exchange_);
  });
}

bool SharedWork::wait(std::chrono::milliseconds timeout) {
  if (timeout > kNoTimeout) {
    meeting_->wait(*exchange_, timeout);
  } else {
    meeting_->wait(*exchange_);
  }
  deliver();
  return true;
}

bool SharedWork::isCompleted() {
  if (!exchange_->complete()) return meeting_->error(*exchange_) != nullptr;
  deliver();
  return true;
}

bool SharedWork::isSuccess() const { return exchange_->complete(); }

std::exception_ptr SharedWork::exception() const { return meeting_->error(*exchange_); }

c10::intrusive_ptr<c10::ivalue::Future> SharedWork::getFuture() {
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
  // The notice keeps this work alive until the exchange ends; the meeting ends every exchange (meeting.h).
  auto self = c10::intrusive_ptr<SharedWork>::unsafe_reclaim_from_nonowning(this);
  meeting_->notify(*exchange_, [self = std::move(self)](const std::exception_ptr& error) {
    if (error) return self->future_->setError(error);
    try {
      self->deliver();
    } catch (...) {
      return self->future_->setError(std::current_exception());
    }
    self->future_->markCompleted(c10::IValue(self->outputs_));
  });
  return future_;
}

}  // namespace regather::comm
