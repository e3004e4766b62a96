#include "matrix/runner/protocol.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace regather::matrix {
namespace {

TEST(Protocol, ARequestIsOneLineAndReadsBack) {
  Request r;
  r.id = "zero3/sft/fix=none";
  r.transport = "nccl";
  r.launcher = "processes";
  r.attempt = 2;
  r.seed = 18446744073709551615ULL;
  r.fault = "skip_mask";
  r.timeout = 0.5;
  r.record = true;
  r.locate = true;
  const std::string line = print_request(r);
  EXPECT_EQ(
      line,
      R"({"id":"zero3/sft/fix=none","device":"cpu","transport":"nccl","launcher":"processes","attempt":2,)"
      R"("model":null,"seed":18446744073709551615,"fault":"skip_mask","timeout":0.5,"record":true,"locate":true})");
  EXPECT_EQ(parse_request(line), r);
  r.model = "/models/with \"quotes\"\nand lines";
  EXPECT_EQ(print_request(r).find('\n'), std::string::npos);
  EXPECT_EQ(parse_request(print_request(r)), r);
}

TEST(Protocol, WhatIsNoRequestIsAUsageError) {
  for (const char* line : {"", "{}", "[]", "{\"id\":3}", "nonsense"}) EXPECT_THROW(parse_request(line), UsageError);
}

}  // namespace
}  // namespace regather::matrix
