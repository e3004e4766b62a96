#include "matrix/plan/filter.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace regather::matrix {
namespace {

bool matches(const std::string& filter, const std::string& id) { return parse_filter(filter)(parse_id(id)); }

std::string error_of(const std::string& filter) {
  try {
    parse_filter(filter);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Filter, TheExampleOfTheInterfaces) {
  const std::string filter = "backend=zero3 & loss in (dpo,kto) & !fix=none";
  EXPECT_TRUE(matches(filter, "zero3/dpo/fix=gather"));
  EXPECT_TRUE(matches(filter, "zero3/kto/fix=gather+redirect"));
  EXPECT_FALSE(matches(filter, "zero3/kto/fix=none"));
  EXPECT_FALSE(matches(filter, "zero3/sft/fix=gather"));
  EXPECT_FALSE(matches(filter, "ddp/dpo/fix=redirect"));
}

TEST(Filter, AndBindsTighterThanOr) {
  EXPECT_TRUE(matches("backend=ddp | backend=zero3 & loss=kto", "ddp/sft/fix=none"));
  EXPECT_FALSE(matches("(backend=ddp | backend=zero3) & loss=kto", "ddp/sft/fix=none"));
  EXPECT_TRUE(matches("!(backend=ddp&loss=kto)", "ddp/sft/fix=none"));
  EXPECT_TRUE(matches("!!backend=ddp", "ddp/sft/fix=none"));
  EXPECT_TRUE(matches("  backend != zero3  ", "ddp/sft/fix=none"));
}

TEST(Filter, FixesAsASetAndOneByOne) {
  EXPECT_TRUE(matches("fix=redirect+gather", "zero3/sft/fix=gather+redirect")) << "in any order";
  EXPECT_FALSE(matches("fix=gather", "zero3/sft/fix=gather+redirect"));
  EXPECT_TRUE(matches("fix has gather", "zero3/sft/fix=gather+redirect"));
  EXPECT_TRUE(matches("fix in (none,gather+redirect)", "zero3/sft/fix=gather+redirect"));
}

TEST(Filter, EveryAxisAndValueIsUnderstood) {
  for (const Axis& axis : axes()) {
    for (const std::string& value : axis.values) {
      Case c;
      set_axis(c, axis.name, value);
      EXPECT_TRUE(parse_filter(axis.name + "=" + value)(c));
      EXPECT_FALSE(parse_filter(axis.name + "!=" + value)(c));
    }
  }
}

TEST(Filter, ErrorsNameThePosition) {
  EXPECT_EQ(error_of("backend=zero3 loss=sft"),
            "filter 'backend=zero3 loss=sft', position 15: found 'loss', expected '&', '|' or the end");
  EXPECT_EQ(error_of("backend"), "filter 'backend', position 8: found the end, expected '=', '!=' or 'in'");
  EXPECT_EQ(error_of("loss in (sft"), "filter 'loss in (sft', position 13: found the end, expected ')'");
  EXPECT_EQ(error_of("loss has sft"), "filter 'loss has sft', position 6: found 'has', expected '=', '!=' or 'in'");
  EXPECT_NE(error_of("").find("position 1: found the end"), std::string::npos);
  EXPECT_NE(error_of("depth=3").find("position 1: found 'depth', expected an axis"), std::string::npos);
  EXPECT_NE(error_of("world=3").find("position 7: '3' is not a value of world"), std::string::npos);
  EXPECT_NE(error_of("fix has gather+redirect").find("the name of one fix"), std::string::npos);
  EXPECT_NE(error_of("fix=magic").find("'magic' is not a fix"), std::string::npos);
  EXPECT_NE(error_of(std::string(5000, '(')).find("at most 100 nested"), std::string::npos);
  EXPECT_NE(error_of(std::string(5000, '!')).find("at most 100 nested"), std::string::npos);
  EXPECT_NE(error_of(std::string(100000, ' ')).find("at most"), std::string::npos);
}

}  // namespace
}  // namespace regather::matrix
