// SPDX-License-Identifier: Apache-2.0
// project_state.cpp: the git state of the user's folder, from `git status`.
#include "experiments/run_folder/project_state.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <sstream>
#include <vector>

extern char** environ;

namespace convscope {
namespace {

constexpr int kMaxMs = 2000;
constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

// Reads until the end of the data, the size limit or the deadline. Returns false if the end was not
// reached.
bool read_all(int from, std::string& into) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kMaxMs);
  std::array<char, 4096> piece;
  while (into.size() < kMaxBytes) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                          deadline - std::chrono::steady_clock::now())
                          .count();
    pollfd ready{.fd = from, .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) return false;
    const ssize_t got = read(from, piece.data(), piece.size());
    if (got <= 0) return got == 0;
    into.append(piece.data(), static_cast<std::size_t>(got));
  }
  return false;
}

// Returns the output of git; none when it fails.
std::optional<std::string> git(const std::string& folder, std::vector<std::string> words) {
  words.insert(words.begin(),
               {"git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", folder});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, "git", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string out;
  const bool whole = failed == 0 && read_all(ends[0], out);
  close(ends[0]);
  if (failed != 0) return std::nullopt;
  if (!whole) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  if (!whole || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return out;
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
