// SPDX-License-Identifier: Apache-2.0
// main.cpp: the program `convscope`.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "experiments/cli/cli.h"
#include "experiments/plugins/plugins.h"

// Threads of libgomp wait for work by spinning for up to about 10 ms. Where other programs want
// the cores too, a spinning thread takes the core from the one that has the work: steps of a small
// network were seen to run a hundred times slower. libgomp reads its setting while it is loaded,
// before main, so the program starts itself once more with a short spin. Whoever sets
// OMP_WAIT_POLICY or GOMP_SPINCOUNT keeps their choice.
static void restart_with_short_spin(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  setenv("GOMP_SPINCOUNT", "500", 1);
  execv("/proc/self/exe", argv);  // comes back only when there is no /proc: then all is as before
}

// A file that is opened while 0, 1 or 2 is free would take its number, and messages would go into
// it.
static void occupy_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    if (open("/dev/null", descriptor == 0 ? O_RDONLY : O_WRONLY) < 0) return;
  }
}

int main(int argc, char** argv) {
  occupy_standard_streams();
  // A file beyond `ulimit -f` is a full disk: the write fails, and its path is named.
  std::signal(SIGXFSZ, SIG_IGN);
  restart_with_short_spin(argv);
  const int code = convscope::run_command_line(argc, argv);
  // All is written. What a plug-in does at the end of a process is its own affair: a fault there
  // must not change the exit code of work that is done.
  if (!convscope::opened_plugins().empty()) {
    std::fflush(stderr);
    _exit(code);
  }
  return code;
}
