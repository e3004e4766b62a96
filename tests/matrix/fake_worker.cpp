// A worker that answers `pass` at once, except where FAKE_WORKER says otherwise: "TEXT=BEHAVIOUR;TEXT=BEHAVIOUR", the
// first whose TEXT is part of the id. FAKE_WORKER_PIDS names a file to which every process of it writes its number;
// behaviours of which there is one alone leave a file beside it.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "base/blackbox.h"
#include "case/result.h"
#include "matrix/runner/protocol.h"

namespace {

using namespace regather;

std::vector<std::string> earlier;  // ids of this process

std::string behaviour_for(const std::string& id) {
  const char* rules = std::getenv("FAKE_WORKER");
  std::string rest = rules == nullptr ? "" : rules;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(';'), rest.size());
    const std::string rule = rest.substr(0, end);
    rest.erase(0, end + 1);
    const size_t equals = rule.rfind('=');
    if (id.find(rule.substr(0, equals)) != std::string::npos) return rule.substr(equals + 1);
  }
  return "pass";
}

void note_pid() {
  if (const char* path = std::getenv("FAKE_WORKER_PIDS")) std::ofstream(path, std::ios::app) << ::getpid() << "\n";
}

[[noreturn]] void sleep_forever() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

// A rank of its own that outlives this process unless somebody ends it; it holds the pipes open.
void leave_child() {
  if (::fork() != 0) return;
  note_pid();
  sleep_forever();
}

// Whether this is the first time of all, in whatever process; `times` of them.
bool early(const std::string& what, int times = 1) {
  const char* path = std::getenv("FAKE_WORKER_PIDS");
  for (int time = 0; time < times; ++time) {
    const std::string file = std::string(path) + "." + what + std::to_string(time);
    const int made = ::open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (made < 0) continue;
    ::close(made);
    return true;
  }
  return false;
}

bool ran_before(const std::string& part) {
  return std::ranges::any_of(earlier, [&](const std::string& id) { return id.find(part) != std::string::npos; });
}

void misbehave(const std::string& how) {
  const bool after_norms = how == "segv_after_norms" && ran_before("ddp/sft/frozen=norms");
  if (how == "segv" || after_norms || (how == "segv_once" && early(how))) {
    trace_phase(1, 1, static_cast<int>(Phase::backward));
    trace_collective(1, "reduce_scatter", 7);
    std::fprintf(stderr, "regather-worker: signal 11 on rank 1\n  at 0x7ffe12 in backward\n");
    ::signal(SIGSEGV, SIG_DFL);
    ::raise(SIGSEGV);
  }
  if (how == "sent_segv_once" && early(how)) {
    std::fprintf(stderr, "regather-worker: signal from outside, stack of rank 1:\n");
    ::signal(SIGSEGV, SIG_DFL);
    ::raise(SIGSEGV);
  }
  if (how == "segv_once_killed_after" && ran_before("ddp/sft/frozen=norms")) {
    if (early(how)) std::abort();
    if (early("killed_after")) ::raise(SIGKILL);
  }
  if (how == "eats_memory") {
    std::ofstream(std::getenv("FAKE_WORKER_GROUP")) << ::getpid() << std::endl;
    for (std::vector<std::string> eaten;;) eaten.emplace_back(1 << 20, 'x');
  }
  if (how == "terminated_once" && early(how)) ::raise(SIGTERM);
  if (how == "killed_once" && early(how)) ::raise(SIGKILL);
  if (how == "killed_thrice" && early(how, 3)) ::raise(SIGKILL);
  if (how == "killed") ::raise(SIGKILL);
  if (how == "stopped") ::raise(SIGSTOP);
  if (how == "abort") std::abort();
  if (how == "exit") std::exit(3);
  if (how == "cut_box") std::exit(::truncate("/proc/self/fd/3", 0) == 0 ? 4 : 3);
  if (how == "usage") {
    std::cerr << "model.safetensors: truncated" << std::endl;
    std::exit(2);
  }
  if (how == "orphan") {
    leave_child();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::_exit(4);
  }
  if (how == "hang") {
    trace_phase(0, 0, static_cast<int>(Phase::forward));
    trace_collective(0, "all_gather", 12);
    leave_child();
    sleep_forever();
  }
  if (how == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(300));
  if (how == "garbage") std::cout << "{\"not\":\"a result\"}" << std::endl;
  if (how == "endless") {
    for (const std::string part(1 << 16, 'x');;) std::cout << part;
  }
  if (how == "noise") std::cerr << std::string(1 << 21, 'e') << std::endl;
  if (how == "silent") {
    ::close(STDOUT_FILENO);
    sleep_forever();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (behaviour_for("start") == "exit") {
    std::cerr << "libtorch_cpu.so: cannot open shared object file" << std::endl;
    return 127;
  }
  if (argc == 3) map_blackbox(argv[2]);
  note_pid();
  for (std::string line; std::getline(std::cin, line);) {
    const matrix::Request request = matrix::parse_request(line);
    trace_case(request.id);
    const std::string how = behaviour_for(request.id);
    misbehave(how);
    earlier.push_back(request.id);
    CaseResult result;
    result.which = parse_id(request.id);
    result.attempt = request.attempt;
    result.outcome = Outcome::pass;
    if (how == "wrong" || how == "rank_killed_late_once" || (how == "wrong_once" && request.attempt == 1)) {
      result.outcome = Outcome::wrong_gradient;
      result.signature = Signature{"reducer_unarmed", Phase::gradients, 0, 1, "", "model.norm.weight", ""};
    }
    if (how == "rank_killed_once" && early(how)) {
      result.outcome = Outcome::crash;
      result.signature =
          Signature{"", Phase::backward, 0, 1, "signal 9 (SIGKILL)", "the rank's process died: Killed", ""};
    }
    if (how == "rank_killed_late_once" && early(how)) {
      result.also.push_back({Outcome::crash, Signature{"", Phase::backward, 1, 1, "signal 9 (SIGKILL)", "", ""}});
    }
    if (how == "rank_hangs") {
      result.outcome = Outcome::hang;
      result.signature = Signature{"", Phase::backward, 0, 1, "DeadlineError", "rank 1 did not arrive", ""};
    }
    if (how == "other") result.which = parse_id("zero3/kto/world=8/fix=none");
    std::cout << to_line(result) << std::endl;
    if (how == "then_exit") return 5;
  }
}
