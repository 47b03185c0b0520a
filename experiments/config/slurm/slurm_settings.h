// SPDX-License-Identifier: Apache-2.0
// slurm_settings.h: resources that a sweep requests from Slurm. In a config:
//
//   sweep:
//     slurm: {partition: gpu, time: 2:00:00, mem: 8G, gpus: 1, cpus: 4, at_once: 20}
//
// and on the command line, which replaces keys of the config:
//
//   convscope sweep CONFIG --launcher slurm --slurm time=30,at_once=4
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/export.h"

namespace convscope {

// A key of the block `slurm`. `fits` accepts only values that are safe in a shell and in an #SBATCH
// line.
struct SlurmKey {
  std::string name;
  std::string doc;
  std::string expected;  // "minutes, hours:minutes:seconds or ..."
  bool (*fits)(const std::string& value);
};
CONVSCOPE_API const std::vector<SlurmKey>& slurm_keys();

struct SlurmSettings {
  std::vector<std::pair<std::string, std::string>> values;  // in the order of slurm_keys()

  // Returns the value, or "" when it was not given.
  CONVSCOPE_API std::string of(const std::string& key) const;
  // Sets a value. Returns what is wrong with it as the end of a sentence; "" when it was accepted.
  CONVSCOPE_API std::string set(const std::string& key, const std::string& value);
  // Replaces each value that `other` has.
  CONVSCOPE_API void take(const SlurmSettings& other);
};

// Parses "partition=gpu,time=30"; throws Error of kind kInvalid.
CONVSCOPE_API SlurmSettings parse_slurm_settings(const std::vector<std::string>& texts);

// Returns the seconds of a time limit in one of Slurm's formats; -1 for any other text.
CONVSCOPE_API long seconds_of_slurm_time(const std::string& text);

}  // namespace convscope
