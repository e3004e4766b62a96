#include "repro/diagnose/recompute.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "repro/diagnose/fixed_pattern.h"

namespace regather::repro {
namespace {

constexpr std::array kNames{"unasked", "absent", "zero", "doubled", "near", "dtype", "order", "other"};
constexpr size_t kMostPairs = 256;
constexpr size_t kMostDimensions = 16;

// Sizes off by at most one part in this many, and by no more than this, are "a few" of the tokens of a batch.
constexpr int64_t kFewOf = 20;
constexpr int64_t kFew = 512;

using Sizes = std::vector<int64_t>;

struct Metadata {
  std::optional<Sizes> sizes;
  std::string dtype;
};

Sizes sizes_of(std::string_view text) {
  Sizes sizes;
  for (const char* at = text.data(); at < text.data() + text.size() && sizes.size() < kMostDimensions;) {
    int64_t size = 0;
    const auto [next, error] = std::from_chars(at, text.data() + text.size(), size);
    if (error == std::errc()) {
      sizes.push_back(size);
      at = next;
    } else {
      ++at;
    }
  }
  return sizes;
}

bool empty(const Sizes& sizes) { return std::ranges::find(sizes, 0) != sizes.end(); }

Recomputed compare_sizes(const Sizes& saved, const Sizes& again) {
  if (!empty(saved) && again == Sizes{0}) return Recomputed::zero;
  if (saved.size() != again.size()) return Recomputed::order;
  size_t different = 0;
  int64_t from = 0;
  int64_t to = 0;
  for (size_t i = 0; i < saved.size(); ++i) {
    if (saved[i] == again[i]) continue;
    ++different;
    from = saved[i];
    to = again[i];
  }
  if (different != 1) return Recomputed::other;
  if (from > 0 && to / 2 == from && to % 2 == 0) return Recomputed::doubled;
  const int64_t apart = from > to ? from - to : to - from;
  return apart <= kFew && apart <= from / kFewOf ? Recomputed::near : Recomputed::other;
}

Recomputed compare(const Metadata& saved, const Metadata& again) {
  if (saved.sizes && again.sizes && *saved.sizes != *again.sizes) return compare_sizes(*saved.sizes, *again.sizes);
  if (!saved.dtype.empty() && !again.dtype.empty() && saved.dtype != again.dtype) return Recomputed::dtype;
  return saved.sizes && again.sizes ? Recomputed::other : Recomputed::absent;
}

Metadata metadata_of(std::string_view text) {
  static const FixedPattern sizes(R"((?:Size\(|'shape': \(?|^\s*)\[([0-9, ]{0,200})\])");
  static const FixedPattern dtype(R"(\b(?:torch\.)?((?:bfloat|float|int|uint)(?:8|16|32|64)(?:_e\w+)?|bool)\b)");
  Metadata metadata;
  std::string_view list;
  re2::StringPiece found;
  if (re2::RE2::PartialMatch({text.data(), text.size()}, sizes, &found)) {
    list = {found.data(), found.size()};
    metadata.sizes = sizes_of(list);
  }
  re2::RE2::PartialMatch({text.data(), text.size()}, dtype, &metadata.dtype);
  return metadata;
}

}  // namespace

const char* name(Recomputed how) { return kNames.at(static_cast<size_t>(how)); }

Recomputed parse_recomputed(std::string_view text) {
  const auto at = std::ranges::find(kNames, text);
  if (at == kNames.end() || at == kNames.begin()) {
    throw UsageError(fmt::format("'{}' is no way in which metadata differ: expected one of {}", text,
                                 fmt::join(kNames.begin() + 1, kNames.end(), ", ")));
  }
  return static_cast<Recomputed>(at - kNames.begin());
}

Recomputed compare_metadata(std::string_view message) {
  static const FixedPattern side(R"((?i)\b(saved|recomputed)(?: metadata)?:?\s)");
  static const FixedPattern arrow(R"((\[[0-9, ]{1,200}\])\)?\s*->\s*\(?(?:torch\.Size\()?(\[[0-9, ]{1,200}\]))");
  std::array<size_t, kNames.size()> counts{};
  size_t pairs = 0;
  const auto add = [&](Recomputed how) {
    ++counts.at(static_cast<size_t>(how));
    return ++pairs < kMostPairs;
  };

  re2::StringPiece rest(message.data(), message.size());
  re2::StringPiece word;
  Metadata saved;
  bool have_saved = false;
  while (re2::RE2::FindAndConsume(&rest, side, &word)) {
    // What belongs to this word ends where the next one begins.
    re2::StringPiece ahead = rest;
    re2::StringPiece next;
    std::string_view mine(rest.data(), rest.size());
    if (re2::RE2::FindAndConsume(&ahead, side, &next)) {
      mine = mine.substr(0, static_cast<size_t>(next.data() - rest.data()));
    }
    if (word[0] == 's' || word[0] == 'S') {
      saved = metadata_of(mine);
      have_saved = saved.sizes || !saved.dtype.empty();
    } else if (have_saved) {
      have_saved = false;
      if (!add(compare(saved, metadata_of(mine)))) break;
    }
  }
  rest = re2::StringPiece(message.data(), message.size());
  std::string from;
  std::string to;
  while (pairs < kMostPairs && re2::RE2::FindAndConsume(&rest, arrow, &from, &to)) {
    add(compare_sizes(sizes_of(from), sizes_of(to)));
  }
  counts[static_cast<size_t>(Recomputed::absent)] = 0;
  const auto most = std::ranges::max_element(counts);
  return *most == 0 ? Recomputed::absent : static_cast<Recomputed>(most - counts.begin());
}

}  // namespace regather::repro
