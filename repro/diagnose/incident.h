// One error out of a log, with what stands round it.
#pragma once

#include <functional>
#include <string_view>

#include "repro/diagnose/findings.h"
#include "repro/diagnose/knowledge.h"
#include "repro/diagnose/lines.h"

namespace regather::repro {

// A part of a log with the line of interest well inside, and how its places are named.
struct Surroundings {
  std::string_view text;
  std::function<LineRef(const Span& line, std::string_view shown)> name;
};

// `line` holds "Traceback (most recent call last)": the frames and the exception after it, of the same source.
Incident read_traceback(const Knowledge& knowledge, const Surroundings& around, const Span& line);

// `line` holds a signature's text without a traceback before it: the lines before it stand for its frames.
Incident read_text(const Knowledge& knowledge, const Surroundings& around, const Span& line);

}  // namespace regather::repro
