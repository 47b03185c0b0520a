// SPDX-License-Identifier: Apache-2.0
// program.h: the program `convscope` as a separate process, for tests that stop it from outside.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <string>
#include <vector>

extern char** environ;

namespace convscope::testing {

inline const std::string kProgram = std::string(CONVSCOPE_BINARY_DIR) + "/bin/convscope";

class Program {
 public:
  // Starts the program; stdout goes to <output>.out, stderr to <output>.err.
  Program(const std::vector<std::string>& arguments, const std::string& output) {
    std::vector<char*> argv;
    for (const std::string& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, 1, (output + ".out").c_str(), kFlags, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, (output + ".err").c_str(), kFlags, 0600);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  void send(int signal) const { kill(pid_, signal); }
  // Returns the exit code, or 1000 + signal.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace convscope::testing
