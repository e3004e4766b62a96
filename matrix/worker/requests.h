// What a worker reads and writes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "train/run_case.h"

namespace regather {

// False when nobody reads any more.
bool write_line(int pipe, std::string line);

// Seconds after which a request's case is given up.
double timeout_of(const nlohmann::json& request);

// How a request's case is to be run.
train::RunOptions options_of(const nlohmann::json& request);

}  // namespace regather
