// What executes cases: the C++ runtime, or an environment of real Python packages.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace regather::matrix {

struct Stack {
  std::string name = "reference";        // as result lines and documents have it: "python:/folder/of/the/environment"
  std::string worker;                    // the program that speaks the worker's protocol
  std::vector<std::string> environment;  // NAME=VALUE, for the worker beside what it inherits

  bool python() const { return name != "reference"; }
};

// "reference", or "python:ENV": a folder with bin/python, or the name of a set that `regather peers setup` has made.
// Throws UsageError; Error("worker") when a program of regather itself is not where it should be.
Stack parse_stack(std::string_view text);

// The regather_peers package's folder: $REGATHER_PEERS, or matrix/peers of the checkout that this program was built
// from. Throws Error("worker") when there is none.
std::string peers_folder();

// Where `regather peers setup` puts its environments: $REGATHER_PEERS_HOME, or regather/peers in the user's cache.
std::string peers_home();

// What `python -m regather_peers.environment` says of a Python stack: {"python", "packages"}. Takes part of a second.
// Throws UsageError when the environment cannot say it.
nlohmann::ordered_json packages_of(const Stack& stack);

}  // namespace regather::matrix
