// SPDX-License-Identifier: Apache-2.0
// slurm_script.h: the script that Slurm runs for each member of a sweep.
#pragma once

#include <string>
#include <vector>

#include "experiments/config/slurm/slurm_settings.h"

namespace convscope {

struct SlurmScript {
  std::string name;                // of the sweep
  std::string folder;              // of the sweep
  std::string start_folder;        // where the command was called: data.root may be relative to it
  std::string program;             // this one, as the nodes see it
  std::vector<std::size_t> queue;  // the members: task I trains member I
  SlurmSettings settings = {};
  std::vector<std::string> plugins = {};  // of the command line
  std::string call = {};  // of sweep.members.json: tasks of another one refuse to work
};

// Folders and names stand in it quoted for the shell, and in no line of #SBATCH: it is submitted
// from the folder of the sweep.
CONVSCOPE_API std::string slurm_script(const SlurmScript& script);

// Any text as one word of a shell.
CONVSCOPE_API std::string shell_word(const std::string& text);
// {0, 1, 2, 5} as "0-2,5"
CONVSCOPE_API std::string array_text(const std::vector<std::size_t>& numbers);
// "convscope-" and the name in letters that Slurm shows as they are.
CONVSCOPE_API std::string slurm_job_name(const std::string& sweep);
// So many seconds before its time limit a member is asked to stop.
CONVSCOPE_API long notice_seconds(const SlurmSettings& settings);

}  // namespace convscope
