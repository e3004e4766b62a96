#include "comm/rendezvous.h"

#include <ATen/Parallel.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <array>
#include <memory>
#include <vector>

#include "base/error.h"
#include "comm/gloo.h"
#include "comm/rank_end.h"

namespace regather::comm {
namespace {

// The address from which this host sends to another: what the other can answer to. Nothing is sent.
std::string address_towards(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  REGATHER_CHECK(failed == 0, "comm", "cannot look up '{}': {}", endpoint.host, ::gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    const int socket = ::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    std::array<char, NI_MAXHOST> text{};
    const bool known = ::connect(socket, at->ai_addr, at->ai_addrlen) == 0 &&
                       ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
                       ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text.data(), text.size(), nullptr, 0,
                                     NI_NUMERICHOST) == 0;
    ::close(socket);
    if (known) return text.data();
  }
  throw Error("comm", fmt::format("no way from this host to '{}'", endpoint.host), __FILE__, __LINE__);
}

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

c10::intrusive_ptr<c10d::Store> serve_store(uint16_t port) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = true;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>("0.0.0.0", options);
}

Rendezvous::Rendezvous(const Endpoint& endpoint, std::chrono::milliseconds patience)
    : address_(address_towards(endpoint)) {
  c10d::TCPStoreOptions options;
  options.port = endpoint.port;
  options.waitWorkers = false;
  options.timeout = patience;
  store_ = c10::make_intrusive<c10d::PrefixStore>(endpoint.prefix,
                                                  c10::make_intrusive<c10d::TCPStore>(endpoint.host, options));
}

void Rendezvous::post(const std::string& key, const std::string& text) { store_->set(key, bytes(text)); }

bool Rendezvous::posted(const std::string& key) { return store_->check({key}); }

std::string Rendezvous::read(const std::string& key, std::chrono::milliseconds patience) {
  store_->wait({key}, patience);
  const std::vector<uint8_t> value = store_->get(key);
  return {value.begin(), value.end()};
}

int64_t Rendezvous::count(const std::string& key, int64_t more) { return store_->add(key, more); }

RankEnd Rendezvous::run_rank_of(const std::string& meeting, int rank, const LaunchOptions& options,
                                const RankFunction& function) {
  try {
    pthread_setname_np(pthread_self(), fmt::format("rank {}", rank).c_str());
    at::set_num_threads(1);
    auto store = c10::make_intrusive<c10d::PrefixStore>(meeting, store_->clone());
    store->setTimeout(options.deadline);
    if (options.transport == nullptr) {
      World world = make_world(make_gloo(store, rank, options.world, options.deadline, address_),
                               c10d::ProcessGroup::GLOO, options.device);
      return run_rank(world, function);
    }
    const auto transport = options.transport(store, rank, options.world, options.deadline);
    World world = make_world(transport, c10d::ProcessGroup::CUSTOM, options.device);
    RankEnd end = run_rank(world, function);
    // What ranks that part without a word leave to be done is no longer wanted.
    end.error_type.empty() ? transport->shutdown() : transport->abort();
    return end;
  } catch (...) {
    return end_of_current_exception();
  }
}

}  // namespace regather::comm
