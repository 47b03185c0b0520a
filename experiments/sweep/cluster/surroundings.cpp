// SPDX-License-Identifier: Apache-2.0
// surroundings.cpp: how a worker of a sweep was started: by Slurm, by mpirun, or by hand.
#include "experiments/sweep/cluster/surroundings.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "experiments/sweep/cluster/slurm_calls.h"
#include "framework/check.h"
#include "framework/io/clean_text.h"
#include "framework/number_text.h"

namespace convscope {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : clean_line(value).substr(0, 64);
}

int number(const char* name) {
  return std::clamp(parse_number<int>(variable(name)).value_or(0), 0, 1 << 20);
}

int first_number(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (number(name) > 0) return number(name);
  }
  return 0;
}

}  // namespace

WorkerSurroundings worker_surroundings() {
  WorkerSurroundings out;
  out.call = variable("CONVSCOPE_SWEEP_CALL");
  // Open MPI; MPICH and its relatives; a step of srun.
  for (const char* rank : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    if (variable(rank).empty()) continue;
    out.task = "rank " + variable(rank);
    out.beside = std::max(1, first_number({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}));
    return out;
  }
  if (!variable("SLURM_ARRAY_TASK_ID").empty()) {
    out.task = cat("slurm ", variable("SLURM_ARRAY_JOB_ID"), "_", variable("SLURM_ARRAY_TASK_ID"));
    out.cores = first_number({"SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"});
  }
  return out;
}

bool time_is_up() {
  const std::string job = variable("SLURM_JOB_ID");
  return !job.empty() && !variable("SLURM_ARRAY_TASK_ID").empty() &&
         slurm_state_of(job) == "RUNNING";
}

std::string queue_this_task_again() {
  const OutsideAnswer answer = ask_slurm({"scontrol", "requeue", variable("SLURM_JOB_ID")});
  return answer.exit_code == 0 ? "" : answer.last_words();
}

std::string absolute_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.lexically_normal().string();
}

}  // namespace convscope
