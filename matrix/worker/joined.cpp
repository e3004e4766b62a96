#include "matrix/worker/joined.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "case/fault.h"
#include "matrix/worker/requests.h"
#include "train/merge.h"

namespace regather {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr seconds kArrival{300};  // for the store, and for every rank to come
constexpr seconds kIdle{3600};    // for the next case
constexpr seconds kBeat{1};
constexpr seconds kSilence{10};  // after which a rank that has not answered is lost
// Of a case's time limit: its deadline, for a wait on others, is half of it; after this much a rank that is still in
// the case is stuck; after that much the leader goes on without that rank's answer; the leader itself has all of it.
constexpr double kRankShare = 0.75;
constexpr double kAnswerShare = 0.95;
constexpr const char* kTimeout = "timeout";  // as a runner says it of a worker
constexpr seconds kGoodbye{30};              // for every rank to have learnt that it is over

std::string key(const char* what, int64_t number) { return fmt::format("{}/{}", what, number); }

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  REGATHER_CHECK(value != nullptr, "ranks", "{} is not set: the runner sets it", name);
  return value;
}

// Whether a rank did not end by itself: its runner or the leader gave it up. Those that it kept waiting did end.
bool stuck(const CaseResult& rank) { return rank.outcome == Outcome::hang && rank.signature->type == kTimeout; }

// Counts up "alive/R" as long as it lives, over a connection of its own: a wait on the other blocks that. Tells the
// runner of every beat that the store took.
class Heart {
 public:
  Heart(const Joined& joined, int pipe)
      : rendezvous_(joined.store, kArrival),
        pipe_(pipe),
        thread_([this, beat = key("alive", joined.rank)] { run(beat); }) {}
  ~Heart() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Heart(const Heart&) = delete;
  Heart& operator=(const Heart&) = delete;

 private:
  void run(const std::string& beat) {
    try {
      std::unique_lock lock(mutex_);
      while (!ended_) {
        rendezvous_.count(beat, 1);
        write_line(pipe_, R"({"beat":true})");
        changed_.wait_for(lock, kBeat);
      }
    } catch (const std::exception&) {
      // The store is gone: the main thread meets that too.
    }
  }

  comm::Rendezvous rendezvous_;
  int pipe_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace

Joined joined_from_environment() {
  return {.rank = std::stoi(variable("REGATHER_RANK")),
          .size = std::stoi(variable("REGATHER_WORLD_SIZE")),
          .store = {.host = variable("REGATHER_STORE_HOST"),
                    .port = static_cast<uint16_t>(std::stoi(variable("REGATHER_STORE_PORT"))),
                    .prefix = variable("REGATHER_STORE_PREFIX")}};
}

void gather_followers(const Joined& joined) {
  comm::Rendezvous rendezvous(joined.store, kArrival);
  rendezvous.post("version", REGATHER_VERSION);
  for (int rank = 1; rank < joined.size; ++rank) {
    try {
      rendezvous.read(key("here", rank), kArrival);
    } catch (const std::exception&) {
      throw LostRank(
          fmt::format("rank {} of {} has not come within {} s: is it started with --launcher torchrun, and "
                      "can it reach {}:{}?",
                      rank, joined.size, kArrival.count(), joined.store.host, joined.store.port));
    }
  }
}

Leader::Leader(const Joined& joined) : rendezvous_(joined.store, kArrival) {}

CaseResult Leader::run(train::Runner& runner, const Case& c, const train::RunOptions& options, const Json& request) {
  const auto begin = Clock::now();
  const int64_t number = rendezvous_.count("started", 1);
  rendezvous_.post(key("case", number), request.dump());
  std::vector<int64_t> beats;
  for (int rank = 0; rank < c.world; ++rank) beats.push_back(rendezvous_.count(key("alive", rank), 0));
  std::vector<CaseResult> ranks{runner.run_rank(c, options, rendezvous_, key("meet", number), 0)};
  for (int rank = 1; rank < c.world; ++rank) {
    ranks.push_back(result_of(c, rank, fmt::format("line/{}/{}", number, rank), timeout_of(request),
                              {begin, beats[static_cast<size_t>(rank)]}));
  }
  CaseResult result = train::merge(ranks);
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    if (stuck(ranks[rank])) train::blame(result, static_cast<int>(rank));
  }
  result.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  return result;
}

