#include "kernels/bench/stages.cuh"

#include <cuda_runtime.h>

#include <utility>
#include <vector>

#include "kernels/cuda_check.cuh"

namespace regather::kernels::bench {

std::map<std::string, double> stage_times(testing::Problem& problem, Context& context, int calls) {
  std::vector<std::pair<std::string, cudaEvent_t>> marks;
  const auto mark = [&](const std::string& stage) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "cudaEventCreate");
    check(cudaEventRecord(event), "cudaEventRecord");
    marks.emplace_back(stage, event);
  };
  for (int i = 0; i < calls; ++i) problem.run(context);
  problem.observe([&](const char* stage) { mark(stage); });
  mark("start");
  for (int i = 0; i < calls; ++i) {
    problem.run(context);
    mark("end");
  }
  problem.observe(nullptr);
  check(cudaDeviceSynchronize(), "stages");
  std::map<std::string, double> times;
  for (size_t i = 1; i < marks.size(); ++i) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, marks[i - 1].second, marks[i].second), "cudaEventElapsedTime");
    times[marks[i].first] += static_cast<double>(milliseconds) / calls;
  }
  for (const auto& [stage, event] : marks) cudaEventDestroy(event);
  return times;
}

}  // namespace regather::kernels::bench
