#include "train/rank_run.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "autograd/checkpoint.h"
#include "autograd/generator.h"
#include "base/blackbox.h"
#include "case/fault.h"
#include "comm/errors.h"
#include "comm/rank_end.h"
#include "fixes/fixes.h"
#include "shard/fsdp2/fsdp2.h"
#include "train/compare.h"
#include "train/head_full_tensor.h"
#include "train/mechanism.h"
#include "train/merge.h"
#include "train/persistence.h"
#include "train/precision.h"
#include "train/prepare.h"
#include "train/step_loss.h"
#include "train/upstream.h"
#include "train/where.h"

namespace regather::train {
namespace {

using at::Tensor;

// What the rounding of a loss follows: the size of the terms that it is a mean of. grpo's terms have both signs, and
// their mean may be as good as zero; those of the other losses have one.
double loss_scale(const loss::Batch& batch, double loss) {
  const double size = std::abs(loss);
  return batch.advantages.defined() ? std::max(size, batch.advantages.abs().mean().item<double>()) : size;
}

class RankRun {
 public:
  RankRun(comm::World& world, const Case& c, const Setting& setting, const Reference& reference,
          GradientRecord::value_type* record)
      : world_(world),
        case_(c),
        setting_(setting),
        reference_(reference),
        record_(record),
        precision_(precision(c, setting.initial->config().layers)) {
    result_.which = c;
    result_.gradients.emplace();
    result_.gradients->tolerance = precision_.tolerance;
  }

  CaseResult run();

 private:
  void enter(int step, Phase phase);
  void build();
  void build_reference();
  Tensor mean_over_ranks(const Tensor& value);
  void train_step(int step);
  shard::BackendOptions backend_options() const;
  void micro_step(int step, int micro);
  Tensor forward(const loss::Batch& batch);
  void check_loss(double want, double scale, const Tensor& loss);
  void check_gradients(int step);
  void check_update(int step, const shard::Named& before);
  void check_invariants(int step);
  void depart(Outcome outcome, std::string type, std::string text, const std::string& parameter = "",
              bool missing = false);
  Where locate(Outcome outcome, const std::string& parameter) const;

  comm::World& world_;
  const Case& case_;
  const Setting& setting_;
  const Reference& reference_;
  GradientRecord::value_type* record_;
  const Precision precision_;
  std::shared_ptr<model::CausalLM> model_;
  std::unique_ptr<shard::Backend> backend_;
  std::unique_ptr<shard::EntryPolicy> entry_;
  std::unique_ptr<loss::HeadScope> scope_;
  std::unique_ptr<loss::KlForward> kl_forward_;
  // dpo and kto with a reference of its own; a backend only where the reference is sharded.
  std::shared_ptr<model::CausalLM> reference_model_;
  std::unique_ptr<shard::Backend> reference_backend_;
  std::unique_ptr<loss::HeadScope> reference_scope_;
  std::map<std::string, int> hook_calls_;       // of each trainable parameter in the current backward
  std::map<std::string, int> most_hook_calls_;  // in any one backward of the step
  int64_t without_graph_at_start_ = autograd::reentrant_calls_without_graph();

