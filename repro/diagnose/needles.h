// Finds any of many literals in a text, letters in either case, at a few bytes a step (Wu and Manber, "A fast algorithm
// for multi-pattern searching", 1994, with blocks of two bytes).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regather::repro {

class Needles {
 public:
  static constexpr size_t kShortest = 5;

  // Literals of at least kShortest bytes. Other bytes are taken for one another too: a hit is a place to look at.
  explicit Needles(const std::vector<std::string>& literals);

  // Where the first literal at or after `from` begins; npos when none is left. `found`: the numbers of all that begin
  // there.
  size_t find(std::string_view text, size_t from, std::vector<size_t>& found) const;

 private:
  std::vector<std::string> literals_;
  size_t width_ = kShortest;                           // of the window: so many bytes begin each literal
  static constexpr size_t kPairs = 1 << 14;            // small enough for the first-level cache
  std::array<uint8_t, kPairs> shift_{};                // by how much two bytes at a window's end let it move
  std::array<uint16_t, kPairs> bucket_{};              // where the window may not move: its candidates
  std::vector<std::vector<uint32_t>> candidates_{{}};  // literals by bucket; the first is empty
};

}  // namespace regather::repro
