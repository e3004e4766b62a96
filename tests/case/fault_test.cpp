#include "case/fault.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "case/fixes.h"
#include "case/support.h"

namespace regather {
namespace {

TEST(Faults, EachNamesSupportedCasesThatAreGreenWithoutIt) {
  std::set<std::string> names;
  for (const FaultInfo& fault : known_faults()) {
    EXPECT_TRUE(names.insert(fault.name).second) << fault.name;
    EXPECT_EQ(parse_fault(fault.name), fault.fault);
    EXPECT_FALSE(fault.breaks.empty()) << fault.name;
    ASSERT_FALSE(fault.red.empty()) << fault.name;
    for (const std::string& red : fault.red) {
      const Case c = parse_id(red);
      EXPECT_EQ(id(c), red);
      EXPECT_FALSE(unsupported(c)) << red;
      EXPECT_TRUE(std::ranges::includes(c.fixes, recommended_fixes(c))) << red << " is not judged by passing";
    }
  }
  EXPECT_GE(names.size(), 8U);
}

TEST(Faults, NoneUnlessSeeded) {
  EXPECT_EQ(parse_fault(""), Fault::none);
  EXPECT_THROW(parse_fault("unknown"), UsageError);
  EXPECT_TRUE(fault_is(Fault::none));
  seed_fault(Fault::skip_mask);
  EXPECT_TRUE(fault_is(Fault::skip_mask));
  EXPECT_FALSE(fault_is(Fault::lost_wait));
  seed_fault(Fault::none);
}

}  // namespace
}  // namespace regather
