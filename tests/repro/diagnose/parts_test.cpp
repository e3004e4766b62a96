// The parts that reading a log is made of: literals, lines, metadata, sources of bytes.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "program.h"
#include "repro/diagnose/line.h"
#include "repro/diagnose/log_source.h"
#include "repro/diagnose/needles.h"
#include "repro/diagnose/recompute.h"

namespace regather::repro {
namespace {

using namespace std::string_literals;

TEST(Needles, FindWhatASlowSearchFinds) {
  const std::vector<std::string> literals{"abcde", "bcdea", "aaaaaa", "needle in", "edle i"};
  const Needles needles(literals);
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    while (text.size() < 400) {
      text += random() % 4 == 0 ? literals[random() % literals.size()] : std::string(1, "abcden il"[random() % 9]);
    }
    std::vector<std::pair<size_t, size_t>> wanted;
    std::vector<std::pair<size_t, size_t>> got;
    for (size_t at = 0; at < text.size(); ++at) {
      for (size_t i = 0; i < literals.size(); ++i) {
        if (text.compare(at, literals[i].size(), literals[i]) == 0) wanted.emplace_back(at, i);
      }
    }
    std::vector<size_t> found;
    for (size_t at = needles.find(text, 0, found); at != std::string::npos; at = needles.find(text, at + 1, found)) {
      std::ranges::sort(found);
      for (const size_t i : found) got.emplace_back(at, i);
    }
    EXPECT_EQ(got, wanted) << text;
  }
}

TEST(Needles, TakeLettersInEitherCase) {
  std::vector<size_t> found;
  EXPECT_EQ(Needles({"watchdog caught"}).find("xx WATCHDOG Caught", 0, found), 3U);
  EXPECT_EQ(Needles({"watchdog caught"}).find("watchdog caugh", 0, found), std::string::npos);
  EXPECT_THROW(Needles({"four"}), Error);
}

CleanLine clean(std::string_view line) { return clean_line(line); }

TEST(Line, TellsWhoWroteIt) {
  EXPECT_EQ(clean("[rank1]: ValueError: x").source, "[rank1]:");
  EXPECT_EQ(clean("[rank1]: ValueError: x").text, "ValueError: x");
  EXPECT_EQ(clean("[rank1]:   File \"a.py\"").text, "  File \"a.py\"") << "indentation tells frames";
  EXPECT_EQ(clean("[default0]:  File").text, " File");
  EXPECT_EQ(clean("\x1b[36m(RayWorker pid=4001, ip=10.0.0.1)\x1b[0m OSError").source,
            "(RayWorker pid=4001, ip=10.0.0.1)");
  EXPECT_EQ(clean("3: KeyError: 0").source, "3:");
  EXPECT_EQ(clean("worker-0: KeyError: 0").text, "KeyError: 0");
  EXPECT_EQ(clean("[1,3]<stderr>:KeyError: 0").source, "[1,3]<stderr>:");
  EXPECT_EQ(clean("trainer-1  | KeyError: 0").text, "KeyError: 0");
  EXPECT_EQ(clean("2026-11-30T03:12:44.123456Z   File").text, "  File") << "a time stamp says nothing of who writes";
  EXPECT_EQ(clean("2026-11-30T03:12:44Z stderr F KeyError: 0").text, "KeyError: 0");
  EXPECT_EQ(clean("[2026-11-30 03:12:44,123] [rank0]: KeyError: 0").source, "[rank0]:");
  EXPECT_EQ(clean(R"({"log":"a \"b\"\n","stream":"stderr","time":"2026"})").text, R"(a "b")");
  EXPECT_EQ(clean("RuntimeError: x").source, "");
}

TEST(Line, BarsColoursAndBrokenBytesGo) {
  EXPECT_EQ(clean("  4%|▏ | 2/50 [00:02<08:11,  1.02it/s][rank0]: Traceback").source, "[rank0]:");
  EXPECT_EQ(clean("1:   0%|   | 0/50 [00:00<?, ?it/s]Traceback").source, "1:") << "the rank is no bar's caption";
  EXPECT_EQ(clean("Map: 100%|###| 5/5 [00:01<00:00, 1.2it/s]KeyError").text, "KeyError");
  EXPECT_EQ(clean("\x1b]0;title\a\x1b[1;31mKeyError\x1b[0m").text, "KeyError");
  EXPECT_EQ(clean("caf\xe9 \xc3\xa9 \xed\xa0\x80").text, "caf? \xc3\xa9 ???");
  EXPECT_EQ(clean("a\0b\x01"s).text, "ab");
  EXPECT_EQ(clean(std::string(100'000, 'x')).text.size(), kLongestLine);
}

TEST(Recompute, ComparesWhatTheCheckpointPrints) {
  const auto full = [](const std::string& saved, const std::string& again) {
    return compare_metadata(
        "CheckpointError: Recomputed values for the following tensors have different metadata\n"
        "tensor at position 4:\nsaved metadata: {'shape': torch.Size(" +
        saved +
        "), 'dtype': "
        "torch.bfloat16, 'device': device(type='cuda', index=0)}\n"
        "recomputed metadata: {'shape': torch.Size(" +
        again + "), 'dtype': torch.bfloat16}");
  };
  EXPECT_EQ(full("[1024]", "[0]"), Recomputed::zero);
  EXPECT_EQ(full("[1, 1, 2048]", "[0]"), Recomputed::zero);
  EXPECT_EQ(full("[0]", "[0]"), Recomputed::other);
  EXPECT_EQ(full("[2, 1024, 28]", "[2, 2048, 28]"), Recomputed::doubled);
  EXPECT_EQ(full("[18187, 16]", "[18201, 16]"), Recomputed::near);
  EXPECT_EQ(full("[4, 512]", "[4, 377]"), Recomputed::other);
  EXPECT_EQ(full("[2, 4]", "[4, 8]"), Recomputed::other) << "two sizes";
  EXPECT_EQ(full("[4096]", "[1, 1, 4096, 128]"), Recomputed::order);
  EXPECT_EQ(compare_metadata("saved torch.Size([4096]) recomputed torch.Size([0])"), Recomputed::zero);
  EXPECT_EQ(compare_metadata("([4096] -> [0])"), Recomputed::zero);
  EXPECT_EQ(compare_metadata("row_id_map [18187,16] -> [18201,16]"), Recomputed::near);
  EXPECT_EQ(compare_metadata("saved dtype torch.bfloat16 recomputed dtype torch.float32"), Recomputed::dtype);
  EXPECT_EQ(compare_metadata("Recomputed values for the following tensors have different metadata"),
            Recomputed::absent);
  EXPECT_EQ(compare_metadata("saved metadata: {'shape': torch.Size([9999999999999999999999])}"), Recomputed::absent);
  EXPECT_EQ(parse_recomputed("zero"), Recomputed::zero);
  EXPECT_THROW(parse_recomputed("unasked"), UsageError);
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string read_all(LogSource& source) {
  std::string text;
  char part[777];
  while (const size_t got = source.read(part, sizeof(part))) text.append(part, got);
  return text;
}

std::string read_written(const std::string& bytes, bool* damaged = nullptr) {
  const TemporaryFolder folder;
  const std::string path = folder / "log";
  replace_file(path, bytes);
  LogSource source(path);
  std::string text = read_all(source);
  if (damaged != nullptr) *damaged = source.damaged();
  return text;
}

TEST(LogSource, ReadsTextAndGzip) {
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += "line " + std::to_string(i) + "\n";
  bool damaged = true;
  EXPECT_EQ(read_written(text), text);
  EXPECT_EQ(read_written(""), "");
  EXPECT_EQ(read_written("x"), "x");
  EXPECT_EQ(read_written(gzip(text), &damaged), text);
  EXPECT_FALSE(damaged);
  EXPECT_EQ(read_written(gzip("a\n") + gzip("b\n") + std::string(512, '\0'), &damaged), "a\nb\n");
  EXPECT_FALSE(damaged);
}

TEST(LogSource, ACutStreamEndsThereAndIsToldOf) {
  const std::string text(100'000, 'x');
  bool damaged = false;
  std::string cut = gzip(text);
  cut.resize(cut.size() / 2);
  EXPECT_TRUE(text.starts_with(read_written(cut, &damaged)));
  EXPECT_TRUE(damaged);
  std::string broken = gzip("one\n") + "\x1f\x8b\x08 no stream";
  EXPECT_EQ(read_written(broken, &damaged), "one\n");
  EXPECT_TRUE(damaged);
}

TEST(LogSource, SaysWhyAFileCannotBeRead) {
  try {
    LogSource source("/nowhere/x.log");
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(), "log '/nowhere/x.log': No such file or directory");
  }
  EXPECT_THROW(LogSource("/"), UsageError) << "a folder";
}

}  // namespace
}  // namespace regather::repro
