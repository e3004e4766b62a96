#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "base/error.h"
#include "base/tell.h"
#include "matrix/cli/commands.h"
#include "matrix/runner/runner.h"

namespace {

using regather::matrix::Exit;

Exit fail(Exit code, const char* text) {
  regather::tell("regather: {}\n", text);
  return code;
}

// A descriptor that is closed would become the next file that is opened: what is said would go into the results.
// Nothing can be read from such an input or written to such an output; what is told goes nowhere.
void keep_standard_files() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(file, F_GETFD) >= 0) continue;
    const int opened = ::open("/dev/null", file == STDOUT_FILENO ? O_RDONLY : O_WRONLY);  // the lowest that is free
    if (opened != file) std::_Exit(static_cast<int>(Exit::internal));
  }
}

Exit run(int argc, char** argv) {
  CLI::App app{
      "Does this combination of sharding backend, loss, checkpoint and frozen parameters compute the right "
      "gradients?",
      "regather"};
  app.set_version_flag("--version", REGATHER_VERSION);
  app.require_subcommand(1);
  regather::cli::Action action;
  regather::cli::add_matrix(app, action);
  regather::cli::add_compare(app, action);
  regather::cli::add_report(app, action);
  regather::cli::add_explain(app, action);
  regather::cli::add_repro(app, action);
  regather::cli::add_diagnose(app, action);
  regather::cli::add_check(app, action);
  regather::cli::add_fault(app, action);
  regather::cli::add_bench(app, action);
  regather::cli::add_env(app, action);
  regather::cli::add_fidelity(app, action);
  regather::cli::add_peers(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    app.exit(e);
    return Exit::green;
  } catch (const CLI::ParseError& e) {
    app.exit(e);
    return Exit::usage;
  }
  const Exit code = action();
  if (std::fflush(stdout) != 0) return fail(Exit::internal, "cannot write to standard output");
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  keep_standard_files();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may grow no more (ulimit -f) is an error like a full disk
  Exit code;
  try {
    code = run(argc, argv);
  } catch (const regather::UsageError& e) {
    code = fail(Exit::usage, e.what());
  } catch (const regather::matrix::Incomplete& e) {
    code = fail(Exit::incomplete, e.what());
  } catch (const std::exception& e) {
    code = fail(Exit::internal, e.what());
  }
  return static_cast<int>(code);
}
