// out/cases.jsonl: one line an attempt, appended whole and never rewritten, so that a run killed at any point resumes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "case/result.h"

namespace regather::matrix {

struct LedgerLine {
  CaseResult result;
  std::string text;
};

// The lines of a file, whatever their plan, without a torn last one. Throws UsageError naming the line that is none.
std::vector<LedgerLine> read_ledger(const std::string& path);

class Ledger {
 public:
  // Opens `path` for a plan: empties it, or with `resume` keeps its lines and cuts off a torn last one. Each line
  // carries the plan's hash. Throws UsageError when the file cannot be opened, when another run writes it, or when it
  // holds lines of other plans only.
  Ledger(std::string path, std::string plan_hash, bool resume);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // The plan's lines of earlier runs; empty without `resume`.
  const std::vector<LedgerLine>& earlier() const { return earlier_; }

  // Writes one line at once; returns it as written. Throws Error("ledger") when the disk does not take it.
  std::string append(std::string_view line);

 private:
  void read_earlier();

  std::string path_;
  std::string plan_hash_;
  int file_ = -1;
  std::vector<LedgerLine> earlier_;
};

}  // namespace regather::matrix
