// SPDX-License-Identifier: Apache-2.0
// launcher.h: selects the program that starts the processes of a training or the workers of a
// sweep, and its arguments: mpirun of Open MPI or MPICH, or srun inside a Slurm job.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

enum class LauncherKind { open_mpi, mpich, srun };

struct Launcher {
  LauncherKind kind = LauncherKind::open_mpi;
  std::string program;  // path of the launcher
};

struct LaunchRequest {
  int processes = 0;                 // 0: the launcher's default
  std::string hosts;                 // a file, one host per line; "": this host
  std::string launcher;              // "mpirun", "srun", a path; "": the first one found
  std::vector<std::string> command;  // of each process: program and arguments
};

// Looks in PATH for srun inside a Slurm job (SLURM_JOB_ID), else for mpirun and mpiexec. Throws an
// error of kind kUnavailable with the names of these programs if there is none.
CONVSCOPE_API Launcher find_launcher(const std::string& wanted);
// Returns the kind of a program from its --version output.
CONVSCOPE_API LauncherKind kind_of_mpirun(const std::string& version_text);
CONVSCOPE_API std::vector<std::string> launcher_words(const Launcher& launcher,
                                                      const LaunchRequest& request);

// Sets the two variables without which Open MPI refuses to run as root, in a container for example.
CONVSCOPE_API void let_root_launch();

// Reads the output of a launcher line by line. Keeps the lines that the processes print, and turns
// the launcher's messages about the end of a process into one sentence.
class CONVSCOPE_API LauncherOutput {
 public:
  explicit LauncherOutput(std::function<void(const std::string&)> print)
      : print_(std::move(print)) {}
  void line(const std::string& text);
  void finish();
  // Returns the process that was killed by a signal: "process 1, host node2, was ended by signal 9
  // (Killed)"; "" when the launcher reported none.
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
