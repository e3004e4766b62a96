// The whole program from outside: files, exit codes, signals, disks that are full.
#include "program.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "../full_disk.h"

namespace regather {
namespace {

using Json = nlohmann::json;
const std::string kFilter = "--filter=backend in (ddp,zero3) & loss=sft";  // 60 runs

class ProgramTest : public testing::Test {
 protected:
  Ended run(std::vector<std::string> more = {}, const std::string& behaviour = "") {
    return Program(arguments(std::move(more)), environment(behaviour)).wait();
  }
  std::vector<std::string> arguments(std::vector<std::string> more) const {
    more.insert(more.begin(), {"matrix", "run", "--out", out_});
    return more;
  }
  std::map<std::string, std::string> environment(const std::string& behaviour) const {
    return {{"FAKE_WORKER", behaviour}, {"FAKE_WORKER_PIDS", folder_ / "pids"}};
  }
  Json document() const { return Json::parse(read_text(out_ + "/results.json")); }
  // Without times, which no two runs share.
  Json timeless() const {
    Json json = document();
    json.erase("seconds");
    for (Json& line : json["cases"]) line.erase("milliseconds");
    return json;
  }
  void TearDown() override { EXPECT_TRUE(still_running(folder_ / "pids").empty()); }

  TemporaryFolder folder_;
  std::string out_ = folder_ / "out";
};

TEST_F(ProgramTest, WritesLinesAndDocument) {
  const Ended ended = run({kFilter});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "");
  EXPECT_NE(ended.err.find("ddp       15 pass    15 pass"), std::string::npos) << ended.err;
  EXPECT_EQ(count_lines(out_ + "/cases.jsonl"), 60U);
  const Json json = document();
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["plan"]["definition"], "card");
  EXPECT_EQ(json["plan"]["cases"], 60);
  EXPECT_EQ(json["totals"], Json({{"pass", 60}}));
  EXPECT_EQ(json["cases"].size(), 60U);
  EXPECT_EQ(json["cases"][0]["id"], "ddp/sft/fix=none");
  EXPECT_TRUE(json["environment"].contains("compiler"));
  EXPECT_FALSE(std::filesystem::exists(out_ + "/results.json.tmp"));
}

TEST_F(ProgramTest, TheCardHolds600RunsAllSupported) {
  const Ended ended = run();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(document()["totals"], Json({{"pass", 600}}));
}

TEST_F(ProgramTest, FormatJsonlRepeatsTheLinesOnStandardOutput) {
  const Ended ended = run({kFilter, "--format", "jsonl"});
  EXPECT_EQ(ended.out, read_text(out_ + "/cases.jsonl"));
}

TEST_F(ProgramTest, RedIsExit1AndSaysHowToRunItAgain) {
  const Ended ended = run({kFilter, "--seed", "5"}, "zero3/sft/fix=gather+recompute_hold+redirect=wrong");
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("RED zero3/sft/fix=gather+recompute_hold+redirect\n"
                           "    wrong_gradient in gradients of step 0 on rank 1: model.norm.weight [reducer_unarmed]\n"
                           "    regather matrix run --case 'zero3/sft/fix=gather+recompute_hold+redirect' --seed 5\n"),
            std::string::npos)
      << ended.err;
  EXPECT_EQ(ended.err.find('\033'), std::string::npos) << "no colour where there is no terminal";
  EXPECT_EQ(run({kFilter}, "ddp/sft/fix=none=wrong").code, 0) << "without fixes a wrong gradient is what we look for";
}

TEST_F(ProgramTest, FlakyAttemptsAreRecorded) {
  const std::string id = "ddp/sft/fix=redirect";
  EXPECT_EQ(run({"--case", id, "--retries", "2"}, "sft=wrong_once").code, 0);
  EXPECT_EQ(count_lines(out_ + "/cases.jsonl"), 2U);
  EXPECT_EQ(document()["cases"].size(), 1U);
  EXPECT_EQ(document()["cases"][0]["attempts"], Json({"wrong_gradient", "pass"}));
  EXPECT_EQ(run({"--case", id, "--repeat", "3"}, "sft=wrong_once").code, 1) << "one red round is enough";
}

