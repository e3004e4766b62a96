// Where in the model a thread is, and where it was when an error passed: two stores where a module begins and ends.
//
// Modules and parameters are told by address; whoever has the model finds their names (train/where.h).
#pragma once

namespace regather {

struct Place {
  const void* module = nullptr;     // the innermost one that runs; null outside all
  const void* parameter = nullptr;  // its slot, of the parameter that was read last
};

// Of this thread.
constinit inline thread_local Place here{};
constinit inline thread_local Place failed{};  // of the latest error: the innermost module that it left; empty without

// Notes where an error arose unless the modules that it has left have done so. What is caught and no failure, a
// recompute that stops early, is forgotten when the next module begins, or with forget_failure().
inline void note_failure(const Place& place) {
  if (failed.module == nullptr && failed.parameter == nullptr) failed = place;
}
inline void forget_failure() { failed = {}; }

// While it lives, this thread runs the module. An exception that ends it before done() leaves a note.
class InModule {
 public:
  explicit InModule(const void* module) : before_(here.module) {
    here.module = module;
    forget_failure();
  }
  ~InModule() {
    if (!done_) note_failure(here);
    here.module = before_;
  }
  InModule(const InModule&) = delete;
  InModule& operator=(const InModule&) = delete;
  void done() { done_ = true; }

 private:
  const void* before_;
  bool done_ = false;
};

}  // namespace regather
