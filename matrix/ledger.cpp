#include "matrix/ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace regather::matrix {
namespace {

constexpr size_t kLargestFile = size_t{1} << 30;

}  // namespace

Ledger::Ledger(std::string path, std::string plan_hash, bool resume)
    : path_(std::move(path)), plan_hash_(std::move(plan_hash)) {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) {
    throw UsageError(
        fmt::format("cannot write '{}': {}; choose another folder with --out", path_, std::strerror(errno)));
  }
  try {
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      throw UsageError(fmt::format("'{}' is being written by another run; choose another folder with --out", path_));
    }
    if (resume) {
      read_earlier();
    } else if (::ftruncate(file_, 0) != 0 && errno != EINVAL) {  // EINVAL: a device, which has no length
      throw UsageError(fmt::format("cannot empty '{}': {}", path_, std::strerror(errno)));
    }
  } catch (...) {
    ::close(file_);
    throw;
  }
}

Ledger::~Ledger() { ::close(file_); }

void Ledger::read_earlier() {
  const std::string text = read_file(path_, kLargestFile);
  size_t whole = 0;
  size_t number = 0;
  std::string other;
  for (size_t end; (end = text.find('\n', whole)) != std::string::npos; whole = end + 1) {
    const std::string line = text.substr(whole, end - whole);
    ++number;
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded() || !json.is_object()) {
      throw UsageError(fmt::format("'{}', line {}: not a result line; run without --resume, or choose another --out",
                                   path_, number));
    }
    const auto plan = json.find("plan");
    if (plan == json.end() || *plan != plan_hash_) {
      other = plan != json.end() && plan->is_string() ? plan->get<std::string>() : "none";
      continue;
    }
    try {
      earlier_.push_back({result_from_json(json), line});
    } catch (const UsageError& e) {
      throw UsageError(fmt::format("'{}', line {}: {}", path_, number, e.what()));
    }
  }
  if (earlier_.empty() && !other.empty()) {
    throw UsageError(fmt::format(
        "'{}' holds results of another plan (hash {}, this one is {}): --resume needs the same selection, seed, model, "
        "device, launcher and fault; run without --resume, or choose another --out",
        path_, other, plan_hash_));
  }
  if (!cut_torn_line(file_)) {
    throw UsageError(fmt::format("cannot cut the torn last line off '{}': {}", path_, std::strerror(errno)));
  }
}

std::string Ledger::append(std::string_view line) {
  const size_t end = line.rfind('}');
  REGATHER_CHECK(end != std::string_view::npos, "ledger", "not a result line: '{}'", line.substr(0, 60));
  std::string text = fmt::format("{},\"plan\":\"{}\"}}", line.substr(0, end), plan_hash_);
  if (!append_line(file_, text)) {
    throw Error("ledger",
                fmt::format("cannot write '{}': {}; the lines before are kept, --resume goes on from them", path_,
                            std::strerror(errno)),
                __FILE__, __LINE__);
  }
  return text;
}

}  // namespace regather::matrix
