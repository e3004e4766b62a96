#include "reports/markdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace regather::reports {
namespace {

using Counts = std::vector<std::pair<std::string, int>>;  // in the order in which each was first seen

struct Row {
  std::string backend;
  std::string loss;
  std::array<Counts, 3> columns;
};

constexpr std::array kHeads{"as it is", "with some of the fixes", "with the recommended fixes"};

size_t column_of(const Case& c) {
  if (c.fixes.empty()) return 0;
  return matrix::fully_fixed(c) ? 2 : 1;
}

// How a reader would say it.
std::string words_of(const CaseResult& result) {
  switch (result.outcome) {
    case Outcome::pass:
      return "right";
    case Outcome::wrong_gradient:
      return "wrong gradients, no error";
    case Outcome::error:
      return fmt::format("error in {}", result.signature ? name(result.signature->phase) : "an unknown phase");
    case Outcome::unsupported:
      return "not supported";
    default:
      return name(result.outcome);
  }
}

std::string print(Counts counts) {
  std::ranges::stable_sort(counts, std::greater{}, [](const auto& c) { return c.second; });
  std::string text;
  for (const auto& [words, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, words);
  }
  return text;
}

}  // namespace

std::string markdown(const Report& report) {
  std::vector<Row> rows;
  std::array<bool, kHeads.size()> used{};
  for (const Item& item : report.items) {
    const CaseResult& result = item.of.result;
    const auto axes = axis_values(result.which);
    auto row =
        std::ranges::find_if(rows, [&](const Row& r) { return r.backend == axes[0].value && r.loss == axes[1].value; });
    if (row == rows.end()) row = rows.insert(rows.end(), {axes[0].value, axes[1].value, {}});
    const size_t column = column_of(result.which);
    used[column] = true;
    Counts& counts = row->columns[column];
    const std::string words = words_of(result);
    const auto at = std::ranges::find(counts, words, [](const auto& c) { return c.first; });
    if (at == counts.end()) {
      counts.emplace_back(words, 1);
    } else {
      ++at->second;
    }
  }
  std::string text = "| backend | loss |";
  std::string rule = "| --- | --- |";
  for (size_t i = 0; i < kHeads.size(); ++i) {
    if (!used[i]) continue;
    text += fmt::format(" {} |", kHeads[i]);
    rule += " --- |";
  }
  text += "\n" + rule + "\n";
  for (const Row& row : rows) {
    text += fmt::format("| {} | {} |", row.backend, row.loss);
    for (size_t i = 0; i < kHeads.size(); ++i) {
      if (used[i]) text += fmt::format(" {} |", print(row.columns[i]));
    }
    text += "\n";
  }
  return text;
}

}  // namespace regather::reports
