#include "matrix/runner/ranks.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace regather::matrix {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<Ranks> ranks(const Variables& variables) {
  return ranks_of_launcher([&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

std::string refusal(const Variables& variables) {
  try {
    ranks(variables);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(Ranks, OfTorchrun) {
  const Variables torchrun{{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}};
  EXPECT_EQ(ranks(torchrun), (Ranks{3, 8, "node7", 29500, "regather//", false}));
  Variables elastic = torchrun;
  elastic["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  elastic["TORCHELASTIC_RUN_ID"] = "job";
  elastic["TORCHELASTIC_RESTART_COUNT"] = "2";
  EXPECT_EQ(ranks(elastic), (Ranks{3, 8, "node7", 29500, "regather/job/2", true}));
}

TEST(Ranks, OfSlurm) {
  const Variables srun{{"SLURM_PROCID", "1"},
                       {"SLURM_NTASKS", "4"},
                       {"SLURM_STEP_NODELIST", "gpu[07-09,12]"},
                       {"SLURM_JOB_ID", "123456"},
                       {"SLURM_STEP_ID", "0"}};
  const auto one = ranks(srun);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->host, "gpu07");
  EXPECT_GE(one->port, 20000);
  Variables other = srun;
  other["SLURM_PROCID"] = "3";
  EXPECT_EQ(ranks(other)->port, one->port) << "every rank derives the same";
  other["SLURM_JOB_ID"] = "123457";
  EXPECT_NE(ranks(other)->port, one->port);
  other["MASTER_ADDR"] = "10.0.0.1";
  other["MASTER_PORT"] = "4242";
  EXPECT_EQ(ranks(other)->host, "10.0.0.1");
  EXPECT_EQ(ranks(other)->port, 4242);
  // A shell inside an allocation is no step of it.
  other.erase("SLURM_STEP_ID");
  EXPECT_FALSE(ranks(other));
}

TEST(Ranks, OfOpenMpi) {
  Variables mpi{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                {"PMIX_NAMESPACE", "1234"},    {"SLURM_PROCID", "0"},         {"SLURM_STEP_ID", "0"}};
  EXPECT_EQ(ranks(mpi)->host, "127.0.0.1");
  EXPECT_EQ(ranks(mpi)->size, 4);
  mpi["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_NE(refusal(mpi).find("MASTER_ADDR is not set"), std::string::npos);
  mpi["MASTER_ADDR"] = "head";
  EXPECT_EQ(ranks(mpi)->host, "head");
}

TEST(Ranks, OneProcessIsNoLaunch) {
  EXPECT_FALSE(ranks({}));
  EXPECT_FALSE(ranks({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "x"}, {"MASTER_PORT", "1"}}));
}

TEST(Ranks, WhatDoesNotFitIsNamed) {
  const Variables whole{{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}};
  for (const auto& [name, value] : Variables{{"RANK", "8"},
                                             {"RANK", "-1"},
                                             {"WORLD_SIZE", "x"},
                                             {"MASTER_PORT", "0"},
                                             {"MASTER_PORT", "70000"},
                                             {"WORLD_SIZE", "99999999999"}}) {
    Variables broken = whole;
    broken[name] = value;
    EXPECT_NE(refusal(broken).find(name + "='" + value + "'"), std::string::npos) << refusal(broken);
  }
  Variables missing = whole;
  missing.erase("MASTER_PORT");
  EXPECT_NE(refusal(missing).find("MASTER_PORT=''"), std::string::npos);
}

TEST(FirstHost, OfSlurmsShortForms) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("gpu[07-09,12],x"), "gpu07");
  EXPECT_EQ(first_host("gpu[3]"), "gpu3");
  EXPECT_EQ(first_host("a-b[1,5]"), "a-b1");
  EXPECT_EQ(first_host(""), "");
  EXPECT_EQ(first_host("gpu["), "gpu");
}

}  // namespace
}  // namespace regather::matrix
