// Text for people's tools, out of documents that anybody may have written.
#pragma once

#include <string>
#include <string_view>

namespace regather::reports {

// At most `longest` bytes, cut between characters; "..." where it was cut.
std::string shortened(std::string_view text, size_t longest);

// Characters that XML 1.0 cannot hold, and bytes that are no UTF-8, become U+FFFD.
std::string for_xml(std::string_view text);

// On one line of a Markdown table's cell, showing itself: no markup, no links, no mentions.
std::string for_markdown(std::string_view text);

// The message of a GitHub workflow command; a property's value (`title=...`) escapes more.
std::string for_workflow_message(std::string_view text);
std::string for_workflow_property(std::string_view text);

}  // namespace regather::reports
