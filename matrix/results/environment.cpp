#include "matrix/results/environment.h"

#include <fmt/format.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

namespace regather {
const char* build_commit();  // generated when the build runs; empty outside a git checkout
}

namespace regather::matrix {
namespace {

using Json = nlohmann::ordered_json;

// The value after `key` and `separator` in a file of such lines, without quotes.
std::string lookup(const char* path, std::string_view key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(" \t\"", line.find(separator) + 1);
    if (begin == std::string::npos) return {};
    return line.substr(begin, line.find_last_not_of(" \t\"") + 1 - begin);
  }
  return {};
}

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

Json environment(const std::string& stack) {
  utsname system{};
  ::uname(&system);
  struct sysinfo memory {};
  ::sysinfo(&memory);
  return {{"regather", REGATHER_VERSION},
          {"commit", or_null(build_commit())},
          {"compiler", REGATHER_COMPILER},
          {"build", or_null(REGATHER_BUILD_TYPE)},
          {"os", or_null(lookup("/etc/os-release", "PRETTY_NAME", '='))},
          {"kernel", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
          {"cpu", or_null(lookup("/proc/cpuinfo", "model name", ':'))},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_bytes", static_cast<uint64_t>(memory.totalram) * memory.mem_unit},
          {"torch", or_null(REGATHER_TORCH_OF_BUILD)},
          {"stack", stack}};
}

}  // namespace regather::matrix
