#include "repro/diagnose/needles.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace regather::repro {
namespace {

// Of a byte, what is the same in both cases of a letter.
constexpr unsigned kFold = 0x5f;

unsigned fold(char c) { return static_cast<unsigned char>(c) & kFold; }

// The number of two bytes of a text, folded.
size_t pair_at(const char* at) {
  uint16_t pair = 0;
  std::memcpy(&pair, at, sizeof(pair));
  const unsigned folded = pair & (kFold << 8 | kFold);
  return (folded & 0xffU) | (folded & 0xff00U) >> 1U;
}

bool begins(std::string_view text, const std::string& folded) {
  if (text.size() < folded.size()) return false;
  for (size_t i = 0; i < folded.size(); ++i) {
    if (fold(text[i]) != static_cast<unsigned char>(folded[i])) return false;
  }
  return true;
}

}  // namespace

Needles::Needles(const std::vector<std::string>& literals) : literals_(literals) {
  width_ = 8;
  for (const std::string& literal : literals_) width_ = std::min(width_, literal.size());
  shift_.fill(static_cast<uint8_t>(width_ - 1));
  for (size_t number = 0; number < literals_.size(); ++number) {
    std::string& literal = literals_[number];
    REGATHER_CHECK(literal.size() >= kShortest, "needles", "'{}' is shorter than {} bytes", literal, kShortest);
    for (char& c : literal) c = static_cast<char>(fold(c));
    for (size_t end = 2; end <= width_; ++end) {
      const size_t pair = pair_at(literal.data() + end - 2);
      shift_[pair] = std::min<uint8_t>(shift_[pair], static_cast<uint8_t>(width_ - end));
      if (end < width_) continue;
      if (bucket_[pair] == 0) {
        bucket_[pair] = static_cast<uint16_t>(candidates_.size());
        candidates_.emplace_back();
      }
      candidates_[bucket_[pair]].push_back(static_cast<uint32_t>(number));
    }
  }
}

size_t Needles::find(std::string_view text, size_t from, std::vector<size_t>& found) const {
  found.clear();
  const char* const begin = text.data();
  size_t end = from + width_;  // of the window
  while (end <= text.size()) {
    const size_t pair = pair_at(begin + end - 2);
    const uint8_t shift = shift_[pair];
    if (shift != 0) {
      end += shift;
      continue;
    }
    const std::string_view rest = text.substr(end - width_);
    for (const uint32_t number : candidates_[bucket_[pair]]) {
      if (begins(rest, literals_[number])) found.push_back(number);
    }
    if (!found.empty()) return end - width_;
    ++end;
  }
  return std::string_view::npos;
}

}  // namespace regather::repro
