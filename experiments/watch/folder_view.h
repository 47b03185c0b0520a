// SPDX-License-Identifier: Apache-2.0
// folder_view.h: all runs of a folder, one per line: running ones first, then the newest.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "experiments/watch/run_frame.h"

namespace convscope {

class CONVSCOPE_API FolderReader {
 public:
  explicit FolderReader(std::string path) : path_(std::move(path)) {}
  void look();  // also finds new runs

  // Returns whether one of the runs, or a sweep in the folder, is still in progress.
  bool is_going() const;
  bool any_failed() const;  // whether a run that was going on at some look() failed
  std::size_t count() const { return runs_.size(); }
  std::vector<std::string> frame(const FrameLook& look) const;
  // Returns the new line of each run whose line has changed since the last call.
  std::vector<std::string> changes();

 private:
  struct Watched {
    std::unique_ptr<RunReader> reader;
    const RunView* view = nullptr;
    bool was_going = false;
    std::string line;
  };
  std::string path_;
  std::map<std::string, Watched> runs_;
};

}  // namespace convscope
