#include "reports/html/html.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/embedded.h"
#include "matrix/results/summary.h"
#include "reports/html/page_data.h"
#include "reports/text.h"

namespace regather {
const std::vector<EmbeddedFile>& embedded_page();
}

namespace regather::reports {
namespace {

std::string_view part(std::string_view name) {
  return std::ranges::find(embedded_page(), name, &EmbeddedFile::name)->text;
}

std::string for_html(std::string_view text) {
  std::string safe;
  for (const char c : for_xml(text)) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

// A data block ends at "</script", and "<!--" changes how it is read: within JSON text both can be written otherwise.
std::string for_data_block(const std::string& json) {
  std::string safe;
  safe.reserve(json.size());
  for (const char c : json) {
    switch (c) {
      case '<':
        safe += "\\u003c";
        break;
      case '>':
        safe += "\\u003e";
        break;
      case '&':
        safe += "\\u0026";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string fact(std::string_view name, const std::string& value) {
  return value.empty() ? "" : fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, for_html(value));
}

// What was run, on what.
std::string facts(const Report& report) {
  const auto& environment = report.document.environment;
  const auto value = [&](const char* key) -> std::string {
    const auto at = environment.find(key);
    if (at == environment.end() || at->is_null()) return "";
    return at->is_string() ? at->get<std::string>()
                           : at->dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  };
  const auto day = [&]() -> std::string {
    if (report.ended <= 0 || report.ended > 253402300799000) return "";
    return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(static_cast<std::time_t>(report.ended / 1000)));
  };
  std::string text = fact("definition", report.document.definition) + fact("stack", value("stack")) +
                     fact("fault", value("fault")) + fact("torch", value("torch")) +
                     fact("regather", value("regather")) + fact("commit", value("commit").substr(0, 12)) +
                     fact("machine", value("cpu")) + fact("cores", value("cores")) + fact("system", value("os")) +
                     fact("ran for", fmt::format("{:.1f} s", report.document.seconds)) + fact("written", day());
  if (report.document.shard) {
    text += fact("shard", fmt::format("{}/{}", report.document.shard->index, report.document.shard->count));
  }
  const auto packages = environment.find("packages");
  if (packages != environment.end() && packages->is_object()) {
    for (const auto& [name, version] : packages->items()) {
      if (version.is_string()) text += fact(for_html(name), version.get<std::string>());
    }
  }
  return text;
}

// Without the script: the counts.
std::string plain_table(const Report& report) {
  std::vector<CaseResult> results;
  for (const Item& item : report.items) results.push_back(item.of.result);
  return fmt::format("<pre>{}</pre>", for_html(matrix::print_table(results)));
}

using Values = std::vector<std::pair<std::string_view, std::string>>;

// Puts each value at its {{name}}; what a value holds is not looked at again.
std::string fill(std::string_view page, const Values& values) {
  std::string text;
  while (true) {
    const size_t open = page.find("{{");
    text += page.substr(0, open);
    if (open == std::string_view::npos) return text;
    const size_t close = page.find("}}", open);
    const auto at = std::ranges::find(values, page.substr(open + 2, close - open - 2),
                                      [](const auto& value) { return value.first; });
    text += at->second;
    page.remove_prefix(close + 2);
  }
}

}  // namespace

std::string html(const Report& report, const std::optional<Before>& before) {
  const bool red = report.missing > 0 || std::ranges::any_of(report.items, &Item::red);
  return fill(part("page"), {{"title", for_html("regather: " + report.document.definition)},
                             {"colour", red ? "red" : "green"},
                             {"sentence", for_html(verdict_sentence(report))},
                             {"facts", facts(report)},
                             {"table", plain_table(report)},
                             {"data", for_data_block(page_data(report, before))},
                             {"script", std::string(part("script"))},
                             {"style", std::string(part("style"))},
                             {"script-hash", REGATHER_SCRIPT_HASH},
                             {"style-hash", REGATHER_STYLE_HASH}});
}

}  // namespace regather::reports
