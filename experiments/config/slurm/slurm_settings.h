// SPDX-License-Identifier: Apache-2.0
// slurm_settings.h: what Slurm is asked for when it trains a sweep. In a config:
//
//   sweep:
//     slurm: {partition: gpu, time: 2:00:00, mem: 8G, gpus: 1, cpus: 4, at_once: 20}
//
// and on the command line, where each key beats that of the config:
//
//   convscope sweep CONFIG --launcher slurm --slurm time=30,at_once=4
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/export.h"

namespace convscope {

// A key of the block. What is valid for it is safe in a shell and in a line of #SBATCH, too.
struct SlurmKey {
  std::string name;
  std::string doc;
  std::string expected;  // "minutes, hours:minutes:seconds or ..."
  bool (*fits)(const std::string& value);
};
CONVSCOPE_API const std::vector<SlurmKey>& slurm_keys();

struct SlurmSettings {
  std::vector<std::pair<std::string, std::string>> values;  // in the order of slurm_keys()

  // "" when it was not given.
  CONVSCOPE_API std::string of(const std::string& key) const;
  // What is wrong with it, as the end of a sentence; "" when it was taken.
  CONVSCOPE_API std::string set(const std::string& key, const std::string& value);
  // Those of `other` beat those here.
  CONVSCOPE_API void take(const SlurmSettings& other);
};

// "partition=gpu,time=30": throws Error of kind kInvalid.
CONVSCOPE_API SlurmSettings parse_slurm_settings(const std::vector<std::string>& texts);

// Seconds of a time limit in one of Slurm's forms; -1: it is none.
CONVSCOPE_API long seconds_of_slurm_time(const std::string& text);

}  // namespace convscope
