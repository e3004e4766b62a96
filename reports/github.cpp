#include "reports/github.h"

#include <fmt/format.h>

#include <vector>

#include "reports/markdown.h"
#include "reports/text.h"

namespace regather::reports {
namespace {

constexpr size_t kLongestFailure = 400;

std::vector<const Item*> red_items(const Report& report) {
  std::vector<const Item*> red;
  for (const Item& item : report.items) {
    if (item.red) red.push_back(&item);
  }
  return red;
}

std::string what(const Item& item) { return shortened(item.failure, kLongestFailure); }

std::string row(const Item& item, const Report& report) {
  std::string issues;
  for (const std::string& issue : item.issues) {
    issues += fmt::format("{}{}", issues.empty() ? "" : ", ", for_markdown(issue));
  }
  std::string repair;
  if (item.repaired) repair = for_markdown(id(report.items[*item.repaired].of.result.which));
  return fmt::format("| {} | {} | {} | {} |\n", for_markdown(id(item.of.result.which)), for_markdown(what(item)),
                     issues, repair);
}

}  // namespace

std::string step_summary(const Report& report) {
  const std::vector<const Item*> red = red_items(report);
  std::string text = fmt::format("## regather {}\n\n{}\n\n{}\n", for_markdown(report.document.definition),
                                 for_markdown(verdict_sentence(report)), markdown(report));
  if (red.empty()) return text;
  text += "| red case | failure | issue | passes as |\n| --- | --- | --- | --- |\n";
  constexpr size_t kRoom = 200;  // for the last line
  size_t shown = 0;
  for (const Item* item : red) {
    const std::string line = row(*item, report);
    if (text.size() + line.size() + kRoom > kLongestSummary) break;
    text += line;
    ++shown;
  }
  if (shown < red.size()) text += fmt::format("\n{} more red cases are in the report.\n", red.size() - shown);
  return text;
}

std::string annotations(const Report& report) {
  const std::vector<const Item*> red = red_items(report);
  std::string text;
  const bool all = red.size() <= kMostAnnotations;
  for (size_t i = 0; i < (all ? red.size() : kMostAnnotations - 1); ++i) {
    const Item& item = *red[i];
    std::string message = what(item);
    for (const std::string& issue : item.issues) message += fmt::format("\nknown as {}", issue);
    if (item.repaired) message += fmt::format("\npasses as {}", id(report.items[*item.repaired].of.result.which));
    message += fmt::format("\n{}", rerun_command(report, item.of.result));
    text += fmt::format("::error title={}::{}\n", for_workflow_property(id(item.of.result.which)),
                        for_workflow_message(message));
  }
  if (!all) {
    text += fmt::format("::error title=regather::{} more red cases are in the report\n",
                        red.size() - (kMostAnnotations - 1));
  }
  return text;
}

}  // namespace regather::reports
