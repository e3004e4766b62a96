// Ranks as processes over gloo: the same results as threads, and an orderly end whatever a rank does.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "base/blackbox.h"
#include "base/random.h"
#include "comm/launch.h"

namespace regather::comm {
namespace {

using std::chrono::milliseconds;

std::string hex(const at::Tensor& tensor) {
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  std::string text;
  for (size_t i = 0; i < tensor.nbytes(); ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

at::Tensor noise(const World& world, at::ScalarType dtype, int64_t count) {
  Random random(11, static_cast<uint64_t>(world.rank()));
  at::Tensor tensor = at::empty({count}, at::kDouble);
  for (int64_t i = 0; i < count; ++i) tensor.mutable_data_ptr<double>()[i] = random.normal();
  return tensor.to(dtype);
}

// The bytes of every collective's result.
std::string everything(World& world) {
  std::string text;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    at::Tensor sum = noise(world, dtype, 33);
    world.all_reduce(sum)->wait();
    at::Tensor shard = at::empty({9}, dtype);
    world.reduce_scatter(shard, noise(world, dtype, 9 * world.size()))->wait();
    at::Tensor all = at::empty({5 * world.size()}, dtype);
    world.all_gather(all, noise(world, dtype, 5))->wait();
    at::Tensor sent = noise(world, dtype, 4);
    world.broadcast(sent, world.size() - 1)->wait();
    std::vector<at::Tensor> outputs{at::empty({3 * world.size()}, dtype), at::empty({2 * world.size()}, dtype)};
    std::vector<at::Tensor> inputs{noise(world, dtype, 3), noise(world, dtype, 2)};
    world.all_gather(outputs, inputs)->wait();
    std::vector<at::Tensor> shards{at::empty({2}, dtype), at::empty({3}, dtype)};
    std::vector<at::Tensor> wholes{noise(world, dtype, 2 * world.size()), noise(world, dtype, 3 * world.size())};
    world.reduce_scatter(shards, wholes)->wait();
    world.barrier();
    for (const at::Tensor& tensor : {sum, shard, all, sent, outputs[0], outputs[1], shards[0], shards[1]}) {
      text += hex(tensor) + " ";
    }
  }
  for (const std::string& peer : world.all_gather_text(fmt::format("rank {}", world.rank()))) text += peer;
  return text;
}

void expect_no_children() {
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Processes, EqualThreadsBitForBitOnTwoRanks) {
  const auto processes = run_processes({2, milliseconds(30000)}, everything);
  const auto threads = run_threads({2, milliseconds(30000)}, everything);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(processes[rank].error_type, "") << processes[rank].error_text;
    EXPECT_EQ(threads[rank].error_type, "") << threads[rank].error_text;
    EXPECT_EQ(processes[rank].result, threads[rank].result) << "rank " << rank;
  }
}

TEST(Processes, OneAndThreeRanks) {
  for (const int size : {1, 3}) {
    const auto ends = run_processes({size, milliseconds(30000)}, [](World& world) {
      at::Tensor sum = at::full({4}, world.rank() + 1.0, at::kFloat);
      world.all_reduce(sum)->wait();
      return fmt::format("{}", sum[0].item<float>());
    });
    for (const RankEnd& end : ends) EXPECT_EQ(end.result, size == 1 ? "1" : "6") << end.error_text;
  }
}

TEST(Processes, LargeResultsComeWhole) {
  const auto ends = run_processes({2, milliseconds(30000)}, [](World& world) {
    return std::string(static_cast<size_t>(3000000 + world.rank()), 'x');
  });
  EXPECT_EQ(ends[0].result.size(), 3000000U);
  EXPECT_EQ(ends[1].result.size(), 3000001U);
}

TEST(Processes, NeedNoDiskAndLeaveNothingBehind) {
  ::setenv("TMPDIR", "/nowhere", 1);
  const auto files = [] {
    const auto all = std::filesystem::directory_iterator("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = files();
  const auto ends = run_processes({2, milliseconds(30000)}, [](World& world) {
    world.barrier();
    return std::string("done");
  });
  ::unsetenv("TMPDIR");
  for (const RankEnd& end : ends) EXPECT_EQ(end.result, "done") << end.error_text;
  EXPECT_EQ(files(), before);
  expect_no_children();
}

TEST(Processes, AThrowingRankIsTheCauseAndTheOtherFollows) {
  const auto start = std::chrono::steady_clock::now();
  const auto ends = run_processes({2, milliseconds(20000)}, [](World& world) -> std::string {
    world.barrier();
    if (world.rank() == 1) throw std::out_of_range("shard 9 of 8");
    at::Tensor tensor = at::full({4}, 1.0, at::kFloat);
    world.all_reduce(tensor)->wait();
    return "unreachable";
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(10000));
  EXPECT_EQ(ends[1].error_type, "std::out_of_range");
  EXPECT_EQ(ends[1].error_text, "shard 9 of 8");
  EXPECT_FALSE(ends[1].peer_failed);
  EXPECT_TRUE(ends[0].peer_failed) << ends[0].error_type << ": " << ends[0].error_text;
}

TEST(Processes, ASignalIsNamed) {
  const auto start = std::chrono::steady_clock::now();
  const auto ends = run_processes({2, milliseconds(20000)}, [](World& world) {
    world.barrier();
    if (world.rank() == 0) {
      ::signal(SIGSEGV, SIG_DFL);
      ::raise(SIGSEGV);
    }
    world.barrier();
    return std::string();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(10000));
  EXPECT_EQ(ends[0].error_type, "signal 11 (SIGSEGV)");
  EXPECT_FALSE(ends[0].peer_failed);
  EXPECT_TRUE(ends[1].peer_failed) << ends[1].error_type << ": " << ends[1].error_text;
  expect_no_children();
}

TEST(Processes, AnExitWithoutAReportIsNamed) {
  const auto ends = run_processes({1, milliseconds(20000)}, [](World&) -> std::string { ::_exit(3); });
  EXPECT_EQ(ends[0].error_type, "exit 3");
}

TEST(Processes, AMissingRankIsAHangAndAStuckOneIsKilled) {
  const auto start = std::chrono::steady_clock::now();
  const auto ends = run_processes({2, milliseconds(1500)}, [](World& world) {
    world.barrier();
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
    world.barrier();
    return std::string();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(10000));
  EXPECT_EQ(ends[0].error_type, "hang") << ends[0].error_text;
  EXPECT_EQ(ends[1].error_type, "hang");
  EXPECT_EQ(ends[1].error_text, "rank 1 did not end within 2250 ms and was killed");
  EXPECT_TRUE(ends[1].waited_for);
  EXPECT_FALSE(ends[0].waited_for);
  expect_no_children();
}

// Stopped before the ranks have met, it keeps all others from ending too.
TEST(Processes, AStoppedRankIsSaidToBeStoppedAndToBlame) {
  for (const bool early : {false, true}) {
    const auto ends = run_processes({3, milliseconds(800)}, [&](World& world) {
      if (!early) world.barrier();
      if (world.rank() == 2) ::raise(SIGSTOP);
      while (early) std::this_thread::sleep_for(std::chrono::seconds(1));
      world.barrier();
      return std::string();
    });
    EXPECT_EQ(ends[2].error_text, "rank 2 did not end within 1200 ms and was killed; its process was stopped");
    EXPECT_TRUE(ends[2].waited_for);
    EXPECT_FALSE(ends[0].waited_for);
    EXPECT_FALSE(ends[1].waited_for);
    expect_no_children();
  }
}

TEST(Processes, TraceIntoTheBlackBoxOfTheParent) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("blackbox-{}", ::getpid());
  map_blackbox(path.string());
  trace_case("case");
  run_processes({2, milliseconds(30000)}, [](World& world) {
    world.barrier();
    return std::string();
  });
  std::filesystem::remove(path);
  EXPECT_STREQ(blackbox().ranks[1].collective.data(), "barrier #1");
}

}  // namespace
}  // namespace regather::comm
