// How a rank ended: from the exception in flight to a RankEnd, the same for threads and processes.
#pragma once

#include <exception>

#include "comm/launch.h"

namespace regather::comm {

// Whose fault an error is: another rank went away, or kept this one waiting past the deadline, or none of these.
enum class Cause { own, peer, deadline };
Cause cause_of(const std::exception& error);

// Of the exception being handled; call it from a catch block. The error's type is its demangled C++ name ("hang" for
// a passed deadline); the text of a torch error comes without its backtrace.
RankEnd end_of_current_exception();

// Runs the function on this thread and turns whatever it throws into a RankEnd. Throws nothing.
RankEnd run_rank(World& world, const RankFunction& function);

}  // namespace regather::comm
