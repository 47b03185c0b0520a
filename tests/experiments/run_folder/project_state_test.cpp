// SPDX-License-Identifier: Apache-2.0
// project_state_test.cpp: env.json names the commit of the user's own repository.
#include "experiments/run_folder/project_state.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "framework/check.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using testing::TemporaryFolder;

bool has_git() { return std::system("git --version >/dev/null 2>&1") == 0; }

void git(const std::string& folder, const std::string& words) {
  const std::string command =
      cat("git -C '", folder, "' -c user.name=a -c user.email=a@b ", words, " >/dev/null 2>&1");
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

TEST(ProjectState, OutsideOfARepositoryThereIsNone) {
  const TemporaryFolder folder;
  EXPECT_FALSE(project_state(folder.path()).has_value());
  EXPECT_FALSE(project_state(folder.path() + "/not_there").has_value());
}

TEST(ProjectState, NamesTheCommitTheBranchAndWhetherFilesHaveChanged) {
  if (!has_git()) GTEST_SKIP() << "the program git is not here";
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/a.txt";
  git(folder.path(), "init -q -b work");
  std::ofstream(file) << "one\n";
  git(folder.path(), "add a.txt");
  git(folder.path(), "commit -q -m one");
  std::filesystem::create_directory(folder.path() + "/inside");

  const auto clean = project_state(folder.path() + "/inside");
  ASSERT_TRUE(clean.has_value());
  EXPECT_TRUE(std::filesystem::equivalent(clean->path, folder.path()));
  EXPECT_EQ(clean->branch, "work");
  EXPECT_EQ(clean->commit.size(), 40u);
  EXPECT_FALSE(clean->dirty);

  std::ofstream(folder.path() + "/new.txt") << "git does not track it\n";
  EXPECT_FALSE(project_state(folder.path())->dirty);
  std::ofstream(file) << "two\n";
  EXPECT_TRUE(project_state(folder.path())->dirty);

  git(folder.path(), "commit -q -a -m two");
  const auto next = project_state(folder.path());
  EXPECT_FALSE(next->dirty);
  EXPECT_NE(next->commit, clean->commit);
}

}  // namespace
}  // namespace convscope
