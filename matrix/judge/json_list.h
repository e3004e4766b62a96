// JSON that others have written: an object of which one member is a long list of objects. The list is cut into the
// texts of its elements, so that a document of any length is read one case at a time, and an entry's line can be named.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace regather::matrix {

struct ListElement {
  std::string_view text;  // of the object, a part of what was read
  size_t line = 1;        // on which it begins
};

struct JsonList {
  nlohmann::json head;  // the whole object with the list empty
  std::vector<ListElement> elements;
};

// Throws UsageError where `text` is not such an object, is nested deeper than 64, holds more than a million elements,
// one of more than 16 MiB, or more than 1 MiB beside the list. Without `member` there are no elements.
JsonList read_json_list(std::string_view text, std::string_view member);

}  // namespace regather::matrix
