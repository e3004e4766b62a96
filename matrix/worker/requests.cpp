#include "matrix/worker/requests.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

namespace regather {

bool write_line(int pipe, std::string line) {
  line += '\n';
  for (size_t done = 0; done < line.size();) {
    const ssize_t wrote = ::write(pipe, line.data() + done, line.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    done += static_cast<size_t>(wrote);
  }
  return true;
}

double timeout_of(const nlohmann::json& request) { return request.value("timeout", 60.0); }

train::RunOptions options_of(const nlohmann::json& request) {
  train::RunOptions options;
  if (request.value("launcher", "threads") == "processes") options.launcher = train::Launcher::processes;
  if (request.contains("model") && request["model"].is_string()) options.model = request["model"].get<std::string>();
  options.cuda = request.value("device", "cpu") == "cuda";
  options.nccl = request.value("transport", "gloo") == "nccl";
  options.seed = request.value("seed", uint64_t{1});
  options.locate = request.value("locate", false);
  // A rank that waits gives up, and says for whom it waited, before the runner's own limit kills the worker.
  options.deadline = std::chrono::milliseconds(static_cast<int64_t>(timeout_of(request) * 500));
  return options;
}

}  // namespace regather
