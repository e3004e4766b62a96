#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <set>
#include <string>

#include "fuzz.h"
#include "reports/ctrf.h"
#include "reports/github.h"
#include "reports/html/html.h"
#include "reports/junit.h"
#include "reports/markdown.h"
#include "reports/sarif.h"

namespace {

using namespace regather;
using Json = nlohmann::json;

size_t count(std::string_view text, std::string_view part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) ++found;
  return found;
}

// Printing throws, and so ends the fuzzer, where the text is no UTF-8.
void require_utf8(const std::string& text) { Json(text).dump(); }

// pugixml reads more than XML allows: bytes that are no UTF-8, control characters, references to them.
void require_xml(const std::string& text) {
  require_utf8(text);
  for (const char c : text) fuzz::require(static_cast<unsigned char>(c) >= 0x20 || c == '\t' || c == '\n' || c == '\r');
  for (size_t at = 0; (at = text.find("&#", at)) != std::string::npos; ++at) {
    const std::string number = text.substr(at + 2, text.find(';', at) - at - 2);
    fuzz::require(std::set<std::string>{"9", "10", "13", "09"}.contains(number));
  }
  pugi::xml_document document;
  fuzz::require(static_cast<bool>(document.load_buffer(text.data(), text.size(), pugi::parse_full)));
  fuzz::require(count(text, "<testcase") == document.select_nodes("//testcase").size());
}

// What is not the page's own cannot become an element: the data block ends where it should, and holds JSON.
void require_page(const std::string& page) {
  require_utf8(page);
  fuzz::require(count(page, "<script") == 2 && count(page, "</script") == 2 && count(page, "<style") == 1);
  const std::string_view open = "id=\"data\">";
  const size_t begin = page.find(open) + open.size();
  fuzz::require(Json::accept(page.substr(begin, page.find("</script", begin) - begin)));
}

void require_github(const reports::Report& report) {
  const std::string lines = reports::annotations(report);
  require_utf8(lines);
  fuzz::require(count(lines, "\n") <= reports::kMostAnnotations);
  for (size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1) fuzz::require(lines.compare(at, 2, "::") == 0);
  const std::string summary = reports::step_summary(report);
  require_utf8(summary);
  fuzz::require(summary.size() <= reports::kLongestSummary);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return fuzz::accepts_or_refuses(data, size, [](std::string_view text) {
    const matrix::PastDocument document = matrix::parse_document("fuzzed", text, true);
    const auto issues = [](const CaseResult&) {
      return std::vector<reports::Issue>{{"trl#1", "<b>", "https://example.org/?a=1&b='\""}};
    };
    const reports::Report report = reports::make_report("<fuzzed>", document, issues, 0);
    require_xml(reports::junit(report));
    fuzz::require(Json::accept(reports::ctrf(report)) && Json::accept(reports::sarif(report)));
    require_github(report);
    require_utf8(reports::markdown(report));
    require_page(reports::html(report, reports::Before{"<before>", matrix::compare(document, document)}));
  });
}
