#include <fmt/format.h>

#include "base/error.h"
#include "repro/check/tree.h"

namespace regather::check {
namespace {

// nlohmann's parser is not recursive; the builder bounds what it makes.
class Handler : public nlohmann::json_sax<Json> {
 public:
  explicit Handler(const std::string& file) : tree(file), file_(file) {}

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(int64_t value) override { return scalar(value); }
  bool number_unsigned(uint64_t value) override { return scalar(value); }
  bool number_float(double value, const std::string&) override { return scalar(value); }
  bool string(std::string& value) override { return scalar(value); }
  bool binary(Json::binary_t&) override { return scalar(nullptr); }
  bool start_object(size_t) override { return tree.open_map(), true; }
  bool end_object() override { return tree.close(), true; }
  bool start_array(size_t) override { return tree.open_list(), true; }
  bool end_array() override { return tree.close(), true; }
  bool key(std::string& name) override { return tree.key(name), true; }
  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    throw UsageError(fmt::format("'{}' is no JSON at byte {}: {}", file_, position, in_quotes(error.what())));
  }

  TreeBuilder tree;

 private:
  bool scalar(Json value) { return tree.value(std::move(value)), true; }
  const std::string& file_;
};

}  // namespace

Tree parse_json(const std::string& file, std::string_view text) {
  Handler handler(file);
  Json::sax_parse(text.begin(), text.end(), &handler);
  return handler.tree.finish();
}

}  // namespace regather::check
