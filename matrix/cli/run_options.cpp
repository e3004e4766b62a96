#include "matrix/cli/run_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <thread>

#include "base/error.h"
#include "case/fault.h"
#include "matrix/judge/load.h"
#include "matrix/plan/cover.h"

namespace regather::cli {
namespace {

constexpr double kPythonTimeout = 240;  // seconds, a first case's imports included

}  // namespace

matrix::Selection SelectionText::parse() const {
  matrix::Selection parsed = selection;
  if (!fixes.empty()) parsed.fixes = matrix::parse_fix_modes(fixes);
  parsed.cover = cover;
  if (!shard.empty()) parsed.shard = matrix::parse_shard(shard);
  return parsed;
}

matrix::Rules RulesText::parse() const {
  matrix::Rules parsed = rules;
  if (!gate.empty()) parsed.gate = matrix::parse_gate(gate);
  return parsed;
}

void add_selection(CLI::App& command, SelectionText& text) {
  std::string definitions = "A definition or the path of one in JSON";
  for (const auto& [name, about] : matrix::known_definitions()) definitions += fmt::format("\n{}: {}", name, about);
  command.add_option("definition", text.selection.definition, definitions)->capture_default_str();
  CLI::Option* fixes = command.add_option(
      "--fixes", text.fixes, "Out of off (none), on (the recommended set), each (that set less one fix); joined by ,");
  CLI::Option* filter = command.add_option("--filter", text.selection.filter,
                                           "As in 'backend=zero3 & frozen in (norms,lora) & !fix=none'; also |, !=, "
                                           "parentheses and 'fix has NAME'");
  CLI::Option* part = command.add_option("-k", text.selection.text, "Cases whose id holds this text");
  CLI::Option* cover =
      command
          .add_option(
              "--cover", text.cover,
              "A small part of the selection that has every combination of any T axis values which the selection "
              "has; the set of fixes is an axis")
          ->type_name("T")
          ->check(CLI::Range(size_t{1}, matrix::kLargestStrength));
  command.add_option("--case", text.selection.ids, "Exactly this case, whatever the definition; may be repeated")
      ->type_name("ID")
      ->allow_extra_args(false)
      ->excludes(fixes)
      ->excludes(filter)
      ->excludes(part)
      ->excludes(cover);
  command.add_option("--shard", text.shard, "The K-th of N equal parts")->type_name("K/N");
}

std::string model_folder(const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::canonical(path, error);
  if (error || !std::filesystem::is_directory(whole)) {
    throw UsageError(fmt::format("--model '{}': expected a folder with config.json and model.safetensors", path));
  }
  return whole.string();
}

matrix::RunOptions RunText::parse() const {
  matrix::RunOptions parsed = options;
  matrix::Request& request = parsed.runner.request;
  parsed.selection = selection.parse();
  if (stack != "reference") {
    use_stack(parsed);
  }
  use_launcher(parsed);
  use_device(request);
  parse_fault(request.fault);
  request.model = model_folder(request.model);
  parsed.lines = format == "jsonl";
  parsed.rules = rules.parse();
  return parsed;
}

void RunText::use_device(matrix::Request& request) const {
  if (request.device != "cpu" && request.device != "cuda") {
    throw UsageError(fmt::format("--device '{}': expected cpu or cuda", request.device));
  }
  if (transport != "auto" && transport != "gloo" && transport != "nccl") {
    throw UsageError(fmt::format("--transport '{}': expected auto, gloo or nccl", transport));
  }
  if (transport == "nccl" && (request.device == "cpu" || stack != "reference")) {
    throw UsageError("--transport nccl: for the reference runtime on --device cuda; expected gloo");
  }
  if (stack != "reference" || request.device == "cpu") return;
  if (request.launcher != "torchrun") {
    throw UsageError(
        "--device cuda: each rank is a process of its own, which a launcher starts: run this under torchrun "
        "(--nproc-per-node 2), srun or mpirun, or leave --device out");
  }
  request.transport = transport == "gloo" ? "gloo" : "nccl";
}

// Ranks of this host, or those that torchrun, srun or mpirun have started.
void RunText::use_launcher(matrix::RunOptions& parsed) const {
  if (stack != "reference") return;
  if (launcher != "auto" && launcher != "threads" && launcher != "processes" && launcher != "torchrun") {
    throw UsageError(fmt::format("--launcher '{}': expected auto, threads, processes or torchrun", launcher));
  }
  parsed.runner.request.launcher = launcher == "processes" ? "processes" : "threads";
  if (launcher != "auto" && launcher != "torchrun") return;
  parsed.ranks = matrix::ranks_of_launcher(::getenv);
  if (!parsed.ranks) {
    if (launcher == "auto") return;
    throw UsageError(
        "--launcher torchrun: no launcher has started this process as one of several: expected RANK, WORLD_SIZE, "
        "MASTER_ADDR and MASTER_PORT, or what srun or mpirun set");
  }
  parsed.runner.request.launcher = "torchrun";
  parsed.runner.jobs = 1;  // every case has all the ranks
  parsed.runner.stack.environment = matrix::worker_variables(*parsed.ranks, "lead");
}

// A Python environment: imports take tens of seconds, and its ranks are processes that fill the machine.
void RunText::use_stack(matrix::RunOptions& parsed) const {
  matrix::Request& request = parsed.runner.request;
  if (!request.fault.empty()) {
    throw UsageError(
        fmt::format("--fault '{}': faults are seeded in the C++ runtime, not in a Python environment", request.fault));
  }
  if (launcher != "auto") {
    throw UsageError(
        fmt::format("--launcher '{}': the ranks of a Python environment are processes of its worker; leave "
                    "the option out",
                    launcher));
  }
  parsed.runner.stack = matrix::parse_stack(stack);
  if (!jobs_given) parsed.runner.jobs = 1;
  if (!timeout_given) request.timeout = kPythonTimeout;
}

// CLI11's own range lets what is not a number pass, and its conversion cuts off a number that is too large.
std::string seconds_of_a_case(const std::string& text) {
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
  if (whole && value >= 0.001 && value <= 86400) return "";
  return fmt::format("'{}': expected seconds from 0.001 to 86400", text);
}

std::string whole_number(const std::string& text) {
  uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec == std::errc() && read.ptr == text.data() + text.size()) return "";
  return fmt::format("'{}': expected a whole number from 0 to {}", text, std::numeric_limits<uint64_t>::max());
}

