#include "comm/rank_end.h"

#include <c10/util/Exception.h>
#include <cxxabi.h>

#include <cstdlib>
#include <exception>
#include <string_view>
#include <typeinfo>

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

// gloo throws two types for everything; only its texts say whether a peer went away or kept us waiting.
bool is_gloo(std::string_view type) { return type.starts_with("gloo::"); }

}  // namespace

RankEnd end_of_current_exception() {
  RankEnd end;
  end.error_type = demangled(abi::__cxa_current_exception_type());
  try {
    throw;
  } catch (const DeadlineError& error) {
    end.error_type = "hang";
    end.error_text = error.what();
  } catch (const PeerError& error) {
    end.error_text = error.what();
    end.peer_failed = true;
  } catch (const c10::Error& error) {
    end.error_text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    end.error_text = error.what();
  } catch (...) {
    end.error_text = "an exception that is not a std::exception";
  }
  if (is_gloo(end.error_type) || has(end.error_text, "gloo/transport")) {
    if (has(end.error_text, "Timed out")) {
      end.error_type = "hang";
    } else {
      end.peer_failed = has(end.error_text, "by peer") || has(end.error_text, "Broken pipe") ||
                        has(end.error_text, "Connection refused");
    }
  }
  return end;
}

RankEnd run_rank(World& world, const RankFunction& function) {
  try {
    RankEnd end;
    end.result = function(world);
    return end;
  } catch (...) {
    return end_of_current_exception();
  }
}

}  // namespace regather::comm
