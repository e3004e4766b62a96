// What regather and regather-worker say to each other.
//
// `regather-worker --blackbox FILE` reads one request a line on its standard input and answers each with exactly one
// line on its standard output: the case's line of cases.jsonl. The end of its input is the end of its work: exit 0.
// Besides, {"export": ID, "to": FILE} makes it write what the case is given and what is right (src/train/export.h), for
// the workers of other stacks; with "record": true the runtime's own gradients too. The answer is {"exported": FILE};
// "model" and "seed" as below.
// Exit 2: what the request names cannot be used (a model folder that does not load); standard error says why, and no
// other case would fare better.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace regather::matrix {

struct Request {
  std::string id;
  std::string device = "cpu";
  std::string transport = "gloo";    // or "nccl", of ranks that a launcher started
  std::string launcher = "threads";  // or "processes", or "torchrun" to a worker that leads others
  int attempt = 1;                   // how many times this case has been started, this one counted
  std::string model;                 // a Hugging Face directory; empty: the card model
  uint64_t seed = 1;
  std::string fault;    // empty: none
  double timeout = 60;  // seconds after which the runner kills the worker
  bool record = false;  // to a Python stack's worker: run the case on the runtime too, and say how far apart they are
  bool locate = false;  // find in which module's backward an error arises, at some cost
  bool operator==(const Request&) const = default;
};

// One line without its end.
std::string print_request(const Request& request);
// Throws UsageError naming the member that is absent or of the wrong type.
Request parse_request(std::string_view line);

}  // namespace regather::matrix
