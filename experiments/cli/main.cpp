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

// Restarts the program once with a short spin of libgomp, which reads this setting when it is
// loaded, before main. By default, idle threads spin for up to about 10 ms. When other programs use
// the cores, a spinning thread takes the core from a working thread, and steps of a small network
// become a hundred times slower. The user's OMP_WAIT_POLICY and GOMP_SPINCOUNT are kept.
static void restart_with_short_spin(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  setenv("GOMP_SPINCOUNT", "500", 1);
  execv("/proc/self/exe", argv);  // returns only without /proc; then nothing changes
}

// Opens missing standard streams. A file opened while descriptor 0, 1 or 2 is free would get this
// number, and messages would be written into that file.
static void occupy_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    if (open("/dev/null", descriptor == 0 ? O_RDONLY : O_WRONLY) < 0) return;
  }
}

int main(int argc, char** argv) {
  occupy_standard_streams();
  // A file that exceeds `ulimit -f` is treated like a full disk: the write fails, and the error
  // names the path.
  std::signal(SIGXFSZ, SIG_IGN);
  restart_with_short_spin(argv);
  const int code = convscope::run_command_line(argc, argv);
  // At this point all work is done. A fault of a plug-in during exit must not change the exit code.
  if (!convscope::opened_plugins().empty()) {
    std::fflush(stderr);
    _exit(code);
  }
  return code;
}
