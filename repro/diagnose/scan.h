// Reads a log once, in bounded memory. Literals find the lines that may matter; only those, and the lines round them,
// are looked at closer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "repro/diagnose/findings.h"
#include "repro/diagnose/knowledge.h"
#include "repro/diagnose/needles.h"

namespace regather::repro {

// Fills up to `size` bytes; 0 at the end.
using ReadBytes = std::function<size_t(char* to, size_t size)>;

class Scanner {
 public:
  explicit Scanner(const Knowledge& knowledge);

  void scan(const std::string& name, const ReadBytes& read);
  // A config file: what it says of the run, no errors.
  void scan_config(const std::string& name, std::string_view text);

  Findings& findings() { return findings_; }

 private:
  enum class Kind { traceback, context, version, sign };
  struct Watched {
    Kind kind = Kind::traceback;
    size_t number = 0;  // in Knowledge
    bool active = true;
    uint64_t hits = 0;     // of one of its literals
    uint64_t matches = 0;  // of the pattern
  };

  void arm();  // makes the needles of all that is active
  void retire(size_t watched);
  void search(size_t limit);
  void look_at(size_t at, const std::vector<size_t>& watched);
  void note_versions(const Sought& form, const std::string& text, const LineRef& at);
  void add(Incident incident);
  uint64_t line_number(size_t at);
  std::string_view window() const { return {buffer_.data(), held_}; }

  const Knowledge& knowledge_;
  Findings findings_;
  std::vector<Watched> watched_;
  std::unique_ptr<Needles> needles_;
  std::vector<std::vector<size_t>> watched_by_;  // of each needle's number
  bool stale_ = true;

  std::string name_;
  std::vector<char> buffer_;
  size_t held_ = 0;       // bytes in the buffer
  size_t done_ = 0;       // up to here hits are dealt with
  size_t counted_ = 0;    // up to here lines are counted
  uint64_t line_ = 1;     // the number of the line at counted_
  uint64_t covered_ = 0;  // the last line of an incident of this log
};

}  // namespace regather::repro
