#include "repro/check/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/embedded.h"
#include "base/error.h"
#include "base/file.h"
#include "matrix/judge/json_list.h"
#include "matrix/judge/load.h"

namespace regather {
const std::vector<EmbeddedFile>& embedded_recordings();
}

namespace regather::check {
namespace {

using Json = nlohmann::json;

// In the order in which they are set aside: what matters least first.
constexpr std::array kSetAside{"world", "accumulate", "persistence", "dtype", "head"};

Cell cell_of(const CaseResult& result) {
  Cell cell;
  cell.which = result.which;
  cell.outcome = result.outcome;
  if (result.signature) {
    cell.mechanism = result.signature->mechanism;
    cell.phase = name(result.signature->phase);
    cell.type = result.signature->type;
    cell.text = result.signature->text.substr(0, result.signature->text.find('\n'));
  }
  if (result.gradients) {
    cell.relative_l2 = result.gradients->relative_l2;
    cell.tolerance = result.gradients->tolerance;
    cell.missing = result.gradients->missing;
  }
  return cell;
}

std::string value_of(const Case& c, std::string_view axis) {
  for (const AxisValue& v : axis_values(c)) {
    if (v.axis == axis) return v.value;
  }
  return {};
}

std::string string_of(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
}

// A line of a recording, of which only what is answered with is read: all of it would take a tenth of a second.
Cell cell_of(const Json& line) {
  Cell cell;
  cell.which = parse_id(line.at("id").get<std::string>());
  cell.outcome = parse_outcome(line.at("outcome").get<std::string>());
  if (const Json& s = line.at("signature"); s.is_object()) {
    cell.mechanism = string_of(s, "mechanism");
    cell.phase = string_of(s, "phase");
    cell.type = string_of(s, "type");
    cell.text = string_of(s, "text");
  }
  if (const Json& g = line.at("gradients"); g.is_object()) {
    const auto number = [&](const char* key) { return g.at(key).is_number() ? g.at(key).get<double>() : 0; };
    cell.relative_l2 = number("relative_l2");
    cell.tolerance = number("tolerance");
    cell.missing = static_cast<int>(number("missing"));
  }
  return cell;
}

Measured measured_by(std::string_view text) {
  Measured measured;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const Json json = Json::parse(line);
    if (json.contains("recording")) {
      measured.name = fmt::format("recording '{}'", json.at("set").get<std::string>());
      json.at("packages").get_to(measured.packages);
    } else {
      measured.cells.emplace(json.at("id").get<std::string>(), cell_of(json));
    }
  }
  return measured;
}

// Outside the wrapper's forward a backend does other things: what was measured there says nothing of inside.
bool runs_inside(const Case& c) { return c.call == Call::engine || c.has("redirect") || c.has("forward_method"); }

// How many pairs of cells like this one differ in this axis alone, with these two values; nullopt where one of them
// changed outcome or mechanism.
std::optional<size_t> pairs(const std::vector<Measured>& all, const Case& like, std::string_view axis,
                            const std::string& asked, const std::string& other) {
  size_t count = 0;
  for (const Measured& measured : all) {
    for (const auto& [name, cell] : measured.cells) {
      if (cell.which.backend != like.backend || runs_inside(cell.which) != runs_inside(like)) continue;
      if (value_of(cell.which, axis) != asked) continue;
      Case twin = cell.which;
      set_axis(twin, axis, other);
      const auto at = measured.cells.find(id(twin));
      if (at == measured.cells.end()) continue;
      if (at->second.outcome != cell.outcome || at->second.mechanism != cell.mechanism) return std::nullopt;
      ++count;
    }
  }
  return count;
}

// World sizes above two are of one kind: what was measured between two of them speaks for all.
std::optional<size_t> world_pairs(const std::vector<Measured>& all, const Case& like) {
  size_t count = 0;
  for (const auto& [a, b] : {std::pair{"4", "2"}, std::pair{"8", "2"}, std::pair{"8", "4"}}) {
    const auto some = pairs(all, like, "world", a, b);
    if (!some) return std::nullopt;
    count += *some;
  }
  return count;
}

std::optional<Difference> difference(const std::vector<Measured>& all, const Case& asked, const Case& other,
                                     const std::string& axis) {
  Difference d{axis, value_of(asked, axis), value_of(other, axis), 0};
  const bool many = axis == "world" && asked.world > 1 && other.world > 1;
  const auto count = many ? world_pairs(all, asked) : pairs(all, asked, axis, d.asked, d.measured);
  if (!count || *count == 0) return std::nullopt;
  d.pairs = *count;
  return d;
}

// Every value that an axis may be set aside for.
std::vector<std::string> values_of(std::string_view axis) {
  for (const Axis& a : axes()) {
    if (a.name == axis) return a.values;
  }
  return {};
}

// The cells that differ from `asked` in these axes, the fewest first.
void search(const Measured& measured, const Case& asked, size_t from, Case at, std::vector<std::string> changed,
            std::vector<std::pair<std::vector<std::string>, const Cell*>>& found) {
  if (const auto cell = measured.cells.find(id(at)); cell != measured.cells.end() && !illegal(at)) {
    found.emplace_back(changed, &cell->second);
  }
  for (size_t i = from; i < kSetAside.size(); ++i) {
    for (const std::string& value : values_of(kSetAside[i])) {
      if (value == value_of(asked, kSetAside[i])) continue;
      Case next = at;
      set_axis(next, kSetAside[i], value);
      std::vector<std::string> more = changed;
      more.emplace_back(kSetAside[i]);
      search(measured, asked, i + 1, next, std::move(more), found);
    }
  }
}

}  // namespace

const char* deciding_package(Backend backend) {
  const bool zero = backend == Backend::zero1 || backend == Backend::zero2 || backend == Backend::zero3;
  return zero ? "deepspeed" : "torch";
}

std::vector<Measured> measured_by_recordings() {
  std::vector<Measured> list;
  for (const EmbeddedFile& file : embedded_recordings()) {
    Measured one = measured_by(file.text);
    const auto at = std::ranges::find(list, one.name, &Measured::name);
    if (at == list.end()) {
      list.push_back(std::move(one));
    } else {
      at->cells.merge(one.cells);
    }
  }
  return list;
}

Measured measured_by_document(const std::string& path) {
  Measured measured;
  measured.name = path;
  for (const matrix::PastCase& c : matrix::load_document(path).cases) {
    const Outcome outcome = c.result.outcome;
    if (outcome == Outcome::unsupported || outcome == Outcome::notrun || outcome == Outcome::unchecked) continue;
    measured.cells.emplace(id(c.result.which), cell_of(c.result));
  }
  return measured;
}

std::optional<Found> find_cell(const Measured& measured, const Case& c, const std::vector<Measured>& all) {
  if (const auto at = measured.cells.find(id(c)); at != measured.cells.end()) return Found{&measured, &at->second, {}};
  std::vector<std::pair<std::vector<std::string>, const Cell*>> found;
  search(measured, c, 0, c, {}, found);
  std::ranges::stable_sort(found, {}, [](const auto& entry) { return entry.first.size(); });
  for (const auto& [changed, cell] : found) {
    Found near{&measured, cell, {}};
    for (const std::string& axis : changed) {
      if (auto d = difference(all, c, cell->which, axis)) near.differences.push_back(std::move(*d));
    }
    if (near.differences.size() == changed.size()) return near;
  }
  return std::nullopt;
}

}  // namespace regather::check
