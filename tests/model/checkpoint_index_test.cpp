// model.safetensors.index.json: names of files inside the folder, and nothing else.
#include "model/checkpoint_index.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "scratch.h"

namespace regather::model {
namespace {

std::map<std::string, std::string> parse_one(const std::string& file) {
  return parse_index(nlohmann::json{{"weight_map", {{"w", file}}}}.dump(), "index");
}

TEST(CheckpointIndex, PlainNamesPass) {
  EXPECT_EQ(parse_one("model-00001-of-00002.safetensors").at("w"), "model-00001-of-00002.safetensors");
}

TEST(CheckpointIndex, NoNameLeavesTheFolder) {
  using namespace std::string_literals;
  for (const std::string& file : {"../w"s, "/etc/passwd"s, "a/b"s, "."s, ".."s, ""s, ".hidden"s, "a\\b"s, "a\0b"s}) {
    try {
      parse_one(file);
      ADD_FAILURE() << file;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("index: the file of tensor 'w' is '"), std::string::npos)
          << error.what();
    }
  }
}

TEST(CheckpointIndex, OtherFormsAreRefused) {
  for (const char* text :
       {"", "[]", "{}", R"({"weight_map":{}})", R"({"weight_map":[]})", R"({"weight_map":{"w":1}})"}) {
    EXPECT_THROW(parse_index(text, "index"), UsageError) << text;
  }
}

TEST(CheckpointIndex, AFolderWithoutEitherFileSaysSo) {
  const Scratch scratch;
  std::ofstream(scratch.path() / "pytorch_model.bin") << "x";
  try {
    find_checkpoint(scratch.path());
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("pytorch_model.bin is not read"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace regather::model