CaseResult Leader::result_of(const Case& c, int rank, const std::string& line, double timeout, Sign last) {
  const milliseconds patience(static_cast<int64_t>(timeout * kAnswerShare * 1e3));
  const milliseconds silence = std::min<milliseconds>(kSilence, patience / 2);
  const auto until = std::max(last.heard + patience, Clock::now() + kBeat);
  while (Clock::now() < until) {
    try {
      return result_from_line(rendezvous_.read(line, kBeat));
    } catch (const UsageError&) {
      throw;
    } catch (const std::exception&) {
      // Not yet there.
    }
    const int64_t beats = rendezvous_.count(key("alive", rank), 0);
    if (std::exchange(last.beats, beats) != beats) last.heard = Clock::now();
    if (Clock::now() - last.heard <= silence) continue;
    throw LostRank(fmt::format("rank {} is gone: it has given no sign of life for {} ms; --resume goes on", rank,
                               silence.count()));
  }
  comm::RankEnd end;
  end.error_type = "hang";
  end.error_text = fmt::format("rank {} did not answer within {} ms", rank, patience.count());
  CaseResult given_up = train::result_of_failure(c, end, rank);
  given_up.signature->type = kTimeout;
  return given_up;
}

void follow(const Joined& joined, int pipe, const Died& died) {
  comm::Rendezvous rendezvous(joined.store, kArrival);
  const std::string theirs = rendezvous.read("version", kArrival);
  if (theirs != REGATHER_VERSION) {
    throw UsageError(fmt::format("rank 0 is regather {}, rank {} is {}: expected the same everywhere", theirs,
                                 joined.rank, REGATHER_VERSION));
  }
  const Heart heart(joined, pipe);
  const auto line_of = [&](int64_t number) { return fmt::format("line/{}/{}", number, joined.rank); };
  const auto answered = [&](int64_t number) { return number == 0 || rendezvous.posted(line_of(number)); };
  if (!died.result.empty() && !answered(died.in)) rendezvous.post(line_of(died.in), died.result);
  int64_t next = rendezvous.count("started", 0);
  if (answered(next)) ++next;
  rendezvous.post(key("here", joined.rank), "yes");

  train::Runner runner;
  for (;; ++next) {
    const Json request = Json::parse(rendezvous.read(key("case", next), kIdle));
    if (request.contains("end")) {
      rendezvous.post(key("ended", joined.rank), "yes");
      write_line(pipe, request.dump());
      return;
    }
    const Case c = parse_id(request.at("id").get<std::string>());
    // Whoever comes late finds nobody to meet.
    if (joined.rank >= c.world || rendezvous.count("started", 0) > next) continue;
    write_line(pipe, Json{{"case", id(c)}, {"number", next}, {"seconds", timeout_of(request) * kRankShare}}.dump());
    seed_fault(parse_fault(request.value("fault", "")));
    rendezvous.post(line_of(next),
                    to_line(runner.run_rank(c, options_of(request), rendezvous, key("meet", next), joined.rank)));
    write_line(pipe, Json{{"idle", true}}.dump());
  }
}

void end_followers(const Joined& joined, int code) {
  comm::Rendezvous rendezvous(joined.store, kArrival);
  rendezvous.post(key("case", rendezvous.count("started", 1)), Json{{"end", code}}.dump());
  // The store may go once they know.
  for (int rank = 1; rank < joined.size; ++rank) rendezvous.read(key("ended", rank), kGoodbye);
}

void serve(const Joined& joined, int pipe) {
  const auto store = comm::serve_store(joined.store.port);
  write_line(pipe, Json{{"serving", joined.store.port}}.dump());
  for (std::string line; std::getline(std::cin, line);) {
  }
}

}  // namespace regather
