// SPDX-License-Identifier: Apache-2.0
// launcher_test.cpp: tests the command line for each launcher, and the interpretation of the
// launchers' messages.
#include "experiments/launchers/launcher.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <thread>
#include <utility>

#include "framework/check.h"
#include "framework/io/atomic_file.h"
#include "tests/experiments/program.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

const LaunchRequest kRequest = {
    .processes = 4, .hosts = "hosts", .launcher = "", .command = {"/bin/convscope", "run", "a b"}};

TEST(Launcher, Words) {
  EXPECT_EQ(joined(launcher_words({LauncherKind::open_mpi, "/usr/bin/mpirun"}, kRequest)),
            "/usr/bin/mpirun -n 4 --bind-to none --oversubscribe --mca mpi_yield_when_idle 0 "
            "--hostfile hosts /bin/convscope run "
            "a b");
  EXPECT_EQ(joined(launcher_words({LauncherKind::mpich, "mpiexec"}, kRequest)),
            "mpiexec -n 4 -f hosts /bin/convscope run a b");
  EXPECT_THROW(launcher_words({LauncherKind::srun, "srun"}, kRequest), Error);
  LaunchRequest inside = kRequest;
  inside.hosts.clear();
  EXPECT_EQ(launcher_words({LauncherKind::srun, "srun"}, inside)[3], "--kill-on-bad-exit=1");
  EXPECT_EQ(launcher_words({LauncherKind::srun, "srun"}, inside).back(), "a b")
      << "one word stays one";
}

TEST(Launcher, KindByVersion) {
  EXPECT_EQ(kind_of_mpirun("mpirun (Open MPI) 4.1.4\n"), LauncherKind::open_mpi);
  EXPECT_EQ(kind_of_mpirun("mpirun.openmpi (OpenRTE) 4.1.4\n"), LauncherKind::open_mpi);
  EXPECT_EQ(kind_of_mpirun("HYDRA build details:\n    Version: 4.0.2\n"), LauncherKind::mpich);
  EXPECT_THROW(kind_of_mpirun("mpirun of somebody\n"), Error);
}

struct Said {
  std::string printed, killed;
};
Said say(const std::vector<std::string>& lines) {
  Said out;
  LauncherOutput output([&](const std::string& line) { out.printed += line + "\n"; });
  for (const std::string& line : lines) output.line(line);
  output.finish();
  out.killed = output.killed();
  return out;
}
const std::string kRule(74, '-');

TEST(LauncherOutput, LinesOfTheProcessesPass) {
  EXPECT_EQ(say({"epoch 1", "", "error: [train] no"}).printed, "epoch 1\n\nerror: [train] no\n");
}

TEST(LauncherOutput, OpenMpiOnAKilledProcess) {
  const Said said =
      say({"epoch 1", kRule,
           "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).",
           kRule});
  EXPECT_EQ(said.printed, "epoch 1\n");
  EXPECT_EQ(said.killed, "process 1, host vm, was ended by signal 9 (Killed)");
}

TEST(LauncherOutput, OpenMpiOnAnExitCode) {
  const Said said = say(
      {"error: [expect] missed", kRule, "Primary job  terminated normally, but 1 process returned",
       "a non-zero exit code. Per user-direction, the job has been aborted.", kRule});
  EXPECT_EQ(said.printed, "error: [expect] missed\n");
  EXPECT_EQ(said.killed, "");
}

TEST(LauncherOutput, WhatIsNoNewsOfAnEndPasses) {
  const Said said = say({kRule, "There are not enough slots available in the system", kRule});
  EXPECT_EQ(said.printed, "There are not enough slots available in the system\n");
}

TEST(LauncherOutput, ABlockThatNeverEndsIsNotLost) {
  EXPECT_EQ(say({kRule, "mpirun was unable to find the executable"}).printed,
            "mpirun was unable to find the executable\n");
}

TEST(LauncherOutput, Mpich) {
  const std::string rule(83, '=');
  const Said said =
      say({rule, "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", "=   EXIT CODE: 9",
           rule, "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"});
  EXPECT_EQ(said.printed, "");
  EXPECT_EQ(said.killed, "a process was ended: Killed (signal 9)");
}

TEST(LauncherOutput, Slurm) {
  const Said said = say({"srun: error: node2: task 3: Killed", "srun: Terminating StepId=7.0"});
  EXPECT_EQ(said.printed, "");
  EXPECT_EQ(said.killed, "process 3, host node2, was ended: Killed");
  EXPECT_EQ(say({"srun: error: node2: task 3: Exited with exit code 3"}).killed, "");
}

// After a stop signal, launchers end in different ways: with the exit code of one of the processes,
// with the code for a killed process, or by a signal themselves. One launcher of this test ignores
// the first signal.
TEST(Launch, ThatIsStoppedEndsWithTheCodeOfItsSignal) {
  const testing::TemporaryFolder folder;
  const std::string ready = folder / "ready", launcher = folder / "mpirun";
  for (const auto& [signal, end] : {std::pair(SIGINT, "exit 8"), std::pair(SIGTERM, "exit 1"),
                                    std::pair(SIGINT, "n=1$n; [ $n = 11 ] && exit 8"),
                                    std::pair(SIGHUP, "kill -9 $$"), std::pair(SIGINT, "exit 0")}) {
    write_file(launcher,
               cat("#!/bin/sh\n[ \"$1\" = --version ] && echo 'Open MPI' && exit\ntrap '", end,
                   "' USR1 USR2\ntouch ", ready, "\nwhile :; do sleep 0.02; done\n"));
    std::filesystem::permissions(launcher, std::filesystem::perms::owner_all);
    std::filesystem::remove(ready);
    testing::Program launch(
        {testing::kProgram, "launch", "-n", "2", "--launcher", launcher, "run", "quickstart"},
        folder / "said");
    for (int i = 0; i < 1000 && !std::filesystem::exists(ready); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    launch.send(signal);
    EXPECT_EQ(launch.wait(), std::string_view(end) == "exit 0" ? 0 : 128 + signal) << end;
  }
}

}  // namespace
}  // namespace convscope
