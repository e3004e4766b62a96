// The commands of regather: each adds itself to the command line and sets what is to run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "matrix/results/verdict.h"

namespace regather::cli {

// What the parsed command line asks for; run by main once parsing has succeeded.
using Action = std::function<matrix::Exit()>;

void add_matrix(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_repro(CLI::App& app, Action& action);
void add_diagnose(CLI::App& app, Action& action);
void add_fault(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_env(CLI::App& app, Action& action);
void add_fidelity(CLI::App& app, Action& action);
void add_peers(CLI::App& app, Action& action);

// Becomes one of the peers package's own programs, which need no package beside Python itself.
[[noreturn]] void become_peer(const std::string& module, const std::vector<std::string>& arguments);

}  // namespace regather::cli
