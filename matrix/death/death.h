// The death of a worker or of a rank, out of what it left behind: what it is, where it was, and who is to blame.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/blackbox.h"
#include "case/result.h"

namespace regather::matrix {

// How a worker was lost, as the runner saw it.
struct Death {
  Outcome outcome = Outcome::crash;  // or hang
  std::string type;                  // "signal 11 (SIGSEGV)", "exit 3", "timeout", "reply"
  std::string text;                  // what is known besides, may be empty
  std::string error_tail;            // the end of the worker's standard error
  std::vector<int> stopped{};        // ranks whose processes are stopped (SIGSTOP, a debugger)
  std::optional<int> only{};         // the one rank that the worker played, where others play the rest
};

// A death as it is recorded.
struct RecordedDeath {
  CaseResult result;
  // The `death` member of its line, as JSON: rank, step, phase, signal, last_collective and the rank's backtrace; of a
  // hang also `ranks`, each with its state, last collectives and backtrace. How far the others came before a crash is
  // chance, and not recorded.
  std::string details;

  // The result line with its `death`.
  std::string line() const;
};

// Of a worker that is gone: outcome and signature, step, phase and rank from the black box. The rank is the one that
// the worker's standard error names ("stack of rank 1" of a fatal signal, "on rank 1"), of a hang the one that the
// others wait for. A hang's text tells of every rank and its last collectives, a crash's of the rank alone.
RecordedDeath describe_death(const Case& c, const Death& death, const BlackBox& box);

// Of a rank, as its worker has told in its answer. What it had written shows in which function.
RecordedDeath describe_told_death(CaseResult told, const std::string& error_tail, const BlackBox& box);

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

}  // namespace regather::matrix
