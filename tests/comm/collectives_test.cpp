// Every collective of the shared-memory transport against a plain loop over the ranks.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "base/random.h"
#include "tests/comm/ranks.h"

namespace regather::comm {
namespace {

using Op = c10d::ReduceOp::RedOpType;
using Values = std::vector<double>;

const std::vector<int> kWorlds{1, 2, 3, 4, 8};
const std::vector<at::ScalarType> kTypes{at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kByte,
                                         at::kChar,  at::kShort,  at::kInt,      at::kLong};

// Small integers: exact in every dtype, and so are their sums over 8 ranks.
double value(int rank, int64_t index) { return static_cast<double>((rank * 7 + index * 3) % 11); }

at::Tensor numbers(at::ScalarType dtype, int64_t count, const std::function<double(int64_t)>& at_index) {
  Values values;
  for (int64_t i = 0; i < count; ++i) values.push_back(at_index(i));
  return at::tensor(values, at::kDouble).to(dtype);
}

at::Tensor own(const World& world, at::ScalarType dtype, int64_t count) {
  return numbers(dtype, count, [&](int64_t i) { return value(world.rank(), i); });
}

void expect_same(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  ASSERT_EQ(got.scalar_type(), want.scalar_type()) << what;
  EXPECT_TRUE(got.flatten().equal(want.flatten())) << what << "\ngot " << got << "\nwant " << want;
}

double reduced(Op op, int size, int64_t index) {
  double result = value(0, index);
  for (int rank = 1; rank < size; ++rank) {
    const double next = value(rank, index);
    if (op == Op::MIN) result = std::min(result, next);
    if (op == Op::MAX) result = std::max(result, next);
    if (op == Op::SUM || op == Op::AVG) result += next;
  }
  return op == Op::AVG ? result / size : result;
}

at::Tensor want_reduced(at::ScalarType dtype, Op op, int size, int64_t count, int64_t skip = 0) {
  // Averages round once, from float for the half types; integers are cut off by the conversion.
  const bool half = dtype == at::kHalf || dtype == at::kBFloat16;
  return numbers(dtype, count, [&](int64_t i) {
    const double exact = reduced(op, size, i + skip);
    return half ? static_cast<double>(static_cast<float>(exact)) : exact;
  });
}

c10d::Backend& backend(const World& world) { return *world.group()->getBackend(c10::DeviceType::CPU); }

TEST(Collectives, AllReduce) {
  for (const int size : kWorlds) {
    on_ranks(size, [&](World& world) {
      for (const at::ScalarType dtype : kTypes) {
        for (const Op op : {Op::SUM, Op::AVG, Op::MIN, Op::MAX}) {
          for (const int64_t count : {0, 1, 37, 3000}) {
            std::vector<at::Tensor> tensors{own(world, dtype, count)};
            c10d::AllreduceOptions options;
            options.reduceOp = op;
            backend(world).allreduce(tensors, options)->wait();
            expect_same(tensors[0], want_reduced(dtype, op, size, count),
                        fmt::format("{} op {} x{} world {}", c10::toString(dtype), static_cast<int>(op), count, size));
          }
        }
      }
    });
  }
}

TEST(Collectives, AllReduceCoalescedMixesDtypes) {
  for (const int size : kWorlds) {
    on_ranks(size, [&](World& world) {
      std::vector<at::Tensor> tensors;
      for (const at::ScalarType dtype : kTypes) tensors.push_back(own(world, dtype, 5 + static_cast<int>(dtype)));
      backend(world).allreduce_coalesced(tensors, {})->wait();
      for (const at::Tensor& tensor : tensors) {
        expect_same(tensor, want_reduced(tensor.scalar_type(), Op::SUM, size, tensor.numel()), "coalesced");
      }
    });
  }
}

TEST(Collectives, ReduceReachesTheRootAlone) {
  for (const int size : kWorlds) {
    on_ranks(size, [&](World& world) {
      std::vector<at::Tensor> tensors{own(world, at::kFloat, 20)};
      c10d::ReduceOptions options;
      options.rootRank = size - 1;
      backend(world).reduce(tensors, options)->wait();
      expect_same(tensors[0],
                  world.rank() == size - 1 ? want_reduced(at::kFloat, Op::SUM, size, 20) : own(world, at::kFloat, 20),
                  "reduce");
    });
  }
}

TEST(Collectives, ReduceScatterInEveryForm) {
  for (const int size : kWorlds) {
    on_ranks(size, [&](World& world) {
      for (const at::ScalarType dtype : kTypes) {
        const int64_t count = 13;
        const at::Tensor want = want_reduced(dtype, Op::SUM, size, count, world.rank() * count);
        const at::Tensor input = own(world, dtype, count * size);
        at::Tensor output = at::zeros({count}, dtype);
        world.reduce_scatter(output, input)->wait();
        expect_same(output, want, "base");

        std::vector<at::Tensor> outputs{at::zeros({count}, dtype), at::zeros({count}, at::kDouble)};
        std::vector<at::Tensor> inputs{input, input.to(at::kDouble)};
        world.reduce_scatter(outputs, inputs)->wait();
        expect_same(outputs[0], want, "coalesced");
        expect_same(outputs[1], want.to(at::kDouble), "coalesced, second");

        std::vector<std::vector<at::Tensor>> lists{{}};
        for (int rank = 0; rank < size; ++rank) lists[0].push_back(input.narrow(0, rank * count, count));
        std::vector<at::Tensor> listed{at::zeros({count}, dtype)};
        c10d::ReduceScatterOptions options;
        options.reduceOp = Op::AVG;
        backend(world).reduce_scatter(listed, lists, options)->wait();
        expect_same(listed[0], want_reduced(dtype, Op::AVG, size, count, world.rank() * count), "lists");
      }
    });
  }
}

TEST(Collectives, AllGatherInEveryForm) {
  std::vector<at::ScalarType> dtypes = kTypes;
  dtypes.push_back(at::kBool);
  for (const int size : kWorlds) {
    on_ranks(size, [&](World& world) {
      for (const at::ScalarType dtype : dtypes) {
        const int64_t count = 9;
        const at::Tensor want =
            numbers(dtype, count * size, [&](int64_t i) { return value(static_cast<int>(i / count), i % count); });
        const at::Tensor input = own(world, dtype, count);
        at::Tensor output = at::zeros({count * size}, dtype);
        world.all_gather(output, input)->wait();
        expect_same(output, want, "base");

        std::vector<at::Tensor> outputs{at::zeros({size, count}, dtype), at::zeros({size}, at::kLong)};
        std::vector<at::Tensor> inputs{input, at::full({1}, world.rank(), at::kLong)};
        world.all_gather(outputs, inputs)->wait();
        expect_same(outputs[0], want, "coalesced");
        expect_same(outputs[1], numbers(at::kLong, size, [](int64_t i) { return static_cast<double>(i); }), "second");

        std::vector<std::vector<at::Tensor>> lists{{}};
        for (int rank = 0; rank < size; ++rank) lists[0].push_back(at::zeros({3, 3}, dtype));
        std::vector<at::Tensor> listed{input};
        backend(world).allgather(lists, listed, {})->wait();
        for (int rank = 0; rank < size; ++rank) {
          expect_same(lists[0][static_cast<size_t>(rank)], want.narrow(0, rank * count, count), "lists");
        }
      }
    });
  }
}

TEST(Collectives, BroadcastFromEachRank) {
  for (const int size : kWorlds) {
    on_ranks(size, [&](World& world) {
      for (int root = 0; root < size; ++root) {
        at::Tensor tensor = own(world, at::kFloat, 11);
        world.broadcast(tensor, root)->wait();
        expect_same(tensor, numbers(at::kFloat, 11, [&](int64_t i) { return value(root, i); }), "broadcast");
      }
    });
  }
}

TEST(Collectives, GatherAndScatter) {
  for (const int size : kWorlds) {
    on_ranks(size, [&](World& world) {
      const int root = size / 2;
      std::vector<at::Tensor> mine{own(world, at::kInt, 6)};
      std::vector<std::vector<at::Tensor>> all;
      if (world.rank() == root) {
        all.emplace_back();
        for (int rank = 0; rank < size; ++rank) all[0].push_back(at::zeros({6}, at::kInt));
      }
      c10d::GatherOptions gather;
      gather.rootRank = root;
      backend(world).gather(all, mine, gather)->wait();
      std::vector<at::Tensor> back{at::zeros({6}, at::kInt)};
      c10d::ScatterOptions scatter;
      scatter.rootRank = root;
      if (world.rank() == root) {
        for (int rank = 0; rank < size; ++rank) {
          expect_same(all[0][static_cast<size_t>(rank)],
                      numbers(at::kInt, 6, [&](int64_t i) { return value(rank, i); }), "gather");
        }
      }
      backend(world).scatter(back, all, scatter)->wait();
      expect_same(back[0], mine[0], "scatter");
    });
  }
}

TEST(Collectives, AllToAllWithUnevenSplits) {
  for (const int size : kWorlds) {
    on_ranks(size, [&](World& world) {
      // Rank r sends (r + to) % 3 rows of two to each rank.
      std::vector<int64_t> sent;
      std::vector<int64_t> received;
      Values rows;
      Values want;
      for (int other = 0; other < size; ++other) {
        sent.push_back((world.rank() + other) % 3);
        received.push_back((other + world.rank()) % 3);
        for (int64_t i = 0; i < sent.back() * 2; ++i) rows.push_back(world.rank() * 100 + other * 10 + i);
        for (int64_t i = 0; i < received.back() * 2; ++i) want.push_back(other * 100 + world.rank() * 10 + i);
      }
      at::Tensor input = at::tensor(rows, at::kFloat).reshape({-1, 2});
      at::Tensor output = at::zeros({static_cast<int64_t>(want.size()) / 2, 2}, at::kFloat);
      backend(world).alltoall_base(output, input, received, sent, {})->wait();
      expect_same(output, at::tensor(want, at::kFloat), "all_to_all");
    });
  }
}

TEST(Collectives, BarrierHoldsEveryRankUntilTheLast) {
  std::atomic<int> arrived{0};
  on_ranks(4, [&](World& world) {
    if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ++arrived;
    world.barrier();
    EXPECT_EQ(arrived, 4);
  });
}

TEST(Collectives, ChecksAcrossRanks) {
  on_ranks(3, [](World& world) {
    EXPECT_EQ(world.all_gather_int(world.rank() - 1), (std::vector<int64_t>{-1, 0, 1}));
    const std::vector<std::string> texts{"", std::string("a\0b", 3), "long enough to be padded"};
    EXPECT_EQ(world.all_gather_text(texts[static_cast<size_t>(world.rank())]), texts);
    EXPECT_EQ(world.all_gather_text(""), (std::vector<std::string>{"", "", ""}));
  });
}

// Values whose sum depends on the order of addition.
at::Tensor awkward(int rank, at::ScalarType dtype, int64_t count) {
  Random random(3, static_cast<uint64_t>(rank));
  return numbers(at::kDouble, count,
                 [&](int64_t) { return random.normal() * std::pow(10.0, random.uniform() * 8 - 4); })
      .to(dtype);
}

TEST(Collectives, SumsInRankOrderWhateverTheOrderOfArrival) {
  for (const int size : {2, 3, 4, 8}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      at::Tensor want = awkward(0, dtype, 2500).to(at::kFloat);
      for (int rank = 1; rank < size; ++rank) want = want + awkward(rank, dtype, 2500).to(at::kFloat);
      want = want.to(dtype);
      for (uint64_t run = 0; run < 50; ++run) {
        on_ranks(size, [&](World& world) {
          Random random(run, static_cast<uint64_t>(world.rank()));
          at::Tensor tensor = awkward(world.rank(), dtype, 2500);
          std::this_thread::sleep_for(std::chrono::microseconds(random.below(400)));
          world.all_reduce(tensor)->wait();
          EXPECT_TRUE(tensor.equal(want)) << "run " << run << " rank " << world.rank();
        });
      }
    }
  }
}

TEST(Collectives, NanSurvivesMinAndMax) {
  on_ranks(2, [](World& world) {
    for (const Op op : {Op::MIN, Op::MAX}) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      std::vector<at::Tensor> tensors{at::tensor({world.rank() == 0 ? nan : 1.F, world.rank() == 1 ? nan : 1.F})};
      c10d::AllreduceOptions options;
      options.reduceOp = op;
      backend(world).allreduce(tensors, options)->wait();
      EXPECT_TRUE(tensors[0].isnan().all().item<bool>());
    }
  });
}

}  // namespace
}  // namespace regather::comm
