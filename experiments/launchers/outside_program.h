// SPDX-License-Identifier: Apache-2.0
// outside_program.h: programs of others, such as sbatch and mpirun, as child processes. Their words
// are passed as they are: no shell reads them.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// The path of a program in $PATH, or of one that is named by its path; "" when there is none.
CONVSCOPE_API std::string find_program(const std::string& name);

// Throws an Error of kind kUnavailable when it is not there: `missing` says what to install.
CONVSCOPE_API std::string need_program(const std::string& name, const std::string& missing);

struct OutsideAnswer {
  int exit_code = 0;  // 128 + signal when one ended it
  std::string out, err;
  // The last line of stderr, else of stdout, without control characters.
  CONVSCOPE_API std::string last_words() const;
};

// Runs it in `folder` ("": this one) and waits; after `seconds` it is ended, with exit code 124.
CONVSCOPE_API OutsideAnswer ask_program(const std::vector<std::string>& words,
                                        const std::string& folder, const std::string& missing,
                                        double seconds = 60);

// One that works while this program goes on. What it says goes to the file `log`. It has its own
// process group, and is asked to stop (SIGTERM) when this process dies.
class CONVSCOPE_API OutsideProcess {
 public:
  OutsideProcess(const std::vector<std::string>& words, std::string log);
  ~OutsideProcess();  // ends it, when it still runs
  OutsideProcess(const OutsideProcess&) = delete;
  OutsideProcess& operator=(const OutsideProcess&) = delete;

  bool running();  // does not wait
  void send(int signal);
  int exit_code() const { return exit_code_; }
  std::string last_words() const;  // the last line of the log that has letters

 private:
  std::string log_;
  int pid_ = -1;  // -1 after the end
  int exit_code_ = -1;
};

}  // namespace convscope
