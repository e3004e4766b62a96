#include "repro/check/call_path.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/embedded.h"
#include "base/error.h"
#include "matrix/judge/conditions.h"

namespace regather {
const std::vector<EmbeddedFile>& embedded_call_paths();
}

namespace regather::check {
namespace {

using Json = nlohmann::json;

// The releases that call paths know (matrix/peers/regather_peers/call_paths.py).
constexpr std::array<std::string_view, 16> kReleases{"1.6.0",  "1.7.0",  "1.7.1",  "1.8.0",  "1.9.0",  "1.9.1",
                                                     "1.9.2",  "1.10.0", "1.11.0", "1.12.0", "1.13.0", "1.14.0",
                                                     "1.14.1", "1.14.2", "1.15.0", "1.16.0"};

std::string text_of(const Json& row, const char* key) {
  const Json& value = row.at(key);
  return value.is_null() ? std::string() : value.get<std::string>();
}

CallPath parse_row(const Json& row) {
  CallPath path;
  row.at("package").get_to(path.package);
  row.at("versions").get_to(path.versions);
  matrix::VersionRange{path.versions};
  row.at("trainer").get_to(path.trainer);
  row.at("fused").get_to(path.fused);
  Case backend;
  set_axis(backend, "backend", row.at("backend").get<std::string>());
  path.backend = backend.backend;
  if (const std::string id = text_of(row, "case"); !id.empty()) path.which = parse_id(id);
  path.recomputed = text_of(row, "kernel") == "recomputed";
  if (const std::string outcome = text_of(row, "outcome"); !outcome.empty()) path.outcome = parse_outcome(outcome);
  path.phase = text_of(row, "phase");
  path.text = text_of(row, "text");
  path.ran = row.at("established") == "ran";
  row.at("checked").get_to(path.checked);
  row.at("note").get_to(path.note);
  return path;
}

CallPath of_transformers(const std::string& fused, Backend backend) {
  CallPath path;
  path.package = "transformers";
  path.trainer = "transformers";
  path.fused = fused;
  path.backend = backend;
  Case c;
  c.backend = backend;
  c.call = Call::engine;
  c.kernel = fused == "liger" ? Kernel::fused : Kernel::eager;
  path.which = c;
  path.note = fused == "liger"
                  ? "apply_liger_kernel puts Liger's loss in the place of the model's forward (transformers "
                    "5.24.0, transformers/trainer.py)"
                  : "Trainer calls the wrapped model, whose own forward computes the loss (transformers "
                    "5.24.0, transformers/trainer.py)";
  return path;
}

// One process: no wrapper stands between the loss and the model.
CallPath alone(const std::string& trainer, const std::string& fused) {
  CallPath path = of_transformers(fused, Backend::single);
  path.trainer = trainer;
  Case& c = *path.which;
  c.loss = trainer == "dpo" ? Loss::dpo : trainer == "kto" ? Loss::kto : trainer == "grpo" ? Loss::grpo : Loss::sft;
  c.world = 1;
  if (fused != "none") c.kernel = Kernel::fused;
  path.note = "one process: no wrapper stands between the loss and the model";
  return path;
}

// A trainer without a fused loss was run on DDP, ZeRO-3 and FSDP2: where they agree, so does what lies between.
std::vector<CallPath> borrowed(const std::string& trainer, Backend backend, const std::optional<std::string>& trl) {
  std::vector<CallPath> paths = call_paths_of(trainer, "none", Backend::ddp, trl);
  std::erase_if(paths, [&](const CallPath& path) {
    return !path.which || !std::ranges::all_of(std::array{Backend::zero3, Backend::fsdp2}, [&](Backend other) {
      return std::ranges::any_of(call_paths_of(trainer, "none", other, trl), [&](const CallPath& p) {
        return p.versions == path.versions && p.which && p.which->kernel == path.which->kernel &&
               p.which->call == path.which->call && p.which->fixes == path.which->fixes;
      });
    });
  });
  for (CallPath& path : paths) {
    path.backend = backend;
    path.which->backend = backend;
    path.outcome.reset();
    path.ran = false;
    path.note = fmt::format("run on ddp, zero3 and fsdp2 (trl {}), which agree", fmt::join(path.checked, ", "));
  }
  return paths;
}

}  // namespace

std::vector<CallPath> parse_call_paths(const std::string& name, std::string_view text) {
  std::vector<CallPath> paths;
  try {
    const Json json = Json::parse(text);
    if (json.at("schema") != 1) throw UsageError("'schema': expected 1");
    for (const Json& row : json.at("rows")) paths.push_back(parse_row(row));
  } catch (const std::exception& e) {
    throw UsageError(fmt::format("call paths '{}', row {}: {}", name, paths.size(), e.what()));
  }
  return paths;
}

const std::vector<CallPath>& known_call_paths() {
  static const std::vector<CallPath> all =
      parse_call_paths(std::string(embedded_call_paths().front().name), embedded_call_paths().front().text);
  return all;
}

bool within(const std::string& versions, const std::string& rule) {
  const matrix::VersionRange inner(versions);
  const matrix::VersionRange outer(rule);
  return std::ranges::all_of(kReleases, [&](std::string_view v) { return !inner.holds(v) || outer.holds(v); });
}

bool overlap(const std::string& a, const std::string& b) {
  const matrix::VersionRange one(a);
  const matrix::VersionRange other(b);
  return std::ranges::any_of(kReleases, [&](std::string_view v) { return one.holds(v) && other.holds(v); });
}

std::vector<CallPath> call_paths_of(const std::string& trainer, const std::string& fused, Backend backend,
                                    const std::optional<std::string>& trl) {
  if (trainer == "transformers") return {of_transformers(fused, backend)};
  if (backend == Backend::single) return {alone(trainer, fused)};
  std::vector<CallPath> found;
  for (const CallPath& path : known_call_paths()) {
    if (path.trainer != trainer || path.fused != fused || path.backend != backend) continue;
    if (trl && !matrix::VersionRange(path.versions).holds(*trl)) continue;
    found.push_back(path);
  }
  const bool between = backend == Backend::zero1 || backend == Backend::zero2;
  if (found.empty() && fused == "none" && between) return borrowed(trainer, backend, trl);
  return found;
}

}  // namespace regather::check
