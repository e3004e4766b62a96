#include "matrix/runner/protocol.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace regather::matrix {

std::string print_request(const Request& r) {
  using Json = nlohmann::ordered_json;
  const Json json{{"id", r.id},
                  {"device", r.device},
                  {"transport", r.transport},
                  {"launcher", r.launcher},
                  {"attempt", r.attempt},
                  {"model", r.model.empty() ? Json(nullptr) : Json(r.model)},
                  {"seed", r.seed},
                  {"fault", r.fault},
                  {"timeout", r.timeout},
                  {"record", r.record},
                  {"locate", r.locate}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Request parse_request(std::string_view line) {
  try {
    const nlohmann::json json = nlohmann::json::parse(line);
    Request r;
    json.at("id").get_to(r.id);
    json.at("device").get_to(r.device);
    json.at("transport").get_to(r.transport);
    json.at("launcher").get_to(r.launcher);
    json.at("attempt").get_to(r.attempt);
    if (!json.at("model").is_null()) json.at("model").get_to(r.model);
    json.at("seed").get_to(r.seed);
    json.at("fault").get_to(r.fault);
    json.at("timeout").get_to(r.timeout);
    json.at("record").get_to(r.record);
    json.at("locate").get_to(r.locate);
    return r;
  } catch (const nlohmann::json::exception& e) {
    throw UsageError(fmt::format("request line '{}': {}", line.substr(0, 200), e.what()));
  }
}

}  // namespace regather::matrix
