#include "model/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "model/json_file.h"

namespace regather::model {
namespace {

constexpr size_t kMostDimensions = 64;

std::optional<uint64_t> bits_of(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, uint64_t>, 21> kBits = {
      {{"BOOL", 8},    {"U8", 8},      {"I8", 8},   {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F4", 4},
       {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16}, {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},
       {"U32", 32},    {"F32", 32},    {"I64", 64}, {"U64", 64},    {"F64", 64},    {"C64", 64},    {"C128", 128}}};
  const auto* found = std::find_if(kBits.begin(), kBits.end(), [&](const auto& entry) { return entry.first == dtype; });
  return found == kBits.end() ? std::nullopt : std::optional(found->second);
}

// Reads the one form that a header may have, as the parser goes: no tree is built of what somebody else wrote.
//   level 1: {"name": tensor, "__metadata__": {...}}
//   level 2: {"dtype": string, "shape": [...], "data_offsets": [begin, end]}, or {"key": "text"} of the metadata
//   level 3: [unsigned, ...]
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& origin) : header_(header), origin_(origin) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override { return unexpected(fmt::format("the number {}", value)); }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected("the number " + printable(text));
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != 3) return unexpected(fmt::format("the number {}", value));
    if (field_ == "shape") {
      if (value > static_cast<uint64_t>(INT64_MAX)) fail(fmt::format("dimension {} is too large", value));
      if (tensor_.shape.size() == kMostDimensions) fail(fmt::format("more than {} dimensions", kMostDimensions));
      tensor_.shape.push_back(static_cast<int64_t>(value));
    } else {
      if (offsets_ == 2) fail("data_offsets of more than two numbers");
      (offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
    }
    return true;
  }

  bool string(string_t& value) override {
    if (level_ != 2 || (!in_metadata_ && field_ != "dtype")) return unexpected("the string " + printable(value));
    if (in_metadata_) {
      header_.metadata[field_] = std::move(value);
    } else {
      tensor_.dtype = std::move(value);
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (level_ >= 2) return unexpected("an object");
    ++level_;
    return true;
  }

  bool key(string_t& value) override {
    if (level_ == 1) {
      name_ = std::move(value);
      in_metadata_ = name_ == "__metadata__";
      if (in_metadata_ ? std::exchange(seen_metadata_, true) : header_.tensors.contains(name_)) fail("it occurs twice");
      tensor_ = {};
      offsets_ = 0;
      seen_.clear();
      return true;
    }
    field_ = std::move(value);
    if (in_metadata_) {
      if (header_.metadata.contains(field_)) fail(fmt::format("key {} occurs twice", printable(field_)));
      return true;
    }
    if (field_ != "dtype" && field_ != "shape" && field_ != "data_offsets") {
      fail(fmt::format("field {}; expected dtype, shape and data_offsets", printable(field_)));
    }
    if (std::find(seen_.begin(), seen_.end(), field_) != seen_.end()) fail(fmt::format("{} occurs twice", field_));
    seen_.push_back(field_);
    return true;
  }

  bool end_object() override {
    if (level_-- == 2 && !in_metadata_) {
      if (seen_.size() != 3) fail("one of dtype, shape and data_offsets is absent");
      if (offsets_ != 2) fail(fmt::format("data_offsets of {} numbers; expected 2", offsets_));
      header_.tensors.emplace(name_, std::move(tensor_));
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (level_ != 2 || in_metadata_ || field_ == "dtype") return unexpected("an array");
    ++level_;
    return true;
  }
  bool end_array() override {
    --level_;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    throw UsageError(fmt::format("{}: the header is not JSON at byte {}: {}", origin_, position, error.what()));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(fmt::format("{}: tensor {}: {}", origin_, printable(name_), what));
  }
  bool unexpected(const std::string& what) const {
    if (level_ == 0) throw UsageError(fmt::format("{}: the header is {}; expected an object", origin_, what));
    fail(fmt::format("{} where the format has none", what));
  }

  SafetensorsHeader& header_;
  const std::string& origin_;
  int level_ = 0;
  std::string name_;
  std::string field_;
  bool in_metadata_ = false;
  bool seen_metadata_ = false;
  StoredTensor tensor_;
  int offsets_ = 0;
  std::vector<std::string> seen_;
};

// Bytes that dtype and shape ask for; nothing when that overflows or ends within a byte.
std::optional<uint64_t> bytes_of(uint64_t bits, const std::vector<int64_t>& shape) {
  uint64_t total = bits;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(total, static_cast<uint64_t>(size), &total)) return std::nullopt;
  }
  return total % 8 == 0 ? std::optional(total / 8) : std::nullopt;
}

