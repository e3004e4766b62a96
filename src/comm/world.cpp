#include "comm/world.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "comm/observed.h"

namespace regather::comm {
namespace {

Observed* observed(c10d::ProcessGroup& group, at::Device device) {
  auto* backend = dynamic_cast<Observed*>(group.getBackend(device.type()).get());
  REGATHER_CHECK(backend != nullptr, "comm",
                 "the group's backend for tensors on {} is not observed: build it with make_world()", device.str());
  return backend;
}

}  // namespace

World::World(int rank, int size, c10::intrusive_ptr<c10d::ProcessGroup> group,
             std::shared_ptr<std::map<std::string, CollectiveCount>> counts, at::Device device)
    : rank_(rank),
      size_(size),
      group_(std::move(group)),
      backend_(observed(*group_, device)),
      counts_(std::move(counts)),
      device_(device) {}

World make_world(c10::intrusive_ptr<c10d::Backend> transport, c10d::ProcessGroup::BackendType type, at::Device device) {
  const int rank = transport->getRank();
  const int size = transport->getSize();
  auto counts = std::make_shared<std::map<std::string, CollectiveCount>>();
  auto group = c10::make_intrusive<c10d::ProcessGroup>(rank, size);
  group->setDefaultBackend(type);
  group->setBackend(device.type(), type, c10::make_intrusive<Observed>(std::move(transport), counts));
  group->setGroupName("world");
  group->setGroupDesc("every rank");
  return World(rank, size, std::move(group), std::move(counts), device);
}

// The backend is called straight: the dispatcher adds nothing here, and ProcessGroup::barrier() goes through a static
// tensor that thread ranks would share.
Work World::all_gather(at::Tensor& output, const at::Tensor& input) {
  at::Tensor in = input;
  return backend_->_allgather_base(output, in, {});
}

Work World::all_gather(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs) {
  return backend_->allgather_into_tensor_coalesced(outputs, inputs, {});
}

Work World::reduce_scatter(at::Tensor& output, const at::Tensor& input) {
  at::Tensor in = input;
  return backend_->_reduce_scatter_base(output, in, {});
}

Work World::reduce_scatter(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs) {
  return backend_->reduce_scatter_tensor_coalesced(outputs, inputs, {});
}

Work World::all_reduce(at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  return backend_->allreduce(tensors, {});
}

Work World::broadcast(at::Tensor& tensor, int root) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return backend_->broadcast(tensors, options);
}

void World::barrier() { backend_->barrier({})->wait(); }

// By rank; both on the CPU.
at::Tensor World::gather_for_check(const at::Tensor& mine) {
  at::Tensor input = mine.to(device_);
  at::Tensor output = at::empty({mine.numel() * size_}, input.options());
  backend_->check_gather(output, input)->wait();
  return output.cpu();
}

std::vector<int64_t> World::all_gather_int(int64_t mine) {
  at::Tensor input = at::empty({1}, at::kLong);
  *input.mutable_data_ptr<int64_t>() = mine;
  const at::Tensor all = gather_for_check(input);
  const int64_t* values = all.const_data_ptr<int64_t>();
  return {values, values + size_};
}

std::vector<std::string> World::all_gather_text(const std::string& mine) {
  const std::vector<int64_t> lengths = all_gather_int(static_cast<int64_t>(mine.size()));
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::vector<std::string> texts(lengths.size());
  if (longest == 0) return texts;
  at::Tensor input = at::zeros({longest}, at::kByte);
  std::memcpy(input.mutable_data_ptr(), mine.data(), mine.size());
  const at::Tensor all = gather_for_check(input);
  const char* bytes = static_cast<const char*>(all.const_data_ptr());
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    texts[rank].assign(bytes + static_cast<int64_t>(rank) * longest, static_cast<size_t>(lengths[rank]));
  }
  return texts;
}

}  // namespace regather::comm
