// What a dying or hanging worker wrote, for people: symbols demangled, addresses replaced, so that two runs read alike.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace regather::matrix {

// Frames as backtrace_symbols_fd writes them become "    regather::comm::Meeting::wait" or "    libc.so.6+0x3c050"; in
// every other line an address becomes "0x?". Trailing blanks go.
std::string readable_backtrace(std::string_view text);

// A thread's stack, as base/stack_dump.h writes it.
struct ThreadStack {
  std::string head;                 // "stack", "regather-worker: fatal signal, stack"
  std::string thread;               // "rank 1"
  std::vector<std::string> frames;  // innermost first
};

// A readable text taken apart: its stacks, and the lines that belong to none.
struct TakenApart {
  std::vector<ThreadStack> stacks;
  std::string words;
};
TakenApart take_apart(std::string_view readable);

// The last whole lines of at most `bytes` bytes.
std::string_view last_lines(std::string_view text, size_t bytes);

}  // namespace regather::matrix