void check_sizes(const SafetensorsHeader& header, const std::string& origin) {
  for (const auto& [name, tensor] : header.tensors) {
    const auto what = fmt::format("{}: tensor {}", origin, printable(name));
    const auto bits = bits_of(tensor.dtype);
    if (!bits) throw UsageError(fmt::format("{}: unknown dtype {}", what, printable(tensor.dtype)));
    if (tensor.end < tensor.begin) {
      throw UsageError(fmt::format("{}: data_offsets [{}, {}] run backwards", what, tensor.begin, tensor.end));
    }
    const auto bytes = bytes_of(*bits, tensor.shape);
    if (!bytes) {
      throw UsageError(fmt::format("{}: {} {} is no whole number of bytes below 2^64", what, tensor.dtype,
                                   shape_text(tensor.shape)));
    }
    if (*bytes != tensor.end - tensor.begin) {
      throw UsageError(fmt::format("{}: {} {} needs {} bytes; data_offsets [{}, {}] hold {}", what, tensor.dtype,
                                   shape_text(tensor.shape), *bytes, tensor.begin, tensor.end,
                                   tensor.end - tensor.begin));
    }
  }
}

void check_cover(const SafetensorsHeader& header, uint64_t data_size, const std::string& origin) {
  std::vector<const std::pair<const std::string, StoredTensor>*> order;
  order.reserve(header.tensors.size());
  for (const auto& entry : header.tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t at = 0;
  for (const auto* entry : order) {
    const auto& [name, tensor] = *entry;
    if (tensor.begin != at) {
      throw UsageError(fmt::format("{}: tensor {}: its bytes begin at {}; expected {}: {}", origin, printable(name),
                                   tensor.begin, at, tensor.begin < at ? "tensors overlap" : "a hole in the data"));
    }
    at = tensor.end;
    if (at > data_size) {
      throw UsageError(fmt::format("{}: tensor {}: its bytes end at {}, the file's data at {}: truncated?", origin,
                                   printable(name), at, data_size));
    }
  }
  if (at != data_size) {
    throw UsageError(fmt::format("{}: {} bytes of data; its tensors cover {}", origin, data_size, at));
  }
}

}  // namespace

uint64_t header_length(std::string_view head, uint64_t file_size, const std::string& origin) {
  if (head.size() < 8 || file_size < 8) {
    throw UsageError(fmt::format("{}: {} bytes; a safetensors file has at least 8", origin, file_size));
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(head[static_cast<size_t>(i)]);
  if (length > kLargestHeader) {
    throw UsageError(fmt::format("{}: a header of {} bytes; at most {} are read", origin, length, kLargestHeader));
  }
  if (length > file_size - 8) {
    throw UsageError(fmt::format("{}: a header of {} bytes in a file of {}: truncated, or not safetensors", origin,
                                 length, file_size));
  }
  return length;
}

SafetensorsHeader parse_header(std::string_view head, uint64_t file_size, const std::string& origin) {
  const uint64_t length = header_length(head, file_size, origin);
  REGATHER_CHECK(head.size() - 8 >= length, "model", "{}: {} bytes of a header of {}", origin, head.size() - 8, length);
  const std::string_view text = head.substr(8, length);
  if (!text.starts_with('{')) throw UsageError(fmt::format("{}: the header does not begin with '{{'", origin));
  SafetensorsHeader header;
  header.data_begin = 8 + length;
  HeaderReader reader(header, origin);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  check_sizes(header, origin);
  check_cover(header, file_size - header.data_begin, origin);
  return header;
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace regather::model
