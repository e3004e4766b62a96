// From a log's text to an answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "repro/diagnose/conclude.h"
#include "repro/diagnose/report.h"
#include "repro/diagnose/scan.h"
#include "repro/register.h"

namespace regather::repro {
namespace {

using Json = nlohmann::json;

// Reads in parts of odd sizes, so that lines fall on their borders.
struct Read {
  explicit Read(std::string text, const std::string& config = "") : scanner(knowledge()), log(std::move(text)) {
    if (!config.empty()) scanner.scan_config("config", config);
    size_t at = 0;
    scanner.scan("log", [&](char* to, size_t size) {
      const size_t count = std::min({size, log.size() - at, size_t{4093}});
      std::memcpy(to, log.data() + at, count);
      at += count;
      return count;
    });
    diagnosis = conclude(knowledge(), known_entries(), scanner.findings());
  }
  const Findings& findings() { return scanner.findings(); }
  const Candidate& best() { return diagnosis.candidates.at(0); }
  std::string best_id() { return diagnosis.unknown ? "unknown" : best().entry->id; }

  Scanner scanner;
  std::string log;
  Diagnosis diagnosis;
};

const std::string kHead = "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    main()\n";
const std::string kDpo =
    "  File \"/x/site-packages/trl/trainer/dpo_trainer.py\", line 9, in f\n    self.liger_loss(\n"
    "  File \"/x/site-packages/liger_kernel/chunked_loss/dpo_loss.py\", line 9, in forward\n    a @ b\n";
const std::string kZero3 = "  zero_stage: 3\n";
const std::string kSize = "RuntimeError: size mismatch, got input (22), mat (22x2048), vec (0)\n";

TEST(Diagnose, NamesIssueMechanismEvidenceAndVersions) {
  Read read("pad\n" + kZero3 + "trl==1.6.0\n" + kHead + kDpo + kSize);
  ASSERT_FALSE(read.diagnosis.unknown);
  EXPECT_EQ(read.best_id(), "trl#4544");
  EXPECT_EQ(read.best().sign->mechanism, "head_read_partitioned");
  EXPECT_GE(read.best().confidence, 0.85);
  EXPECT_EQ(read.best().evidence[0].line, 11U);
  EXPECT_EQ(read.best().evidence[0].text, kSize.substr(0, kSize.size() - 1));
  ASSERT_EQ(read.best().versions.size(), 1U);
  EXPECT_TRUE(read.best().versions[0].affected);
  EXPECT_EQ(read.best().versions[0].seen->version, "1.6.0");
  const std::string text = print(knowledge(), read.diagnosis);
  for (const char* part : {"trl#4544: DPO with Liger", "almost certain (0.95), mechanism head_read_partitioned",
                           "log:11  RuntimeError", "log:2  zero_stage: 3", "1.6.0 is one of them",
                           "(price: ", "zero3/dpo/fix=none", "regather repro 'trl#4544'"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  const auto json = to_json(knowledge(), read.diagnosis, read.findings());
  EXPECT_EQ(json["unknown"], false);
  EXPECT_EQ(json["candidates"][0]["id"], "trl#4544");
  EXPECT_EQ(json["candidates"][0]["evidence"][0]["line"], 11);
  EXPECT_EQ(json["candidates"][0]["versions"][0]["is_affected"], true);
}

TEST(Diagnose, ReleasesThatDoNotHaveTheBugSpeakAgainstIt) {
  Read affected("trl==1.6.0\n" + kZero3 + kHead + kDpo + kSize);
  Read later("trl==1.16.0\n" + kZero3 + kHead + kDpo + kSize);
  const auto of = [](const Read& read) {
    for (const Candidate& c : read.diagnosis.candidates) {
      if (c.entry->id == "trl#4544") return c.confidence;
    }
    return -1.0;
  };
  EXPECT_LT(of(later), of(affected));
  EXPECT_NE(print(knowledge(), later.diagnosis).find("1.16.0 is none of them"), std::string::npos);
}

TEST(Diagnose, AConfigSaysWhatTheLogDoesNot) {
  const std::string log = kHead + "  File \"loss.py\", line 1, in f\n    w @ x\n" + kSize;
  EXPECT_EQ(Read(log).best_id(), "unknown") << "an empty vector of one's own";
  EXPECT_NE(Read(log, R"({"zero_optimization": {"stage": 3}})").best_id(), "unknown");
}

TEST(Diagnose, TheDiscriminatorsOfARecompute) {
  const auto log = [](const std::string& context, const std::string& saved, const std::string& again,
                      const std::string& dtype = "torch.bfloat16") {
    return context + kHead +
           "  File \"/x/torch/utils/checkpoint.py\", line 9, in unpack_hook\n    check()\n"
           "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values for the following "
           "tensors "
           "have different metadata than during the forward pass.\ntensor at position 4:\nsaved metadata: {'shape': "
           "torch.Size(" +
           saved + "), 'dtype': torch.bfloat16}\nrecomputed metadata: {'shape': torch.Size(" + again +
           "), 'dtype': " + dtype + "}\n";
  };
  const auto mechanism = [&](const std::string& text) {
    Read read(text);
    return read.diagnosis.unknown ? "unknown" : read.best().sign->mechanism;
  };
  EXPECT_EQ(mechanism(log(kZero3, "[1024]", "[0]")), "recompute_freed_frozen");
  EXPECT_EQ(mechanism(log("use_cache=True\n", "[1, 171, 8]", "[1, 342, 8]")), "recompute_changed");
  EXPECT_EQ(mechanism(log("num_experts: 8\n", "[18187, 16]", "[18201, 16]")), "recompute_changed");
  EXPECT_EQ(mechanism(log("fsdp_version: 2\n", "[8, 8]", "[8, 8]", "torch.float32")), "recompute_dtype");
  EXPECT_EQ(mechanism(log("", "[8, 512]", "[8, 377]")), "unknown") << "a random crop";
}

TEST(Diagnose, ZeroIsZero3AndAnotherVectorAFlatShard) {
  const std::string fsdp = "  fsdp_version: 1\n";
  EXPECT_EQ(Read(fsdp + kHead + kDpo + "RuntimeError: size mismatch, got input (2), mat (2x4096), vec (65667072)\n")
                .best_id(),
            "liger#332");
  EXPECT_EQ(Read(fsdp + kHead + "RuntimeError: size mismatch, got input (2), mat (2x4096), vec (4095)\n").best_id(),
            "unknown")
      << "no multiple of the columns";
}

TEST(Diagnose, TheFirstCauseNotTheLastSymptom) {
  const std::string watchdog =
      "[rank1]:[E1130 03:12:41.1 ProcessGroupNCCL.cpp:685] [Rank 1] Watchdog caught collective operation timeout: "
      "WorkNCCL(SeqNum=3, OpType=_ALLGATHER_BASE)\n";
  EXPECT_EQ(Read(kZero3 + watchdog + kHead + kDpo + kSize).best_id(), "trl#4544") << "a symptom may be written first";
  Read memory(kZero3 + kHead + "torch.OutOfMemoryError: CUDA out of memory.\n" + kHead + kDpo + kSize);
  EXPECT_TRUE(memory.diagnosis.unknown);
  EXPECT_NE(memory.diagnosis.first->message.find("OutOfMemory"), std::string::npos);
  EXPECT_FALSE(memory.diagnosis.candidates.empty()) << "still named as possible";
  Read handled(kZero3 +
               "[rank0]: " + "Traceback (most recent call last):\n[rank0]:   File \"a.py\"\n[rank0]: OSError: x\n" +
               "[rank0]: {'loss': 1.0}\n" + kZero3 +
               "[rank0]: Traceback (most recent call last):\n[rank0]:   File "
               "\"/x/deepspeed/runtime/zero/stage3.py\"\n[rank0]: " +
               kSize);
  EXPECT_FALSE(handled.diagnosis.unknown) << "the run went on after the first one";
}

TEST(Diagnose, AWrappedErrorIsStillThatError) {
  EXPECT_EQ(Read(kZero3 + kHead + kDpo +
                 "torch._dynamo.exc.TorchRuntimeError: Dynamo failed to run FX node with fake tensors: got "
                 "RuntimeError('size mismatch, got input (22), mat (22x2048), vec (0)')\n\nfrom user code:\n")
                .best_id(),
            "trl#4544");
}

TEST(Diagnose, NothingKnownSaysWhatToCollect) {
  Read empty("");
  EXPECT_TRUE(empty.diagnosis.unknown);
  EXPECT_EQ(empty.diagnosis.first, nullptr);
  EXPECT_FALSE(empty.diagnosis.collect.empty());
  Read other(kHead + "ImportError: cannot import name 'x'\n");
  EXPECT_TRUE(other.diagnosis.unknown);
  EXPECT_NE(print(knowledge(), other.diagnosis).find("no known cause; the first error is log:4  ImportError"),
            std::string::npos);
  Read cut(kHead);
  EXPECT_TRUE(cut.diagnosis.first->truncated);
  EXPECT_NE(cut.diagnosis.notes[0].find("ends inside"), std::string::npos);
  Read symptom("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n");
  EXPECT_NE(symptom.diagnosis.notes[0].find("only what follows a failure"), std::string::npos);
}

TEST(Scan, InterleavedRanksAreToldApart) {
  const auto of = [](int rank, const std::string& text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      out += "[rank" + std::to_string(rank) + "]: " + text.substr(at, end - at) + "\n";
      at = end + 1;
    }
    return out;
  };
  const std::string a = of(0, kHead + kDpo + kSize);
  const std::string b = of(1, kHead + "ValueError: x\n");
  std::string mixed = kZero3;
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size()) {
      const size_t end = a.find('\n', i) + 1;
      mixed += a.substr(i, end - i);
      i = end;
    }
    if (j < b.size()) {
      const size_t end = b.find('\n', j) + 1;
      mixed += b.substr(j, end - j);
      j = end;
    }
  }
  Read read(mixed);
  ASSERT_EQ(read.findings().incidents.size(), 2U);
  EXPECT_EQ(read.findings().incidents[0].source, "[rank0]:");
  EXPECT_EQ(read.findings().incidents[0].type, "RuntimeError");
  EXPECT_EQ(read.findings().incidents[1].type, "ValueError");
}

TEST(Scan, LinesAreCountedAcrossBlocksAndLongLines) {
  std::string log = kZero3;
  for (int i = 0; i < 60'000; ++i) log += "{'loss': 1.25, 'grad_norm': 0.5, 'epoch': 0.01}\n";
  log += std::string(3 << 20, 'x') + "\n" + kHead + kDpo + kSize + "\n\n";
  Read read(log);
  EXPECT_EQ(read.best_id(), "trl#4544");
  EXPECT_EQ(read.best().evidence[0].line, 1U + 60'000 + 1 + 3 + 4 + 1);
  EXPECT_EQ(read.findings().lines, 60'000U + 12);
  EXPECT_EQ(read.findings().bytes, log.size());
}

TEST(Scan, ATextInsideAnEndlessLineIsFound) {
  Read read(kZero3 + std::string(2 << 20, 'y') + kSize.substr(0, kSize.size() - 1) + std::string(2 << 20, 'z'));
  ASSERT_FALSE(read.findings().incidents.empty());
  EXPECT_EQ(read.findings().incidents[0].at.line, 2U);
}

TEST(Scan, ABarWithoutALineEndStandsBeforeTheTraceback) {
  Read read(kZero3 +
            "[default0]:  0%| | 0/9 [00:00<?, ?it/s]\r 1%| | 1/9 [00:01<?, 1it/s]Traceback (most recent call last):\n"
            "[default0]:  File \"/x/trl/trainer/kto_trainer.py\"\n[default0]:" +
            kSize);
  EXPECT_EQ(read.findings().incidents.at(0).type, "RuntimeError");
  EXPECT_EQ(read.findings().incidents.at(0).source, "[default0]:");
}

TEST(Scan, RepeatsAreCountedNotKept) {
  std::string log = kZero3;
  for (int i = 0; i < 5000; ++i) log += kHead + "ValueError: again\n";
  Read read(log);
  ASSERT_EQ(read.findings().incidents.size(), 1U);
  EXPECT_GT(read.findings().incidents[0].repeats, 1000U);
}

TEST(Scan, ReadsVersionsInTheFormsThatToolsPrint) {
  Read read(
      "torch==2.11.0+cu128\n- `transformers` version: 5.24.0\ndeepspeed info ................... 0.19.2, unknown\n"
      "trl                1.6.0\nSuccessfully installed accelerate-1.15.0 liger_kernel-0.8.5 trl-1.7.0\n"
      "- PEFT version: 0.19.1\n  File \"/x/site-packages/diffusers-0.17.0.dist-info/x\"\nlibtorch==9\n");
  std::map<std::string, std::string> seen;
  for (const SeenVersion& v : read.findings().versions) seen[v.package] += v.version + " ";
  const std::map<std::string, std::string> wanted{
      {"torch", "2.11.0+cu128 "}, {"transformers", "5.24.0 "}, {"deepspeed", "0.19.2 "}, {"trl", "1.6.0 1.7.0 "},
      {"accelerate", "1.15.0 "},  {"liger-kernel", "0.8.5 "},  {"peft", "0.19.1 "},      {"diffusers", "0.17.0 "}};
  EXPECT_EQ(seen, wanted);
}

std::string error_of(const Json& json) {
  try {
    parse_knowledge(json.dump());
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Knowledge, NamesWhatIsAtFault) {
  const Json good = Json::parse(R"re({"schema":1,"mechanisms":{"race":"Two. Sentences."},
    "contexts":[{"name":"one","what":"a thing","match":"some words"}],"versions":[{"match":"(torch)==([0-9.]+)"}],
    "advice":[{"when":["one"],"collect":"it"}],
    "signatures":[{"name":"s","kind":"error","mechanism":"race","match":"some error","near":[["one"]],
                   "confidence":0.9,"alone":0.1,"bare":0}]})re");
  EXPECT_EQ(error_of(good), "no error");
  const auto with = [&](const std::string& pointer, const Json& value) {
    Json json = good;
    json[Json::json_pointer(pointer)] = value;
    return error_of(json);
  };
  EXPECT_NE(with("/contexts/0/match", "a.b").find("can match without any literal of 5 bytes"), std::string::npos);
  EXPECT_NE(with("/contexts/0/match", "some words|x").find("can match without any literal"), std::string::npos);
  EXPECT_NE(with("/contexts/0/match", "(some").find("is no regular expression"), std::string::npos);
  EXPECT_NE(with("/versions/0/match", "torch==").find("expected 2 groups"), std::string::npos);
  EXPECT_NE(with("/signatures/0/mechanism", "magic").find("'magic' is not a mechanism"), std::string::npos);
  EXPECT_NE(with("/signatures/0/mechanism", "offload").find("'mechanisms' lacks offload"), std::string::npos);
  EXPECT_NE(with("/signatures/0/near", {{"two"}}).find("'two' is not a context"), std::string::npos);
  EXPECT_NE(with("/signatures/0/near", "one").find("expected a list of lists of contexts"), std::string::npos);
  EXPECT_NE(with("/signatures/0/confidence", 2).find("expected a number from 0 to 1"), std::string::npos);
  EXPECT_NE(with("/signatures/0/kind", "odd").find("expected error, warning or symptom"), std::string::npos);
  EXPECT_NE(with("/signatures/0/recompute", "odd").find("is no way in which metadata differ"), std::string::npos);
  EXPECT_NE(with("/extra", 1).find("'extra' is not a member"), std::string::npos);
}

TEST(Knowledge, EveryTextOfTheRegisterLeadsSomewhere) {
  for (const Entry& entry : known_entries()) {
    for (const LogSign& log : entry.logs) EXPECT_NE(knowledge().find_sign(log.signature), nullptr) << entry.id;
  }
  for (const Sign& sign : knowledge().signs) {
    if (sign.mechanism.empty()) continue;
    const bool used = std::ranges::any_of(known_entries(), [&](const Entry& entry) {
      return std::ranges::find(entry.logs, sign.name, &LogSign::signature) != entry.logs.end();
    });
    EXPECT_TRUE(used) << sign.name << " leads to no issue";
  }
}

}  // namespace
}  // namespace regather::repro
