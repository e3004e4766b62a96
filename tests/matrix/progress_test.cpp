// What a run says while it goes on: a line on a terminal, nothing elsewhere; colours unless NO_COLOR is set.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "program.h"

namespace regather {
namespace {

const std::vector<std::string> kSlow{"matrix",
                                     "run",
                                     "-j1",
                                     "--case",
                                     "ddp/sft/fix=none",
                                     "--case",
                                     "ddp/kto/fix=none",
                                     "--case",
                                     "ddp/sft/fix=redirect"};
constexpr const char* kBehaviour = "none=slow;redirect=wrong";

// All that the program writes to a terminal that is its standard output and standard error.
std::string on_a_terminal(const std::string& out, const char* no_color) {
  int terminal = -1;
  const int pid = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (pid == 0) {
    ::setenv("REGATHER_WORKER", REGATHER_FAKE_WORKER, 1);
    ::setenv("FAKE_WORKER", kBehaviour, 1);
    if (no_color == nullptr) {
      ::unsetenv("NO_COLOR");
    } else {
      ::setenv("NO_COLOR", no_color, 1);
    }
    std::vector<std::string> arguments = kSlow;
    arguments.insert(arguments.begin(), REGATHER_PROGRAM);
    arguments.insert(arguments.end(), {"--out", out});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(126);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(terminal, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(got));
  ::close(terminal);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1) << text;
  return text;
}

TEST(Progress, OnATerminalIsALineWithRateAndTimeLeft) {
  const TemporaryFolder folder;
  const std::string text = on_a_terminal(folder / "out", nullptr);
  EXPECT_NE(text.find("\r\033[K1/3 cases, "), std::string::npos) << text;
  EXPECT_NE(text.find("/s, "), std::string::npos) << text;
  EXPECT_NE(text.find(" s left, 0 red"), std::string::npos) << text;
  EXPECT_NE(text.find("\033[1;31mRED\033[0m ddp/sft/fix=redirect"), std::string::npos) << text;
  EXPECT_LT(text.rfind("\r\033[K"), text.find("RED")) << "the line is gone before the summary";
}

TEST(Progress, NoColorTakesTheColoursAway) {
  const TemporaryFolder folder;
  const std::string text = on_a_terminal(folder / "out", "1");
  EXPECT_EQ(text.find("\033[1"), std::string::npos) << text;
  EXPECT_NE(text.find("RED ddp/sft/fix=redirect"), std::string::npos) << text;
  EXPECT_NE(on_a_terminal(folder / "out", "").find("\033[1;31m"), std::string::npos) << "empty is unset";
}

TEST(Progress, ElsewhereThereIsNone) {
  const TemporaryFolder folder;
  std::vector<std::string> arguments = kSlow;
  arguments.insert(arguments.end(), {"--out", folder / "out"});
  const Ended ended = regather(arguments, {{"FAKE_WORKER", kBehaviour}});
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(ended.err.find_first_of("\r\033"), std::string::npos) << ended.err;
}

TEST(Environment, OfADocumentIsWhatEnvSays) {
  const TemporaryFolder folder;
  regather({"matrix", "run", "smoke", "--out", folder / "out"});
  const auto said = nlohmann::ordered_json::parse(regather({"env", "--json"}).out);
  const auto document = nlohmann::ordered_json::parse(read_text(folder / "out/results.json"));
  EXPECT_EQ(document["environment"], said);
  EXPECT_GE(said.size(), 11U);
}

}  // namespace
}  // namespace regather
