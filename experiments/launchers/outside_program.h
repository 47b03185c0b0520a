// SPDX-License-Identifier: Apache-2.0
// outside_program.h: runs external programs, such as sbatch and mpirun, as child processes.
// Arguments are passed unchanged: no shell reads them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Returns the path of the program `name`, which is a name in $PATH or a path; "" when there is
// none.
CONVSCOPE_API std::string find_program(const std::string& name);

// Returns the path of a program. If there is none, throws an Error of kind kUnavailable with the
// sentence `missing`, which says what to install.
CONVSCOPE_API std::string need_program(const std::string& name, const std::string& missing);

struct OutsideAnswer {
  int exit_code = 0;  // 128 + signal if a signal ended it
  std::string out, err;
  // Returns the last line of stderr, or of stdout if stderr is empty, without control characters.
  CONVSCOPE_API std::string last_words() const;
};

// Runs a program in `folder` ("": the current one) and waits for its end. After `seconds`, ends the
// program; the exit code is then 124.
CONVSCOPE_API OutsideAnswer ask_program(const std::vector<std::string>& words,
                                        const std::string& folder, const std::string& missing,
                                        double seconds = 60);

// A child process that runs in parallel with this one. It has its own process group, and gets
// SIGTERM when this process dies.
class CONVSCOPE_API StartedProcess {
 public:
  StartedProcess(const StartedProcess&) = delete;
  StartedProcess& operator=(const StartedProcess&) = delete;

  bool running();  // does not wait
  void send(int signal);
  int exit_code() const { return exit_code_; }  // 128 + signal if a signal ended it

 protected:
  explicit StartedProcess(std::string log) : log_(std::move(log)) {}
  ~StartedProcess();  // ends it if it still runs

  const std::string log_;  // path of a file with its output
  int pid_ = -1;           // -1 after the end
  int exit_code_ = -1;
  bool by_signal_ = false;
};

// A program whose output is written to the file `log`.
class CONVSCOPE_API OutsideProcess : public StartedProcess {
 public:
  OutsideProcess(const std::vector<std::string>& words, std::string log);
  std::string last_words() const;  // the last line of the log with letters
};

}  // namespace convscope
