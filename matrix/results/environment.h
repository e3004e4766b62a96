// What ran where: the part of a document that tells two machines' results apart.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace regather::matrix {

// regather's version and commit, compiler, operating system, processor and cores, torch version, stack.
nlohmann::ordered_json environment(const std::string& stack);

}  // namespace regather::matrix
