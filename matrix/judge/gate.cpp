#include "matrix/judge/gate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"

namespace regather::matrix {
namespace {

constexpr std::array kKinds{Verdict::regression, Verdict::changed, Verdict::fixed, Verdict::fresh,
                            Verdict::absent,     Verdict::flaky,   Verdict::xpass};

}  // namespace

Gate parse_gate(std::string_view text) {
  Gate gate;
  for (size_t begin = 0;;) {
    const size_t end = text.find(',', begin);
    const std::string_view word = text.substr(begin, end - begin);
    const auto at = std::ranges::find(kKinds, word, [](Verdict v) { return std::string_view(name(v)); });
    if (at == kKinds.end()) {
      throw UsageError(fmt::format(
          "--gate '{}': '{}' is not a kind of change: expected regression, changed, fixed, new, absent, flaky or "
          "xpass, joined by commas",
          text, word));
    }
    gate.insert(*at);
    if (end == std::string_view::npos) return gate;
    begin = end + 1;
  }
}

std::string print_gate(const Gate& gate) {
  std::vector<std::string_view> names;
  for (const Verdict kind : gate) names.emplace_back(name(kind));
  return fmt::format("{}", fmt::join(names, ","));
}

}  // namespace regather::matrix
