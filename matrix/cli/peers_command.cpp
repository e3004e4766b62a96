#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "matrix/cli/commands.h"
#include "matrix/runner/capture.h"
#include "matrix/runner/stack.h"

namespace regather::cli {
namespace {

// A subcommand whose arguments the program behind it parses and explains.
void forward(CLI::App& parent, Action& action, const char* name, const char* about) {
  CLI::App* command = parent.add_subcommand(name, about);
  command->prefix_command();
  command->set_help_flag();  // the program's own
  command->callback([&action, command, name] {
    action = [command, name]() -> matrix::Exit { become_peer(name, command->remaining()); };
  });
}

}  // namespace

void become_peer(const std::string& module, const std::vector<std::string>& arguments) {
  std::vector<std::string> command{"python3", "-m", "regather_peers." + module};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::error_code ignored;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
  matrix::become(command, {"PYTHONPATH=" + matrix::peers_folder(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONSAFEPATH=1",
                           "REGATHER_PROGRAM=" + self, "REGATHER_PEERS_HOME=" + matrix::peers_home()});
}

void add_peers(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("peers", "Environments of the real packages, and what is measured on them");
  command->require_subcommand(1);
  forward(*command, action, "setup", "Make an environment from PyPI with working pins, once");
  forward(*command, action, "tests", "Run upstream's own test files on a stack, into a document");
  forward(*command, action, "table", "Make the tables of what the real packages do again, and say what changed");
}

}  // namespace regather::cli
