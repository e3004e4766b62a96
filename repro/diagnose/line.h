// A line of a log without what terminals and launchers put round it.
#pragma once

#include <string>
#include <string_view>

namespace regather::repro {

struct CleanLine {
  std::string source;  // who wrote it: "[rank1]:", "(RayWorker pid=7)", "worker-0:"; empty when nothing says so
  std::string text;
};

// Takes away colours and other control characters, progress bars, time stamps and the prefixes of torchrun, DeepSpeed,
// Ray, MPI, SLURM, Docker and Kubernetes. Bytes that are not UTF-8 become '?'. At most the first kLongestLine bytes.
constexpr size_t kLongestLine = 16 << 10;
CleanLine clean_line(std::string_view line);

}  // namespace regather::repro
