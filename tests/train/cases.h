// Runs a case by its id and says what was expected of it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "train/run_case.h"

namespace regather::train {

inline CaseResult run(const std::string& id, const RunOptions& options = {}) {
  static Runner runner;
  return runner.run(parse_id(id), options);
}

inline void expect_pass(const std::string& id) {
  const CaseResult result = run(id);
  EXPECT_EQ(result.outcome, Outcome::pass) << id << ": " << (result.signature ? result.signature->text : "");
}

inline void expect(const std::string& id, Outcome outcome, Phase phase, const std::string& mechanism,
                   const std::string& text = "") {
  const CaseResult result = run(id);
  ASSERT_TRUE(result.signature) << id << " is " << name(result.outcome);
  EXPECT_EQ(result.outcome, outcome) << id << ": " << result.signature->text;
  EXPECT_EQ(result.signature->phase, phase) << id << ": " << result.signature->text;
  EXPECT_EQ(result.signature->mechanism, mechanism) << id << ": " << result.signature->text;
  EXPECT_NE(result.signature->text.find(text), std::string::npos) << id << ": " << result.signature->text;
}

}  // namespace regather::train
