#include "matrix/runner/stack.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "matrix/runner/capture.h"
#include "matrix/runner/worker_process.h"

namespace regather::matrix {
namespace {

constexpr std::string_view kPrefix = "python:";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool executable(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

// The folder of an environment that the user named.
std::string environment_folder(const std::string& given) {
  if (given.empty()) {
    throw UsageError("--stack 'python:': expected python:ENV, ENV a folder with bin/python or a set of peers setup");
  }
  const bool is_name =
      given.find('/') == std::string::npos && given.front() != '.' && !executable(given + "/bin/python");
  const std::string folder = is_name ? peers_home() + "/" + given : given;
  if (!executable(folder + "/bin/python")) {
    throw UsageError(is_name
                         ? fmt::format("--stack 'python:{}': no such set in '{}'; `regather peers setup --set {}` "
                                       "makes it, or give the folder of an environment",
                                       given, peers_home(), given)
                         : fmt::format("--stack 'python:{}': there is no '{}/bin/python' to run; expected the folder "
                                       "of a Python environment",
                                       given, folder));
  }
  // Not canonical: bin/python of an environment is a link, and the environment is the folder that the link stands in.
  return std::filesystem::absolute(folder).lexically_normal().string();
}

}  // namespace

Stack parse_stack(std::string_view text) {
  if (text == "reference") return {};
  if (!text.starts_with(kPrefix)) {
    throw UsageError(fmt::format("--stack '{}': expected reference or python:ENV", text));
  }
  const std::string folder = environment_folder(std::string(text.substr(kPrefix.size())));
  const std::string peers = peers_folder();
  Stack stack;
  stack.name = fmt::format("{}{}", kPrefix, folder);
  stack.worker = peers + "/worker.sh";
  stack.environment = {"REGATHER_STACK=" + stack.name, "REGATHER_WORKER=" + find_worker()};
  return stack;
}

std::string peers_folder() {
  const std::string given = variable("REGATHER_PEERS");
  const std::string folder = given.empty() ? REGATHER_PEERS_DIR : given;
  REGATHER_CHECK(executable(folder + "/worker.sh"), "worker",
                 "no Python worker '{}/worker.sh': set REGATHER_PEERS to matrix/peers of a checkout", folder);
  return folder;
}

std::string peers_home() {
  if (const std::string given = variable("REGATHER_PEERS_HOME"); !given.empty()) return given;
  const std::string cache = variable("XDG_CACHE_HOME");
  return (cache.empty() ? variable("HOME") + "/.cache" : cache) + "/regather/peers";
}

nlohmann::ordered_json packages_of(const Stack& stack) {
  const Captured said = capture({stack.worker, "--environment"}, stack.environment, 60);
  const auto json = nlohmann::ordered_json::parse(said.output, nullptr, false);
  if (said.status != 0 || !json.is_object()) {
    throw UsageError(fmt::format("--stack '{}': its Python does not say what is installed ({}): {}", stack.name,
                                 describe_status(said.status), said.errors));
  }
  return json;
}

}  // namespace regather::matrix
