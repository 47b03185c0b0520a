// SPDX-License-Identifier: Apache-2.0
// slurm_calls.h: calls of Slurm's programs: sbatch, squeue, scancel, scontrol.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/launchers/outside_program.h"

namespace convscope {

// Runs a program of Slurm. If the program is missing, throws an Error of kind kUnavailable that
// says what to install.
CONVSCOPE_API OutsideAnswer ask_slurm(const std::vector<std::string>& words,
                                      const std::string& folder = "");

// Throws the same error early, before anything is begun.
CONVSCOPE_API void ask_for_slurm(const std::string& program);

// Returns "RUNNING", "COMPLETING", ...; "" when Slurm does not know the job, or does not answer.
CONVSCOPE_API std::string slurm_state_of(const std::string& job);

struct SlurmTask {
  std::string state;   // "PENDING"
  std::string reason;  // why it is not running: "Resources", "BeginTime"
  std::string node;
};
// Returns the unfinished tasks of an array by number; an empty map: the array has ended. Returns
// nothing when Slurm does not answer.
CONVSCOPE_API std::optional<std::map<std::size_t, SlurmTask>> slurm_tasks(const std::string& job);
// Parses the output of squeue: "3|PENDING|Resources|".
CONVSCOPE_API std::map<std::size_t, SlurmTask> parse_slurm_tasks(const std::string& text);

// Returns how the tasks of an array ended, while Slurm remembers it: "COMPLETED", "NODE_FAIL", ...
CONVSCOPE_API std::map<std::size_t, std::string> slurm_ends(const std::string& job);

// Returns the array that works on the sweep in this folder, "" for none. If the command was killed
// before it noted the array, finds the array by its name and the folder that it was submitted from.
// Throws when Slurm does not answer.
CONVSCOPE_API std::string slurm_job_in(const std::string& folder, const std::string& sweep);

// Submits the script from the folder; returns the number of the array.
CONVSCOPE_API std::string submit_to_slurm(const std::string& folder, const std::string& script);
CONVSCOPE_API void cancel_in_slurm(const std::string& job);

// sweep.slurm.json in the folder: the last submitted array, and whether it was cancelled.
struct SlurmNote {
  std::string job;  // number of the array; "" if none was submitted
  bool cancelled = false;
};
CONVSCOPE_API SlurmNote read_slurm_note(const std::string& folder);
CONVSCOPE_API void write_slurm_note(const std::string& folder, const SlurmNote& note);

}  // namespace convscope
