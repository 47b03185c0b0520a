// SPDX-License-Identifier: Apache-2.0
// project_state.cpp: the git state of the user's folder, from `git status`.
#include "experiments/run_folder/project_state.h"

#include <sstream>
#include <utility>
#include <vector>

#include "experiments/launchers/outside_program.h"

namespace convscope {
namespace {

constexpr double kMaxSeconds = 2;

// Returns the output of git; none when it fails.
std::optional<std::string> git(const std::string& folder, std::vector<std::string> words) {
  if (find_program("git").empty()) return std::nullopt;
  words.insert(words.begin(),
               {"git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", folder});
  OutsideAnswer answer = ask_program(words, "", "", kMaxSeconds);
  if (answer.exit_code != 0) return std::nullopt;
  return std::move(answer.out);
}

}  // namespace

std::optional<ProjectState> project_state(const std::string& folder) {
  std::optional<std::string> top = git(folder, {"rev-parse", "--show-toplevel"});
  if (!top || top->empty()) return std::nullopt;
  if (top->back() == '\n') top->pop_back();
  const auto status = git(folder, {"status", "--porcelain=v2", "--branch", "--untracked-files=no"});
  if (!status) return std::nullopt;
  ProjectState state{.path = *top, .branch = "", .commit = ""};
  std::istringstream lines(*status);
  for (std::string line; std::getline(lines, line);) {
    const auto value_of = [&](const std::string& key, std::string& into) {
      if (line.starts_with(key)) into = line.substr(key.size());
    };
    value_of("# branch.oid ", state.commit);
    value_of("# branch.head ", state.branch);
    if (!line.starts_with('#')) state.dirty = true;
  }
  return state;
}

}  // namespace convscope
