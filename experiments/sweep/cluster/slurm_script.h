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
  std::string start_folder;        // folder of the call: data.root may be relative to it
  std::string program;             // this program, with its path on the nodes
  std::vector<std::size_t> queue;  // the members: task I trains member I
  SlurmSettings settings = {};
  std::vector<std::string> plugins = {};  // from the command line
  std::string call = {};                  // from sweep.members.json; checked by the tasks
};

// Returns the script. Folders and names are quoted for the shell. They are not in #SBATCH lines,
// because the script is submitted from the folder of the sweep.
CONVSCOPE_API std::string slurm_script(const SlurmScript& script);

// Returns any text as one word of a shell.
CONVSCOPE_API std::string shell_word(const std::string& text);
// Returns "0-2,5" for {0, 1, 2, 5}.
CONVSCOPE_API std::string array_text(const std::vector<std::size_t>& numbers);
// Returns "convscope-" and the name in letters that Slurm shows unchanged.
CONVSCOPE_API std::string slurm_job_name(const std::string& sweep);
// Returns how many seconds before its time limit a member is asked to stop.
CONVSCOPE_API long notice_seconds(const SlurmSettings& settings);

}  // namespace convscope
