// The safetensors header as somebody else may have written it.
#include "model/safetensors_header.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/error.h"
#include "model/safetensors_file.h"
#include "safetensors_writer.h"
#include "scratch.h"

namespace regather::model {
namespace {

SafetensorsHeader parse(const std::string& bytes) { return parse_header(bytes, bytes.size(), "a.safetensors"); }

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(SafetensorsHeader, ReadsWhatTheFormatAllows) {
  const auto header = parse(raw_safetensors(
      R"({"__metadata__":{"format":"pt","":"x"},"a":)" + tensor("F32", "[2,3]", "[0,24]") + R"(,"scalar":)" +
          tensor("I64", "[]", "[24,32]") + R"(,"empty":)" + tensor("BF16", "[0,7]", "[24,24]") + "}   ",
      std::string(32, 'x')));
  EXPECT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors.at("a").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header.tensors.at("scalar").dtype, "I64");
  EXPECT_EQ(header.tensors.at("empty").end, 24u);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_TRUE(parse(raw_safetensors("{}")).tensors.empty());
}

struct Bad {
  const char* name;
  std::string bytes;
  std::vector<std::string> words;  // that the message has to have
};

std::string one(const std::string& body, size_t data) {
  return raw_safetensors(R"({"w":)" + body + "}", std::string(data, 'x'));
}

std::vector<Bad> bad_files() {
  const std::string good = tensor("F32", "[2]", "[0,8]");
  const std::string huge = "18446744073709551615";
  return {
      {"Empty", "", {"0 bytes", "at least 8"}},
      {"SevenBytes", "1234567", {"7 bytes", "at least 8"}},
      {"LengthBeyondTheEnd", raw_safetensors("{}", "", 3), {"header of 3 bytes in a file of 10", "truncated"}},
      {"LengthAboveTheLimit", raw_safetensors("{}", "", 100000001), {"100000001", "at most 100000000"}},
      {"LengthOfAllOnes", std::string(8, '\xff') + "{}", {huge, "at most"}},
      {"EmptyHeader", raw_safetensors(""), {"does not begin with '{'"}},
      {"LeadingSpace", raw_safetensors(" {}"), {"does not begin with '{'"}},
      {"Array", raw_safetensors("[]"), {"does not begin with '{'"}},
      {"NotJson", raw_safetensors("{]"), {"not JSON at byte 2"}},
      {"CutJson", raw_safetensors(R"({"w":{"dtype":"F32")"), {"not JSON"}},
      {"TextAfter", raw_safetensors("{}x"), {"not JSON at byte 3"}},
      {"BadUtf8", raw_safetensors("{\"\xff\":1}"), {"not JSON"}},
      {"DeepNesting", raw_safetensors(R"({"w":)" + std::string(100000, '[')), {"'w'", "array"}},
      {"DeepObjects", raw_safetensors(R"({"w":{"dtype":{"a":{)"), {"'w'", "object"}},
      {"TensorIsNumber", raw_safetensors(R"({"w":3})"), {"'w'", "the number 3"}},
      {"TensorIsString", raw_safetensors(R"({"w":"F32"})"), {"'w'", "'F32'"}},
      {"TensorIsArray", raw_safetensors(R"({"w":[1]})"), {"'w'", "array"}},
      {"TensorIsNull", raw_safetensors(R"({"w":null})"), {"'w'", "null"}},
      {"TensorIsTrue", raw_safetensors(R"({"w":true})"), {"'w'", "boolean"}},
      {"MetadataIsString", raw_safetensors(R"({"__metadata__":"x"})"), {"'__metadata__'"}},
      {"MetadataOfNumbers", raw_safetensors(R"({"__metadata__":{"a":1}})"), {"'__metadata__'", "the number 1"}},
      {"MetadataOfArrays", raw_safetensors(R"({"__metadata__":{"a":[]}})"), {"'__metadata__'", "array"}},
      {"MetadataTwice", raw_safetensors(R"({"__metadata__":{},"__metadata__":{}})"), {"'__metadata__'", "twice"}},
      {"MetadataKeyTwice", raw_safetensors(R"({"__metadata__":{"a":"","a":""}})"), {"'a'", "twice"}},
      {"NameTwice",
       raw_safetensors(R"({"w":)" + good + R"(,"w":)" + good + "}", std::string(8, 'x')),
       {"'w'", "twice"}},
      {"FieldTwice",
       one(R"({"dtype":"F32","dtype":"F32","shape":[],"data_offsets":[0,4]})", 4),
       {"'w'", "dtype", "twice"}},
      {"UnknownField", one(R"({"dtype":"F32","stride":[1]})", 0), {"'w'", "'stride'", "expected dtype"}},
      {"NoDtype", one(R"({"shape":[],"data_offsets":[0,4]})", 4), {"'w'", "absent"}},
      {"NoShape", one(R"({"dtype":"F32","data_offsets":[0,4]})", 4), {"'w'", "absent"}},
      {"NoOffsets", one(R"({"dtype":"F32","shape":[1]})", 4), {"'w'", "absent"}},
      {"EmptyTensor", one("{}", 0), {"'w'", "absent"}},
      {"DtypeIsNumber", one(R"({"dtype":1})", 0), {"'w'", "the number 1"}},
      {"DtypeIsArray", one(R"({"dtype":[1]})", 0), {"'w'", "array"}},
      {"UnknownDtype", one(tensor("F33", "[2]", "[0,8]"), 8), {"'w'", "unknown dtype 'F33'"}},
      {"ShapeIsNumber", one(R"({"dtype":"F32","shape":4})", 0), {"'w'", "the number 4"}},
      {"ShapeOfStrings", one(R"({"dtype":"F32","shape":["4"]})", 0), {"'w'", "'4'"}},
      {"NegativeDimension", one(tensor("F32", "[-2]", "[0,8]"), 8), {"'w'", "the number -2"}},
      {"FractionalDimension", one(tensor("F32", "[2.0]", "[0,8]"), 8), {"'w'", "'2.0'"}},
      {"DimensionAboveInt64", one(tensor("F32", "[" + huge + "]", "[0,8]"), 8), {"'w'", huge, "too large"}},
      {"DimensionAboveUint64", one(tensor("F32", "[" + huge + "0]", "[0,8]"), 8), {"'w'"}},
      {"ProductOverflows", one(tensor("F32", "[4294967296,4294967296]", "[0,0]"), 0), {"'w'", "below 2^64"}},
      {"ProductOverflowsToTheRightSize",
       one(tensor("U8", "[4294967296,4294967297]", "[0,0]"), 0),
       {"'w'", "below 2^64"}},
      {"TooManyDimensions",
       [] {
         std::string shape = "[1";
         for (int i = 0; i < 64; ++i) shape += ",1";
         return one(tensor("F32", shape + "]", "[0,4]"), 4);
       }(),
       {"'w'", "more than 64 dimensions"}},
      {"HalfABytesWorth", one(tensor("F4", "[3]", "[0,2]"), 2), {"'w'", "F4 [3]", "whole number of bytes"}},
      {"OneOffset", one(tensor("F32", "[2]", "[0]"), 8), {"'w'", "data_offsets of 1 numbers"}},
      {"ThreeOffsets", one(tensor("F32", "[2]", "[0,8,8]"), 8), {"'w'", "more than two"}},
      {"NegativeOffset", one(tensor("F32", "[2]", "[-8,0]"), 8), {"'w'", "the number -8"}},
      {"NestedOffsets", one(tensor("F32", "[2]", "[[0,8]]"), 8), {"'w'", "array"}},
      {"OffsetsBackwards", one(tensor("F32", "[2]", "[8,0]"), 8), {"'w'", "[8, 0] run backwards"}},
      {"TooFewBytes", one(tensor("F32", "[3]", "[0,8]"), 8), {"'w'", "F32 [3] needs 12 bytes", "hold 8"}},
      {"TooManyBytes", one(tensor("F32", "[1]", "[0,8]"), 8), {"'w'", "needs 4 bytes", "hold 8"}},
      {"OffsetBeyondTheData", one(good, 7), {"'w'", "end at 8, the file's data at 7", "truncated"}},
      {"OffsetNear2To64", one(tensor("U8", "[1]", "[18446744073709551614," + huge + "]"), 1), {"'w'", "expected 0"}},
      {"HoleAtTheStart", one(tensor("F32", "[2]", "[4,12]"), 12), {"'w'", "begin at 4", "expected 0", "hole"}},
      {"DataAfterTheLast", one(good, 9), {"9 bytes of data", "cover 8"}},
      {"DataWithoutTensors", raw_safetensors("{}", "x"), {"1 bytes of data", "cover 0"}},
      {"Overlap",
       raw_safetensors(R"({"v":)" + good + R"(,"w":)" + tensor("F32", "[2]", "[4,12]") + "}", std::string(12, 'x')),
       {"'w'", "begin at 4", "expected 8", "overlap"}},
      {"HoleBetween",
       raw_safetensors(R"({"v":)" + good + R"(,"w":)" + tensor("F32", "[2]", "[12,20]") + "}", std::string(20, 'x')),
       {"'w'", "begin at 12", "expected 8", "hole"}},
      {"NameThatWouldMoveTheCursor", raw_safetensors(R"({"\u001b[2J":1})"), {R"('\x1b[2J')"}},
      {"LongName", raw_safetensors("{\"" + std::string(5000, 'n') + "\":1}"), {std::string(160, 'n') + "'..."}},
  };
}

class BadHeader : public testing::TestWithParam<Bad> {};

TEST_P(BadHeader, IsRefusedInTheTermsOfTheFile) {
  try {
    parse(GetParam().bytes);
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find("a.safetensors: "), 0u) << text;
    EXPECT_LT(text.size(), 600u);
    for (const auto& word : GetParam().words)
      EXPECT_NE(text.find(word), std::string::npos) << word << " not in: " << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, BadHeader, testing::ValuesIn(bad_files()),
                         [](const auto& bad) { return std::string(bad.param.name); });

// Every prefix of a file and every single changed byte of its header either parses to ranges inside the data or is
// refused; nothing else happens.
TEST(SafetensorsHeader, EveryTruncationAndEveryChangedByteIsHandled) {
  std::ifstream file(REGATHER_SOURCE_DIR "/tests/data/qwen2-untied/model.safetensors", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const uint64_t header = 8 + header_length(bytes, bytes.size(), "");
  for (size_t size = 0; size < bytes.size(); size += size < header ? 7 : 997) {
    EXPECT_THROW(parse(bytes.substr(0, size)), UsageError) << size;
  }
  for (size_t at = 0; at < header; ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x11);
    try {
      for (const auto& [name, stored] : parse(changed).tensors) EXPECT_LE(stored.end, bytes.size() - header) << at;
    } catch (const UsageError&) {
    }
  }
}

TEST(SafetensorsFile, ReadsEachTensorsBytes) {
  const Scratch scratch;
  const auto path = scratch.path() / "a.safetensors";
  std::ofstream(path, std::ios::binary) << safetensors_bytes({{"a", {"U8", {3}, "abc"}}, {"b", {"I16", {1}, "de"}}});
  const SafetensorsFile file(path);
  std::string bytes(2, ' ');
  file.read(file.header().tensors.at("b"), std::as_writable_bytes(std::span(bytes)));
  EXPECT_EQ(bytes, "de");
  EXPECT_THROW(file.read(file.header().tensors.at("a"), std::as_writable_bytes(std::span(bytes))), Error);
}

TEST(SafetensorsFile, AFileThatShrinksIsAnErrorAndNotASignal) {
  const Scratch scratch;
  const auto path = scratch.path() / "a.safetensors";
  std::ofstream(path, std::ios::binary) << safetensors_bytes({{"a", {"U8", {3}, "abc"}}});
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 2);
  std::string bytes(3, ' ');
  EXPECT_THROW(file.read(file.header().tensors.at("a"), std::as_writable_bytes(std::span(bytes))), UsageError);
}

TEST(SafetensorsFile, RefusesWhatIsNoFile) {
  const Scratch scratch;
  EXPECT_THROW(SafetensorsFile(scratch.path()), UsageError);
  EXPECT_THROW(SafetensorsFile(scratch.path() / "absent"), UsageError);
}

}  // namespace
}  // namespace regather::model
