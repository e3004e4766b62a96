#include "comm/meeting.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>
#include <vector>

#include "base/random.h"
#include "comm/errors.h"

namespace regather::comm {
namespace {

using std::chrono::milliseconds;

struct Word : Offer {
  Word(const char* text, int value) : word(text), number(value) {}
  const char* name() const override { return word; }
  std::string text() const override { return fmt::format("{} {}", word, number); }
  bool agrees(const Offer& other, int, int) const override {
    return std::string_view(word) == static_cast<const Word&>(other).word;
  }
  const char* word;
  int number;
};

std::unique_ptr<Offer> offer(const char* word, int number = 0) { return std::make_unique<Word>(word, number); }

int number(const Exchange& exchange, int rank) { return static_cast<const Word&>(exchange.offer(rank)).number; }

// What the function throws, as "Type: text"; empty when it returns.
template <typename Function>
std::string thrown(const Function& function) {
  try {
    function();
  } catch (const MismatchError& error) {
    return std::string("MismatchError: ") + error.what();
  } catch (const DeadlineError& error) {
    EXPECT_NE(std::string(error.what()).find(fmt::format("rank {} did not arrive", error.absent)), std::string::npos);
    return std::string("DeadlineError: ") + error.what();
  } catch (const PeerError& error) {
    return std::string("PeerError: ") + error.what();
  }
  return {};
}

// Runs each rank on a thread and leaves for it, as a launcher does; errors by rank.
std::vector<std::string> run(Meeting& meeting, const std::function<void(int)>& rank_function) {
  std::vector<std::string> errors(static_cast<size_t>(meeting.size()));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < meeting.size(); ++rank) {
    threads.emplace_back([&, rank] {
      std::string& error = errors[static_cast<size_t>(rank)];
      try {
        error = thrown([&] { rank_function(rank); });
        meeting.leave(rank, error);
      } catch (const std::exception& other) {
        error = other.what();
        meeting.leave(rank, error);
      }
    });
  }
  meeting.watch();
  threads.clear();
  return errors;
}

TEST(Meeting, EveryRankSeesEveryOfferInRankOrder) {
  for (const int size : {1, 2, 3, 8}) {
    Meeting meeting(size, milliseconds(20000));
    const auto errors = run(meeting, [&](int rank) {
      Random random(7, static_cast<uint64_t>(rank));
      for (int round = 0; round < 300; ++round) {
        if (random.below(50) == 0) std::this_thread::sleep_for(std::chrono::microseconds(random.below(300)));
        const auto exchange = meeting.arrive(rank, offer("sum", rank * 1000 + round));
        ASSERT_EQ(exchange->sequence(), static_cast<uint64_t>(round + 1));
        meeting.wait(*exchange);
        for (int other = 0; other < size; ++other) ASSERT_EQ(number(*exchange, other), other * 1000 + round);
      }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(Meeting, RanksRunAheadAndWaitInAnyOrder) {
  Meeting meeting(3, milliseconds(20000));
  const auto errors = run(meeting, [&](int rank) {
    std::vector<std::shared_ptr<Exchange>> open;
    for (int round = 0; round < 100; ++round) {
      open.push_back(meeting.arrive(rank, offer("gather", round)));
      if (rank == 2) std::this_thread::yield();
    }
    if (rank == 1) std::reverse(open.begin(), open.end());
    for (const auto& exchange : open) meeting.wait(*exchange);
    for (const auto& exchange : open) ASSERT_EQ(number(*exchange, 0), static_cast<int>(exchange->sequence()) - 1);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Meeting, NamesEveryCallOfAMismatchOnEveryRank) {
  Meeting meeting(3, milliseconds(20000));
  const auto errors = run(meeting, [&](int rank) {
    meeting.wait(*meeting.arrive(rank, offer("first")));
    meeting.wait(*meeting.arrive(rank, offer(rank == 1 ? "gather" : "sum", rank)));
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error,
              "MismatchError: ranks called different collectives at #2: rank 0 sum 0; rank 1 gather 1; rank 2 sum 2");
  }
}

TEST(Meeting, NamesWhoDidNotArriveWithinTheDeadline) {
  Meeting meeting(3, milliseconds(150));
  std::atomic<bool> give_up{false};
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run(meeting, [&](int rank) {
    meeting.wait(*meeting.arrive(rank, offer("first")));
    if (rank == 1) {
      while (!give_up) std::this_thread::sleep_for(milliseconds(1));
      meeting.wait(*meeting.arrive(rank, offer("sum", 9)));  // late: too late
    }
    const std::string error = thrown([&] { meeting.wait(*meeting.arrive(rank, offer("sum", rank))); });
    give_up = true;
    if (!error.empty()) throw DeadlineError(error.substr(error.find(' ') + 1), 1);
  });
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, milliseconds(150));
  EXPECT_LT(took, milliseconds(5000));
  for (const std::string& error : errors) {
    EXPECT_EQ(error,
              "DeadlineError: collective #2: rank 1 did not arrive within 150 ms: rank 0 sum 0; rank 1 absent since "
              "first #1; rank 2 sum 2");
  }
}

TEST(Meeting, AMismatchAmongThoseWhoCameIsNamedAtTheDeadline) {
  Meeting meeting(3, milliseconds(100));
  std::atomic<int> failed{0};
  const auto errors = run(meeting, [&](int rank) {
    if (rank == 2) {
      while (failed < 2) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    const std::string error = thrown([&] { meeting.wait(*meeting.arrive(rank, offer(rank == 0 ? "sum" : "gather"))); });
    ++failed;
    EXPECT_EQ(
        error,
        "MismatchError: ranks called different collectives at #1, and rank 2 did not arrive within 100 ms: rank 0 "
        "sum 0; rank 1 gather 0; rank 2 has called no collective");
  });
  EXPECT_EQ(failed, 2);
}

TEST(Meeting, APeerThatThrewEndsTheOthersAtOnce) {
  Meeting meeting(3, milliseconds(60000));
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run(meeting, [&](int rank) {
    meeting.wait(*meeting.arrive(rank, offer("first")));
    if (rank == 1) throw std::runtime_error("boom");
    meeting.wait(*meeting.arrive(rank, offer("sum", rank)));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(5000));
  EXPECT_EQ(errors[1], "boom");
  for (const int rank : {0, 2}) {
    const std::string& error = errors[static_cast<size_t>(rank)];
    EXPECT_TRUE(error.starts_with("PeerError: ")) << error;
    EXPECT_NE(error.find("rank 1 failed after first #1 (boom)"), std::string::npos) << error;
    EXPECT_NE(error.find(fmt::format("rank {} sum {}", rank, rank)), std::string::npos) << error;
  }
}

TEST(Meeting, APeerThatReturnedIsNamedToo) {
  Meeting meeting(2, milliseconds(60000));
  const auto errors = run(meeting, [&](int rank) {
    meeting.wait(*meeting.arrive(rank, offer("first")));
    if (rank == 0) meeting.wait(*meeting.arrive(rank, offer("sum", 5)));
  });
  EXPECT_EQ(errors[0],
            "PeerError: rank 1 returned after first #1; collective #2: rank 0 sum 5; rank 1 absent since first #1");
  EXPECT_EQ(errors[1], "");
}

TEST(Meeting, WhatWasCompleteStaysReadableAfterAFailure) {
  Meeting meeting(2, milliseconds(60000));
  const auto first = meeting.arrive(0, offer("sum", 1));
  meeting.arrive(1, offer("sum", 2));
  meeting.leave(1, "boom");
  const auto second = meeting.arrive(0, offer("sum", 3));
  EXPECT_NO_THROW(meeting.wait(*first));
  EXPECT_EQ(meeting.error(*first), nullptr);
  EXPECT_EQ(number(*first, 1), 2);
  EXPECT_THROW(meeting.wait(*second), PeerError);
  EXPECT_NE(meeting.error(*second), nullptr);
  EXPECT_THROW(meeting.wait(*meeting.arrive(0, offer("sum", 4))), PeerError);
}

TEST(Meeting, NoticesComeOnceFromTheLastToArriveOrAtOnce) {
  Meeting meeting(2, milliseconds(60000));
  int calls = 0;
  const auto exchange = meeting.arrive(0, offer("sum", 1));
  meeting.notify(*exchange, [&](std::exception_ptr error) {
    EXPECT_EQ(error, nullptr);
    EXPECT_TRUE(exchange->complete());
    ++calls;
  });
  EXPECT_EQ(calls, 0);
  meeting.arrive(1, offer("sum", 2));
  EXPECT_EQ(calls, 1);
  meeting.notify(*exchange, [&](std::exception_ptr) { ++calls; });
  EXPECT_EQ(calls, 2);
}

TEST(Meeting, NoticesEndWithTheErrorWhenAPeerLeaves) {
  Meeting meeting(2, milliseconds(60000));
  std::string text;
  const auto exchange = meeting.arrive(0, offer("sum", 1));
  meeting.notify(*exchange, [&](std::exception_ptr error) { text = thrown([&] { std::rethrow_exception(error); }); });
  meeting.leave(1, "boom");
  EXPECT_EQ(text,
            "PeerError: rank 1 failed before any collective (boom); collective #1: rank 0 sum 1; rank 1 has called no "
            "collective");
}

TEST(Meeting, TheWatchEndsNoticesThatWaitTooLong) {
  Meeting meeting(2, milliseconds(60));
  std::atomic<bool> told{false};
  std::string text;
  const auto start = std::chrono::steady_clock::now();
  run(meeting, [&](int rank) {
    if (rank == 0) {
      meeting.notify(*meeting.arrive(0, offer("sum", 1)), [&](std::exception_ptr error) {
        text = thrown([&] { std::rethrow_exception(error); });
        told = true;
      });
    }
    while (!told) std::this_thread::sleep_for(milliseconds(1));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(5000));
  EXPECT_EQ(text,
            "DeadlineError: collective #1: rank 1 did not arrive within 60 ms: rank 0 sum 1; rank 1 has called no "
            "collective");
}

// Ranks fail at random places: whatever happens, every wait ends, and all who did not fail first see an error.
TEST(Meeting, SurvivesRandomFailures) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const int size = 2 + static_cast<int>(seed % 4);
    Meeting meeting(size, milliseconds(20000));
    std::atomic<int> notices{0};
    std::atomic<int> asked{0};
    const auto errors = run(meeting, [&](int rank) {
      Random random(seed, static_cast<uint64_t>(rank));
      std::vector<std::shared_ptr<Exchange>> open;
      for (int round = 0; round < 200; ++round) {
        open.push_back(meeting.arrive(rank, offer("sum", round)));
        if (random.below(3) == 0) {
          ++asked;
          meeting.notify(*open.back(), [&](std::exception_ptr) { ++notices; });
        }
        if (random.below(4) == 0) {
          for (const auto& exchange : open) meeting.wait(*exchange);
          open.clear();
        }
        if (random.below(100) == 0) throw std::runtime_error("boom");
      }
      for (const auto& exchange : open) meeting.wait(*exchange);
    });
    EXPECT_EQ(notices, asked);
    const bool any = std::any_of(errors.begin(), errors.end(), [](const std::string& e) { return e == "boom"; });
    if (!any) {
      for (const std::string& error : errors) EXPECT_EQ(error, "");
    }
  }
}

}  // namespace
}  // namespace regather::comm
