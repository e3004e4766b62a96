// Which of several ways to do the same work is fastest, learnt from the work itself: the first calls take turns and are
// timed; nothing is done twice and nobody waits.
#pragma once

#include <vector>

#include "kernels/linear_loss.h"

struct CUevent_st;

namespace regather::kernels {

class Trial {
 public:
  explicit Trial(int ways) : best_(static_cast<size_t>(ways), 0), tried_(static_cast<size_t>(ways), 0) {}
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  // The way for the next call.
  int next();
  // Around the call's work, where `next` asked for a way that is still on trial.
  void begin(Stream stream);
  void end(int way, Stream stream);
  // A way that does not work here.
  void exclude(int way);

 private:
  struct Timed {
    int way;
    CUevent_st* begin;
    CUevent_st* end;
  };
  void collect();

  std::vector<float> best_;  // milliseconds; 0: not known
  std::vector<int> tried_;
  std::vector<Timed> pending_;
  CUevent_st* begun_ = nullptr;
  bool timing_ = false;   // this call is part of the trial
  bool settled_ = false;  // all times are known
  int chosen_ = 0;
};

}  // namespace regather::kernels
