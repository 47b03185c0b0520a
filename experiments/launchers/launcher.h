// SPDX-License-Identifier: Apache-2.0
// launcher.h: which program starts the processes of a training or the workers of a sweep, and with
// which words: mpirun of Open MPI or MPICH, or srun inside a Slurm job.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

enum class LauncherKind { open_mpi, mpich, srun };

struct Launcher {
  LauncherKind kind = LauncherKind::open_mpi;
  std::string program;  // its path
};

struct LaunchRequest {
  int processes = 0;                 // 0: as many as the launcher takes by itself
  std::string hosts;                 // a file, one host a line; "": this host
  std::string launcher;              // "mpirun", "srun", a path; "": what is there
  std::vector<std::string> command;  // of each process: program and arguments
};

// Looks for srun inside a Slurm job (SLURM_JOB_ID), else for mpirun and mpiexec, in PATH. An error
// of kind kUnavailable names what was looked for.
CONVSCOPE_API Launcher find_launcher(const std::string& wanted);
// By what a program says of itself with --version.
CONVSCOPE_API LauncherKind kind_of_mpirun(const std::string& version_text);
CONVSCOPE_API std::vector<std::string> launcher_words(const Launcher& launcher,
                                                      const LaunchRequest& request);

// Open MPI wants to be told twice that root may start processes, in a container for example.
CONVSCOPE_API void let_root_launch();

// Takes what a launcher prints, a line at a time, and keeps what is of the processes
// themselves. What the launcher says of their end becomes one sentence.
class CONVSCOPE_API LauncherOutput {
 public:
  explicit LauncherOutput(std::function<void(const std::string&)> print)
      : print_(std::move(print)) {}
  void line(const std::string& text);
  void finish();
  // A process that was killed by a signal: "process 1, host node2, was ended by signal 9 (Killed)";
  // "" when the launcher said nothing like it.
  const std::string& killed() const { return killed_; }

 private:
  bool is_news_of_an_end(const std::string& text);
  std::function<void(const std::string&)> print_;
  std::vector<std::string> block_;  // between two lines of dashes
  bool in_block_ = false;
  bool in_mpich_news_ = false;
  std::string killed_;
};

}  // namespace convscope
