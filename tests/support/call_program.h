// SPDX-License-Identifier: Apache-2.0
// call_program.h: the program `convscope`, called once with arguments of the shell.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/temporary_folder.h"

namespace convscope::testing {

struct ProgramAnswer {
  int code = -1;
  std::string out, err;
};

inline ProgramAnswer call_program(const std::string& arguments) {
  const TemporaryFolder folder;
  const std::string command = CONVSCOPE_BINARY_DIR "/bin/convscope " + arguments + " >" +
                              (folder / "out") + " 2>" + (folder / "err") + " </dev/null";
  const int status = std::system(command.c_str());
  const auto read = [](const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(folder / "out"), read(folder / "err")};
}

}  // namespace convscope::testing
