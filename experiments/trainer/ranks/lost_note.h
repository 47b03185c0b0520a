// SPDX-License-Identifier: Apache-2.0
// lost_note.h: writes to a run's status.json that the run stopped, and why, when a process of its
// group is lost or has failed. After a loss the run can resume from its checkpoint.
#pragma once

#include "experiments/run_folder/run_folder.h"
#include "framework/distributed/process_group.h"

namespace convscope {

class LostNote {
 public:
  // Notes in the run's status that the group was lost; does nothing for a null group. The group's
  // watching thread writes the status, because the training thread may hang.
  LostNote(ProcessGroup* group, const RunFolder& folder) : group_(group) {
    if (group_ == nullptr) return;
    group_->on_lost([&folder](int exit_code, const std::string& sentence) {
      try {
        RunStatus status = read_run_status(folder.path());
        status.state = exit_code == ProcessGroup::kLostExitCode ? "INTERRUPTED" : "FAILED";
        status.reason = sentence;
        status.exit_code = exit_code;
        folder.log(sentence);
        folder.set_status(status);
      } catch (const Error&) {  // the sentence is on the terminal
      }
    });
  }
  ~LostNote() {
    if (group_ != nullptr) group_->on_lost({});
  }
  LostNote(const LostNote&) = delete;
  LostNote& operator=(const LostNote&) = delete;

 private:
  ProcessGroup* group_;
};

}  // namespace convscope
