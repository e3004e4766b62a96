#include "repro/diagnose/conclude.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace regather::repro {
namespace {

constexpr uint64_t kShortText = 60;      // lines of a log that may be a snippet
constexpr double kAgainstUnless = 0.3;   // a context speaks for another cause
constexpr double kAfterUnknown = 0.4;    // an error that is not known came first
constexpr double kWhileHandling = 0.55;  // it was being handled
constexpr double kTellsMissing = 0.6;
constexpr double kGeneric = 0.9;        // an entry without tells beside one whose tells are there
constexpr double kOtherVersions = 0.6;  // no release that the logs name is said to have the bug
constexpr size_t kMostEvidence = 8;

class Reader {
 public:
  Reader(const Knowledge& knowledge, const Findings& findings) : k_(knowledge), f_(findings) {}

  const SeenContext* find_near(const Incident& incident, size_t context) const {
    const auto at = std::ranges::find(incident.near, context, &SeenContext::context);
    return at == incident.near.end() ? nullptr : &*at;
  }
  const SeenContext* find(const Incident& incident, size_t context) const {
    if (const SeenContext* near = find_near(incident, context)) return near;
    const auto at = std::ranges::find(f_.contexts, context, &SeenContext::context);
    return at == f_.contexts.end() ? nullptr : &*at;
  }

  SignKind kind_of(const Incident& incident) const {
    SignKind kind = SignKind::error;
    for (const size_t sign : incident.signs) {
      if (k_.signs[sign].kind == SignKind::error) return SignKind::error;
      kind = k_.signs[sign].kind;
    }
    return kind;
  }

  // How sure the signature is of its mechanism here.
  double confidence(const Sign& sign, const Incident& incident) const {
    const auto any = [&](const std::vector<size_t>& set, auto look) {
      return std::ranges::any_of(set, [&](size_t context) { return look(context) != nullptr; });
    };
    const auto near = [&](size_t context) { return find_near(incident, context); };
    const auto anywhere = [&](size_t context) { return find(incident, context); };
    const bool met = std::ranges::all_of(sign.near, [&](const auto& set) { return any(set, near); }) &&
                     std::ranges::all_of(sign.needs, [&](const auto& set) { return any(set, anywhere); });
    const bool bare = !incident.traceback && f_.lines <= kShortText;
    double confidence = met ? sign.confidence : bare ? sign.bare : sign.alone;
    if (any(sign.unless, near)) confidence *= kAgainstUnless;
    return confidence;
  }

  double best(const Incident& incident) const {
    double best = 0;
    for (const size_t sign : incident.signs) {
      if (!k_.signs[sign].mechanism.empty()) best = std::max(best, confidence(k_.signs[sign], incident));
    }
    return best;
  }

  // Whether the program went on after this error: the same source wrote progress before a later one, or ran into
  // another that did not come of it.
  bool went_on(const Incident& incident) const {
    return std::ranges::any_of(f_.incidents, [&](const Incident& later) {
      if (later.at.log != incident.at.log || later.at.line <= incident.last_line) return false;
      if (later.source != incident.source) return false;
      return later.progress_before > incident.last_line ||
             (!incident.source.empty() && later.traceback && !later.chained);
    });
  }

  // The first error that may have ended the run; failing that the first text of an error without an exception, the
  // first warning, the first traceback that is cut off, the first symptom.
  const Incident* first_cause() const {
    const auto first = [&](auto wanted) -> const Incident* {
      const Incident* fallback = nullptr;
      for (const Incident& incident : f_.incidents) {
        if (incident.ignored || !wanted(incident)) continue;
        if (best(incident) >= kKnown || !went_on(incident)) return &incident;
        if (fallback == nullptr) fallback = &incident;
      }
      return fallback;
    };
    const auto whole = [](const Incident& i) { return !i.truncated && (i.traceback || !i.type.empty()); };
    const auto of_kind = [&](SignKind kind) { return [this, kind](const Incident& i) { return kind_of(i) == kind; }; };
    const auto error = of_kind(SignKind::error);
    const Incident* found = first([&](const Incident& i) { return error(i) && whole(i); });
    if (found == nullptr) found = first([&](const Incident& i) { return error(i) && !i.truncated; });
    if (found == nullptr) found = first(of_kind(SignKind::warning));
    if (found == nullptr) found = first(error);
    return found == nullptr ? first(of_kind(SignKind::symptom)) : found;
  }

