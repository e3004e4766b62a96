#include "matrix/judge/conclusion.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <utility>

#include "base/tell.h"
#include "matrix/judge/load.h"
#include "matrix/results/summary.h"

namespace regather::matrix {
namespace {

std::string today() {
  const std::chrono::year_month_day day{std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now())};
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()), static_cast<unsigned>(day.month()),
                     static_cast<unsigned>(day.day()));
}

// Verdicts that are worth a line where they are not red.
bool worth_telling(Verdict verdict) {
  return verdict == Verdict::changed || verdict == Verdict::fixed || verdict == Verdict::flaky;
}

}  // namespace

std::string Rules::options() const {
  std::string text;
  if (!expectations.empty()) text += " --expectations '" + expectations + "'";
  if (!baseline.empty()) text += " --baseline '" + baseline + "'";
  if (gate != kDefaultGate) text += " --gate " + print_gate(gate);
  return text;
}

Judge load_judge(const Rules& rules, const Setting& setting) {
  Expectations expectations;
  if (!rules.expectations.empty()) expectations = load_expectations(rules.expectations);
  std::optional<PastDocument> baseline;
  if (!rules.baseline.empty()) baseline = load_document(rules.baseline);
  return {std::move(expectations), std::move(baseline), setting, rules.gate};
}

Conclusion conclude(Document& document, const Judge& judge, const Rules& rules, bool whole) {
  Conclusion end;
  std::vector<Case> plan;
  plan.reserve(document.cases.size());
  for (const DocumentCase& c : document.cases) plan.push_back(c.result.which);
  end.complaints = judge.complaints(plan, document.definition, whole);
  end.absent = judge.absent(plan, document.definition, whole);
  end.overdue = judge.overdue(today());
  document.absent = end.absent.size();
  std::vector<CaseResult> results;
  for (DocumentCase& c : document.cases) {
    const bool recorded = c.verdict && !rules.given();
    end.judgements.push_back(recorded ? Judgement{*c.verdict, ""} : judge.of(c.result, c.attempts));
    if (rules.given()) c.verdict = end.judgements.back().verdict;
    results.push_back(c.result);
  }
  const bool lacks = !end.absent.empty() && judge.red(Verdict::absent);
  end.exit = judge.decide(results, end.judgements, lacks || !end.complaints.empty());
  return end;
}

void print(const Conclusion& end, const Document& document, const Judge& judge, const std::string& rerun,
           const std::string& out) {
  std::vector<RedCase> reds;
  std::vector<CaseResult> results;
  std::map<Verdict, size_t> counts;
  for (size_t i = 0; i < document.cases.size(); ++i) {
    const CaseResult& result = document.cases[i].result;
    const auto& [verdict, why] = end.judgements[i];
    results.push_back(result);
    ++counts[verdict];
    if (judge.red(verdict) && result.outcome != Outcome::notrun) {
      reds.push_back({result, why});
    } else if (worth_telling(verdict)) {
      tell("{} {}\n    {}\n    {}\n", name(verdict), id(result.which), print_signature(result), why);
    }
  }
  tell("{}", print_red(reds, rerun, colour_wanted()));
  for (const std::string& complaint : end.complaints) tell("RED {}\n", complaint);
  for (const std::string& which : end.absent) {
    tell("{}{}: absent, the baseline has it\n", judge.red(Verdict::absent) ? "RED " : "", which);
  }
  for (const std::string& entry : end.overdue) tell("regather: {}\n", entry);
  tell("{}", print_table(results));
  if (!document.cases.empty() && document.cases.front().verdict) {
    std::string text;
    for (const auto& [verdict, count] : counts) text += fmt::format(", {} {}", count, name(verdict));
    tell("verdicts: {}\n", text.substr(2));
  }
  tell("cases {}, {:.1f} s, {}/results.json\n", results.size(), document.seconds, out);
  if (end.exit == Exit::nothing) tell("regather: nothing was compared: no selected case is supported\n");
}

}  // namespace regather::matrix
