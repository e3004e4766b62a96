// What the files together ask for, in the axes of a case, with everything that had to be assumed and everything in them
// that does not fit together.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "case/case.h"
#include "repro/check/sources.h"

namespace regather::check {

struct Assumption {
  std::string what;  // "gradient checkpointing is on"
  std::string why;   // the default's source
};

// contradiction: two places say different things. misspelt: a key that nobody reads and that looks like one that is
// read. refused: a tool stops with an error before training. ignored: has no effect. outside: what no axis stands for
// and the measured cells leave out. missing: a file that another names and that was not given.
enum class FindingKind { contradiction, misspelt, refused, ignored, outside, missing };
const char* name(FindingKind kind);

struct Finding {
  FindingKind kind;
  std::string text;
  std::vector<std::string> where;
};
// The first three kinds.
bool is_problem(const Finding& finding);

struct Setting {
  std::string trainer;         // sft, dpo, kto, grpo of TRL; transformers; empty: the files do not tell
  std::string fused = "none";  // none, liger, chunked
  bool sharding_known = false;
  // Backend, checkpoint, frozen, head, reference, dtype, world, accumulate, persistence, checkpoint_at, fully_shard;
  // what the trainer's release decides (kernel, call, fixes) is in call_path.h.
  Case axes;
  bool kwargs_given = false;                    // gradient_checkpointing_kwargs stand in a file
  bool head_adapted = false;                    // an adapter on the head itself
  std::map<std::string, std::string> versions;  // of packages, from `pip freeze`
  std::vector<Assumption> assumed;
  std::vector<Finding> findings;
  std::vector<std::string> no_case;  // reasons for which no case stands for these files

  void assume(std::string what, std::string why) { assumed.push_back({std::move(what), std::move(why)}); }
  void find(FindingKind kind, std::string text, std::vector<std::string> where = {}) {
    findings.push_back({kind, std::move(text), std::move(where)});
  }
};

// Throws UsageError where a value cannot be what its option takes.
Setting merge(const Sources& sources);

// The parts of merge(), each of which fills in its own axes.
void merge_trainer(const Sources& sources, Setting& setting);
void merge_sharding(const Sources& sources, Setting& setting);  // backend, world, persistence
void merge_memory(const Sources& sources, Setting& setting);    // checkpoint, dtype, accumulation
void merge_model(const Sources& sources, Setting& setting);     // adapters, tied head
void find_contradictions(const Sources& sources, Setting& setting);
void find_misspelt(const Sources& sources, Setting& setting);

// The option classes of the setting's trainer, for defaults.
std::vector<std::string> classes_of(const Setting& setting);

}  // namespace regather::check