 private:
  const Knowledge& k_;
  const Findings& f_;
};

std::vector<VersionNote> compare_versions(const Entry& entry, const Findings& findings) {
  std::vector<VersionNote> notes;
  for (const VersionClaim& claim : entry.versions) {
    auto note = std::ranges::find(notes, claim.package, &VersionNote::package);
    if (note == notes.end()) note = notes.insert(notes.end(), VersionNote{.package = claim.package, .ranges = {}});
    if (note->ranges.find(claim.range) == std::string::npos) {
      note->ranges += (note->ranges.empty() ? "" : " or ") + claim.range;
    }
    for (const SeenVersion& seen : findings.versions) {
      if (seen.package != claim.package) continue;
      if (note->seen == nullptr) note->seen = &seen;
      if (std::isdigit(static_cast<unsigned char>(seen.version[0])) != 0 && claim.parsed.holds(seen.version)) {
        note->seen = &seen;
        note->affected = true;
      }
    }
  }
  return notes;
}

void add_evidence(Candidate& to, const LineRef& line) {
  const auto same = [&](const LineRef& known) { return known.log == line.log && known.line == line.line; };
  if (to.evidence.size() < kMostEvidence && std::ranges::none_of(to.evidence, same)) to.evidence.push_back(line);
}

struct Match {
  const Sign* sign;
  const Incident* incident;
  double confidence;
};

// A context that many entries ask for tells little.
double weight(const std::vector<Entry>& entries, const std::string& tell) {
  const auto asks = [&](const LogSign& log) { return std::ranges::find(log.tells, tell) != log.tells.end(); };
  return 1.0 / static_cast<double>(std::ranges::count_if(
                   entries, [&](const Entry& entry) { return std::ranges::any_of(entry.logs, asks); }));
}

Candidate make_candidate(const Knowledge& k, const Reader& reader, const std::vector<Entry>& entries,
                         const Findings& findings, const Entry& entry, const LogSign& log, const Match& match) {
  Candidate c{.entry = &entry, .sign = match.sign, .confidence = match.confidence};
  add_evidence(c, match.incident->at);
  for (const std::string& tell : log.tells) {
    const auto context = std::ranges::find(k.contexts, tell, &Context::name);
    const SeenContext* seen = reader.find(*match.incident, static_cast<size_t>(context - k.contexts.begin()));
    if (seen == nullptr) {
      c.missing.push_back(context->what);
    } else {
      add_evidence(c, seen->at);
      c.told += weight(entries, tell);
    }
  }
  for (const ContextSets* sets : {&match.sign->near, &match.sign->needs}) {
    for (const auto& set : *sets) {
      for (const size_t context : set) {
        if (const SeenContext* seen = reader.find(*match.incident, context)) add_evidence(c, seen->at);
      }
    }
  }
  c.versions = compare_versions(entry, findings);
  const auto other = [](const VersionNote& note) { return note.seen != nullptr && !note.affected; };
  if (std::ranges::any_of(c.versions, other)) c.confidence *= kOtherVersions;
  return c;
}

// The signatures that match the first cause; when it is not known, those of the first error after it that is.
std::vector<Match> match_signs(const Knowledge& k, const Reader& reader, const Findings& findings,
                               const Incident& first, Diagnosis& d) {
  std::vector<Match> matches;
  const auto add = [&](const Incident& incident, double share) {
    for (const size_t number : incident.signs) {
      const Sign& sign = k.signs[number];
      const double confidence = share * reader.confidence(sign, incident);
      if (!sign.mechanism.empty() && confidence > 0) matches.push_back({&sign, &incident, confidence});
    }
  };
  add(first, 1);
  if (reader.best(first) >= kKnown) return matches;
  for (const Incident& later : findings.incidents) {
    if (&later == &first || later.at.log != first.at.log || later.at.line < first.at.line) continue;
    if (later.ignored || reader.kind_of(later) != SignKind::error || reader.best(later) < kKnown) continue;
    d.notes.push_back(fmt::format("line {} holds an error that is known, but another came first", later.at.line));
    add(later, later.chained ? kWhileHandling : kAfterUnknown);
    break;
  }
  return matches;
}

// Confidence is that in the mechanism; among the issues of one signature it falls with what singles out others.
void rank(std::vector<Candidate>& candidates) {
  for (Candidate& c : candidates) {
    const auto better = [&](const Candidate& other) {
      if (other.sign != c.sign || !other.missing.empty()) return false;
      return !c.missing.empty() || other.told > c.told;
    };
    if (std::ranges::any_of(candidates, better)) c.confidence *= c.missing.empty() ? kGeneric : kTellsMissing;
  }
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    if (a.confidence != b.confidence) return a.confidence > b.confidence;
    if (a.missing.size() != b.missing.size()) return a.missing.size() < b.missing.size();
    return a.told > b.told;
  });
  // An entry that several signatures lead to stands once, where it is surest.
  std::vector<Candidate> once;
  for (Candidate& c : candidates) {
    if (std::ranges::find(once, c.entry, &Candidate::entry) == once.end()) once.push_back(std::move(c));
  }
  candidates = std::move(once);
}

