// The members of a JSON object that people write: each of the right type, none that nobody has asked for.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace regather::matrix {

// `path` stands before a member's name in what is thrown, "when." say. The object must outlive the reader.
class Members {
 public:
  Members(const nlohmann::json& object, std::string path);

  const nlohmann::json* find(const char* key);
  const nlohmann::json& member(const char* key);
  std::string text(const char* key);  // not empty
  std::string text_or_empty(const char* key);
  // A list of such texts; one of length zero is a list too.
  std::vector<std::string> texts(const char* key);
  // A list of objects, each with its place as its path.
  std::vector<Members> objects(const char* key);

  // Throws UsageError where a member is left that was not looked for.
  void nothing_else() const;

  [[noreturn]] void fail(const char* key, const char* expected) const;

 private:
  const nlohmann::json& object_;
  std::string path_;
  std::vector<std::string> asked_;
};

}  // namespace regather::matrix