TEST_F(ProgramTest, StopsAtTheFirstRedCase) {
  EXPECT_EQ(run({kFilter, "-x", "-j1"}, "zero3/sft/fix=none=segv").code, 1);
  const Json json = document();
  EXPECT_EQ(json["cases"].size(), 60U);
  EXPECT_EQ(json["totals"]["crash"], 1);
  EXPECT_EQ(json["totals"]["notrun"], 29);
}

TEST_F(ProgramTest, NothingSelectedAndNothingSupportedAreExit4) {
  EXPECT_EQ(run({"-k", "no such text"}).code, 4);
  EXPECT_EQ(run({"--case", "fsdp1/sft/fix=none"}).code, 4);
}

TEST_F(ProgramTest, UsageErrorsAreExit2AndSayWhatToDo) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong{
      {{"--case", "zero3/sft"}, "expected backend/loss"},
      {{"--case", "zero3/sft/call=engine/fix=redirect"}, "nothing to redirect"},
      {{"--device", "tpu"}, "expected cpu or cuda"},
      {{"--device", "cuda"}, "run this under torchrun"},
      {{"--transport", "tcp"}, "expected auto, gloo or nccl"},
      {{"--transport", "nccl"}, "expected gloo"},
      {{"--launcher", "rsh"}, "expected auto"},
      {{"--launcher", "torchrun"}, "expected RANK, WORLD_SIZE"},
      {{"--stack", "ruby"}, "expected reference or python:ENV"},
      {{"--model", "/nowhere"}, "expected a folder with config.json"},
      {{"--fault", "gremlin"}, "'gremlin' is not a fault"},
      {{"--fixes", "some"}, "expected off, on or each"},
      {{"--filter", "backend=ddp &"}, "position 14"},
      {{"--shard", "3/2"}, "1 <= K <= N"},
      {{"deck"}, "expected one of card, configs, each, fidelity, smoke, speed, tables"},
      {{"./deck.json"}, "cannot read './deck.json'"},
      {{"-j", "0"}, "--jobs"},
      {{"--timeout", "0"}, "--timeout"},
      {{"--case", "ddp/sft/fix=none", "--fixes", "on"}, "--fixes excludes --case"},
      {{"--cover", "0"}, "--cover"},
      {{"--cover", "7"}, "--cover"},
      {{"--cover", "2", "--case", "ddp/sft/fix=none"}, "excludes"},
      {{"--rerun-failed", "--resume"}, "excludes"},
      {{"--gate", "red"}, "'red' is not a kind of change"},
  };
  for (const auto& [arguments, text] : wrong) {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.code, 2) << arguments[0];
    EXPECT_NE((ended.out + ended.err).find(text), std::string::npos) << arguments[0] << ": " << ended.out << ended.err;
  }
  EXPECT_FALSE(std::filesystem::exists(out_)) << "a usage error touches nothing";
}

TEST_F(ProgramTest, AMissingWorkerIsExit3) {
  const Ended ended = Program(arguments({kFilter}), {{"REGATHER_WORKER", "/nowhere/worker"}}).wait();
  EXPECT_EQ(ended.code, 3);
  EXPECT_NE(ended.err.find("no worker program '/nowhere/worker'"), std::string::npos) << ended.err;
}

