#include "repro/check/answer.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "case/support.h"
#include "repro/check/guards.h"

namespace regather::check {
namespace {

std::string release_of(const Measured& measured, Backend backend) {
  const std::string package = deciding_package(backend);
  const auto at = measured.packages.find(package);
  return at == measured.packages.end() ? std::string() : fmt::format("{} {}", package, at->second);
}

Verdict verdict_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::pass:
      return Verdict::works;
    case Outcome::wrong_gradient:
    case Outcome::nonfinite:
    case Outcome::invariant:
      return Verdict::silently_wrong;
    case Outcome::error:
    case Outcome::hang:
    case Outcome::crash:
    case Outcome::oom:
      return Verdict::crashes;
    case Outcome::unsupported:
    case Outcome::unchecked:
    case Outcome::notrun:
      return Verdict::unknown;
  }
  return Verdict::unknown;
}

std::string how_wrong(const Cell& cell) {
  if (cell.missing > 0) return fmt::format("{} gradients are missing; {}", cell.missing, cell.text);
  return cell.text;
}

void take(Answer& answer, const Found& found) {
  const Cell& cell = *found.cell;
  answer.verdict = verdict_of(cell.outcome);
  answer.proofs = {
      {Basis::cell, found.in->name, release_of(*found.in, cell.which.backend), cell.which, found.differences}};
  answer.phase = cell.phase;
  answer.mechanism = cell.mechanism;
  answer.type = cell.type;
  answer.text = answer.verdict == Verdict::silently_wrong ? how_wrong(cell) : cell.text;
}

std::string ran_with(const CallPath& path) { return fmt::format("{} {}", path.package, fmt::join(path.checked, ", ")); }

void take(Answer& answer, const CallPath& path) {
  answer.verdict = verdict_of(*path.outcome);
  answer.proofs = {{Basis::trainer,
                    fmt::format("the trainer itself, {}, two ranks, float32, no checkpoint", ran_with(path)),
                    {},
                    {},
                    {}}};
  answer.phase = path.phase;
  answer.text = path.text;
  if (answer.verdict == Verdict::silently_wrong && path.which && path.which->backend == Backend::ddp) {
    answer.mechanism = "reducer_unarmed";
  }
}

// The path's own case with the setting's axes.
Case case_of(const CallPath& path, const Case& axes) {
  Case c = axes;
  c.kernel = path.which->kernel;
  c.call = path.which->call;
  c.fixes = path.which->fixes;
  return c;
}

bool at_base(const Case& c) { return c.frozen == Frozen::none && c.reference == Reference::separate; }

// The trainer's own run as a measured cell, for what differs only in axes that may be set aside.
std::optional<Found> by_trainer(const CallPath& path, const Measured& measured, const Case& c,
                                const std::vector<Measured>& all, Measured& with) {
  if (!path.ran || path.outcome != Outcome::pass) return std::nullopt;
  with = measured;
  Cell cell;
  cell.which = *path.which;
  cell.outcome = Outcome::pass;
  with.cells[id(cell.which)] = cell;
  auto found = find_cell(with, c, all);
  if (!found || found->cell->which != *path.which) return std::nullopt;
  return found;
}

bool reads_reference(const CallPath& path) {
  return path.backend == Backend::zero3 && (path.trainer == "dpo" || path.trainer == "kto") &&
         !path.which->has("gather");
}

// dpo and kto on ZeRO-3: the matrix reads the reference's head outside its engine, and these trainers inside it, where
// it is whole. The fix gather makes it whole in the matrix too.
bool reads_inside(const CallPath& path, const std::vector<Measured>& all) {
  if (!reads_reference(path) || path.outcome != Outcome::pass) return false;
  return std::ranges::any_of(all, [&](const Measured& measured) {
    const auto own = find_cell(measured, *path.which, all);
    return own && own->cell->outcome != Outcome::pass;
  });
}

