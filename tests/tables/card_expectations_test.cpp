// The committed expectations of the card: green on what the card does, red when any one entry is altered.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "case/fixes.h"
#include "case/mechanism.h"
#include "matrix/judge/judge.h"
#include "matrix/judge/load.h"
#include "matrix/plan/plan.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::json;

// What the card does without fixes, run once; with them every case passes, which Card.OffOnEach sees.
std::vector<CaseResult> run_card() {
  const std::filesystem::path out = std::filesystem::current_path() / "card_expectations";
  std::filesystem::remove_all(out);
  const std::string command = "'" REGATHER_PROGRAM "' matrix run card --fixes off --out '" + out.string() + "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::map<std::string, CaseResult> off;
  for (PastCase& c : load_document((out / "results.json").string()).cases) off.emplace(id(c.result.which), c.result);
  std::vector<CaseResult> results;
  for (const Case& c : make_plan({}).cases) {
    CaseResult result;
    if (c.fixes.empty()) {
      result = off.at(id(c));
    } else {
      result.which = c;
      result.outcome = Outcome::pass;
    }
    results.push_back(std::move(result));
  }
  EXPECT_EQ(off.size() * 2, results.size());
  return results;
}

class Alterations {
 public:
  Alterations() : results_(run_card()), whole_(Json::parse(read_file(kFile, 1 << 20))) {}

  size_t entries() const { return whole_["expectations"].size(); }
  const Json& entry(size_t i) const { return whole_["expectations"][i]; }

  Exit judged(const Json& file) const {
    Expectations expectations = parse_expectations("altered", file.dump());
    find_cases_to_cover(expectations);
    const Judge judge(std::move(expectations), std::nullopt, Setting{});
    std::vector<Judgement> judgements;
    std::vector<Case> plan;
    for (const CaseResult& result : results_) {
      plan.push_back(result.which);
      judgements.push_back(judge.of(result, {}));
    }
    return judge.decide(results_, judgements, !judge.complaints(plan, "card", true).empty());
  }
  Exit unaltered() const { return judged(whole_); }

  // With `change` merged into the entry.
  void merged(size_t i, const Json& change) {
    Json copy = whole_;
    copy["expectations"][i].merge_patch(change);
    ASSERT_NE(copy, whole_) << change;
    red(copy, i, change.dump());
  }
  void erased(size_t i) {
    Json copy = whole_;
    copy["expectations"].erase(i);
    red(copy, i, "erased");
  }
  void doubled(size_t i) {
    Json copy = whole_;
    copy["expectations"].push_back(entry(i));
    red(copy, i, "doubled");
  }

  // The values that each axis has among the cases that the entry selects.
  std::map<std::string, std::set<std::string>> selected(size_t i) const {
    const Filter selects = parse_filter(entry(i)["select"].get<std::string>());
    std::map<std::string, std::set<std::string>> values;
    for (const CaseResult& result : results_) {
      if (!selects(result.which)) continue;
      for (const AxisValue& v : axis_values(result.which)) values[v.axis].insert(v.value);
    }
    return values;
  }

  size_t count() const { return count_; }

 private:
  static constexpr const char* kFile = REGATHER_SOURCE_DIR "/matrix/expectations/card.json";

  void red(const Json& file, size_t i, const std::string& how) {
    EXPECT_EQ(judged(file), Exit::red) << "entry " << i + 1 << ": " << how;
    ++count_;
  }

  std::vector<CaseResult> results_;
  Json whole_;
  size_t count_ = 0;
};

void alter_outcome(Alterations& all, size_t i) {
  const Json signature{{"mechanism", "lifecycle"}, {"phase", "invariant"}};
  for (const char* outcome :
       {"pass", "wrong_gradient", "nonfinite", "error", "invariant", "hang", "crash", "oom", "unchecked"}) {
    const std::string other = outcome;
    if (all.entry(i)["outcome"] == other) continue;
    Json change{{"outcome", other}};
    if (other == "pass") change["signature"] = nullptr;
    if (other != "pass" && !all.entry(i).contains("signature")) change["signature"] = signature;
    all.merged(i, change);
  }
}

void alter_signature(Alterations& all, size_t i) {
  const Json& signature = all.entry(i)["signature"];
  for (const MechanismInfo& mechanism : known_mechanisms()) {
    if (signature["mechanism"] != mechanism.name) all.merged(i, {{"signature", {{"mechanism", mechanism.name}}}});
  }
  for (const char* phase : {"build", "forward", "backward", "gradients", "step", "invariant"}) {
    if (signature["phase"] != phase) all.merged(i, {{"signature", {{"phase", phase}}}});
  }
  all.merged(i, {{"signature", {{"type", "Other"}}}});
  all.merged(i, {{"signature", {{"text", "^other"}}}});
}

void alter_selector(Alterations& all, size_t i) {
  const std::string select = all.entry(i)["select"];
  for (const auto& [axis, values] : all.selected(i)) {
    for (const std::string& value : values) {
      all.merged(i, {{"select", "(" + select + ") & " + axis + "!=" + value}});
    }
  }
  for (size_t other = 0; other < all.entries(); ++other) {
    if (other == i) continue;
    const std::string theirs = all.entry(other)["select"];
    all.merged(i, {{"select", "(" + select + ") | (" + theirs + ")"}});
    all.merged(i, {{"select", theirs}});
  }
  all.merged(i, {{"select", "fix=none"}});
  // Over cases that have their fixes, a pass is what the default rules ask for too.
  if (all.entry(i)["outcome"] != "pass") all.merged(i, {{"select", "(" + select + ") | fix has redirect"}});
}

TEST(CardExpectations, AreGreenAndRedWhenAnyOneEntryIsAltered) {
  Alterations all;
  ASSERT_EQ(all.unaltered(), Exit::green);
  ASSERT_GE(all.entries(), 4U);
  for (size_t i = 0; i < all.entries(); ++i) {
    all.erased(i);
    all.doubled(i);
    alter_outcome(all, i);
    alter_selector(all, i);
    if (all.entry(i).contains("signature")) alter_signature(all, i);
  }
  std::cout << all.count() << " alterations\n";
  EXPECT_GT(all.count(), 200U);
}

}  // namespace
}  // namespace regather::matrix