TEST_F(ProgramTest, AnInterruptKeepsTheLinesAndResumeFinishes) {
  ASSERT_EQ(run({kFilter}, "frozen=head/fix=redirect=segv").code, 1);
  const Json undisturbed = timeless();
  for (const int number : {SIGKILL, SIGINT, SIGTERM}) {
    std::filesystem::remove_all(out_);
    Program program(arguments({kFilter}), environment("frozen=head/fix=redirect=segv;checkpoint=nonreentrant=slow"));
    while (count_lines(out_ + "/cases.jsonl") < 21) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    program.signal(number);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.code, number == SIGKILL ? 128 + SIGKILL : 130);
    EXPECT_TRUE(still_running(folder_ / "pids").empty());
    const size_t kept = count_lines(out_ + "/cases.jsonl");
    EXPECT_LT(kept, 60U);
    EXPECT_FALSE(std::filesystem::exists(out_ + "/results.json")) << "no document of half a run";
    EXPECT_EQ(ended.err.find("of 60 cases are in") == std::string::npos, number == SIGKILL) << ended.err;

    std::ofstream(out_ + "/cases.jsonl", std::ios::app) << "{\"schema\":1,\"id\":\"ddp/s";  // a torn last line
    EXPECT_EQ(run({kFilter, "--resume"}, "frozen=head/fix=redirect=segv").code, 1);
    EXPECT_EQ(count_lines(out_ + "/cases.jsonl"), 60U);
    EXPECT_EQ(timeless(), undisturbed);
  }
}

