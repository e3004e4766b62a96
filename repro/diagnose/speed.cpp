#include "repro/diagnose/speed.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "repro/diagnose/diagnose.h"
#include "repro/register.h"

namespace regather::repro {
namespace {

constexpr double kLeastMegabytesASecond = 200;
constexpr double kMostMebibytes = 64;
constexpr int kRuns = 3;

// What trainers write between their first line and their last: metrics, bars that rewrite themselves, loggers, ranks.
std::string training(size_t bytes) {
  std::mt19937 random(1);
  const auto number = [&](unsigned below) { return static_cast<unsigned>(random()) % below; };
  std::string text;
  for (unsigned step = 0; text.size() < bytes; ++step) {
    switch (number(4)) {
      case 0:
        text += fmt::format("{{'loss': {}.{:04}, 'grad_norm': 0.{:03}, 'learning_rate': 1e-05, 'epoch': 0.{:02}}}\n",
                            number(4), number(10'000), number(1000), number(100));
        break;
      case 1:
        text += fmt::format(
            "[2026-11-30 03:12:{:02},{:03}] [INFO] [logging.py:107:log_dist] [Rank 0] step={}, skipped=0, "
            "lr=[1e-05], mom=[(0.9, 0.999)] (deepspeed)\n",
            number(60), number(1000), step);
        break;
      case 2:
        for (unsigned i = 1; i < 6; ++i) {
          text += fmt::format("  {}%|####      | {}/500 [00:{:02}<08:11,  1.02it/s]\r", i, 5 * i, i);
        }
        text += '\n';
        break;
      default:
        text += fmt::format(
            "[rank{}]: the checkpoint of the model's weights holds tensors of size {}; torch, backward and "
            "the attention's gradients take {} ms\n",
            number(8), number(4096), number(900));
    }
  }
  return text;
}

std::string failure() {
  return "[rank0]: Traceback (most recent call last):\n"
         "[rank0]:   File \"/x/site-packages/deepspeed/runtime/zero/stage3.py\", line 9, in backward\n"
         "[rank0]:   File \"/x/site-packages/torch/utils/checkpoint.py\", line 9, in unpack_hook\n"
         "[rank0]: torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values for the following "
         "tensors have different metadata than during the forward pass.\n"
         "[rank0]: saved metadata: {'shape': torch.Size([1024]), 'dtype': torch.bfloat16}\n"
         "[rank0]: recomputed metadata: {'shape': torch.Size([0]), 'dtype': torch.bfloat16}\n";
}

// A file that goes away.
class Log {
 public:
  Log(const std::string& folder, int mebibytes) : path_(folder + "/bench-diagnose.log") {
    std::filesystem::create_directories(folder);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path_.c_str(), "w"), std::fclose);
    REGATHER_CHECK(file, "bench", "'{}' cannot be written", path_);
    const std::string part = training(16 << 20);
    const size_t bytes = static_cast<size_t>(mebibytes) << 20;
    bool good = true;
    for (; bytes_ < bytes && good; bytes_ += part.size()) good = put(file.get(), part);
    const std::string end = failure();
    good = good && put(file.get(), end) && std::fflush(file.get()) == 0;
    bytes_ += end.size();
    REGATHER_CHECK(good, "bench", "'{}' cannot be written: {} MiB are needed", path_, mebibytes);
  }
  ~Log() { std::remove(path_.c_str()); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  const std::string& path() const { return path_; }
  size_t bytes() const { return bytes_; }

 private:
  static bool put(std::FILE* file, const std::string& text) {
    return std::fwrite(text.data(), 1, text.size(), file) == text.size();
  }
  std::string path_;
  size_t bytes_ = 0;
};

struct Run {
  double seconds = 0;
  double cpu_seconds = 0;
  double mebibytes = 0;  // of memory, at most
  bool right = false;
};

// In a process of its own, whose memory is that of the diagnosis alone.
Run diagnose_once(const std::string& path) {
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = fork();
  REGATHER_CHECK(child >= 0, "bench", "fork failed");
  if (child == 0) {
    bool right = false;
    try {
      const Findings findings = read_logs({.logs = {path}, .configs = {}});
      const Diagnosis d = conclude(knowledge(), known_entries(), findings);
      right = !d.unknown && d.candidates.front().sign->mechanism == "recompute_freed_frozen";
    } catch (const std::exception&) {
    }
    _exit(right ? 0 : 1);
  }
  int status = 0;
  rusage used{};
  REGATHER_CHECK(wait4(child, &status, 0, &used) == child, "bench", "wait4 failed");
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return {.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
          .cpu_seconds = seconds(used.ru_utime) + seconds(used.ru_stime),
          .mebibytes = static_cast<double>(used.ru_maxrss) / 1024,
          .right = WIFEXITED(status) && WEXITSTATUS(status) == 0};
}

}  // namespace

matrix::Exit measure_diagnose(const SpeedOptions& options) {
  if (options.mebibytes < 1) throw UsageError(fmt::format("--mebibytes {}: expected 1 or more", options.mebibytes));
  const Log log(options.out, options.mebibytes);
  Run best = diagnose_once(log.path());
  for (int i = 1; i < kRuns; ++i) {
    const Run run = diagnose_once(log.path());
    best.seconds = std::min(best.seconds, run.seconds);
    best.cpu_seconds = std::min(best.cpu_seconds, run.cpu_seconds);
    best.mebibytes = std::max(best.mebibytes, run.mebibytes);
    best.right = best.right && run.right;
  }
  const double megabytes = static_cast<double>(log.bytes()) / 1e6;
  const double speed = megabytes / best.seconds;
  const bool green = speed >= kLeastMegabytesASecond && best.mebibytes <= kMostMebibytes && best.right;
  if (options.json) {
    const nlohmann::ordered_json json{{"bytes", log.bytes()},
                                      {"seconds", best.seconds},
                                      {"cpu_seconds", best.cpu_seconds},
                                      {"megabytes_a_second", speed},
                                      {"memory_mib", best.mebibytes},
                                      {"right", best.right},
                                      {"green", green}};
    fmt::print("{}\n", json.dump(1));
  } else {
    fmt::print(
        "{:.0f} MB, {} runs: {:.2f} s, {:.0f} MB/s (at least {:.0f}); {:.0f} MB a second of CPU time; {:.1f} MiB of "
        "memory (at most {:.0f}); the bug at its end {}\n",
        megabytes, kRuns, best.seconds, speed, kLeastMegabytesASecond, megabytes / best.cpu_seconds, best.mebibytes,
        kMostMebibytes, best.right ? "found" : "NOT FOUND");
  }
  return green ? matrix::Exit::green : matrix::Exit::red;
}

}  // namespace regather::repro
