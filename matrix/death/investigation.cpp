#include "matrix/death/investigation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace regather::matrix {
namespace {

constexpr size_t kNamed = 20;  // predecessors in a text

}  // namespace

Investigation::Investigation(size_t index, std::vector<size_t> predecessors, RecordedDeath death, CaseResult alone,
                             std::string line)
    : index_(index),
      bisection_(std::move(predecessors), kMostRuns),
      death_(std::move(death)),
      alone_(std::move(alone)),
      line_(std::move(line)) {}

std::optional<size_t> Investigation::current() const {
  const auto& asked = bisection_.next();
  if (!asked) return std::nullopt;
  return position_ < asked->size() ? (*asked)[position_] : index_;
}

void Investigation::answered() {
  if (position_ < bisection_.next()->size()) {
    ++position_;
  } else {
    end_run(false);
  }
}

// A predecessor that dies itself is another matter: this run shows nothing of the case.
void Investigation::died() { end_run(position_ == bisection_.next()->size()); }

void Investigation::end_run(bool died) {
  position_ = 0;
  bisection_.answer(died);
  const auto spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  if (spent > kMostSeconds) bisection_.stop();
}

RecordedDeath Investigation::finding(const std::vector<Case>& cases) const {
  std::vector<std::string> ids;
  for (const size_t culprit : bisection_.culprits()) {
    if (ids.size() < kNamed) ids.push_back(id(cases[culprit]));
  }
  const size_t more = bisection_.culprits().size() - ids.size();
  RecordedDeath found = death_;
  put_death_first(found.result);
  std::string& text = found.result.signature->text;
  text = fmt::format("alone it ends as {}; it dies in a worker that ran {}{} before; {}", name(alone_.outcome),
                     fmt::join(ids, ", "), more > 0 ? fmt::format(" and {} more", more) : "", text);
  return found;
}

}  // namespace regather::matrix
