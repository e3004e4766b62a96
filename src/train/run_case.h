// From a case to its result: reference, ranks, merge.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "case/result.h"
#include "comm/launch.h"
#include "train/export.h"
#include "train/reference.h"
#include "train/setting.h"

namespace regather::comm {
class Rendezvous;
}

namespace regather::train {

enum class Launcher { threads, processes };

// The result of a rank that left none of its own.
CaseResult result_of_failure(const Case& c, const comm::RankEnd& end, int rank);

struct RunOptions {
  Launcher launcher = Launcher::threads;
  std::optional<std::filesystem::path> model;  // a Hugging Face folder; by default the card's model
  uint64_t seed = 1;
  std::chrono::milliseconds deadline{30000};  // for each wait on other ranks
  bool locate = false;                        // in which module's backward an error arises, at some cost
  bool cuda = false;                          // run_rank alone: on this machine's GPUs
  bool nccl = false;                          // on CUDA: not over gloo
  GradientRecord* record = nullptr;           // with ranks as threads: gets the gradients of every rank and step
};

// What a case starts from, and what is right for it.
struct Prepared {
  std::shared_ptr<const Setting> setting;
  std::shared_ptr<const Reference> reference;
};

// Runs cases one after another and keeps initial models and references between them. Not for use by several threads.
class Runner {
 public:
  Runner();
  // Never throws for what the case does: that is its outcome. Throws UsageError for a model folder that does not load.
  CaseResult run(const Case& c, const RunOptions& options);
  // What run() makes first and keeps, for the same options.
  Prepared prepare(const Case& c, const RunOptions& options);
  // This process's rank of the case alone, with the other processes that name the same meeting; not merged.
  CaseResult run_rank(const Case& c, const RunOptions& options, comm::Rendezvous& rendezvous,
                      const std::string& meeting, int rank);
  // Writes what the case is given and what is right, as export.h says; `record`: runs it, with its gradients.
  void export_case(const Case& c, const RunOptions& options, const std::filesystem::path& file, bool record);

 private:
  std::shared_ptr<const Setting> setting(const Case& c, const RunOptions& options);
  std::shared_ptr<const Reference> reference(const Setting& setting, const Case& c, const std::string& key);

  std::map<std::string, std::shared_ptr<const Setting>> settings_;
  std::map<std::string, std::shared_ptr<const Reference>> references_;
};

}  // namespace regather::train
