#include "matrix/results/ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace regather::matrix {
namespace {

constexpr size_t kLargestFile = size_t{1} << 30;

struct Lines {
  std::vector<LedgerLine> wanted;
  std::string other;  // the plan of a line that is not
};

// A torn last one aside. Those of the plans, told by hash, that are wanted; "none" where a line names none.
Lines read_lines(const std::string& path, const std::function<bool(const std::string&)>& wanted) {
  const std::string text = read_file(path, kLargestFile);
  Lines lines;
  size_t number = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    ++number;
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded() || !json.is_object()) {
      throw UsageError(
          fmt::format("'{}', line {}: not a result line; run without --resume or --rerun-failed, or choose "
                      "another --out",
                      path, number));
    }
    const auto at = json.find("plan");
    const std::string plan = at != json.end() && at->is_string() ? at->get<std::string>() : "none";
    if (!wanted(plan)) {
      lines.other = plan;
      continue;
    }
    try {
      lines.wanted.push_back({result_from_json(json), line});
    } catch (const UsageError& e) {
      throw UsageError(fmt::format("'{}', line {}: {}", path, number, e.what()));
    }
  }
  return lines;
}

}  // namespace

std::vector<LedgerLine> read_ledger(const std::string& path) {
  return read_lines(path, [](const std::string&) { return true; }).wanted;
}

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
  const Lines lines = read_lines(path_, [this](const std::string& plan) { return plan == plan_hash_; });
  if (lines.wanted.empty() && !lines.other.empty()) {
    throw UsageError(fmt::format(
        "'{}' holds results of another plan (hash {}, this one is {}): --resume needs the same selection, seed, model, "
        "device, launcher and fault; run without --resume, or choose another --out",
        path_, lines.other, plan_hash_));
  }
  earlier_ = lines.wanted;
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
