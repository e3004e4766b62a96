// Where the ranks of one process meet: each call of a collective is an exchange with a sequence number, to which every
// rank brings an offer. Knows ranks, order, deadlines and failures; nothing of tensors.
//
// Life of an exchange: every rank arrives once and never blocks; the last arrival compares the offers and, when they
// agree, completes the exchange, after which the offers are constant and any rank may read all of them. A meeting fails
// once and for all: offers that disagree, a deadline that passes, a rank that leaves while others need it. What was
// complete before a failure stays readable; everything else ends with the same kind of error on every rank.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace regather::comm {

// What one rank brings to an exchange.
class Offer {
 public:
  virtual ~Offer() = default;
  virtual const char* name() const = 0;  // outlives the offer; "all_reduce"
  virtual std::string text() const = 0;  // "all_reduce sum Float [16]"
  virtual bool agrees(const Offer& other, int rank, int other_rank) const = 0;
};

class Exchange {
 public:
  Exchange(uint64_t sequence, int size);

  uint64_t sequence() const { return sequence_; }  // from 1
  bool complete() const { return complete_.load(std::memory_order_acquire); }
  // Requires complete().
  const Offer& offer(int rank) const { return *offers_[static_cast<size_t>(rank)]; }

 private:
  friend class Meeting;
  using Clock = std::chrono::steady_clock;
  struct Notice {
    Clock::time_point since;
    std::function<void(std::exception_ptr)> call;
  };

  uint64_t sequence_;
  std::vector<std::unique_ptr<Offer>> offers_;  // by rank; null until that rank arrives
  int arrived_ = 0;
  std::vector<Notice> notices_;
  std::atomic<bool> complete_{false};
};

// Thread-safe: each rank is one thread, and each call names its rank.
class Meeting {
 public:
  // `deadline` bounds each wait; it counts from the start of the wait.
  Meeting(int size, std::chrono::milliseconds deadline);
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  int size() const { return size_; }
  std::chrono::milliseconds deadline() const { return deadline_; }

  // Brings `offer` to the rank's next exchange. Never blocks and never throws an error of the meeting: those come from
  // wait() and notices. The last rank to arrive runs the notices of the others.
  std::shared_ptr<Exchange> arrive(int rank, std::unique_ptr<Offer> offer);

  // Returns when the exchange is complete. Throws MismatchError, DeadlineError or PeerError (errors.h).
  void wait(Exchange& exchange) { wait(exchange, deadline_); }
  void wait(Exchange& exchange, std::chrono::milliseconds deadline);

  // Calls `notice` once: with null when the exchange is complete, with the error when the meeting failed. It runs on
  // this thread when that is so already, else on the thread that completes or fails the exchange, under no lock. It
  // must not throw. Its deadline needs somebody in watch().
  void notify(Exchange& exchange, std::function<void(std::exception_ptr)> notice);

  // The rank takes part no longer: `reason` is empty when it returned, else what it threw. Exchanges that need it fail.
  void leave(int rank, const std::string& reason = {});

  // Blocks until every rank has left. Fails the meeting when a notice has waited for longer than the deadline.
  void watch();

  // The error of this exchange, null while the meeting is sound or when the exchange is complete.
  std::exception_ptr error(const Exchange& exchange);

 private:
  enum class Kind { mismatch, deadline, peer };
  struct Failure {
    Kind kind;
    std::string text;
    int absent = -1;  // of a passed deadline: the first rank that did not arrive
  };
  struct Member {
    uint64_t arrived = 0;             // sequence of its last arrival
    const char* last = nullptr;       // name of its last collective
    std::optional<std::string> left;  // how it left
  };
  using Notices = std::vector<std::function<void()>>;

  // All under the lock. Those that end exchanges return what the caller must run once the lock is released.
  Notices complete(const std::shared_ptr<Exchange>& exchange);
  Notices fail(Failure failure);
  Notices fail_on_leavers();
  Failure late(const Exchange& exchange, std::chrono::milliseconds waited) const;
  bool disagree(const Exchange& exchange) const;
  std::string offers_text(const Exchange& exchange) const;
  std::vector<int> absent(const Exchange& exchange) const;
  std::exception_ptr failure_of(const Exchange& exchange) const;

  const int size_;
  const std::chrono::milliseconds deadline_;
  const int looks_;  // at an exchange before giving the core away
  std::mutex mutex_;
  std::condition_variable changed_;  // an exchange completed or the meeting failed
  std::condition_variable emptied_;  // every rank has left
  int sleepers_ = 0;                 // threads waiting on changed_
  std::atomic<bool> failed_{false};  // failure_ is set; lets spinning ranks look without the lock
  std::optional<Failure> failure_;
  std::vector<Member> members_;
  int left_ = 0;
  uint64_t first_ = 1;                          // sequence of open_.front()
  std::deque<std::shared_ptr<Exchange>> open_;  // not complete, in order
};

}  // namespace regather::comm