int default_jobs() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 2U)); }

void add_running(CLI::App& command, RunText& text) {
  matrix::RunOptions& options = text.options;
  matrix::Request& request = options.runner.request;
  options.runner.jobs = default_jobs();
  command.add_option("--out", options.out, "Output folder")->capture_default_str();
  command.add_flag("--resume", options.resume, "Go on from the lines in the output folder");
  command.add_option("-j,--jobs", options.runner.jobs, "Workers at a time; 1 on a Python stack")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command
      .add_option("--timeout", request.timeout,
                  fmt::format("Seconds for a case, after which it is a hang; {} on a Python stack", kPythonTimeout))
      ->check(seconds_of_a_case)
      ->capture_default_str();
  command.add_option("--seed", request.seed, "Of the weights, the batches and the order")
      ->check(whole_number)
      ->capture_default_str();
  command
      .add_option("--stack", text.stack,
                  "What runs the cases: reference, or python:ENV, ENV a folder with bin/python or a set of `regather "
                  "peers setup`")
      ->capture_default_str();
}

void add_run(CLI::App& command, RunText& text) {
  add_selection(command, text.selection);
  add_running(command, text);
  matrix::RunOptions& options = text.options;
  matrix::Request& request = options.runner.request;
  command.add_option("--retries", options.policy.retries, "How often a red case is tried again")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command.add_option("--repeat", options.policy.repeat, "How often every case runs; one red run makes it red")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  add_rules(command, text.rules);
  command
      .add_flag("--rerun-failed", options.rerun_failed,
                "Only the selected cases that are red by the lines in the output folder")
      ->excludes("--resume");
  command.add_flag("--shuffle", options.shuffle, "Run in an order drawn from --seed");
  command.add_flag("-x,--exitfirst", options.stop_at_red, "Stop at the first red case");
  command.add_flag("--dry-run", options.dry_run, "Print the ids that would run");
  command.add_option("--device", request.device, "Where cases run: cpu or cuda")->capture_default_str();
  command
      .add_option("--transport", text.transport,
                  "What ranks that a launcher started talk over: gloo or nccl; auto: nccl on cuda, gloo on cpu")
      ->capture_default_str();
  command
      .add_option("--launcher", text.launcher,
                  "Ranks as threads or processes of this host, or torchrun: those that torchrun, srun or mpirun "
                  "have started; auto: torchrun when there are such, else threads")
      ->capture_default_str();
  command.add_option("--model", request.model, "A Hugging Face folder instead of the card model")->type_name("DIR");
  command.add_option("--fault", request.fault, "Break the runtime in one place (regather fault list)")
      ->type_name("NAME");
  command.add_option("--format", text.format, "jsonl: each result line on standard output too")
      ->check(CLI::IsMember({"text", "jsonl"}))
      ->capture_default_str();
}

void add_rules(CLI::App& command, RulesText& text) {
  command
      .add_option(
          "--expectations", text.rules.expectations,
          fmt::format("What cases should do: {}, or a JSON file", fmt::join(matrix::known_expectations(), ", ")))
      ->type_name("FILE");
  command.add_option("--baseline", text.rules.baseline, "An earlier results.json: what has become of its cases")
      ->type_name("FILE");
  text.gate = matrix::print_gate(matrix::kDefaultGate);
  command
      .add_option("--gate", text.gate,
                  "What is red, joined by commas: regression, xpass, changed, fixed, new, absent, flaky")
      ->type_name("KINDS")
      ->capture_default_str();
}

void note_given(const CLI::App& command, RunText& text) {
  text.jobs_given = command.count("--jobs") > 0;
  text.timeout_given = command.count("--timeout") > 0;
}

}  // namespace regather::cli
