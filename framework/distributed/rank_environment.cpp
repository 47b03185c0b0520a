// SPDX-License-Identifier: Apache-2.0
// rank_environment.cpp: detects whether this process is one of several that were started together.
#include "framework/distributed/rank_environment.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "framework/check.h"

namespace convscope {
namespace {

using Get = std::function<const char*(const char*)>;

// Returns -1 when it is not set.
int number_of(const Get& get, const char* name) {
  const char* const text = get(name);
  if (text == nullptr || text[0] == '\0') return -1;
  int out = -1;
  const char* const end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, out);
  if (error != std::errc() || at != end || out < 0 || out > (1 << 24)) {
    fail(ErrorKind::kInvalid, "ranks",
         cat("expected a number in ", name, ", as the launcher sets it, got '", text, "'"));
  }
  return out;
}

int first_of(const Get& get, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const int value = number_of(get, name);
    if (value >= 0) return value;
  }
  return -1;
}

// Slurm lists the number of tasks per host: "4", "2(x3),1". Returns the largest of these numbers.
int tasks_on_a_host(const Get& get) {
  const char* const text = get("SLURM_STEP_TASKS_PER_NODE");
  return text == nullptr ? -1 : std::atoi(text);
}

}  // namespace

std::optional<RankEnvironment> rank_environment(const Get& given) {
  const Get get = given ? given : [](const char* name) { return std::getenv(name); };
  const char* const alone = get("CONVSCOPE_ALONE");
  if (alone != nullptr && alone[0] != '\0' && std::strcmp(alone, "0") != 0) return std::nullopt;
  RankEnvironment out;
  if (number_of(get, "OMPI_COMM_WORLD_SIZE") >= 0) {
    out.launcher = out.mpi = "Open MPI";
    out.size = number_of(get, "OMPI_COMM_WORLD_SIZE");
    out.rank = number_of(get, "OMPI_COMM_WORLD_RANK");
    out.local_rank = number_of(get, "OMPI_COMM_WORLD_LOCAL_RANK");
    out.local_size = number_of(get, "OMPI_COMM_WORLD_LOCAL_SIZE");
  } else if (get("SLURM_STEP_ID") != nullptr && number_of(get, "SLURM_STEP_NUM_TASKS") >= 0) {
    // srun has started this process in a job step. A process that a batch script starts without
    // srun has some of these variables, too, but its step has at most one task.
    out.launcher = "Slurm";
    out.mpi = get("PMIX_RANK") != nullptr ? "Open MPI" : get("PMI_FD") != nullptr ? "MPICH" : "";
    out.size = number_of(get, "SLURM_STEP_NUM_TASKS");
    out.rank = number_of(get, "SLURM_PROCID");
    out.local_rank = number_of(get, "SLURM_LOCALID");
    out.local_size = tasks_on_a_host(get);
  } else if (number_of(get, "PMI_SIZE") >= 0) {
    out.launcher = out.mpi = "MPICH";
    out.size = number_of(get, "PMI_SIZE");
    out.rank = number_of(get, "PMI_RANK");
    out.local_rank = first_of(get, {"MPI_LOCALRANKID"});
    out.local_size = first_of(get, {"MPI_LOCALNRANKS"});
  } else {
    return std::nullopt;
  }
  if (out.size <= 1) return std::nullopt;
  if (out.rank < 0 || out.rank >= out.size) {
    fail(ErrorKind::kInvalid, "ranks",
         cat("expected a rank from 0 to ", out.size - 1, " from ", out.launcher, ", got ",
             out.rank));
  }
  if (out.local_size < 1) out.local_size = 1;
  if (out.local_rank < 0) out.local_rank = 0;
  return out;
}

}  // namespace convscope
