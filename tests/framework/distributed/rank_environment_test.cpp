// SPDX-License-Identifier: Apache-2.0
// rank_environment_test.cpp: the rank of this process, from the variables of launchers.
#include "framework/distributed/rank_environment.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "framework/check.h"

namespace convscope {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<RankEnvironment> read(const Variables& variables) {
  return rank_environment([&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};

TEST(RankEnvironment, NobodyElse) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}));
  // A Slurm batch script is not a step of srun.
  EXPECT_FALSE(read({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "17"}}));
}

TEST(RankEnvironment, OpenMpi) {
  const auto found = read(kOpenMpi);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->size, 4);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->local_size, 2);
  EXPECT_EQ(found->mpi, "Open MPI");
}

TEST(RankEnvironment, Mpich) {
  const auto found = read(
      {{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->local_size, 2);
  EXPECT_EQ(found->mpi, "MPICH");
}

TEST(RankEnvironment, Srun) {
  Variables variables = {{"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NUM_TASKS", "6"},
                         {"SLURM_PROCID", "5"},
                         {"SLURM_LOCALID", "2"},
                         {"SLURM_STEP_TASKS_PER_NODE", "3(x2)"}};
  const auto found = read(variables);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->size, 6);
  EXPECT_EQ(found->local_rank, 2);
  EXPECT_EQ(found->local_size, 3);
  EXPECT_EQ(found->launcher, "Slurm");
  variables["PMIX_RANK"] = "5";
  EXPECT_EQ(read(variables)->mpi, "Open MPI");
}

TEST(RankEnvironment, AloneWhenToldSo) {
  Variables variables = kOpenMpi;
  variables["CONVSCOPE_ALONE"] = "1";
  EXPECT_FALSE(read(variables));
  variables["CONVSCOPE_ALONE"] = "0";
  EXPECT_TRUE(read(variables));
}

TEST(RankEnvironment, ContradictionsAreNamed) {
  Variables variables = kOpenMpi;
  variables["OMPI_COMM_WORLD_RANK"] = "4";
  EXPECT_THROW(read(variables), Error);
  variables["OMPI_COMM_WORLD_RANK"] = "three";
  try {
    read(variables);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("OMPI_COMM_WORLD_RANK"), std::string::npos);
  }
}

}  // namespace
}  // namespace convscope
