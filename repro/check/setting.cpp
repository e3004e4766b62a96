#include "repro/check/setting.h"

#include <array>

namespace regather::check {

const char* name(FindingKind kind) {
  constexpr std::array kNames{"contradiction", "misspelt", "refused", "ignored", "outside", "missing"};
  return kNames.at(static_cast<size_t>(kind));
}

bool is_problem(const Finding& finding) {
  return finding.kind == FindingKind::contradiction || finding.kind == FindingKind::misspelt ||
         finding.kind == FindingKind::refused;
}

Setting merge(const Sources& sources) {
  Setting setting;
  if (const File* file = sources.first(Kind::packages)) {
    for (const auto& [package, version] : file->root.items()) setting.versions[package] = version.get<std::string>();
  }
  merge_trainer(sources, setting);
  merge_sharding(sources, setting);
  merge_memory(sources, setting);
  merge_model(sources, setting);
  find_contradictions(sources, setting);
  find_misspelt(sources, setting);
  return setting;
}

}  // namespace regather::check