void advise(const Knowledge& k, const Reader& reader, const Findings& findings, Diagnosis& d) {
  if (d.first == nullptr) {
    d.collect.emplace_back(
        "the log of the rank that failed first, with its whole traceback (on every rank: 2>&1 | tee)");
  } else if (reader.kind_of(*d.first) == SignKind::symptom) {
    d.notes.emplace_back(
        "only what follows a failure stands here: the first error is in another rank's log, or was not "
        "written");
  } else if (d.first->truncated) {
    d.notes.emplace_back("the log ends inside the first traceback");
  }
  for (const std::string& log : findings.cut)
    d.notes.push_back(fmt::format("'{}' ends before its gzip stream does", log));
  for (const Advice& advice : k.advice) {
    const auto seen = [&](size_t context) {
      return d.first != nullptr
                 ? reader.find(*d.first, context) != nullptr
                 : std::ranges::find(findings.contexts, context, &SeenContext::context) != findings.contexts.end();
    };
    if (advice.when.empty() || std::ranges::any_of(advice.when, seen)) d.collect.push_back(advice.collect);
  }
}

}  // namespace

Diagnosis conclude(const Knowledge& knowledge, const std::vector<Entry>& entries, const Findings& findings) {
  const Reader reader(knowledge, findings);
  Diagnosis d;
  d.first = reader.first_cause();
  if (d.first != nullptr) {
    for (const Match& match : match_signs(knowledge, reader, findings, *d.first, d)) {
      for (const Entry& entry : entries) {
        for (const LogSign& log : entry.logs) {
          if (log.signature != match.sign->name) continue;
          d.candidates.push_back(make_candidate(knowledge, reader, entries, findings, entry, log, match));
        }
      }
    }
    rank(d.candidates);
  }
  d.unknown = d.candidates.empty() || d.candidates.front().confidence < kKnown;
  if (!d.unknown && !d.candidates.front().missing.empty()) {
    d.notes.emplace_back("the mechanism is known, which issue of it is not: what tells them apart does not stand here");
  }
  if (d.unknown) advise(knowledge, reader, findings, d);
  return d;
}

}  // namespace regather::repro
