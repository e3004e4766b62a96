// JSON that others have written: an object of which one member is a long list of objects. The list is cut into the
// texts of its elements, so that a document of any length is read one case at a time, and an entry's line can be named.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace regather::matrix {

struct ListElement {
  std::string_view text;  // of the object, a part of what was read
  size_t line = 1;        // on which it begins
};

struct JsonList {
  nlohmann::json head;    // the whole object with the list empty
  std::string head_text;  // the same as it was written
  std::vector<ListElement> elements;
};

// Throws UsageError where `text` is not such an object, is nested deeper than 64, holds more than a million elements,
// one of more than 16 MiB, or more than 1 MiB beside the list. Without `member` there are no elements.
JsonList read_json_list(std::string_view text, std::string_view member);

// `text`, of which `parsed` was read, with members in the order in which they stand. Throws UsageError where an object
// has more than a thousand: keeping their order takes a time that grows with the square.
nlohmann::ordered_json in_order(const nlohmann::json& parsed, std::string_view text);

}  // namespace regather::matrix
