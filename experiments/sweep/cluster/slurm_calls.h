// SPDX-License-Identifier: Apache-2.0
// slurm_calls.h: what is asked of Slurm, by its own programs: sbatch, squeue, scancel, scontrol.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/launchers/outside_program.h"

namespace convscope {

// Throws an Error of kind kUnavailable that says what to install when the program is not there.
CONVSCOPE_API OutsideAnswer ask_slurm(const std::vector<std::string>& words,
                                      const std::string& folder = "");

// The same error, before anything is begun.
CONVSCOPE_API void ask_for_slurm(const std::string& program);

// "RUNNING", "COMPLETING", ...; "" when Slurm does not know the job, or does not answer.
CONVSCOPE_API std::string slurm_state_of(const std::string& job);

struct SlurmTask {
  std::string state;   // "PENDING"
  std::string reason;  // why it is not running: "Resources", "BeginTime"
  std::string node;
};
// The tasks of an array that are not at their end, by number; none: it has ended. Nothing when
// Slurm does not answer now.
CONVSCOPE_API std::optional<std::map<std::size_t, SlurmTask>> slurm_tasks(const std::string& job);
// The same from what squeue prints: "3|PENDING|Resources|".
CONVSCOPE_API std::map<std::size_t, SlurmTask> parse_slurm_tasks(const std::string& text);

// How the tasks of an array ended, as long as Slurm remembers it: "COMPLETED", "NODE_FAIL", ...
CONVSCOPE_API std::map<std::size_t, std::string> slurm_ends(const std::string& job);

// The array that works on the sweep in this folder: the one that was noted, or, when the command
// was killed before it could note it, the one of this name that was submitted from there. "": none.
// Throws when Slurm does not answer.
CONVSCOPE_API std::string slurm_job_in(const std::string& folder, const std::string& sweep);

// Submits the script from the folder; returns the number of the array.
CONVSCOPE_API std::string submit_to_slurm(const std::string& folder, const std::string& script);
CONVSCOPE_API void cancel_in_slurm(const std::string& job);

// sweep.slurm.json in the folder: the array that was submitted last, and whether it was cancelled.
struct SlurmNote {
  std::string job;  // "": none
  bool cancelled = false;
};
CONVSCOPE_API SlurmNote read_slurm_note(const std::string& folder);
CONVSCOPE_API void write_slurm_note(const std::string& folder, const SlurmNote& note);

}  // namespace convscope
