#include "matrix/fidelity/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace regather::matrix {
namespace {

// Each side may be this far from float64, so the two may be twice as far from each other.
constexpr double kBothSides = 2;

class Collector {
 public:
  template <class Value>
  void compare(const char* what, const Value& real, const Value& runtime) {
    if (!(real == runtime)) list_.push_back({what, fmt::format("{}", real), fmt::format("{}", runtime)});
  }
  // The same number to within `allowed`; two that are not numbers are the same.
  void close(const char* what, double real, double runtime, double allowed) {
    if (std::isnan(real) && std::isnan(runtime)) return;
    if (!(std::abs(real - runtime) <= allowed)) {
      list_.push_back({what, fmt::format("{:.9g}", real), fmt::format("{:.9g}", runtime)});
    }
  }
  std::vector<Difference> take() { return std::move(list_); }

 private:
  std::vector<Difference> list_;
};

// What upstream prints, where that is not our text.
const std::string& upstream(const Signature& s) { return s.upstream.empty() ? s.text : s.upstream; }

void compare_signatures(const Signature& real, const Signature& runtime, bool error, Collector& to) {
  to.compare("phase", std::string(name(real.phase)), std::string(name(runtime.phase)));
  to.compare("step", real.step, runtime.step);
  to.compare("mechanism", real.mechanism, runtime.mechanism);
  // Only an error's text is upstream's; of a gradient each stack speaks in its own words.
  if (error) to.compare("text", first_words(real.text), first_words(upstream(runtime)));
}

// Later departures as a set of what and where. The rank is left out: which of two ranks is ahead when one fails is a
// matter of time.
std::string later(const CaseResult& result) {
  std::set<std::string> all;
  for (const Departure& d : result.also) {
    const Signature& s = d.signature;
    if (d.outcome == result.outcome && s.phase == result.signature->phase && s.step == result.signature->step) continue;
    all.insert(fmt::format("{} in {} of step {}", name(d.outcome), name(s.phase), s.step));
  }
  std::string text;
  for (const std::string& one : all) text += (text.empty() ? "" : ", ") + one;
  return text;
}

void compare_gradients(const RecordedCell& cell, const GradientSummary& real, const GradientSummary& runtime,
                       Collector& to) {
  const double allowed = kBothSides * std::max(real.tolerance, runtime.tolerance);
  to.compare("gradients: compared", real.compared, runtime.compared);
  to.compare("gradients: missing", real.missing, runtime.missing);
  to.compare("gradients: unexpected", real.unexpected, runtime.unexpected);
  to.compare("gradients: nonfinite", real.nonfinite > 0, runtime.nonfinite > 0);
  to.close("gradients: worst relative L2 error", real.relative_l2, runtime.relative_l2,
           allowed * std::max(1.0, real.relative_l2));
  if (cell.runtime_l2) {
    to.close("gradients: one stack's from the other's", 0, *cell.runtime_l2, allowed * std::max(1.0, real.relative_l2));
  }
}

}  // namespace

std::vector<Difference> differences(const RecordedCell& cell, const CaseResult& runtime) {
  const CaseResult& real = cell.real;
  Collector to;
  to.compare("outcome", std::string(name(real.outcome)), std::string(name(runtime.outcome)));
  if (real.outcome == runtime.outcome && real.signature && runtime.signature) {
    compare_signatures(*real.signature, *runtime.signature, real.outcome == Outcome::error, to);
    to.compare("also", later(real), later(runtime));
  } else if (real.outcome != runtime.outcome) {
    const auto where = [](const CaseResult& r) {
      if (!r.signature) return std::string("no failure");
      return fmt::format("{} in {} of step {}: {}", r.signature->mechanism, name(r.signature->phase), r.signature->step,
                         first_words(r.signature->text));
    };
    to.compare("failure", where(real), where(runtime));
  }
  const bool reached = real.outcome == runtime.outcome && real.gradients && runtime.gradients;
  if (reached) compare_gradients(cell, *real.gradients, *runtime.gradients, to);
  if (reached && real.loss && runtime.loss) {
    const double allowed = kBothSides * real.gradients->tolerance * std::max(1.0, std::abs(real.loss->want));
    // Of all losses the one farthest from right is kept: which that is may hang on rounding, how far it is may not.
    to.close("loss", real.loss->got - real.loss->want, runtime.loss->got - runtime.loss->want, allowed);
  }
  return to.take();
}

}  // namespace regather::matrix
