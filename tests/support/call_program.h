// SPDX-License-Identifier: Apache-2.0
// call_program.h: calls the program `convscope`, or any command line, as a shell does. Returns exit
// code, stdout and stderr.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"

namespace convscope::testing {

struct Called {
  int code = -1;
  std::string out, err;
};

// Runs a command line in `folder`; "": the current folder.
inline Called call_shell(const std::string& line, const std::string& folder = "") {
  const TemporaryFolder results;
  const std::string command = (folder.empty() ? "" : "cd '" + folder + "' && ") + "{ " + line +
                              "\n} >" + (results / "out") + " 2>" + (results / "err") +
                              " </dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(results / "out"),
          text_of(results / "err")};
}

// Calls the program. `environment` has "NAME=value" words that precede the command.
inline Called call_program(const std::string& arguments, const std::string& folder = "",
                           const std::string& environment = "") {
  return call_shell(environment + " " CONVSCOPE_BINARY_DIR "/bin/convscope " + arguments, folder);
}

}  // namespace convscope::testing
