// The options of a run as they stand on the command line, for every command that runs a plan.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "matrix/run.h"

namespace regather::cli {

struct SelectionText {
  matrix::Selection selection;
  std::string fixes;
  std::string shard;
  size_t cover = 0;

  matrix::Selection parse() const;  // throws UsageError
};

void add_selection(CLI::App& command, SelectionText& text);

// What results are judged by.
struct RulesText {
  matrix::Rules rules;
  std::string gate;

  matrix::Rules parse() const;  // throws UsageError
};

void add_rules(CLI::App& command, RulesText& text);

struct RunText {
  SelectionText selection;
  RulesText rules;
  matrix::RunOptions options;
  std::string launcher = "auto";
  std::string stack = "reference";
  std::string transport = "auto";
  std::string format = "text";
  bool jobs_given = false;
  bool timeout_given = false;

  matrix::RunOptions parse() const;  // throws UsageError

 private:
  void use_stack(matrix::RunOptions& parsed) const;
  void use_launcher(matrix::RunOptions& parsed) const;
  void use_device(matrix::Request& request) const;
};

// Workers at a time unless the user says otherwise: the cores, at most two.
int default_jobs();

// The folder's whole path: the worker opens it, and lines of another model must not be taken for this one's. Empty
// stays empty; throws UsageError where there is none.
std::string model_folder(const std::string& path);

// How a plan is run, on whatever stack: jobs, timeout, seed, folder.
void add_running(CLI::App& command, RunText& text);
// The same with everything that `matrix run` takes besides.
void add_run(CLI::App& command, RunText& text);
// Once the command line is parsed: what was given, and not left at its default.
void note_given(const CLI::App& command, RunText& text);

}  // namespace regather::cli
