// SPDX-License-Identifier: Apache-2.0
// rank_order.h: what process 0 tells the others of its group before they train: what they need of
// files that it alone has read. So the others need no file of the run: neither its folder nor the
// config need lie where they can see them.
#pragma once

#include <cstdint>
#include <string>

#include "experiments/run_folder/run_folder.h"
#include "framework/distributed/process_group.h"

namespace convscope {

struct RankOrder {
  bool trains = false;  // false: there is nothing to do, such as --dry-run
  std::string config;   // resolved YAML
  std::string choices;  // choices.json: ceilings and what `measure` answered
  bool resumes = false;
  std::int64_t epochs_limit = 0;
};

// Process 0 gives its order, all others get it.
CONVSCOPE_API RankOrder share_order(ProcessGroup& group, const RankOrder& order);

// A file of process 0, whole: written to `to` in the other processes. `from` "": there is none,
// and false comes back everywhere.
CONVSCOPE_API bool share_file(ProcessGroup& group, const std::string& from, const std::string& to);

// A folder of its own for a process that writes no run folder: what it would write lands there, and
// goes with the object.
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
