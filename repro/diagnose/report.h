// How a diagnosis is told: to people, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "repro/diagnose/conclude.h"

namespace regather::repro {

std::string print(const Knowledge& knowledge, const Diagnosis& diagnosis);
nlohmann::ordered_json to_json(const Knowledge& knowledge, const Diagnosis& diagnosis, const Findings& findings);

}  // namespace regather::repro