  int step_ = 0;
  Phase phase_ = Phase::build;
  std::string trained_with_;  // the last collective before the gradients were compared
  std::vector<Departure> departures_;
  CaseResult result_;
};

void RankRun::enter(int step, Phase phase) {
  step_ = step;
  phase_ = phase;
  forget_failure();
  here.parameter = nullptr;
  if (phase == Phase::gradients) trained_with_ = last_collective(world_.rank());
  trace_phase(world_.rank(), step, static_cast<int>(phase));
}

// `parameter`: of what was compared. An error is where its exception arose; in a forward, where else it is in no
// module, at the last read.
Where RankRun::locate(Outcome outcome, const std::string& parameter) const {
  Where result{.module = owner_of(parameter), .parameter = parameter, .collective = {}};
  if (outcome == Outcome::error) {
    const bool noted = failed.module != nullptr || failed.parameter != nullptr;
    const Place place = !noted && phase_ == Phase::forward ? here : failed;
    if (model_) result = where(place, *model_);
    if (result.module.empty() && reference_model_) {
      result = where(place, *reference_model_);
      for (std::string* name : {&result.module, &result.parameter}) {
        if (!name->empty()) name->insert(0, "reference.");
      }
    }
  }
  result.collective = phase_ == Phase::gradients ? trained_with_ : last_collective(world_.rank());
  return result;
}

void RankRun::depart(Outcome outcome, std::string type, std::string text, const std::string& parameter, bool missing) {
  Departure departure;
  departure.outcome = outcome;
  departure.signature.phase = phase_;
  departure.signature.step = step_;
  departure.signature.rank = world_.rank();
  departure.signature.type = std::move(type);
  departure.signature.text = std::move(text);
  Evidence evidence;
  for (const auto* backend : {backend_.get(), reference_backend_.get()}) {
    if (backend == nullptr) continue;
    const auto& seen = backend->observations();
    evidence.observations.insert(evidence.observations.end(), seen.begin(), seen.end());
  }
  evidence.checkpoint_without_graph = autograd::reentrant_calls_without_graph() > without_graph_at_start_;
  evidence.missing_gradients = missing;
  evidence.gradient_twice =
      std::any_of(most_hook_calls_.begin(), most_hook_calls_.end(), [](const auto& calls) { return calls.second > 1; });
  departure.signature.mechanism = mechanism_of(departure, evidence);
  if (outcome == Outcome::error) departure.signature.upstream = upstream_text(case_, departure.signature);
  departure.signature.where = locate(outcome, parameter);
  departures_.push_back(std::move(departure));
}

shard::BackendOptions RankRun::backend_options() const {
  shard::BackendOptions options;
  options.optimizer = setting_.optimizer;
  options.accumulation = {.steps = micro_batches_of(case_), .divides = case_.accumulate != Accumulate::manual2};
  set_persistence(options, case_.persistence);
  if (case_.backend == Backend::fsdp2 && precision_.computed != precision_.stored) {
    options.precision = {.param_dtype = precision_.computed, .reduce_dtype = precision_.stored};
  }
  return options;
}

void RankRun::build() {
  model_ = prepare_model(setting_, case_);
  for (const auto& [name, parameter] : model::distinct_parameters(*model_)) {
    if (!parameter.requires_grad()) continue;
    parameter.register_hook([this, key = name](const Tensor&) {
      most_hook_calls_[key] = std::max(most_hook_calls_[key], ++hook_calls_[key]);
    });
  }
  shard::BackendOptions options = backend_options();
  options.release = fixes::release_policy(case_);
  options.head_unit = case_.unit != Unit::layers;
  options.recompute = fixes::recompute_policy(case_, case_.fully_shard == FullyShard::v2_10
                                                         ? std::make_shared<shard::RecomputeBefore211>()
                                                         : std::make_shared<shard::RecomputePolicy>());
  backend_ = shard::make_backend(case_.backend, world_, *model_, options);
  entry_ = fixes::entry_policy(case_);
  scope_ = fixes::head_scope(case_, *backend_);
  if (const auto* fsdp = dynamic_cast<shard::Fsdp2*>(backend_.get());
      fsdp != nullptr && case_.unit == Unit::head_full_tensor && !case_.has("unshard_head")) {
    scope_ = std::make_unique<HeadFullTensor>(*fsdp);
  }
  kl_forward_ = fixes::kl_forward(case_);
  if (has_reference(case_.loss) && case_.reference == regather::Reference::separate) build_reference();
}

// On ZeRO-3 a model partitioned by an engine of its own, elsewhere an unsharded copy on each rank.
void RankRun::build_reference() {
  reference_model_ = model::clone_as(*setting_.reference, precision_.computed);
  reference_model_->to(setting_.device);
  reference_scope_ = std::make_unique<loss::HeadScope>();
  if (case_.backend != Backend::zero3) return;
  reference_backend_ = shard::make_backend(case_.backend, world_, *reference_model_, backend_options());
  reference_scope_ = fixes::head_scope(case_, *reference_backend_);
}

Tensor RankRun::mean_over_ranks(const Tensor& value) {
  Tensor sum = value.clone();
  world_.all_reduce(sum)->wait();
  return sum / world_.size();
}

Tensor RankRun::forward(const loss::Batch& batch) {
  const LossParts parts{.model = *model_,
                        .scope = *scope_,
                        .reference = reference_model_.get(),
                        .reference_scope = reference_scope_.get(),
                        .kl_forward = kl_forward_.get(),
                        .mean_over_ranks = [this](const Tensor& value) { return mean_over_ranks(value); }};
  const auto loss = [&](bool root_runs) { return compute_loss(parts, case_, batch, root_runs); };
  if (case_.call == Call::engine) return backend_->forward([&] { return loss(/*root_runs=*/true); });
  return entry_->enter(*backend_, loss);
}

void RankRun::check_loss(double want, double scale, const Tensor& loss) {
  const LossPair pair{loss.item<double>(), want};
  const auto distance = [](const LossPair& p) { return std::abs(p.got - p.want); };
  if (!result_.loss || !(distance(pair) <= distance(*result_.loss))) result_.loss = pair;
  if (!std::isfinite(pair.got)) {
    depart(Outcome::nonfinite, "loss", fmt::format("loss {}, expected {:.9g}", pair.got, pair.want));
  } else if (distance(pair) > precision_.tolerance * scale) {
    depart(Outcome::invariant, "loss", fmt::format("loss {:.9g}, expected {:.9g}", pair.got, pair.want));
  }
}

void RankRun::check_gradients(int step) {
  const auto& want = reference_.steps[static_cast<size_t>(step)].gradients;
  GradientSummary& summary = *result_.gradients;
  std::optional<Difference> worst;
  std::string worst_name;
  std::vector<std::string> wrong;
  int missing = 0;
  int nonfinite = 0;
  uint64_t hash = 0;
  if (record_ != nullptr) record_->emplace_back();
  for (const auto& [name, gradient] : backend_->full_gradients()) {
    if (record_ != nullptr && gradient.defined()) record_->back()[name] = gradient.detach().clone();
    hash = digest(gradient, hash);
    ++summary.compared;
    const Tensor& right = want.at(name);
    const bool absent = !gradient.defined() || gradient.count_nonzero().item<int64_t>() == 0;
    if (absent && right.count_nonzero().item<int64_t>() > 0) ++missing;
    const Difference difference = compare(gradient.defined() ? gradient : right.mul(0), right);
    nonfinite += static_cast<int>(difference.nonfinite);
    if (difference.nonfinite > 0 || !(difference.relative_l2 <= precision_.tolerance)) wrong.push_back(name);
    if (!worst || difference.relative_l2 > worst->relative_l2) {
      worst = difference;
      worst_name = name;
    }
  }
  int unexpected = 0;
  for (const auto& [name, parameter] : model::distinct_parameters(*model_)) {
    if (!parameter.requires_grad() && parameter.grad().defined()) ++unexpected;
  }
  summary.missing += missing;
  summary.unexpected += unexpected;
  summary.nonfinite += nonfinite;
  if (worst && (summary.worst.empty() || worst->relative_l2 > summary.relative_l2)) {
    summary.worst = worst_name;
    summary.relative_l2 = worst->relative_l2;
    summary.cosine = worst->cosine;
    summary.share = worst->relative_l2 / precision_.tolerance;
    summary.max_abs = worst->max_abs;
    summary.at = worst->at;
    summary.got = worst->got;
    summary.want = worst->want;
  }

  if (nonfinite > 0) {
    depart(Outcome::nonfinite, "gradient", fmt::format("{} entries of the gradients are not finite", nonfinite),
           nearest_to_loss(wrong));
  } else if (unexpected > 0) {
    depart(Outcome::wrong_gradient, "gradient", fmt::format("{} frozen parameter(s) have a gradient", unexpected));
  } else if (worst && !(worst->relative_l2 <= precision_.tolerance)) {
    depart(Outcome::wrong_gradient, "gradient",
           fmt::format("{}: relative L2 error {:.3g}{}", worst_name, worst->relative_l2,
                       missing > 0 ? fmt::format("; {} gradient(s) missing or zero", missing) : ""),
           nearest_to_loss(wrong), missing > 0);
  }
  const std::vector<int64_t> hashes = world_.all_gather_int(static_cast<int64_t>(hash));
  enter(step, Phase::invariant);
  if (std::any_of(hashes.begin(), hashes.end(), [&](int64_t h) { return h != hashes.front(); })) {
    depart(Outcome::invariant, "gradients across ranks", "the ranks hold different gradients");
  }
  // Each pass through a reentrant checkpoint has a backward of its own, which brings its share of every gradient.
  const int allowed = case_.checkpoint == Checkpoint::reentrant && case_.two_passes ? 2 : 1;
  for (const auto& [name, calls] : most_hook_calls_) {
    if (calls <= allowed) continue;
    depart(Outcome::invariant, "hook", fmt::format("the hook of {} fired {} times in one backward", name, calls), name);
  }
}

void RankRun::check_update(int step, const shard::Named& before) {
  const ReferenceStep& right = reference_.steps[static_cast<size_t>(step)];
  std::map<std::string, Tensor> start(before.begin(), before.end());
  double worst = 0;
  std::string worst_name;
  for (const auto& [name, after] : backend_->full_parameters()) {
    // What is frozen keeps its bytes, which in a packed weight are no numbers.
    const bool trains = right.gradients.contains(name);
    const double share =
        trains ? update_share(start.at(name), after, right.updates.at(name), precision_.tolerance, precision_.rounding)
        : digest(start.at(name), 0) == digest(after, 0) ? 0.0
                                                        : INFINITY;
    if (!(share <= worst)) {
      worst = share;
      worst_name = name;
    }
  }
  result_.counters["update_share"] = std::max(result_.counters["update_share"], worst);
  if (!(worst <= 1)) {
    depart(Outcome::invariant, "update", fmt::format("{}: the step uses {:.3g} times its tolerance", worst_name, worst),
           worst_name);
  }
}

void RankRun::check_invariants(int step) {
  enter(step, Phase::invariant);
  for (const std::string& broken : backend_->broken_invariants()) depart(Outcome::invariant, "lifecycle", broken);
  if (reference_backend_) {
    for (const std::string& broken : reference_backend_->broken_invariants()) {
      depart(Outcome::invariant, "lifecycle", "the reference's " + broken);
    }
  }
  if (case_.head == Head::tied && model_->head().weight_handle().unsafeGetTensorImpl() !=
                                      model_->backbone().embedding().weight_handle().unsafeGetTensorImpl()) {
    depart(Outcome::invariant, "tie", "the head's weight is no longer the embedding's");
  }
  int64_t calls = 0;
  for (const auto& [kind, count] : world_.counts()) calls += count.calls;
  const std::vector<int64_t> all = world_.all_gather_int(calls);
  if (std::any_of(all.begin(), all.end(), [&](int64_t n) { return n != all.front(); })) {
    depart(Outcome::invariant, "collectives",
           fmt::format("this rank entered {} collectives, rank 0 {}", calls, all[0]));
  }
}

void RankRun::micro_step(int step, int micro) {
  enter(step, Phase::forward);
  const MicroBatch& given = reference_.steps[static_cast<size_t>(step)].micro_batches[static_cast<size_t>(micro)];
  const auto rank = static_cast<size_t>(world_.rank());
  const Tensor loss = forward(loss::to(given.batches[rank], setting_.device));
  check_loss(given.losses[rank], loss_scale(given.batches[rank], given.losses[rank]), loss);

  enter(step, Phase::backward);
  hook_calls_.clear();
  if (fault_is(Fault::crash_rank) && step == 1 && world_.rank() == 1) std::raise(SIGSEGV);
  while (fault_is(Fault::hang_rank) && step == 1 && world_.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
  backend_->backward(case_.accumulate == Accumulate::manual2 ? loss / micro_batches_of(case_) : loss);
}

void RankRun::train_step(int step) {
  enter(step, Phase::forward);
  backend_->zero_gradients();
  most_hook_calls_.clear();
  for (int micro = 0; micro < micro_batches_of(case_); ++micro) micro_step(step, micro);

  enter(step, Phase::gradients);
  if (fault_is(Fault::frozen_gradient)) {
    for (const auto& [name, parameter] : model::distinct_parameters(*model_)) {
      if (!parameter.requires_grad()) parameter.mutable_grad() = parameter.detach().clone();
    }
  }
  check_gradients(step);

  enter(step, Phase::step);
  const shard::Named before = backend_->full_parameters();
  if (fault_is(Fault::extra_collective) && world_.rank() == 1) world_.barrier();
  backend_->step();
  check_update(step, before);
  check_invariants(step);
}

CaseResult RankRun::run() {
  try {
    enter(0, Phase::build);
    build();
    for (int step = 0; step < case_.steps; ++step) train_step(step);
  } catch (const std::bad_alloc& error) {
    depart(Outcome::oom, "std::bad_alloc", error.what());
  } catch (const std::exception& error) {
    ErrorText described = describe(error);
    switch (comm::cause_of(error)) {
      case comm::Cause::peer:
        break;  // whoever left says why
      case comm::Cause::deadline:
        depart(Outcome::hang, std::move(described.type), std::move(described.text));
        if (const auto* late = dynamic_cast<const comm::DeadlineError*>(&error)) {
          departures_.back().signature.rank = late->absent;
        }
        break;
      case comm::Cause::own:
        depart(Outcome::error, std::move(described.type), std::move(described.text));
    }
  }
  for (const auto& [kind, count] : world_.counts()) {
    result_.counters[kind + "_calls"] = static_cast<double>(count.calls);
    result_.counters[kind + "_bytes"] = static_cast<double>(count.bytes);
  }
  if (backend_) {
    for (const auto& [name, value] : backend_->counters()) result_.counters[name] = value;
    if (const auto peak = backend_->counters().find("peak_gathered_bytes"); peak != backend_->counters().end()) {
      result_.peak_bytes = static_cast<int64_t>(peak->second);
    }
  }
  settle(result_, std::move(departures_));
  return result_;
}

}  // namespace

CaseResult run_rank(comm::World& world, const Case& c, const Setting& setting, const Reference& reference,
                    GradientRecord::value_type* record) {
  return RankRun(world, c, setting, reference, record).run();
}

}  // namespace regather::train
