// SPDX-License-Identifier: Apache-2.0
// rank_order.h: what process 0 sends to the other processes of its group before training: the
// contents of all files that only process 0 reads. So other hosts need not see the run folder and
// the config.
#pragma once

#include <cstdint>
#include <string>

#include "experiments/run_folder/run_folder.h"
#include "framework/distributed/process_group.h"

namespace convscope {

struct RankOrder {
  bool trains = false;  // false: there is nothing to do, such as --dry-run
  std::string config;   // resolved YAML
  std::string choices;  // choices.json: measured peaks and answers of `measure`
  bool resumes = false;
  std::int64_t epochs_limit = 0;
};

// Sends the order of process 0; all other processes receive it.
CONVSCOPE_API RankOrder share_order(ProcessGroup& group, const RankOrder& order);

// Copies the file `from` of process 0 to the path `to` in the other processes. If `from` is "",
// nothing is copied and all processes return false.
CONVSCOPE_API bool share_file(ProcessGroup& group, const std::string& from, const std::string& to);

// A temporary folder for a process that writes no run folder. The files of the process are in this
// folder and are removed with the object.
class CONVSCOPE_API ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace convscope
