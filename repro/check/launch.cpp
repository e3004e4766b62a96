#include "repro/check/launch.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "repro/check/options.h"

namespace regather::check {
namespace {

using Words = std::span<const std::string>;

std::string plain(std::string flag) {
  flag.erase(0, flag.find_first_not_of('-'));
  std::ranges::replace(flag, '-', '_');
  return flag;
}

bool is_flag(const std::string& word) {
  // -1 is a number.
  return word.size() > 1 && word.front() == '-' && word.find_first_not_of("-.0123456789") != std::string::npos;
}

// Python's spelling of a value: what begins with a brace is JSON, as TrainingArguments reads it.
Json value_of(const std::string& file, const std::string& text) {
  if (text.starts_with("{")) return parse_json(file, text).root;
  return resolve_scalar(text);
}

// `--name value`, `--name=value`, `--name` alone (true), `--name a b` (a list), `--no_name` (false).
void read_options(const std::string& file, Words words, Launch& launch) {
  while (!words.empty()) {
    const std::string word = words.front();
    words = words.subspan(1);
    if (!is_flag(word)) continue;
    const size_t equals = word.find('=');
    const std::string name = plain(word.substr(0, equals));
    Json given;
    if (equals != std::string::npos) {
      given = value_of(file, word.substr(equals + 1));
    } else {
      std::vector<Json> values;
      while (!words.empty() && !is_flag(words.front())) {
        values.push_back(value_of(file, words.front()));
        words = words.subspan(1);
      }
      given = values.empty() ? Json(true) : values.size() == 1 ? values.front() : Json(values);
    }
    if (name == "config" && given.is_string()) launch.files.push_back(given);
    if (name.starts_with("no_") && given == true && !is_among(training_names(), name) &&
        is_among(training_names(), name.substr(3))) {
      launch.options[name.substr(3)] = false;
    } else {
      launch.options[name] = std::move(given);
    }
  }
}

// The launcher's flags up to the script; what is left are the script's words.
Words read_flags(const std::string& file, Words words, Launch& launch) {
  while (!words.empty() && is_flag(words.front())) {
    const std::string word = words.front();
    words = words.subspan(1);
    const size_t equals = word.find('=');
    const std::string flag = word.substr(0, equals);
    const auto takes = flag_takes_value(launch.launcher, flag);
    if (!takes) launch.unknown.push_back(flag);
    if (equals != std::string::npos) {
      launch.flags[plain(flag)] = value_of(file, word.substr(equals + 1));
    } else if (takes.value_or(!words.empty() && !is_flag(words.front()) && !words.front().ends_with(".py"))) {
      if (words.empty()) throw UsageError(fmt::format("'{}': {} has no value", file, in_quotes(flag)));
      launch.flags[plain(flag)] = value_of(file, words.front());
      words = words.subspan(1);
    } else {
      launch.flags[plain(flag)] = true;
    }
  }
  return words;
}

}  // namespace

bool is_unset(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>().find('$') != std::string::npos;
}

Launch parse_launch(const std::string& file, const std::vector<std::string>& words) {
  Launch launch;
  launch.launcher = words.front();
  Words rest = Words(words).subspan(1);
  if (launch.launcher == "accelerate") rest = rest.subspan(1);  // launch
  if (launch.launcher == "trl") {
    // Every flag stands behind the command, accelerate's beside the trainer's.
    launch.script = rest.front();
    read_options(file, rest.subspan(1), launch);
    for (auto at = launch.options.begin(); at != launch.options.end();) {
      const bool of_accelerate =
          !is_among(training_names(), at.key()) && flag_takes_value("accelerate", "--" + at.key()).has_value();
      if (of_accelerate || at.key() == "accelerate_config") {
        launch.flags[at.key()] = at.value();
        at = launch.options.erase(at);
      } else {
        ++at;
      }
    }
    return launch;
  }
  rest = read_flags(file, rest, launch);
  // `-m module` and `--module module`: the flag takes no value with accelerate and torchrun.
  if (rest.empty()) throw UsageError(fmt::format("'{}': the launch command names no script", file));
  launch.script = rest.front();
  read_options(file, rest.subspan(1), launch);
  return launch;
}

}  // namespace regather::check
