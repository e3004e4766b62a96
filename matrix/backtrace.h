// What a dying or hanging worker wrote, for people: symbols demangled, addresses replaced, so that two runs read alike.
#pragma once

#include <string>
#include <string_view>

namespace regather::matrix {

// Frames as backtrace_symbols_fd writes them become "    regather::comm::Meeting::wait" or "    libc.so.6"; in every
// other line an address becomes "0x?". Trailing blanks go.
std::string readable_backtrace(std::string_view text);

// The last whole lines of at most `bytes` bytes.
std::string_view last_lines(std::string_view text, size_t bytes);

}  // namespace regather::matrix
