// When results are written: by wait(), by a true isCompleted(), or by the future, and never otherwise.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "comm/errors.h"
#include "tests/comm/ranks.h"

namespace regather::comm {
namespace {

bool all_are(const at::Tensor& tensor, double value) { return tensor.eq(value).all().item<bool>(); }

void sleep_ms(int count) { std::this_thread::sleep_for(std::chrono::milliseconds(count)); }

TEST(Asynchrony, OutputsAreStaleUntilTheWait) {
  on_ranks(2, [](World& world) {
    at::Tensor sum = at::full({5}, world.rank() + 1.0, at::kFloat);
    at::Tensor gathered = at::full({4}, -1.0, at::kFloat);
    at::Tensor shard = at::full({2}, -1.0, at::kFloat);
    at::Tensor sent = at::full({3}, static_cast<double>(world.rank()), at::kFloat);
    const Work works[]{world.all_reduce(sum), world.all_gather(gathered, at::full({2}, world.rank() + 5.0, at::kFloat)),
                       world.reduce_scatter(shard, at::full({4}, 3.0, at::kFloat)), world.broadcast(sent, 0)};
    world.barrier();  // every rank has called everything
    EXPECT_TRUE(all_are(sum, world.rank() + 1.0));
    EXPECT_TRUE(all_are(gathered, -1.0));
    EXPECT_TRUE(all_are(shard, -1.0));
    EXPECT_TRUE(all_are(sent, world.rank()));
    for (const Work& work : works) EXPECT_TRUE(work->wait());
    EXPECT_TRUE(all_are(sum, 3.0));
    EXPECT_TRUE(all_are(gathered.narrow(0, 0, 2), 5.0) && all_are(gathered.narrow(0, 2, 2), 6.0));
    EXPECT_TRUE(all_are(shard, 6.0));
    EXPECT_TRUE(all_are(sent, 0.0));
  });
}

TEST(Asynchrony, AWorkThatIsDroppedNeverWrites) {
  on_ranks(2, [](World& world) {
    at::Tensor sum = at::full({5}, 1.0, at::kFloat);
    world.all_reduce(sum);
    world.barrier();
    EXPECT_TRUE(all_are(sum, 1.0));
  });
}

TEST(Asynchrony, OneRankMayMissTheWaitWhileTheOtherHasTheResult) {
  on_ranks(2, [](World& world) {
    at::Tensor sum = at::full({5}, 1.0, at::kFloat);
    const Work work = world.all_reduce(sum);
    if (world.rank() == 0) work->wait();
    world.barrier();
    EXPECT_TRUE(all_are(sum, world.rank() == 0 ? 2.0 : 1.0));
  });
}

TEST(Asynchrony, InputsMayChangeOrDieAfterTheCall) {
  on_ranks(2, [](World& world) {
    at::Tensor output = at::empty({6}, at::kFloat);
    Work work;
    {
      at::Tensor input = at::full({3}, world.rank() + 1.0, at::kFloat);
      work = world.all_gather(output, input);
      input.fill_(99);
    }
    work->wait();
    EXPECT_TRUE(all_are(output.narrow(0, 0, 3), 1.0) && all_are(output.narrow(0, 3, 3), 2.0));
  });
}

TEST(Asynchrony, AnOutputThatWasEmptiedIsLeftAloneAndAResizedOneIsAnError) {
  on_ranks(2, [](World& world) {
    at::Tensor emptied = at::full({4}, 0.0, at::kFloat);
    const at::Tensor keeps = emptied.detach();
    const Work first = world.all_gather(emptied, at::full({2}, 7.0, at::kFloat));
    emptied.set_data(at::empty({0}, at::kFloat));
    first->wait();
    EXPECT_EQ(emptied.numel(), 0);
    EXPECT_TRUE(all_are(keeps, 7.0));

    at::Tensor resized = at::full({4}, 0.0, at::kFloat);
    const Work second = world.all_gather(resized, at::full({2}, 7.0, at::kFloat));
    resized.resize_({4000});
    EXPECT_THROW(second->wait(), Error);
  });
}

TEST(Asynchrony, PollingDeliversOnceTrue) {
  on_ranks(2, [](World& world) {
    at::Tensor sum = at::full({5}, 1.0, at::kFloat);
    if (world.rank() == 1) sleep_ms(20);
    const Work work = world.all_reduce(sum);
    while (!work->isCompleted()) std::this_thread::yield();
    EXPECT_TRUE(work->isSuccess());
    EXPECT_EQ(work->exception(), nullptr);
    EXPECT_TRUE(all_are(sum, 2.0));
  });
}

TEST(Asynchrony, FuturesCompleteWithTheOutputsWritten) {
  for (const int late : {0, 1}) {
    on_ranks(2, [&](World& world) {
      at::Tensor sum = at::full({5}, 1.0, at::kFloat);
      if (world.rank() == late) sleep_ms(20);
      const Work work = world.all_reduce(sum);
      const auto future = work->getFuture();
      const auto chained = future->then(
          [](c10::ivalue::Future& done) { return done.value().toTensorVector()[0].mul(10.0); }, c10::TensorType::get());
      EXPECT_EQ(future, work->getFuture());
      future->wait();
      EXPECT_TRUE(all_are(sum, 2.0));
      EXPECT_TRUE(future->value().toTensorVector()[0].is_same(sum));
      chained->wait();
      EXPECT_TRUE(all_are(chained->value().toTensor(), 20.0));
      EXPECT_TRUE(work->wait());
      EXPECT_TRUE(all_are(sum, 2.0));
    });
  }
}

TEST(Asynchrony, FuturesEndWithTheErrorOfAPeer) {
  const auto ends = run_threads({2, std::chrono::milliseconds(60000)}, [](World& world) {
    if (world.rank() == 1) throw std::runtime_error("boom");
    at::Tensor sum = at::full({5}, 1.0, at::kFloat);
    const auto future = world.all_reduce(sum)->getFuture();
    future->waitAndThrow();
    return std::string();
  });
  EXPECT_EQ(ends[0].error_type, "regather::comm::PeerError");
  EXPECT_TRUE(ends[0].peer_failed);
  EXPECT_EQ(ends[1].error_text, "boom");
}

TEST(Asynchrony, FuturesEndAtTheDeadline) {
  std::atomic<bool> ended{false};
  const auto start = std::chrono::steady_clock::now();
  const auto ends = run_threads({2, std::chrono::milliseconds(100)}, [&](World& world) {
    if (world.rank() == 1) {
      while (!ended) sleep_ms(1);
      return std::string();
    }
    at::Tensor sum = at::full({5}, 1.0, at::kFloat);
    const auto future = world.all_reduce(sum)->getFuture();
    future->wait();
    ended = true;
    future->waitAndThrow();
    return std::string();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(ends[0].error_type, "hang");
  EXPECT_NE(ends[0].error_text.find("rank 1 did not arrive within 100 ms"), std::string::npos) << ends[0].error_text;
}

}  // namespace
}  // namespace regather::comm
