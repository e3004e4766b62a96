#include "comm/rank_end.h"

#include <c10/util/Exception.h>
#include <cxxabi.h>

#include <cstdlib>
#include <exception>
#include <string_view>
#include <typeinfo>

#include "base/blackbox.h"
#include "comm/errors.h"

namespace regather::comm {
namespace {

std::string demangled(const std::type_info* type) {
  if (type == nullptr) return "unknown";
  int status = 0;
  char* name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  std::string text = status == 0 ? name : type->name();
  std::free(name);  // NOLINT: the demangler allocates with malloc
  return text;
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

// gloo throws two types for everything; only its texts say whether a peer went away or kept us waiting.
Cause cause_of(const std::exception& error) {
  if (dynamic_cast<const DeadlineError*>(&error) != nullptr) return Cause::deadline;
  if (dynamic_cast<const PeerError*>(&error) != nullptr) return Cause::peer;
  const std::string_view text = error.what();
  if (!demangled(&typeid(error)).starts_with("gloo::") && !has(text, "gloo/transport")) return Cause::own;
  if (has(text, "Timed out")) return Cause::deadline;
  for (const char* gone : {"by peer", "Broken pipe", "Connection refused"}) {
    if (has(text, gone)) return Cause::peer;
  }
  return Cause::own;
}

RankEnd end_of_current_exception() {
  RankEnd end;
  end.error_type = demangled(abi::__cxa_current_exception_type());
  try {
    throw;
  } catch (const std::exception& error) {
    const auto* torch = dynamic_cast<const c10::Error*>(&error);
    end.error_text = torch != nullptr ? torch->what_without_backtrace() : error.what();
    const Cause cause = cause_of(error);
    if (cause == Cause::deadline) end.error_type = "hang";
    end.peer_failed = cause == Cause::peer;
  } catch (...) {
    end.error_text = "an exception that is not a std::exception";
  }
  return end;
}

RankEnd run_rank(World& world, const RankFunction& function) {
  try {
    RankEnd end;
    end.result = function(world);
    trace_end(world.rank());
    return end;
  } catch (...) {
    return end_of_current_exception();
  }
}

}  // namespace regather::comm
