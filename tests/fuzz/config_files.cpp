// Several files of a check in one input, with a line of percent signs between them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "fuzz.h"
#include "repro/check/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regather;
  static const std::vector<check::Measured> recordings = check::measured_by_recordings();
  return fuzz::accepts_or_refuses(data, size, [](std::string_view text) {
    constexpr std::string_view kBetween = "\n%%%%\n";
    std::vector<check::File> files;
    for (size_t begin = 0; begin <= text.size() && files.size() < 8;) {
      const size_t end = std::min(text.find(kBetween, begin), text.size());
      files.push_back(check::parse_file(std::to_string(files.size()), text.substr(begin, end - begin)));
      begin = end + kBetween.size();
    }
    const check::Checked checked = check::check(std::move(files), recordings);
    fuzz::require(!checked.answers.empty());
    fuzz::require(checked.problem() !=
                  (checked.verdict == check::Verdict::works || checked.verdict == check::Verdict::unknown));
    for (const check::Answer& answer : checked.answers) {
      fuzz::require((answer.verdict == check::Verdict::unknown) == answer.proofs.empty());
      fuzz::require((answer.verdict == check::Verdict::unknown) != answer.reason.empty());
      if (answer.which) fuzz::require(!illegal(*answer.which));
    }
    check::to_json(checked).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    check::print(checked);
  });
}
