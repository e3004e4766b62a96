#include "matrix/bench/matrix_speed.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace regather::matrix {
namespace {

// Whether each line says what stands in its place.
testing::AssertionResult say(const std::vector<std::string>& lines, const std::vector<std::string>& parts) {
  if (lines.size() != parts.size()) return testing::AssertionFailure() << lines.size() << " lines";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find(parts[i]) == std::string::npos) return testing::AssertionFailure() << lines[i];
  }
  return testing::AssertionSuccess();
}

std::string document(const std::string& extra = "") {
  return R"({"context":{},"benchmarks":[
    {"name":"backend/zero3/process_time/real_time","run_type":"iteration","time_unit":"ms","real_time":900,
     "cpu_time":1400,"items_per_second":66.5,"cpu_ms":22.0,"bare_ms":11.0,"factor":2.0},
    {"name":"ranks/zero3/1/process_time/real_time","run_type":"iteration","time_unit":"ms","real_time":90,"cpu_time":80},
    {"name":"ranks/zero3/8/process_time/real_time","run_type":"iteration","time_unit":"ms","real_time":500,"cpu_time":704},
    {"name":"stage/line/process_time/real_time","run_type":"iteration","time_unit":"ms","real_time":0.05,"cpu_time":0.05})" +
         extra + "]}";
}

TEST(CaseSpeed, IsReadOffTheBenchmarksOwnDocument) {
  const CaseSpeed speed = read_case_speed(document());
  ASSERT_EQ(speed.backends.size(), 1U);
  EXPECT_EQ(speed.backends[0].backend, "zero3");
  EXPECT_DOUBLE_EQ(speed.backends[0].factor, 2);
  ASSERT_EQ(speed.fits.size(), 1U);
  EXPECT_EQ(speed.fits[0].name, "ranks/zero3");
  EXPECT_NEAR(speed.fits[0].unit_ms, (80 + 8 * 704) / 65.0, 1e-9);
  EXPECT_NEAR(speed.fits[0].rms_percent, 1.44, 0.01);
  EXPECT_DOUBLE_EQ(speed.fits[0].growth, 1.1);  // 704 / 8 over 80 / 1
  ASSERT_EQ(speed.stages.size(), 1U);
  EXPECT_EQ(speed.stages[0].name, "line");
}

TEST(CaseSpeed, ABenchmarkThatFailedIsAnError) {
  const std::string failed = R"(,{"name":"backend/ddp/process_time/real_time","run_type":"iteration",
    "error_occurred":true,"error_message":"ddp/sft/fix=none does not pass"})";
  try {
    read_case_speed(document(failed));
    FAIL() << "read as if nothing had happened";
  } catch (const Error& e) {
    EXPECT_TRUE(say({e.what()}, {"ddp/sft/fix=none does not pass"}));
  }
}

TEST(CaseSpeed, WhatIsNoBenchmarkDocumentIsAnError) {
  for (const char* text : {"", "{}", R"({"benchmarks":[]})", R"({"benchmarks":[{"name":3}]})"}) {
    EXPECT_THROW(read_case_speed(text), Error) << text;
  }
}

TEST(SpeedBudget, NamesEachThingThatIsOverIt) {
  const CaseSpeed cases{.backends = {{"zero3", 60, 22, 11, 2}}, .fits = {{"cases", 20, 3, 1}}, .stages = {}};
  EXPECT_TRUE(say(over_budget({.cases = 600, .seconds = 9, .memory_gib = 1}, cases, {}), {}));
  EXPECT_TRUE(say(over_budget({.cases = 600, .seconds = 11, .memory_gib = 2.5}, cases, {}),
                  {"seconds of the card: 11.00", "GiB", "runs a second: 54.5"}));
  const CaseSpeed slow{.backends = {{"zero3", 60, 34, 11, 3.1}}, .fits = {{"ranks/zero3", 20, 3, 1.6}}, .stages = {}};
  EXPECT_TRUE(say(over_budget({.cases = 600, .seconds = 9, .memory_gib = 1}, slow, {}),
                  {"factor of zero3: 3.10", "ranks/zero3: 1.60"}));
}

}  // namespace
}  // namespace regather::matrix
