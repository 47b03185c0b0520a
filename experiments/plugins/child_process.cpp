// SPDX-License-Identifier: Apache-2.0
// child_process.cpp: runs code that nobody vouches for in a process of its own.
#include "experiments/plugins/child_process.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>

#include "framework/check.h"

namespace convscope {
namespace {

// Memory that both processes see.
struct Board {
  bool finished, threw;
  int code;
  char said[4096], doing[4096];
};

void write_text(char (&to)[4096], std::string_view text) {
  const std::size_t count = std::min(text.size(), sizeof to - 1);
  std::memcpy(to, text.data(), count);
  to[count] = '\0';
}

[[noreturn]] void be_the_child(const std::function<int(const ChildNote&)>& work, unsigned seconds,
                               Board& board) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM}) {
    std::signal(signal, SIG_DFL);
  }
  alarm(seconds);
  const ChildNote note = [&](const std::string& doing) {
    write_text(board.doing, doing);
    alarm(seconds);
  };
  try {
    board.code = work(note);
  } catch (const std::exception& error) {
    board.threw = true;
    write_text(board.said, error.what());
  } catch (...) {
    board.threw = true;
    write_text(board.said, "an exception of an unknown type");
  }
  std::cout.flush();
  std::fflush(stdout);
  std::fflush(stderr);
  board.finished = true;
  _exit(0);
}

std::string cause_of(int status, unsigned seconds) {
  if (!WIFSIGNALED(status)) return cat("ends the process with status ", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  if (signal == SIGALRM) return cat("does not return within ", seconds, " s");
  return cat("ends the process by signal ", signal, " (", strsignal(signal), ")");
}

}  // namespace

ChildEnd run_in_child(const std::function<int(const ChildNote&)>& work, unsigned seconds) {
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CONVSCOPE_CHECK(memory != MAP_FAILED, "process",
                  "expected memory for two processes, got: ", std::strerror(errno));
  Board& board = *new (memory) Board{};
  std::cout.flush();  // what is buffered would be written by both
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) be_the_child(work, seconds, board);
  ChildEnd out;
  if (child < 0) {
    munmap(memory, sizeof(Board));
    fail(ErrorKind::kIo, "process", cat("expected another process, got: ", std::strerror(errno)));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  out.finished = board.finished;
  out.code = board.code;
  out.said = board.said;
  out.doing = board.doing;
  if (!out.finished) {
    out.took_too_long = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    out.cause = cause_of(status, seconds);
  }
  munmap(memory, sizeof(Board));
  return out;
}

}  // namespace convscope
