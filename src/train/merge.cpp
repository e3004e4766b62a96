#include "train/merge.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace regather::train {

void settle(CaseResult& result, std::vector<Departure> departures) {
  std::stable_sort(departures.begin(), departures.end(), [](const Departure& a, const Departure& b) {
    return std::tie(a.signature.step, a.signature.phase, a.signature.rank) <
           std::tie(b.signature.step, b.signature.phase, b.signature.rank);
  });
  result.signature.reset();
  result.also.clear();
  if (departures.empty()) {
    result.outcome = result.gradients && result.gradients->compared > 0 ? Outcome::pass : Outcome::unchecked;
    return;
  }
  result.outcome = departures.front().outcome;
  result.signature = std::move(departures.front().signature);
  result.also.assign(std::make_move_iterator(departures.begin() + 1), std::make_move_iterator(departures.end()));
}

CaseResult merge(const std::vector<CaseResult>& ranks) {
  REGATHER_CHECK(!ranks.empty(), "merge", "a case without ranks");
  CaseResult result = ranks.front();
  std::vector<Departure> departures;
  for (const CaseResult& rank : ranks) {
    if (rank.signature) departures.push_back({rank.outcome, *rank.signature});
    departures.insert(departures.end(), rank.also.begin(), rank.also.end());
    if (&rank == &ranks.front()) continue;
    if (rank.gradients && result.gradients) {
      GradientSummary& total = *result.gradients;
      const GradientSummary sum = total;
      if (rank.gradients->relative_l2 > total.relative_l2) total = *rank.gradients;
      total.compared = sum.compared + rank.gradients->compared;
      total.missing = sum.missing + rank.gradients->missing;
      total.unexpected = sum.unexpected + rank.gradients->unexpected;
      total.nonfinite = sum.nonfinite + rank.gradients->nonfinite;
    }
    if (rank.loss &&
        (!result.loss || std::abs(rank.loss->got - rank.loss->want) > std::abs(result.loss->got - result.loss->want))) {
      result.loss = rank.loss;
    }
    for (const auto& [name, value] : rank.counters) {
      const auto [known, added] = result.counters.emplace(name, value);
      if (!added) known->second = std::max(known->second, value);
    }
    if (rank.peak_bytes) result.peak_bytes = std::max(result.peak_bytes.value_or(0), *rank.peak_bytes);
  }
  settle(result, std::move(departures));
  // A rank that stopped early without a word leaves the others' comparison unproved.
  const auto compared = [](const CaseResult& rank) { return rank.gradients ? rank.gradients->compared : 0; };
  if (result.outcome == Outcome::pass && std::any_of(ranks.begin(), ranks.end(), [&](const CaseResult& rank) {
        return compared(rank) != compared(ranks.front());
      })) {
    result.outcome = Outcome::unchecked;
  }
  return result;
}

void blame(CaseResult& result, int rank) {
  if (result.outcome != Outcome::hang || result.signature->rank == rank) return;
  for (Departure& other : result.also) {
    if (other.outcome != Outcome::hang || other.signature.rank != rank) continue;
    std::swap(*result.signature, other.signature);
    return;
  }
}

}  // namespace regather::train
