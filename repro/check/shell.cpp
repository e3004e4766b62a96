#include "repro/check/shell.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "base/error.h"

namespace regather::check {
namespace {

constexpr size_t kMostFilledIn = 1 << 20;  // bytes of variables' values
constexpr std::array<std::string_view, 6> kBefore{"exec", "nohup", "time", "srun", "env", "sudo"};

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The words of a text, a list for each command: commands end at a newline, `;`, `&` or `|`.
class Lexer {
 public:
  Lexer(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  std::vector<Words> commands() {
    while (at_ < text_.size()) step();
    end_command();
    return std::move(commands_);
  }

 private:
  void step() {
    const char c = text_[at_++];
    switch (c) {
      case '\\':
        if (at_ < text_.size() && text_[at_] == '\r') ++at_;
        if (at_ < text_.size() && text_[at_] != '\n') add(text_[at_]);
        if (at_ < text_.size()) ++at_;
        break;
      case '\'':
      case '"':
        quote(c);
        break;
      case '#':
        if (in_word_) return add(c);
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
        break;
      case ' ':
      case '\t':
      case '\r':
        end_word();
        break;
      case '\n':
      case ';':
      case '&':
      case '|':
        end_command();
        break;
      case '$':
        variable();
        break;
      default:
        add(c);
    }
  }

  void quote(char mark) {
    in_word_ = true;
    while (at_ < text_.size() && text_[at_] != mark) {
      const char c = text_[at_++];
      if (mark == '"' && c == '$') {
        variable();
      } else if (mark == '"' && c == '\\' && at_ < text_.size()) {
        if (text_[at_] != '\n') add(text_[at_]);
        ++at_;
      } else {
        add(c);
      }
    }
    ++at_;
  }

  void variable() {
    const bool braced = at_ < text_.size() && text_[at_] == '{';
    size_t end = at_ + (braced ? 1 : 0);
    const size_t begin = end;
    while (end < text_.size() && is_name(text_[end])) ++end;
    const auto known = variables_.find(std::string(text_.substr(begin, end - begin)));
    if (known == variables_.end() || (braced && (end == text_.size() || text_[end] != '}'))) return add('$');
    filled_in_ += known->second.size();
    if (filled_in_ > kMostFilledIn) {
      throw UsageError(fmt::format("'{}': its variables fill in more than {} bytes; expected a launch command", file_,
                                   kMostFilledIn));
    }
    in_word_ = true;
    word_ += known->second;
    at_ = end + (braced ? 1 : 0);
  }

  void add(char c) {
    in_word_ = true;
    word_ += c;
  }

  void end_word() {
    if (!in_word_) return;
    command_.push_back(std::move(word_));
    word_.clear();
    in_word_ = false;
  }

  void end_command() {
    end_word();
    if (command_.empty()) return;
    // `NAME=value` and `export NAME=value` alone on a line.
    const std::string& last = command_.back();
    const bool exported = command_.size() == 2 && command_.front() == "export";
    if ((command_.size() == 1 || exported) && last.find('=') != std::string::npos && last.size() < 4096) {
      variables_[last.substr(0, last.find('='))] = last.substr(last.find('=') + 1);
    }
    commands_.push_back(std::move(command_));
    command_.clear();
  }

  const std::string& file_;
  std::string_view text_;
  size_t at_ = 0;
  std::string word_;
  bool in_word_ = false;
  Words command_;
  size_t filled_in_ = 0;
  std::vector<Words> commands_;
  Variables variables_;
};

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_assignment(const std::string& word) {
  const size_t equals = word.find('=');
  return equals != std::string::npos && equals > 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals), is_name);
}

bool is_program(const std::string& word) {
  const std::string program = base_name(word);
  return program == "accelerate" || program == "torchrun" || program == "deepspeed" || program == "trl" ||
         program.starts_with("python");
}

// From the launcher on, or nothing. What starts it (srun -N 2 ...) has arguments of its own.
Words launch_of(const Words& words) {
  size_t at = 0;
  while (at < words.size() && is_assignment(words[at])) ++at;
  if (at < words.size() && std::ranges::find(kBefore, words[at]) != kBefore.end()) {
    while (at < words.size() && !is_program(words[at])) ++at;
  }
  if (at == words.size()) return {};
  Words rest(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  const std::string program = base_name(rest.front());
  rest.front() = program;
  if (program.starts_with("python") && rest.size() > 2 && rest[1] == "-m") {
    const std::string module = rest[2];
    rest.erase(rest.begin(), rest.begin() + 2);
    if (module == "torch.distributed.run" || module == "torch.distributed.launch") {
      rest.front() = "torchrun";
    } else if (module == "accelerate.commands.launch") {
      rest.front() = "accelerate";
      rest.insert(rest.begin() + 1, "launch");
    } else {
      return {};
    }
    return rest;
  }
  const bool accelerate = program == "accelerate" && rest.size() > 1 && rest[1] == "launch";
  const bool trl = program == "trl" && rest.size() > 1;
  return accelerate || trl || program == "torchrun" || program == "deepspeed" ? rest : Words{};
}

}  // namespace

std::optional<std::vector<std::string>> find_launch(const std::string& file, std::string_view text) {
  std::optional<Words> found;
  for (const Words& command : Lexer(file, text).commands()) {
    Words launch = launch_of(command);
    if (launch.empty()) continue;
    if (found) throw UsageError(fmt::format("'{}' holds two launch commands; expected one a file", file));
    found = std::move(launch);
  }
  return found;
}

}  // namespace regather::check
