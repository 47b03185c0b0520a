// SPDX-License-Identifier: Apache-2.0
// launcher.cpp: selects the program that starts the processes of a training, and its arguments.
#include "experiments/launchers/launcher.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "experiments/launchers/outside_program.h"
#include "framework/check.h"

namespace convscope {
namespace {

constexpr const char* kName = "launch";

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

LauncherKind kind_of_mpirun(const std::string& version_text) {
  if (version_text.find("Open MPI") != std::string::npos ||
      version_text.find("OpenRTE") != std::string::npos) {
    return LauncherKind::open_mpi;
  }
  if (version_text.find("HYDRA") != std::string::npos ||
      version_text.find("Intel(R) MPI") != std::string::npos) {
    return LauncherKind::mpich;
  }
  fail(ErrorKind::kUnavailable, kName,
       cat("expected mpirun of Open MPI or MPICH, got one that says '",
           version_text.substr(0, version_text.find('\n')), "' to --version"));
}

Launcher find_launcher(const std::string& wanted) {
  std::vector<std::string> names = {"mpirun", "mpiexec"};
  if (!wanted.empty()) {
    names = {wanted};
  } else if (std::getenv("SLURM_JOB_ID") != nullptr && !find_program("srun").empty()) {
    names = {"srun"};
  }
  std::string tried;
  for (const std::string& name : names) {
    const std::string program = find_program(name);
    if (program.empty()) {
      tried += cat(tried.empty() ? "" : ", ", name);
      continue;
    }
    if (base_name(program) == "srun") return {LauncherKind::srun, program};
    const OutsideAnswer version = ask_program({program, "--version"}, "", "");
    return {kind_of_mpirun(version.out + version.err), program};
  }
  fail(ErrorKind::kUnavailable, kName,
       cat("expected a program that starts processes, got none of ", tried,
           " in PATH; Debian and Ubuntu have mpirun in the package openmpi-bin"));
}

std::vector<std::string> launcher_words(const Launcher& launcher, const LaunchRequest& request) {
  std::vector<std::string> out = {launcher.program};
  if (request.processes > 0) {
    out.insert(out.end(), {"-n", std::to_string(request.processes)});
  }
  const auto add = [&](std::initializer_list<const char*> words) {
    out.insert(out.end(), words.begin(), words.end());
  };
  switch (launcher.kind) {
    case LauncherKind::open_mpi:
      // --bind-to none: without this option each process would be bound to one core.
      // --oversubscribe allows more processes than slots (by default one slot per core). With more
      // processes than slots, Open MPI would yield the core whenever it polls, and other programs
      // would keep the core. mpi_yield_when_idle 0 prevents this. ProcessGroup itself sleeps while
      // it waits
      // (framework/distributed/process_group.cpp).
      add({"--bind-to", "none", "--oversubscribe", "--mca", "mpi_yield_when_idle", "0"});
      if (!request.hosts.empty()) {
        add({"--hostfile", request.hosts.c_str()});
      } else if (find_program("ssh").empty() && find_program("rsh").empty()) {
        add({"--mca", "plm", "isolated"});  // else it requires ssh, even for this host
      }
      break;
    case LauncherKind::mpich:
      if (!request.hosts.empty()) add({"-f", request.hosts.c_str()});
      break;
    case LauncherKind::srun:
      if (!request.hosts.empty()) {
        fail(ErrorKind::kInvalid, kName,
             "expected no --hosts inside a Slurm job, because Slurm has chosen the hosts");
      }
      add({"--kill-on-bad-exit=1"});
      break;
  }
  out.insert(out.end(), request.command.begin(), request.command.end());
  return out;
}

void let_root_launch() {
  if (geteuid() != 0) return;
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
}

// ---- the launcher's output ----

void LauncherOutput::line(const std::string& text) {
  const bool is_rule = text.size() >= 40 && text.find_first_not_of("-=") == std::string::npos;
  if (is_rule && text[0] == '=') {  // MPICH prints its messages between two such lines
    in_mpich_news_ = !in_mpich_news_;
    return;
  }
  if (in_mpich_news_) {
    is_news_of_an_end(text);
    return;
  }
  if (is_rule) {  // so does Open MPI
    in_block_ = !in_block_;
    if (in_block_) return;
    bool news = false;
    for (const std::string& one : block_) news = is_news_of_an_end(one) || news;
    if (!news) {
      for (const std::string& one : block_) print_(one);
    }
    block_.clear();
    return;
  }
  if (in_block_) return block_.push_back(text);
  if (!is_news_of_an_end(text)) print_(text);
}

void LauncherOutput::finish() {
  for (const std::string& one : block_) {
    if (!is_news_of_an_end(one)) print_(one);
  }
  block_.clear();
}

// Returns whether the text is only the launcher's report that a process has ended.
bool LauncherOutput::is_news_of_an_end(const std::string& text) {
  int rank = 0, signal = 0, pid = 0;
  char host[256] = {}, name[128] = {};
  // Open MPI: "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9
  // (Killed)."
  const std::size_t at = text.find("noticed that process rank ");
  if (at != std::string::npos &&
      std::sscanf(text.c_str() + at,
                  "noticed that process rank %d with PID %d on node %255s exited on signal %d "
                  "(%127[^)])",
                  &rank, &pid, host, &signal, name) == 5) {
    killed_ = cat("process ", rank, ", host ", std::string(host), ", was ended by signal ", signal,
                  " (", std::string(name), ")");
    return true;
  }
  // Slurm: "srun: error: node1: task 1: Killed"
  if (std::sscanf(text.c_str(), "srun: error: %255[^:]: task %d: %127[^\n]", host, &rank, name) ==
      3) {
    const std::string how = name;
    if (how.find("Exited with exit code") == std::string::npos) {
      killed_ = cat("process ", rank, ", host ", std::string(host), ", was ended: ", how);
    }
    return true;
  }
  // MPICH: "=   EXIT CODE: 9" and "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal
  // 9)"; the process is named by its pid and host.
  const std::size_t string_at = text.find("EXIT STRING: ");
  if (string_at != std::string::npos) {
    killed_ = cat("a process was ended: ", text.substr(string_at + 13));
    return true;
  }
  for (const char* const known : {"Primary job  terminated normally",
                                  "job to be terminated",
                                  "a non-zero exit code. Per user-direction",
                                  "detected that one or more processes exited",
                                  "thus causing",
                                  "Process name:",
                                  "Exit code:",
                                  "MPI_ABORT was invoked",
                                  "mpirun: Forwarding signal ",
                                  "with errorcode ",
                                  "NOTE: invoking MPI_ABORT",
                                  "You may or may not see output",
                                  "exactly when Open MPI kills",
                                  "exiting improperly",
                                  "without calling \"finalize\"",
                                  "application being terminated",
                                  "srun: error: ",
                                  "srun: Terminating StepId",
                                  "srun: Job step aborted",
                                  "srun: Force Term",
                                  "slurmstepd: error: ***",
                                  "This typically refers to a problem with your application",
                                  "Please see the FAQ page for debugging suggestions",
                                  "[mpiexec@",
                                  "application called "
                                  "MPI_Abort",
                                  "more processes have sent help message",
                                  "orte_base_help_aggregate",
                                  "ORTE_ERROR_LOG"}) {
    if (text.find(known) != std::string::npos) return true;
  }
  return text.empty() && in_block_;
}

}  // namespace convscope
