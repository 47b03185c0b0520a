// SPDX-License-Identifier: Apache-2.0
// member_process.h: this program once more, as a child process that trains one member of a sweep. A
// crash or a leak of one member does not touch the others.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "experiments/config/sweep_block.h"
#include "framework/export.h"

namespace convscope {

// The words behind `convscope` that train a member of the sweep in `folder`, or go on with `run`.
CONVSCOPE_API std::vector<std::string> member_words(const std::string& folder,
                                                    const SweepMember& member,
                                                    const std::string& run, std::int64_t threads);

// "NAME=VALUE" of all that a member sees: this process's environment without what says that it is
// one of several (variables of MPI, PMI and Slurm), and with CONVSCOPE_ALONE=1. A member is a run
// of one process, wherever its worker was started.
CONVSCOPE_API std::vector<std::string> member_environment();

class CONVSCOPE_API MemberProcess {
 public:
  // Starts the program with these arguments. What it prints on stderr goes to the file `log`, its
  // table is dropped. It has its own process group, so a Ctrl-C of the terminal does not reach it
  // directly; it is asked to stop (SIGTERM) when this process dies, however that happens. It keeps
  // the file `lock` open: when this process is killed, the claim is free once the member has ended.
  MemberProcess(const std::vector<std::string>& arguments, std::string log, int lock = -1);
  ~MemberProcess();  // ends it, when it still runs
  MemberProcess(const MemberProcess&) = delete;
  MemberProcess& operator=(const MemberProcess&) = delete;

  bool running();  // does not wait
  void send(int signal);
  // After the end: why it failed, from its log or its signal; "" when it went well.
  std::string failure() const;
  int exit_code() const { return exit_code_; }  // 128 + signal when one ended it

 private:
  std::string log_;
  pid_t pid_ = -1;  // -1 after the end
  int exit_code_ = -1;
  bool by_signal_ = false;
};

}  // namespace convscope
