// SPDX-License-Identifier: Apache-2.0
// terminal_test.cpp: tests that `convscope report` fits a terminal of 80 columns, and prints the
// complete table into a pipe.
#include <pty.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "experiments/report/text_table.h"
#include "tests/experiments/program.h"
#include "tests/experiments/report/run_folders.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {
namespace {

// Returns the program's output on a terminal of this width, or "" where the system has no
// terminals.
std::string on_terminal(std::vector<std::string> words, unsigned short columns) {
  winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1, side = -1;
  if (openpty(&terminal, &side, nullptr, nullptr, &size) != 0) return "";
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, side, 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  EXPECT_EQ(posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(side);
  std::string out;
  char text[4096];
  for (ssize_t got = 0; (got = read(terminal, text, sizeof text)) > 0;) {
    out.append(text, static_cast<std::size_t>(got));
  }
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::erase(out, '\r');
  return out;
}

TEST(Terminal, holds_every_line_of_the_table_in_80_columns) {
  const TemporaryFolder root;
  for (int seed = 1; seed <= 2; ++seed) write_run(root.path(), {.seed = seed});
  const std::string text = on_terminal({kProgram, "report", root.path()}, 80);
  if (text.empty()) GTEST_SKIP() << "openpty() gave no terminal";
  std::istringstream lines(text);
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("|")) continue;
    ++rows;
    EXPECT_LE(shown_width(line), 80u) << line;
  }
  EXPECT_EQ(rows, 4) << text;
  for (const char* name : {"| acc ", "| avg_forward ", "avg_backward ", "avg_backward_mem "}) {
    EXPECT_NE(text.find(name), std::string::npos) << name << "\n" << text;
  }
  EXPECT_NE(text.find("\nall rows: name lenet, batch_size 64"), std::string::npos) << text;
  // Requested columns are shown, however wide they are.
  const std::string asked = on_terminal({kProgram, "report", root.path(), "--columns", "all"}, 80);
  EXPECT_NE(asked.find("| avg_backward_mem "), std::string::npos) << asked;
  EXPECT_EQ(asked.find("all rows:"), std::string::npos) << asked;
  const std::string added =
      on_terminal({kProgram, "report", root.path(), "--columns", "+data.batch_size"}, 80);
  EXPECT_NE(added.find("| data.batch_size "), std::string::npos) << added;
}

}  // namespace
}  // namespace convscope::testing
