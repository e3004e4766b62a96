// How processes that others have started find each other: a c10d TCPStore at an address that all of them know.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <string>

#include "comm/launch.h"

namespace regather::comm {

struct Endpoint {
  std::string host;
  uint16_t port = 0;
  std::string prefix;  // of every key, where others use the same store
};

// Serves a store on the port until it goes. Throws c10d's error when the port is taken.
c10::intrusive_ptr<c10d::Store> serve_store(uint16_t port);

// A client of the store; waits `patience` for it to be there.
class Rendezvous {
 public:
  Rendezvous(const Endpoint& endpoint, std::chrono::milliseconds patience);

  void post(const std::string& key, const std::string& text);
  bool posted(const std::string& key);
  // Blocks until the key is posted; throws c10d's error once `patience` is over or the store is gone.
  std::string read(const std::string& key, std::chrono::milliseconds patience);
  // Adds and returns the sum; a key that nobody has counted starts at 0.
  int64_t count(const std::string& key, int64_t more);

  // Runs the function as rank `rank` of `options.world`, with those who name the same meeting. gloo listens
  // on the address from which this host reaches the store, or on the interface GLOO_SOCKET_IFNAME.
  RankEnd run_rank_of(const std::string& meeting, int rank, const LaunchOptions& options, const RankFunction& function);

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::string address_;  // of this host
};

}  // namespace regather::comm