void set_unknown(Answer& answer, const Measured& measured) {
  answer.verdict = Verdict::unknown;
  const std::string asked = id(*answer.which);
  answer.reason = fmt::format("{} was not measured ({}), nor a case that could stand for it", asked, measured.name);
  if (const auto why = unsupported(*answer.which)) {
    answer.reason += fmt::format("; {}", *why);
  } else {
    answer.command = fmt::format("regather matrix run --case '{}' --out out/check", asked);
  }
}

Answer answer_of_case(const Setting& setting, const CallPath& path, const Measured& measured,
                      const std::vector<Measured>& all, Answer answer, const std::string& versions) {
  Case axes = guarded(setting, versions, answer.assumed);
  Case c = case_of(path, axes);
  if (path.recomputed && c.kernel == Kernel::fused) {
    answer.assumed.push_back({"kernel=fused stands for a loss that takes the head's weight again in backward",
                              "the matrix has no such kernel but sft's"});
  }
  if (!path.ran && path.package == "trl") answer.assumed.push_back({"the call path was read, not run", path.note});
  const bool apart = axes.reference == Reference::separate;
  if (apart && reads_reference(path) && path.ran && !path.outcome) {
    answer.reason = fmt::format(
        "the trainer was not run to its end ({}), and only that would show where it reads the "
        "reference's head",
        path.note);
    return answer;
  }
  if (apart && reads_inside(path, all)) {
    c.fixes.emplace_back("gather");
    std::ranges::sort(c.fixes);
    answer.assumed.push_back({"gather stands for a reference's head that is read inside its own engine", path.note});
  }
  answer.which = c;
  if (const auto why = illegal(c)) {
    answer.reason = *why;
    return answer;
  }
  if (const auto found = find_cell(measured, c, all)) {
    take(answer, *found);
    return answer;
  }
  Measured with;
  if (const auto found = by_trainer(path, measured, c, all, with)) {
    take(answer, path);
    answer.proofs.front().cell = path.which;
    answer.proofs.front().differences = found->differences;
    return answer;
  }
  set_unknown(answer, measured);
  return answer;
}

}  // namespace

std::vector<Answer> answer_by(const Setting& setting, const CallPath& path, const Measured& measured,
                              const std::vector<Measured>& all) {
  std::vector<Answer> answers;
  Answer answer;
  const auto mine = setting.versions.find("trl");
  const bool known = mine != setting.versions.end() && !path.versions.empty();
  answer.versions = known ? "==" + mine->second : path.versions;
  if (const auto refused = refusal(setting, answer.versions)) {
    Answer no = answer;
    no.verdict = Verdict::crashes;
    no.phase = "build";
    no.type = refused->type;
    no.text = refused->text;
    no.proofs = {{Basis::read, refused->source, {}, {}, {}}};
    if (refused->versions == answer.versions) return {no};
    no.versions = ">=1.6.0," + refused->versions;
    answers.push_back(std::move(no));
    answer.versions = ">=" + refused->versions.substr(1) + answer.versions.substr(answer.versions.find(','));
  }
  const bool failed = path.outcome && *path.outcome != Outcome::pass;
  if (failed && at_base(setting.axes)) {
    if (path.which) answer.which = case_of(path, setting.axes);
    // The same case, measured, tells more than the run of the trainer where both failed.
    if (const auto found = path.which ? find_cell(measured, *answer.which, all) : std::nullopt;
        found && verdict_of(found->cell->outcome) == verdict_of(*path.outcome)) {
      take(answer, *found);
    } else {
      take(answer, path);
    }
    answers.push_back(std::move(answer));
    return answers;
  }
  if (!path.which) {
    answer.reason = "the trainer was run without adapters alone, and failed before it had a call";
    answers.push_back(std::move(answer));
    return answers;
  }
  const std::string versions = answer.versions;
  answers.push_back(answer_of_case(setting, path, measured, all, std::move(answer), versions));
  return answers;
}

}  // namespace regather::check
