// SPDX-License-Identifier: Apache-2.0
// member_process.cpp: a child process of this program that trains one member of a sweep.
#include "experiments/sweep/member_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>
#include <string_view>

#include "experiments/run_folder/files/own_file.h"
#include "framework/check.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace {

int open_file(const std::string& path, int flags) {
  const int file = open_own(path, flags);
  if (file < 0) {
    fail(ErrorKind::kIo, "sweep",
         cat("expected to open ", path, " for a member, got: ", std::strerror(errno)));
  }
  return file;
}

// Runs in the child between fork and exec, so it may use system calls only.
[[noreturn]] void become(char** argv, char** environment, int nothing, int log, int lock,
                         pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // the parent died before the line above
  setpgid(0, 0);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  if (lock >= 0) fcntl(lock, F_SETFD, 0);  // it stays open
  execve("/proc/self/exe", argv, environment);
  _exit(127);
}

// Returns whether a variable describes a process of an MPI, PMI or Slurm group.
bool is_of_a_group(std::string_view name) {
  constexpr std::string_view kBeginnings[] = {"OMPI_", "PMIX_",  "PMI_", "PRTE_",  "ORTE_", "MPI_",
                                              "HYDI_", "HYDRA_", "MV2_", "SLURM_", "I_MPI_"};
  constexpr std::string_view kNames[] = {"MPIRUN_RANK",    "RANK",        "WORLD_SIZE",
                                         "LOCAL_RANK",     "MASTER_ADDR", "MASTER_PORT",
                                         "CONVSCOPE_ALONE"};
  return std::ranges::any_of(kBeginnings, [&](auto word) { return name.starts_with(word); }) ||
         std::ranges::find(kNames, name) != std::end(kNames);
}

}  // namespace

std::vector<std::string> member_words(const std::string& folder, const SweepMember& member,
                                      const std::string& run, std::int64_t threads) {
  std::vector<std::string> words = {"run"};
  if (run.empty()) {
    const std::string config = cat(folder, "/", member.row, "/s", member.config.seed, ".yaml");
    words.insert(words.end(), {config, "-o", folder});
  } else {
    words.insert(words.end(), {"--resume", run});
  }
  words.insert(words.end(), {"--threads", std::to_string(threads), "--color", "never"});
  return words;
}

std::vector<std::string> member_environment() {
  std::vector<std::string> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!is_of_a_group(text.substr(0, text.find('=')))) out.emplace_back(text);
  }
  out.emplace_back("CONVSCOPE_ALONE=1");
  return out;
}

MemberProcess::MemberProcess(const std::vector<std::string>& arguments, std::string log, int lock)
    : StartedProcess(std::move(log)) {
  std::string name = "convscope";
  std::vector<std::string> words = arguments;
  std::vector<char*> argv = {name.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> surroundings = member_environment();
  std::vector<char*> environment;
  for (std::string& entry : surroundings) environment.push_back(entry.data());
  environment.push_back(nullptr);
  const int nothing = open_file("/dev/null", O_RDWR);
  const int file = open_file(log_, O_WRONLY | O_CREAT | O_TRUNC);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become(argv.data(), environment.data(), nothing, file, lock, parent);
  const int error = errno;
  close(nothing);
  close(file);
  if (pid_ < 0) {
    fail(ErrorKind::kRun, "sweep",
         cat("expected to start a process for a member, got: ", std::strerror(error)));
  }
  setpgid(pid_, pid_);  // parent and child both call this
}

std::string MemberProcess::failure() const {
  if (exit_code_ == 0) return "";
  if (by_signal_) {
    const int signal = exit_code_ - 128;
    return cat("ended by signal ", signal, " (", strsignal(signal), ")");
  }
  std::istringstream log(text_if_there(log_).value_or(""));
  std::string last;
  for (std::string line; std::getline(log, line);) {
    const std::size_t error = line.find("error: ");
    if (error != std::string::npos) last = line.substr(error == 0 ? std::strlen("error: ") : 0);
  }
  return last.empty() ? cat("ended with exit code ", exit_code_) : last;
}

}  // namespace convscope
