// SPDX-License-Identifier: Apache-2.0
// call.h: one command of the program `convscope`, as a user types it.
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

// `arguments` goes through a shell, which takes quotes and redirections.
inline Called call(const std::string& arguments, const std::string& environment = "") {
  const TemporaryFolder folder;
  const std::string command = environment + " " CONVSCOPE_BINARY_DIR "/bin/convscope " + arguments +
                              " >" + (folder / "out") + " 2>" + (folder / "err") + " </dev/null";
  const int status = std::system(command.c_str());
  const auto read = [](const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(folder / "out"), read(folder / "err")};
}

}  // namespace convscope::testing
