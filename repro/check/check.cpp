#include "repro/check/check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "case/support.h"
#include "matrix/judge/conditions.h"
#include "repro/check/answer.h"
#include "repro/check/call_path.h"

namespace regather::check {
namespace {

int weight(Verdict verdict) {
  constexpr std::array kWeights{0, 3, 4, 1, 2};
  return kWeights.at(static_cast<size_t>(verdict));
}

bool fails(const Answer& answer) { return weight(answer.verdict) > 2; }

struct Stand {
  const Measured* measured;
  std::string cited;  // where the user's release is not the measured one
};

// deepspeed#8148 is the one change between the measured releases that changes outcomes.
constexpr const char* kBefore = "<0.19.3";

// The measured sets that stand for the user's packages.
std::vector<Stand> choose(const std::vector<Measured>& all, const Setting& setting) {
  const std::string package = deciding_package(setting.axes.backend);
  const auto mine = setting.versions.find(package);
  std::vector<Stand> stands;
  for (const Measured& m : all) {
    const auto theirs = m.packages.find(package);
    if (mine == setting.versions.end() || theirs == m.packages.end()) {
      stands.push_back({&m, {}});
      continue;
    }
    if (mine->second == theirs->second) return {{&m, {}}};
    std::string why;
    if (package == "deepspeed") {
      const matrix::VersionRange before(kBefore);
      if (before.holds(mine->second) != before.holds(theirs->second)) continue;
      why = ", on the same side of 0.19.3, which brought deepspeed#8148 (cited)";
    }
    stands.push_back(
        {&m, fmt::format("{} {} was not measured; {} stands for it{}", package, mine->second, theirs->second, why)});
  }
  return stands;
}

Basis basis_of(const Answer& answer) { return answer.proofs.empty() ? Basis::none : answer.proofs.front().basis; }

// The same answer from two sets is one.
void add(std::vector<Answer>& answers, Answer answer) {
  for (Answer& there : answers) {
    const bool same = there.versions == answer.versions && there.verdict == answer.verdict &&
                      there.which == answer.which && there.mechanism == answer.mechanism &&
                      basis_of(there) == basis_of(answer) && there.assumed.size() == answer.assumed.size();
    if (!same) continue;
    if (basis_of(answer) == Basis::cell) std::ranges::move(answer.proofs, std::back_inserter(there.proofs));
    return;
  }
  answers.push_back(std::move(answer));
}

std::vector<Answer> answers_of(const Setting& setting, const std::vector<CallPath>& paths,
                               const std::vector<Measured>& measured) {
  std::vector<Answer> answers;
  const std::vector<Stand> stands = choose(measured, setting);
  for (const CallPath& path : paths) {
    std::vector<Answer> of_path;
    for (const Stand& stand : stands) {
      for (Answer& answer : answer_by(setting, path, *stand.measured, measured)) {
        if (!stand.cited.empty()) answer.assumed.push_back({"another release", stand.cited});
        add(of_path, std::move(answer));
      }
    }
    // What one set leaves open another has measured; a measured cell tells more than the trainer's run.
    const auto less = [&](const Answer& answer) {
      return std::ranges::any_of(of_path, [&](const Answer& other) {
        return other.versions == answer.versions &&
               ((answer.verdict == Verdict::unknown && other.verdict != Verdict::unknown) ||
                (basis_of(answer) == Basis::trainer && basis_of(other) == Basis::cell));
      });
    };
    std::ranges::copy_if(of_path, std::back_inserter(answers), std::not_fn(less));
  }
  return answers;
}

std::optional<std::string> trl_of(const Setting& setting) {
  const auto at = setting.versions.find("trl");
  return at == setting.versions.end() ? std::nullopt : std::optional(at->second);
}

std::vector<Answer> answers_of(const Setting& setting, const std::vector<Measured>& measured) {
  return answers_of(setting, call_paths_of(setting.trainer, setting.fused, setting.axes.backend, trl_of(setting)),
                    measured);
}

// The cells that answer, or where else they were measured.
std::string shown(const std::vector<Answer>& answers) {
  std::vector<std::string> ids;
  for (const Answer& answer : answers) {
    for (const Proof& proof : answer.proofs) {
      std::string one = proof.cell ? id(*proof.cell) : proof.source;
      if (std::ranges::find(ids, one) == ids.end()) ids.push_back(std::move(one));
    }
  }
  return fmt::format("{}", fmt::join(ids, ", "));
}

std::vector<std::string> releases_of(const Answer& answer) {
  std::vector<std::string> releases;
  for (const Proof& proof : answer.proofs) {
    if (!proof.release.empty()) releases.push_back(proof.release);
  }
  return releases;
}

// One change of the files that makes every release in question work.
struct Change {
  const char* what;
  const char* price;
  bool (*apply)(Setting&);
};

constexpr std::array<Change, 4> kChanges{{
    {"gradient_checkpointing_kwargs: {use_reentrant: true}",
     "a parameter that a layer uses twice fails under DDP (reduced_twice)",
     [](Setting& s) {
       if (s.axes.checkpoint != Checkpoint::nonreentrant || s.axes.checkpoint_at == CheckpointAt::call) return false;
       s.axes.checkpoint = Checkpoint::reentrant;
       s.kwargs_given = true;
       return true;
     }},
    {"gradient_checkpointing: false", "the activations of every layer stay in memory",
     [](Setting& s) {
       if (s.axes.checkpoint == Checkpoint::none) return false;
       s.axes.checkpoint = Checkpoint::none;
       s.axes.checkpoint_at = CheckpointAt::forward;
       return true;
     }},
    {"no fused loss (use_liger_kernel: false, loss_type: nll)", "logits of tokens x vocabulary stand in memory",
     [](Setting& s) {
       if (s.fused == "none") return false;
       s.fused = "none";
       return true;
     }},
    {"ZeRO stage 2", "every rank holds all parameters",
     [](Setting& s) {
       if (s.axes.backend != Backend::zero3) return false;
       s.axes.backend = Backend::zero2;
       s.axes.persistence = Persistence::zero;
       return true;
     }},
}};

// The register's issues, and the ways round that they name.
void add_issues(Answer& answer) {
  constexpr size_t kMostWorkarounds = 6;
  if (!answer.which || answer.mechanism.empty()) return;
  std::map<std::string, std::string> releases;
  if (!answer.versions.empty()) releases["trl"] = answer.versions;
  for (const std::string& release : releases_of(answer)) {
    releases[release.substr(0, release.find(' '))] = release.substr(release.find(' ') + 1);
  }
  size_t added = 0;
  for (const repro::Entry* entry : issues_of(answer.mechanism, *answer.which, releases)) {
    answer.issues.push_back(entry->id);
    for (const repro::Workaround& w : entry->workarounds) {
      const bool there = std::ranges::find(answer.remedies, w.what, &Remedy::what) != answer.remedies.end();
      if (there || added++ >= kMostWorkarounds) continue;
      answer.remedies.push_back({w.what, w.price, entry->id});
    }
  }
}

// What works: with another release of the package that decides, or of TRL.
struct Others {
  std::vector<Answer> packages;
  std::vector<Answer> trl;
};

void find_remedies(Answer& answer, const Setting& setting, const Others& others,
                   const std::vector<Measured>& measured) {
  for (const Answer& other : others.packages) {
    if (other.verdict != Verdict::works || other.versions != answer.versions) continue;
    answer.remedies.push_back(
        {fmt::format("{}", fmt::join(releases_of(other), ", ")), "another release", shown({other})});
  }
  for (const Answer& other : others.trl) {
    if (other.verdict != Verdict::works || other.versions.empty() || overlap(other.versions, answer.versions)) continue;
    answer.remedies.push_back({"trl " + other.versions, "another release", shown({other})});
  }
  for (const Change& change : kChanges) {
    Setting changed = setting;
    if (!change.apply(changed)) continue;
    std::vector<CallPath> paths;
    for (CallPath& p : call_paths_of(changed.trainer, changed.fused, changed.axes.backend, trl_of(setting))) {
      if (p.versions.empty() || answer.versions.empty() || overlap(p.versions, answer.versions))
        paths.push_back(std::move(p));
    }
    std::vector<Answer> then = answers_of(changed, paths, measured);
    const auto elsewhere = [&](const Answer& a) {  // measured with other releases than those that fail
      const auto mine = releases_of(answer);
      const auto theirs = releases_of(a);
      return !mine.empty() && !theirs.empty() && std::ranges::none_of(theirs, [&](const std::string& r) {
        return std::ranges::find(mine, r) != mine.end();
      });
    };
    std::erase_if(then, elsewhere);
    const bool works =
        !then.empty() && std::ranges::all_of(then, [](const Answer& a) { return a.verdict == Verdict::works; });
    if (works) answer.remedies.push_back({change.what, change.price, shown(then)});
  }
  add_issues(answer);
}

Verdict worst(const Checked& checked) {
  std::vector<Verdict> all;
  for (const Answer& answer : checked.answers) all.push_back(answer.verdict);
  if (std::ranges::any_of(checked.setting.findings, is_problem)) all.push_back(Verdict::contradictory);
  return std::ranges::max(all, {}, weight);
}

// One that no release or cell could give.
Answer no_answer(std::string reason) {
  Answer answer;
  answer.reason = std::move(reason);
  return answer;
}

}  // namespace

bool Checked::problem() const {
  return std::ranges::any_of(answers, fails) || std::ranges::any_of(setting.findings, is_problem);
}

Checked check(std::vector<File> files, const std::vector<Measured>& measured) {
  Checked checked;
  for (const File& file : files) checked.files.emplace_back(file.name, file.kind);
  const Sources sources(std::move(files));
  checked.setting = merge(sources);
  Setting& setting = checked.setting;
  if (!setting.no_case.empty()) {
    checked.answers.push_back(no_answer(fmt::format("{}", fmt::join(setting.no_case, "; "))));
    checked.verdict = worst(checked);
    return checked;
  }
  checked.answers = answers_of(setting, measured);
  if (checked.answers.empty()) {
    const auto trl = trl_of(setting);
    checked.answers.push_back(no_answer(
        fmt::format("{} was not run with this trainer ({}), loss ({}) and backend ({}), so that nothing says who reads "
                    "the head where",
                    trl ? "trl " + *trl : "no release of TRL", setting.trainer,
                    setting.fused == "none" ? "not fused" : setting.fused, axis_values(setting.axes).front().value)));
  }
  if (std::ranges::any_of(checked.answers, fails)) {
    Setting any = setting;
    any.versions.erase("trl");
    Setting every = setting;
    every.versions.erase(deciding_package(setting.axes.backend));
    const Others others{answers_of(every, measured), answers_of(any, measured)};
    for (Answer& answer : checked.answers) {
      if (fails(answer)) find_remedies(answer, setting, others, measured);
    }
  }
  checked.verdict = worst(checked);
  return checked;
}

}  // namespace regather::check
