#include "matrix/death/deaths.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/pipe.h"

namespace regather::matrix {

std::string print_death(const DeathReport& report) {
  const CaseResult& result = report.death.result;
  return fmt::format("regather: {} of {} ({}): {}", name(result.outcome), id(result.which),
                     result.signature ? result.signature->type : "", report.conclusion);
}

Deaths::Deaths(std::string path, bool keep) : path_(std::move(path)) {
  if (!keep && ::unlink(path_.c_str()) != 0 && errno != ENOENT) {
    throw UsageError(
        fmt::format("cannot remove '{}': {}; choose another folder with --out", path_, std::strerror(errno)));
  }
}

void Deaths::append(const DeathReport& report) {
  ++count_;
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(report.death.line());
  json["when"] = fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)));
  json["output"] = report.output;
  json["conclusion"] = report.conclusion;
  const std::string line = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  int file = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const bool written = file >= 0 && cut_torn_line(file) && append_line(file, line);
  const int error = errno;
  close_file(file);
  REGATHER_CHECK(written, "deaths", "cannot write '{}': {}; the results before are kept, --resume goes on from them",
                 path_, std::strerror(error));
}

}  // namespace regather::matrix
