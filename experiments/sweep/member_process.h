// SPDX-License-Identifier: Apache-2.0
// member_process.h: this program once more, as a child process that trains one member of a sweep. A
// crash or a leak of one member does not touch the others.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

class CONVSCOPE_API MemberProcess {
 public:
  // Starts the program with these arguments. What it prints on stderr goes to the file `log`, its
  // table is dropped. It has its own process group, so a Ctrl-C of the terminal does not reach it
  // directly; it is asked to stop (SIGTERM) when this process dies, however that happens.
  MemberProcess(const std::vector<std::string>& arguments, std::string log);
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