TEST_F(ProgramTest, ResumeOfAFinishedRunStartsNoWorker) {
  run({kFilter});
  const Json first = timeless();
  std::filesystem::remove(folder_ / "pids");
  EXPECT_EQ(run({kFilter, "--resume"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "pids"));
  EXPECT_EQ(timeless(), first);
}

TEST_F(ProgramTest, ResumeRefusesAnotherPlansLines) {
  run({kFilter});
  const std::string before = read_text(out_ + "/cases.jsonl");
  const Ended ended = run({kFilter, "--resume", "--seed", "9"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("holds results of another plan"), std::string::npos) << ended.err;
  EXPECT_EQ(read_text(out_ + "/cases.jsonl"), before);
}

TEST_F(ProgramTest, ShardsTogetherResumeToTheWhole) {
  ASSERT_EQ(run({kFilter}).code, 0);
  const Json whole = timeless();
  std::string lines;
  for (const char* shard : {"1/3", "2/3", "3/3"}) {
    EXPECT_EQ(run({kFilter, "--shard", shard}).code, 0);
    EXPECT_EQ(document()["plan"]["shard"], shard);
    EXPECT_EQ(document()["plan"]["hash"], whole["plan"]["hash"]);
    lines += read_text(out_ + "/cases.jsonl");
  }
  std::ofstream(out_ + "/cases.jsonl") << lines;
  EXPECT_EQ(run({kFilter, "--resume"}).code, 0);
  EXPECT_EQ(timeless(), whole);
}

TEST_F(ProgramTest, ShuffledRunsGiveTheSameDocument) {
  ASSERT_EQ(run({kFilter, "--seed", "3"}).code, 0);
  const Json in_order = timeless();
  ASSERT_EQ(run({kFilter, "--seed", "3", "--shuffle"}).code, 0);
  EXPECT_EQ(timeless(), in_order);
  const std::string shuffled = run({kFilter, "--shuffle", "--dry-run"}).out;
  EXPECT_NE(shuffled, run({kFilter, "--dry-run"}).out);
  EXPECT_EQ(shuffled, run({kFilter, "--shuffle", "--dry-run"}).out);
}

TEST_F(ProgramTest, RerunFailedRunsWhatIsRedByTheLastLines) {
  // Nothing is recorded yet.
  Ended ended = run({kFilter, "--rerun-failed"}, "frozen=head/fix=redirect=wrong;zero3/sft/fix=none=segv");
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("nothing is recorded in '" + out_ + "/cases.jsonl': every selected case runs"),
            std::string::npos)
      << ended.err;
  EXPECT_EQ(document()["cases"].size(), 60U);

  const std::vector<std::string> red{"ddp/sft/frozen=head/fix=redirect",
                                     "ddp/sft/checkpoint=reentrant/frozen=head/fix=redirect",
                                     "ddp/sft/checkpoint=nonreentrant/frozen=head/fix=redirect", "zero3/sft/fix=none"};
  const auto ran = [&] {
    std::vector<std::string> ids;
    const Json json = document();
    for (const Json& line : json["cases"]) ids.push_back(line["id"]);
    return ids;
  };
  ended = run({kFilter, "--rerun-failed", "--dry-run"});
  EXPECT_EQ(std::ranges::count(ended.out, '\n'), 4) << ended.out;
  // A wrong gradient without fixes is no failure; what has its fixes is, and what crashed.
  EXPECT_EQ(run({kFilter, "--rerun-failed"}, "checkpoint=reentrant/frozen=head/fix=redirect=wrong").code, 1);
  EXPECT_EQ(ran(), red);
  // What is still red then; within another selection nothing is.
  EXPECT_EQ(run({"-k", "grpo", "--rerun-failed"}).code, 4);
  EXPECT_EQ(ran(), red) << "touched nothing";
  EXPECT_EQ(run({kFilter, "--rerun-failed"}).code, 0);
  EXPECT_EQ(ran(), std::vector<std::string>{red[1]});
  ended = run({kFilter, "--rerun-failed"});
  EXPECT_EQ(ended.code, 4);
  EXPECT_NE(ended.err.find("no selected case is red"), std::string::npos) << ended.err;
}

TEST_F(ProgramTest, RerunFailedGoesByThisRunsRules) {
  ASSERT_EQ(run({kFilter}, "ddp/sft/fix=none=wrong").code, 0);
  EXPECT_EQ(run({kFilter, "--rerun-failed"}).code, 4);
  EXPECT_EQ(run({kFilter, "--rerun-failed", "--expectations", "card", "--dry-run"}).out.find("ddp/sft/fix=none\n"),
            std::string::npos)
      << "expected";
  EXPECT_EQ(run({kFilter, "--rerun-failed", "--expectations", "card", "--dry-run"}).out.find("ddp/sft/fix=redirect"),
            std::string::npos);
  EXPECT_NE(run({kFilter, "--rerun-failed", "--expectations", "card", "--dry-run"}).out.find("zero3/sft/fix=none\n"),
            std::string::npos)
      << "passes though an error is expected";
  // One red round of several is enough.
  ASSERT_EQ(run({"--case", "ddp/sft/fix=redirect", "--repeat", "2"}, "sft=wrong_once").code, 1);
  EXPECT_EQ(run({"--case", "ddp/sft/fix=redirect", "--repeat", "2", "--rerun-failed"}).code, 0);
  EXPECT_EQ(run({"--case", "ddp/sft/fix=redirect", "--repeat", "2", "--rerun-failed"}).code, 4);
}

TEST_F(ProgramTest, CoverRunsAFewCasesAndListShowsThem) {
  const Ended list = regather({"matrix", "list", "--cover", "2"});
  EXPECT_EQ(run({"--cover", "2"}).code, 0);
  std::string ids;
  const Json json = document();
  for (const Json& line : json["cases"]) ids += line["id"].get<std::string>() + "\n";
  EXPECT_EQ(list.out, ids);
  EXPECT_LT(json["cases"].size(), 40U);
}

TEST_F(ProgramTest, AFullDiskIsAnErrorThatKeepsTheGoodDocument) {
  ASSERT_EQ(run({kFilter}).code, 0);
  const std::string good = read_text(out_ + "/results.json");
  std::filesystem::create_symlink("/dev/full", out_ + "/results.json.tmp");
  Ended ended = run({kFilter});
  EXPECT_EQ(ended.code, 3);
  EXPECT_NE(ended.err.find("results.json': No space left on device"), std::string::npos) << ended.err;
  EXPECT_EQ(read_text(out_ + "/results.json"), good);

  std::filesystem::remove(out_ + "/cases.jsonl");
  std::filesystem::create_symlink("/dev/full", out_ + "/cases.jsonl");
  ended = run({kFilter});
  EXPECT_EQ(ended.code, 3);
  EXPECT_NE(ended.err.find("cases.jsonl': No space left on device"), std::string::npos) << ended.err;
}

// Whatever is being written when the disk is full: a line, or the document after the last line.
TEST_F(ProgramTest, ARunThatAFullDiskEndedIsResumed) {
  ASSERT_EQ(run({kFilter}, "frozen=head/fix=redirect=segv").code, 1);
  const Json undisturbed = timeless();
  const size_t lines = read_text(out_ + "/cases.jsonl").size();
  for (const size_t room : {lines * 4 / 5, lines - 10, lines + 10}) {
    std::filesystem::remove_all(out_);
    for (const bool resume : {false, true}) {  // it is still full the second time
      const FullDisk disk(room);
      const Ended ended = run({kFilter, resume ? "--resume" : "-j2"}, "frozen=head/fix=redirect=segv");
      EXPECT_EQ(ended.code, 3);
      EXPECT_NE(ended.err.find(": File too large"), std::string::npos) << ended.err;
      EXPECT_FALSE(std::filesystem::exists(out_ + "/results.json"));
      EXPECT_FALSE(std::filesystem::exists(out_ + "/results.json.tmp"));
      EXPECT_TRUE(read_text(out_ + "/cases.jsonl").ends_with("}\n")) << "lines are whole";
    }
    EXPECT_EQ(run({kFilter, "--resume"}, "frozen=head/fix=redirect=segv").code, 1);
    EXPECT_EQ(timeless(), undisturbed);
  }
}

TEST_F(ProgramTest, AFolderThatCannotBeWrittenIsAUsageError) {
  std::ofstream(folder_ / "file") << "in the way";
  const Ended ended = regather({"matrix", "run", "--out", folder_ / "file"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("--out"), std::string::npos) << ended.err;
  // Read-only for the superuser too.
  EXPECT_EQ(regather({"matrix", "run", "--out", "/proc/regather"}).code, 2);
  if (::geteuid() == 0) return;
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0500), 0);
  EXPECT_EQ(run({kFilter}).code, 2);
}

