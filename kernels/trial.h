// Which of several ways to do the same work is fastest, learnt from the work itself: the first calls take turns and are
// timed; nothing is done twice and nobody waits. Two rounds: a short one leaves those that are near the best, a longer
// one decides between them, when the device has come nearer to the state in which it will go on working.
#pragma once

#include <vector>

#include "kernels/linear_loss.h"

struct CUevent_st;

namespace regather::kernels {

class Trial {
 public:
  explicit Trial(int ways) : ways_(static_cast<size_t>(ways)) {}
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  // The way for the next call.
  int next();
  // Around that call's work.
  void begin(Stream stream);
  void end(int way, Stream stream);
  // Instead of `end`, where the way does not work here. False: it was not on trial, but chosen.
  bool exclude(int way);
  // Nothing is left to be tried.
  bool settled() const;
  // So far the best.
  int chosen() const { return chosen_; }

 private:
  struct Way {
    int enqueued = 0;  // in this round
    std::vector<float> milliseconds;
    bool out = false;
  };
  struct Timed {
    int way;
    CUevent_st* begin;
    CUevent_st* end;
  };
  void collect();
  void judge();

  std::vector<Way> ways_;
  std::vector<Timed> pending_;
  CUevent_st* begun_ = nullptr;
  int round_ = 0;
  bool timing_ = false;  // this call is part of the trial
  int chosen_ = 0;
};

}  // namespace regather::kernels
