#include "model/write_safetensors.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "model/safetensors_file.h"
#include "scratch.h"

namespace regather::model {
namespace {

template <class T, size_t N>
std::string_view bytes_of(const std::array<T, N>& values) {
  return {reinterpret_cast<const char*>(values.data()), sizeof values};
}

class WriteSafetensors : public testing::Test {
 protected:
  const std::array<float, 3> floats_{1.5F, -2.0F, 0.25F};
  const std::array<double, 2> doubles_{3.0, -0.5};
  const std::array<char, 1> flag_{1};
  const std::map<std::string, TensorBytes> tensors_{
      {"a/flag", {.dtype = "BOOL", .shape = {1}, .width = 1, .bytes = bytes_of(flag_)}},
      {"b/floats", {.dtype = "F32", .shape = {3, 1}, .width = 4, .bytes = bytes_of(floats_)}},
      {"c/doubles", {.dtype = "F64", .shape = {2}, .width = 8, .bytes = bytes_of(doubles_)}},
      {"d/nothing", {.dtype = "F32", .shape = {0}, .width = 4, .bytes = {}}}};
  const Scratch scratch_;
  const std::filesystem::path file_ = scratch_.path() / "made.safetensors";
};

TEST_F(WriteSafetensors, IsReadBack) {
  write_safetensors(file_, tensors_, {{"key", "\"quoted\""}});
  const SafetensorsFile read(file_);
  EXPECT_EQ(read.header().metadata.at("key"), "\"quoted\"");
  ASSERT_EQ(read.header().tensors.size(), tensors_.size());
  for (const auto& [name, tensor] : tensors_) {
    const StoredTensor& stored = read.header().tensors.at(name);
    EXPECT_EQ(stored.dtype, tensor.dtype) << name;
    EXPECT_EQ(stored.shape, tensor.shape) << name;
    std::string got(tensor.bytes.size(), '?');
    read.read(stored, std::as_writable_bytes(std::span(got)));
    EXPECT_EQ(got, tensor.bytes) << name;
  }
}

TEST_F(WriteSafetensors, EveryElementIsAligned) {
  write_safetensors(file_, tensors_, {});
  const SafetensorsFile read(file_);
  EXPECT_EQ(read.header().data_begin % 8, 0U);
  for (const auto& [name, tensor] : tensors_) {
    EXPECT_EQ(read.header().tensors.at(name).begin % static_cast<uint64_t>(tensor.width), 0U) << name;
  }
}

TEST_F(WriteSafetensors, WrongNumberOfBytes) {
  EXPECT_THROW(
      write_safetensors(file_, {{"x", {.dtype = "F32", .shape = {4}, .width = 4, .bytes = bytes_of(floats_)}}}, {}),
      UsageError);
  EXPECT_FALSE(std::filesystem::exists(file_));
}

}  // namespace
}  // namespace regather::model