TEST_F(ProgramTest, TwoRunsDoNotMixInOneFolder) {
  Program first(arguments({kFilter}), environment("sft=slow"));
  while (count_lines(out_ + "/cases.jsonl") < 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const Ended second = run({kFilter});
  EXPECT_EQ(second.code, 2);
  EXPECT_NE(second.err.find("being written by another run"), std::string::npos) << second.err;
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait().code, 130);
}

TEST_F(ProgramTest, ListsWithoutAnyWorker) {
  const std::map<std::string, std::string> none{{"REGATHER_WORKER", "/nowhere/worker"}};
  const Json list = Json::parse(regather({"matrix", "list", "--filter", "loss=kto", "--format", "json"}, none).out);
  EXPECT_EQ(list.size(), 150U);
  for (const Json& entry : list) EXPECT_EQ(entry["supported"].get<bool>(), entry["reason"].is_null()) << entry;
  EXPECT_EQ(list[0]["axes"]["loss"], "kto");
  EXPECT_EQ(Json::parse(regather({"env", "--json"}, none).out)["stack"], "reference");
  const Json faults = Json::parse(regather({"fault", "list", "--json"}, none).out);
  EXPECT_GE(faults.size(), 8U);
  EXPECT_TRUE(faults[0].contains("breaks") && faults[0].contains("red"));
}

TEST_F(ProgramTest, OutputThatCannotBeWrittenIsNotSuccess) {
  EXPECT_NE(std::system("'" REGATHER_PROGRAM "' matrix list >/dev/full 2>/dev/null"), 0);
  EXPECT_NE(std::system("'" REGATHER_PROGRAM "' env >/dev/full 2>/dev/null"), 0);
}

}  // namespace
}  // namespace regather
