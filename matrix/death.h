// The result of a case that killed or hung its worker, out of what the worker left behind.
#pragma once

#include <string>
#include <vector>

#include "base/blackbox.h"
#include "case/result.h"

namespace regather::matrix {

struct Death {
  Outcome outcome = Outcome::crash;  // or hang
  std::string type;                  // "signal 11 (SIGSEGV)", "exit 3", "timeout", "reply"
  std::string text;                  // what is known besides, may be empty
  std::string error_tail;            // the end of the worker's standard error
  std::vector<int> stopped{};        // ranks whose processes are stopped (SIGSTOP, a debugger)
};

// Outcome and signature: step, phase and rank from the black box. The rank is the one that is stopped, or that the
// worker's standard error names ("stack of rank 1" of a fatal signal, "on rank 1"), else the one that entered the
// fewest collectives, for which the others wait, else one whose last collective is not the others'. A hang's text tells
// of every rank and its last collectives; a crash's of the rank alone, since how far the others came is chance.
CaseResult describe_death(const Case& c, const Death& death, const BlackBox& box);

// To a death that a worker has told of itself: the stack of its rank, from the worker's standard error.
void add_stack(CaseResult& result, const std::string& error_tail);

// Whether a result tells that a rank or its worker died or hung, be it the outcome or something after another failure.
bool tells_of_death(const CaseResult& result);

// Makes a death that came after another failure the outcome. Such a result has a signature then.
void put_death_first(CaseResult& result);

// Whether a death came by a signal that nobody here has sent and that no case raises itself: SIGKILL, SIGTERM, SIGINT,
// SIGHUP, or one of which the worker has said (`output`) that another process sent it.
bool from_outside(const CaseResult& death, const std::string& output);

// The kernel ran out of memory: what died of SIGKILL becomes oom.
void blame_memory(CaseResult& death);

// Whether the worker died before it began any case.
bool before_first_case(const BlackBox& box);

// Whether the case is the one that the worker had begun last. A worker that dies between two cases dies of neither.
bool had_begun(const Case& c, const BlackBox& box);

}  // namespace regather::matrix
