#include "train/run_case.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "autograd/saved_hooks.h"
#include "base/blackbox.h"
#include "base/error.h"
#include "case/fault.h"
#include "case/support.h"
#include "comm/launch.h"
#include "comm/rendezvous.h"
#include "model/checkpoint_files.h"
#include "model/quantise.h"
#include "train/cuda_library.h"
#include "train/given.h"
#include "train/merge.h"
#include "train/rank_run.h"

namespace regather::train {
namespace {

constexpr int64_t kLoraRank = 4;

// The frozen sets fall into three by the model that they start from.
enum class Base { plain, adapted, quantised };
Base base_of(Frozen frozen) {
  if (frozen == Frozen::quantised) return Base::quantised;
  return frozen == Frozen::lora ? Base::adapted : Base::plain;
}

std::string setting_key(const Case& c, const RunOptions& options) {
  return fmt::format("{}|{}|{}|{}|{}|{}", options.model ? options.model->string() : "", options.seed, options.cuda,
                     c.head == Head::tied, c.head_bias, static_cast<int>(base_of(c.frozen)));
}

// What is right is computed without the seeded fault.
struct WithoutFault {
  WithoutFault() { seed_fault(Fault::none); }
  ~WithoutFault() { seed_fault(fault); }
  Fault fault = seeded_fault();
};

}  // namespace

CaseResult result_of_failure(const Case& c, const comm::RankEnd& end, int rank) {
  CaseResult result;
  result.which = c;
  if (end.peer_failed) return result;
  Departure departure;
  departure.outcome = end.error_type.starts_with("signal") ? Outcome::crash
                      : end.error_type == "hang"           ? Outcome::hang
                                                           : Outcome::error;
  const RankTrace& trace = blackbox().ranks[static_cast<size_t>(rank)];
  departure.signature.rank = rank;
  departure.signature.step = std::max(0, trace.step.load());
  departure.signature.phase = static_cast<Phase>(std::max(0, trace.phase.load()));
  departure.signature.type = end.error_type;
  departure.signature.text = end.error_text;
  departure.signature.where.collective = last_collective(rank);
  settle(result, {departure});
  return result;
}

Runner::Runner() {
  at::set_num_threads(1);  // ranks are the parallelism
  autograd::install_engine();
}

std::shared_ptr<const Setting> Runner::setting(const Case& c, const RunOptions& options) {
  std::shared_ptr<const Setting>& known = settings_[setting_key(c, options)];
  if (known) return known;
  model::Config config;
  if (options.model) config = model::read_config(*options.model);
  // The case's axes decide, whatever the folder says: a tied checkpoint's head starts as a copy of its embedding.
  config.tied = c.head == Head::tied;
  config.head_bias = c.head_bias;
  if (base_of(c.frozen) != Base::plain) config.lora_rank = kLoraRank;
  auto initial = std::make_shared<model::CausalLM>(config);
  model::initialise(*initial, options.seed);
  if (options.model) model::load_weights(*initial, *options.model);
  if (base_of(c.frozen) == Base::quantised) model::round_to_quantised(*initial);
  auto made = std::make_shared<Setting>();
  made->initial = initial;
  made->reference = make_reference_model(*initial, options.seed);
  made->seed = options.seed;
  if (options.cuda) made->device = current_gpu();
  made->batch.vocab = config.vocab;
  return known = made;
}

std::shared_ptr<const Reference> Runner::reference(const Setting& setting, const Case& c, const std::string& key) {
  std::shared_ptr<const Reference>& known =
      references_[fmt::format("{}|{}|{}|{}|{}|{}|{}", key, static_cast<int>(c.loss), static_cast<int>(c.reference),
                              static_cast<int>(c.frozen), c.world, micro_batches_of(c), c.steps)];
  if (!known) {
    const WithoutFault sound;
    known = compute_reference(setting, c);
  }
  return known;
}

Prepared Runner::prepare(const Case& c, const RunOptions& options) {
  std::shared_ptr<const Setting> ready = setting(c, options);
  std::shared_ptr<const Reference> right = reference(*ready, c, setting_key(c, options));
  return {std::move(ready), std::move(right)};
}

CaseResult Runner::run(const Case& c, const RunOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  trace_case(id(c));
  CaseResult result;
  result.which = c;
  if (const auto reason = unsupported(c)) {
    result.outcome = Outcome::unsupported;
    result.reason = *reason;
    return result;
  }
  REGATHER_CHECK(!options.cuda, "runner", "on CUDA every rank is a process that a launcher starts");
  const Prepared prepared = prepare(c, options);
  std::optional<autograd::LocateBackward> locate;
  if (options.locate) locate.emplace();
  if (options.record != nullptr) options.record->assign(static_cast<size_t>(c.world), {});
  const comm::RankFunction rank = [&](comm::World& world) {
    auto* record = options.record != nullptr ? &options.record->at(static_cast<size_t>(world.rank())) : nullptr;
    return to_line(train::run_rank(world, c, *prepared.setting, *prepared.reference, record));
  };
  comm::LaunchOptions launch;
  launch.world = c.world;
  launch.deadline = options.deadline;
  const std::vector<comm::RankEnd> ends =
      options.launcher == Launcher::threads ? comm::run_threads(launch, rank) : comm::run_processes(launch, rank);

  std::vector<CaseResult> ranks;
  for (size_t i = 0; i < ends.size(); ++i) {
    ranks.push_back(ends[i].result.empty() ? result_of_failure(c, ends[i], static_cast<int>(i))
                                           : result_from_line(ends[i].result));
  }
  result = merge(ranks);
  const auto culprit = std::ranges::find_if(ends, &comm::RankEnd::waited_for);
  if (culprit != ends.end()) blame(result, static_cast<int>(culprit - ends.begin()));
  result.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return result;
}

CaseResult Runner::run_rank(const Case& c, const RunOptions& options, comm::Rendezvous& rendezvous,
                            const std::string& meeting, int rank) {
  trace_case(id(c));
  comm::LaunchOptions launch{.world = c.world, .deadline = options.deadline};
  if (options.cuda) {
    const CudaLibrary& library = use_cuda(rank);
    launch.device = current_gpu();
    if (options.nccl) launch.transport = library.make_nccl;
  }
  const Prepared prepared = prepare(c, options);
  const comm::RankEnd end = rendezvous.run_rank_of(meeting, rank, launch, [&](comm::World& world) {
    return to_line(train::run_rank(world, c, *prepared.setting, *prepared.reference));
  });
  return end.result.empty() ? result_of_failure(c, end, rank) : result_from_line(end.result);
}

void Runner::export_case(const Case& c, const RunOptions& options, const std::filesystem::path& file, bool record) {
  GradientRecord recorded;
  if (record) {
    RunOptions as_threads = options;
    as_threads.launcher = Launcher::threads;
    as_threads.record = &recorded;
    run(c, as_threads);
  }
  const Prepared prepared = prepare(c, options);
  train::export_case(file, c, *prepared.setting, *prepared.reference, recorded);
}

}  // namespace regather::train
