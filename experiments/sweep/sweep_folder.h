// SPDX-License-Identifier: Apache-2.0
// sweep_folder.h: the folder of a sweep, runs/<name>:
//   sweep.yaml         the sweep with its base files: `convscope sweep` runs it again
//   sweep.members.json its members, for workers on other nodes (sweep_members.h)
//   sweep.state.json   each member's state, run folder and error, as of the last change
//   sweep.csv sweep.md the table
//   sweep.slurm.*      the script, the job and the output of an array (cluster/slurm_sweep.h)
//   <row>/s<seed>.yaml, .log                the resolved config of a member, and its messages
//   <row>/.s<seed>.claim/                   the present owner of the member (claim.h)
//   <row>/<UTC time>-s<seed>/               its run folder
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "experiments/config/sweep_block.h"
#include "experiments/sweep/claim.h"
#include "experiments/sweep/sweep_table.h"

namespace convscope {

class CONVSCOPE_API SweepFolder {
 public:
  using Say = std::function<void(const std::string&)>;
  // Creates the folder if it is missing; fails when another process works on it. If the last owner
  // was on another host and did not release the folder, waits for a sign of life of that owner and
  // says so.
  SweepFolder(std::string path, const SweepPlan& plan, const std::vector<std::string>& overrides,
              const Say& say = {});
  // Opens the folder, or returns null if another process works on the sweep. Writes nothing but the
  // claim.
  static std::unique_ptr<SweepFolder> open_if_free(const std::string& path);
  ~SweepFolder();
  SweepFolder(const SweepFolder&) = delete;
  SweepFolder& operator=(const SweepFolder&) = delete;

  const std::string& path() const { return path_; }
  // Writes the config of a member; returns the path without ".yaml".
  std::string prepare(const SweepMember& member) const;
  // Returns how many members ran at the same time when an earlier call trained this member, as
  // recorded in the state file. Returns 1 without such a record.
  int jobs_before(const SweepMember& member) const;
  // Sets the launcher ("slurm") and its job number, which write() stores in the state file.
  void set_launcher(const std::string& launcher, const std::string& job);
  // Writes state file and table. Throws when another process has taken the sweep over.
  void write(const std::string& state, const SweepPlan& plan,
             const std::vector<SweepOutcome>& outcomes) const;

 private:
  explicit SweepFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
  std::string launcher_ = "local", job_;
  std::unique_ptr<Claim> claim_;
  std::vector<std::pair<std::string, int>> jobs_;  // "row seed 1" -> jobs
  int lock_ = -1;
};

}  // namespace convscope
