#include "reports/junit.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "reports/text.h"

namespace regather::reports {
namespace {

using matrix::Verdict;

bool died(Outcome outcome) { return outcome == Outcome::crash || outcome == Outcome::hang || outcome == Outcome::oom; }

void set(pugi::xml_node node, const char* name, const std::string& value) {
  node.append_attribute(name).set_value(for_xml(value).c_str());
}

std::string seconds(double milliseconds) { return fmt::format("{:.3f}", milliseconds / 1e3); }

// Everything that helps with a failure.
std::string details(const Item& item, const Report& report) {
  const CaseResult& result = item.of.result;
  std::string text = item.failure + "\n";
  if (const auto& g = result.gradients; g && g->compared > 0) {
    text += fmt::format("worst gradient: {}, relative L2 error {:.3g}, tolerance {:.3g}, {} compared\n", g->worst,
                        g->relative_l2, g->tolerance, g->compared);
  }
  for (const std::string& issue : item.issues) text += fmt::format("known as {}\n", issue);
  if (item.repaired) text += fmt::format("passes as {}\n", id(report.items[*item.repaired].of.result.which));
  return text + rerun_command(report, result) + "\n";
}

struct Counts {
  int tests = 0;
  int failures = 0;
  int errors = 0;
  int skipped = 0;
  double milliseconds = 0;

  void add(const Counts& more) {
    tests += more.tests;
    failures += more.failures;
    errors += more.errors;
    skipped += more.skipped;
    milliseconds += more.milliseconds;
  }
  void write(pugi::xml_node node) const {
    set(node, "tests", std::to_string(tests));
    set(node, "failures", std::to_string(failures));
    set(node, "errors", std::to_string(errors));
    set(node, "time", seconds(milliseconds));
  }
};

Counts write_case(pugi::xml_node suite, const Item& item, const Report& report, const std::string& group) {
  const CaseResult& result = item.of.result;
  Counts counts{.tests = 1, .milliseconds = result.milliseconds};
  pugi::xml_node test = suite.append_child("testcase");
  set(test, "name", id(result.which));
  set(test, "classname", group);
  set(test, "time", seconds(result.milliseconds));
  if (item.red) {
    const bool error = died(result.outcome);
    ++(error ? counts.errors : counts.failures);
    pugi::xml_node node = test.append_child(error ? "error" : "failure");
    set(node, "type", result.outcome == Outcome::pass ? "xpass" : name(result.outcome));
    set(node, "message", item.failure);
    node.text().set(for_xml(details(item, report)).c_str());
  } else if (result.outcome != Outcome::pass) {
    ++counts.skipped;
    const bool fails = failed(result);
    set(test.append_child("skipped"), "message", fails ? "fails as it may: " + item.failure : result.reason);
  }
  return counts;
}

// The format has a place for it in a suite alone; the first one has it.
void write_environment(pugi::xml_node suite, const nlohmann::ordered_json& environment) {
  pugi::xml_node properties = suite.append_child("properties");
  for (const auto& [key, value] : environment.items()) {
    pugi::xml_node property = properties.append_child("property");
    set(property, "name", key);
    set(property, "value",
        value.is_string() ? value.get<std::string>()
                          : value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
}

}  // namespace

std::string junit(const Report& report) {
  std::vector<std::pair<std::string, std::vector<const Item*>>> groups;  // in the plan's order
  for (const Item& item : report.items) {
    const auto axes = axis_values(item.of.result.which);
    const std::string group = axes[0].value + "." + axes[1].value;
    auto at = std::ranges::find(groups, group, [](const auto& g) { return g.first; });
    if (at == groups.end()) at = groups.insert(groups.end(), {group, {}});
    at->second.push_back(&item);
  }
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("testsuites");
  set(root, "name", "regather " + report.document.definition);
  Counts all;
  for (const auto& [group, items] : groups) {
    pugi::xml_node suite = root.append_child("testsuite");
    set(suite, "name", group);
    Counts counts;
    if (&items == &groups.front().second) write_environment(suite, report.document.environment);
    for (const Item* item : items) counts.add(write_case(suite, *item, report, group));
    counts.write(suite);
    set(suite, "skipped", std::to_string(counts.skipped));  // of which the format has no sum
    all.add(counts);
  }
  all.write(root);
  std::ostringstream text;
  document.save(text, " ", pugi::format_default, pugi::encoding_utf8);
  return text.str();
}

}  // namespace regather::reports
