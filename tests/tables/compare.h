// Results against the tables of what the real packages do, cell by cell (make_tables.py says where they come from).
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace regather::tables {

using Json = nlohmann::json;
using ById = std::map<std::string, Json>;

// The rows of a table by case id, its rules' rows included. Throws when two rows of one table have the same id.
ById read_table(const std::filesystem::path& file);

// The lines of a cases.jsonl by case id; a later attempt replaces an earlier one.
ById read_results(const std::filesystem::path& file);

// What disagrees between a row and the result of its case, in words; nullopt when nothing does. Parts that the row
// leaves null are not compared.
std::optional<std::string> disagreement(const Json& row, const Json& result);

// The count of rows of a chunk, which depends on how a kernel cuts its chunks, replaced by N.
std::string mask_rows(const std::string& text);

}  // namespace regather::tables
