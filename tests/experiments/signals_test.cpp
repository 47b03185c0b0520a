// SPDX-License-Identifier: Apache-2.0
// signals_test.cpp: tests how a run reacts to Ctrl-C, SIGTERM, a closed terminal and a broken pipe.
#include "experiments/trainer/signals.h"

#include <gtest/gtest.h>

#include <utility>

namespace convscope {
namespace {

TEST(StopSignals, remember_the_first_and_take_a_quick_sigterm_for_its_echo) {
  EXPECT_EXIT(
      {
        const StopSignals signals;
        std::raise(SIGTERM);
        std::raise(SIGTERM);
        std::_Exit(StopSignals::received() == SIGTERM ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(StopSignals, remember_a_closed_terminal_and_a_broken_pipe) {
  for (const int signal : {SIGHUP, SIGPIPE}) {
    EXPECT_EXIT(
        {
          const StopSignals signals;
          std::raise(signal);
          std::raise(signal);  // the echo, and output during the exit
          std::_Exit(StopSignals::received() == signal ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "");
  }
}

// Launchers may forward a signal more than once.
TEST(StopSignals, take_what_launchers_hand_on_for_sigterm_and_sigint) {
  for (const auto& [sent, meant] : {std::pair(SIGUSR1, SIGTERM), std::pair(SIGUSR2, SIGINT)}) {
    EXPECT_EXIT(
        {
          const StopSignals signals;
          std::raise(sent);
          std::raise(sent);
          std::_Exit(StopSignals::received() == meant ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "");
  }
}

TEST(StopSignals, leave_a_hangup_ignored_where_it_is) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);  // as nohup does
        const StopSignals signals;
        std::raise(SIGHUP);
        std::_Exit(StopSignals::received());
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(StopSignals, let_a_second_ctrl_c_end_the_process) {
  for (const int first : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          const StopSignals signals;
          std::raise(first);
          std::raise(SIGINT);
          std::_Exit(0);
        },
        ::testing::KilledBySignal(SIGINT), "");
  }
}

TEST(StopSignals, are_put_back) {
  EXPECT_EXIT(
      {
        { const StopSignals signals; }
        std::raise(SIGTERM);
        std::_Exit(0);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace convscope
