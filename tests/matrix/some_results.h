// A few results of every kind for the writers' golden files.
#pragma once

#include <vector>

#include "case/result.h"

namespace regather::matrix {

inline std::vector<CaseResult> some_results() {
  const auto result = [](const char* id, Outcome outcome) {
    CaseResult r;
    r.which = parse_id(id);
    r.outcome = outcome;
    r.milliseconds = 1.5;
    return r;
  };
  std::vector<CaseResult> list{
      result("ddp/sft/fix=none", Outcome::wrong_gradient),
      result("ddp/sft/fix=redirect", Outcome::pass),
      result("zero3/sft/fix=none", Outcome::error),
      result("zero3/sft/frozen=norms/fix=none", Outcome::crash),
      result("zero3/sft/fix=gather+redirect", Outcome::pass),
      result("zero3/sft/fix=gather+recompute_hold+redirect", Outcome::hang),
      result("fsdp2/sft/fix=redirect", Outcome::unsupported),
  };
  list[2].signature = Signature{"head_read_partitioned",
                                Phase::forward,
                                0,
                                0,
                                "Error",
                                "size mismatch, got input (16), mat (16x32), vec (0)",
                                ""};
  list[3].signature = Signature{"", Phase::backward, 1, 1, "signal 11 (SIGSEGV)", "line one\nline two", ""};
  list[6].reason = "backend fsdp2 is not in the reference runtime yet";
  return list;
}

}  // namespace regather::matrix
