// A launch command out of a shell script, as words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace regather::check {

// The command that starts training, from the launcher's name on: `accelerate launch ...`, `torchrun ...`,
// `deepspeed ...`, `trl dpo ...`, `python -m torch.distributed.run ...`. Quotes are removed, lines that end in a
// backslash joined, `NAME=value` of the lines before filled in for $NAME; what else begins with $ stays as it is.
// nullopt where no line of the text is such a command. Throws UsageError: two such commands, variables that fill in
// more than 1 MiB.
std::optional<std::vector<std::string>> find_launch(const std::string& file, std::string_view text);

}  // namespace regather::check
