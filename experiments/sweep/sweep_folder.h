// SPDX-License-Identifier: Apache-2.0
// sweep_folder.h: the folder of a sweep, runs/<name>:
//   sweep.yaml         the sweep with what it extends: `convscope sweep` runs it again
//   sweep.state.json   each member's state, run folder and error, as of the last change
//   sweep.csv sweep.md the table
//   <row>/s<seed>.yaml, .log                the resolved config of a member, and what it said
//   <row>/<UTC time>-s<seed>/               its run folder
#pragma once

#include <string>
#include <vector>

#include "experiments/config/sweep_block.h"
#include "experiments/sweep/sweep_table.h"

namespace convscope {

class CONVSCOPE_API SweepFolder {
 public:
  // Makes the folder where there is none; an error when another process works on it.
  SweepFolder(std::string path, const SweepPlan& plan, const std::vector<std::string>& overrides);
  ~SweepFolder();
  SweepFolder(const SweepFolder&) = delete;
  SweepFolder& operator=(const SweepFolder&) = delete;

  const std::string& path() const { return path_; }
  // Writes the config of a member; returns the path without ".yaml".
  std::string prepare(const SweepMember& member) const;
  // The number of members side by side that an earlier call noted for a member; 1 when none did.
  int jobs_before(const SweepMember& member) const;
  // State file and table.
  void write(const std::string& state, const SweepPlan& plan,
             const std::vector<SweepOutcome>& outcomes) const;

 private:
  std::string path_;
  std::vector<std::pair<std::string, int>> jobs_;  // "row seed 1" -> jobs
  int lock_ = -1;
};

}  // namespace convscope
