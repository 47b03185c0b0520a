// SPDX-License-Identifier: Apache-2.0
// called.h: the program, or any command line, called as from a shell: exit code, stdout and stderr.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/temporary_folder.h"

namespace convscope::testing {

struct Called {
  int code = -1;
  std::string out, err;
};

inline std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// In `folder`; "": where the test runs.
inline Called call_shell(const std::string& line, const std::string& folder = "") {
  const TemporaryFolder results;
  const std::string command = (folder.empty() ? "" : "cd '" + folder + "' && ") + "{ " + line +
                              "\n} >" + (results / "out") + " 2>" + (results / "err") +
                              " </dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(results / "out"),
          text_of(results / "err")};
}

inline Called call_program(const std::string& arguments, const std::string& folder = "") {
  return call_shell(CONVSCOPE_BINARY_DIR "/bin/convscope " + arguments, folder);
}

}  // namespace convscope::testing
