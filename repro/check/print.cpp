#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>

#include "repro/check/check.h"

namespace regather::check {
namespace {

using Ordered = nlohmann::ordered_json;

Ordered or_null(const std::string& text) { return text.empty() ? Ordered() : Ordered(text); }
Ordered or_null(const std::optional<Case>& c) { return c ? Ordered(id(*c)) : Ordered(); }

Ordered of(const std::vector<Assumption>& assumed) {
  Ordered list = Ordered::array();
  for (const Assumption& a : assumed) list.push_back({{"what", a.what}, {"why", a.why}});
  return list;
}

Ordered of(const Proof& proof) {
  Ordered differences = Ordered::array();
  for (const Difference& d : proof.differences) {
    differences.push_back({{"axis", d.axis}, {"asked", d.asked}, {"measured", d.measured}, {"pairs", d.pairs}});
  }
  return {{"basis", name(proof.basis)},
          {"source", proof.source},
          {"release", or_null(proof.release)},
          {"cell", or_null(proof.cell)},
          {"differences", std::move(differences)}};
}

Ordered of(const Answer& answer) {
  Ordered proofs = Ordered::array();
  for (const Proof& proof : answer.proofs) proofs.push_back(of(proof));
  Ordered remedies = Ordered::array();
  for (const Remedy& r : answer.remedies) {
    remedies.push_back({{"what", r.what}, {"price", or_null(r.price)}, {"by", r.by}});
  }
  return {{"trl", or_null(answer.versions)},
          {"verdict", name(answer.verdict)},
          {"case", or_null(answer.which)},
          {"proofs", std::move(proofs)},
          {"signature",
           {{"phase", or_null(answer.phase)},
            {"mechanism", or_null(answer.mechanism)},
            {"type", or_null(answer.type)},
            {"text", or_null(answer.text)}}},
          {"assumed", of(answer.assumed)},
          {"issues", answer.issues},
          {"remedies", std::move(remedies)},
          {"reason", or_null(answer.reason)},
          {"command", or_null(answer.command)}};
}

std::string label(Verdict verdict) {
  switch (verdict) {
    case Verdict::works:
      return "works";
    case Verdict::crashes:
      return "crashes";
    case Verdict::silently_wrong:
      return "SILENTLY WRONG";
    case Verdict::unknown:
      return "unknown";
    case Verdict::contradictory:
      return "contradictory";
  }
  return {};
}

void print_proof(std::string& out, const Answer& a, const Proof& proof) {
  out += fmt::format("    {:<9} {}{}\n", proof.basis == Basis::read ? "read in" : "measured", proof.source,
                     proof.release.empty() ? "" : fmt::format(", {}", proof.release));
  if (proof.cell && proof.cell != a.which) out += fmt::format("              {}\n", id(*proof.cell));
  for (const Difference& d : proof.differences) {
    out += fmt::format("              {}={} there, {} asked: changed nothing in {} measured pair{}\n", d.axis,
                       d.measured, d.asked, d.pairs, d.pairs == 1 ? "" : "s");
  }
}

void print_answer(std::string& out, const Answer& a) {
  std::vector<std::string> with;
  if (!a.versions.empty()) with.push_back("trl " + a.versions);
  for (const Proof& proof : a.proofs) {
    if (!proof.release.empty()) with.push_back(proof.release);
  }
  out += fmt::format("\n{}{}{}\n", label(a.verdict), with.empty() ? "" : " with ", fmt::join(with, ", "));
  if (a.which) out += fmt::format("    case      {}\n", id(*a.which));
  for (const Proof& proof : a.proofs) print_proof(out, a, proof);
  if (a.verdict == Verdict::crashes || a.verdict == Verdict::silently_wrong) {
    out += fmt::format("    how       in {}: {}{}{}{}\n", a.phase, a.type, a.type.empty() ? "" : ": ", a.text,
                       a.mechanism.empty() ? "" : fmt::format(" [{}]", a.mechanism));
  }
  if (!a.issues.empty()) out += fmt::format("    issues    {}\n", fmt::join(a.issues, ", "));
  for (const Remedy& r : a.remedies) {
    out += fmt::format("    remedy    {}{}{} ({})\n", r.what, r.price.empty() ? "" : "; price: ", r.price, r.by);
  }
  for (const Assumption& x : a.assumed) out += fmt::format("    assumed   {}: {}\n", x.what, x.why);
  if (!a.reason.empty()) out += fmt::format("    why       {}\n", a.reason);
  if (!a.command.empty()) {
    out += fmt::format("    measure   {}, then check again with --results out/check/results.json\n", a.command);
  }
}

}  // namespace

const char* name(Verdict verdict) {
  constexpr std::array kNames{"works", "crashes", "silently_wrong", "unknown", "contradictory"};
  return kNames.at(static_cast<size_t>(verdict));
}

const char* name(Basis basis) {
  constexpr std::array kNames{"none", "cell", "trainer", "read"};
  return kNames.at(static_cast<size_t>(basis));
}

nlohmann::ordered_json to_json(const Checked& checked) {
  Ordered files = Ordered::array();
  for (const auto& [file, kind] : checked.files) files.push_back({{"file", file}, {"kind", name(kind)}});
  Ordered findings = Ordered::array();
  for (const Finding& f : checked.setting.findings) {
    findings.push_back({{"kind", name(f.kind)}, {"problem", is_problem(f)}, {"text", f.text}, {"where", f.where}});
  }
  Ordered answers = Ordered::array();
  for (const Answer& a : checked.answers) answers.push_back(of(a));
  return {{"schema", 1},
          {"files", std::move(files)},
          {"trainer", or_null(checked.setting.trainer)},
          {"verdict", name(checked.verdict)},
          {"problem", checked.problem()},
          {"findings", std::move(findings)},
          {"assumed", of(checked.setting.assumed)},
          {"answers", std::move(answers)}};
}

std::string print(const Checked& checked) {
  std::string out;
  for (const auto& [file, kind] : checked.files) out += fmt::format("{}: {}\n", file, name(kind));
  for (const Assumption& a : checked.setting.assumed) out += fmt::format("assumed   {}: {}\n", a.what, a.why);
  for (const Finding& f : checked.setting.findings) {
    out += fmt::format("{:<9} {}\n", is_problem(f) ? "PROBLEM" : "note", f.text);
    for (const std::string& where : f.where) out += fmt::format("              {}\n", where);
  }
  for (const Answer& a : checked.answers) print_answer(out, a);
  out += fmt::format("\nverdict   {}\n", label(checked.verdict));
  return out;
}

}  // namespace regather::check
