// SPDX-License-Identifier: Apache-2.0
// member_process.h: a child process of this program that trains one member of a sweep. A crash or
// leak of one member does not affect the others.
#pragma once

#include <string>
#include <vector>

#include "experiments/config/sweep_block.h"
#include "experiments/launchers/outside_program.h"
#include "framework/export.h"

namespace convscope {

// Returns the arguments of `convscope` for a child process. The child trains a member of the sweep
// in `folder`; if `run` is not "", it resumes that run.
CONVSCOPE_API std::vector<std::string> member_words(const std::string& folder,
                                                    const SweepMember& member,
                                                    const std::string& run, std::int64_t threads);

// Returns "NAME=VALUE" of a member's environment: this process's environment with CONVSCOPE_ALONE=1
// and without variables of MPI, PMI and Slurm. A member is a run of one process, even if its worker
// was started by mpirun or Slurm.
CONVSCOPE_API std::vector<std::string> member_environment();

class CONVSCOPE_API MemberProcess : public StartedProcess {
 public:
  // Starts the program with these arguments. Its stderr goes to the file `log`; the table on its
  // stdout is dropped. The member has a separate process group, so a Ctrl-C of the terminal does
  // not reach it directly. The member keeps the file `lock` open, so that the claim stays taken
  // until the member has ended, even if this process is killed.
  MemberProcess(const std::vector<std::string>& arguments, std::string log, int lock = -1);
  // Returns why the member failed, from its log or its signal, after its end; "" for success.
  std::string failure() const;
};

}  // namespace convscope
