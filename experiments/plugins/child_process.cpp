// SPDX-License-Identifier: Apache-2.0
// child_process.cpp: runs untrusted code in a separate process.
#include "experiments/plugins/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>

#include "framework/check.h"

namespace convscope {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxText = 4096, kMaxResult = 256 << 10;

// Memory shared by this process and its child. Unlike a pipe, it still works when a plug-in closes
// all files.
struct Board {
  std::atomic<std::uint32_t> notes;
  std::atomic<bool> finished, threw;
  int code;
  char said[kMaxText], doing[kMaxText], result[kMaxResult];
};

template <std::size_t N>
void write_text(char (&to)[N], std::string_view text) {
  const std::size_t count = std::min(text.size(), N - 1);
  std::memcpy(to, text.data(), count);
  to[count] = '\0';
}
// Returns the text up to the first zero byte or the end, because the child may write anything.
template <std::size_t N>
std::string text_in(const char (&text)[N]) {
  return {text, strnlen(text, N)};
}

[[noreturn]] void be_the_child(const std::function<int(const ChildWork&)>& work, pid_t parent,
                               int output, Board& board) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent died before the line above
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM, SIGTERM}) {
    std::signal(signal, SIG_DFL);
  }
  dup2(output, 1);
  dup2(output, 2);
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, 0);
  // If the work forks, its copy of this process must not continue here, so it ends.
  const pid_t self = getpid();
  const auto stop_copies = [self] {
    if (getpid() != self) _exit(1);
  };
  const ChildWork to_work{.note =
                              [&](const std::string& doing) {
                                stop_copies();
                                write_text(board.doing, doing);
                                ++board.notes;
                              },
                          .hand_over =
                              [&](const std::string& result) {
                                stop_copies();
                                write_text(board.result, result);
                              }};
  try {
    const int code = work(to_work);
    stop_copies();
    board.code = code;
  } catch (const std::exception& error) {
    stop_copies();
    board.threw = true;
    write_text(board.said, error.what());
  } catch (...) {
    stop_copies();
    board.threw = true;
    write_text(board.said, "an exception of an unknown type");
  }
  std::cout.flush();
  std::fflush(stdout);
  std::fflush(stderr);
  board.finished = true;
  _exit(0);
}

// The child's output to stdout and stderr.
class Output {
 public:
  explicit Output(ChildEnd& end) : end_(end) {
    CONVSCOPE_CHECK(pipe2(ends_, O_CLOEXEC) == 0, "process",
                    "expected a pipe for two processes, got: ", std::strerror(errno));
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  ~Output() {
    close(ends_[0]);
    close_writer();
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  int writer() const { return ends_[1]; }
  int reader() const { return ended_ ? -1 : ends_[0]; }
  void close_writer() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  void take() {
    char bytes[1 << 16];
    for (ssize_t count = 1; count > 0;) {
      count = read(ends_[0], bytes, sizeof bytes);
      if (count == 0) ended_ = true;
      if (count <= 0) return;
      end_.output_bytes += count;
      const std::size_t room = kMaxText - std::min(kMaxText, end_.output.size());
      end_.output.append(bytes, std::min(room, static_cast<std::size_t>(count)));
      if (end_.output_bytes > 4 * (1 << 20)) return;  // the caller ends it
    }
  }

 private:
  ChildEnd& end_;
  int ends_[2] = {-1, -1};
  bool ended_ = false;
};

std::string limit_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

std::string cause_of(const ChildEnd& end, const ChildLimits& limits) {
  switch (end.kind) {
    case ChildEnd::Kind::silent:
      return cat("does not return within ", limit_text(limits.note_seconds));
    case ChildEnd::Kind::late:
      return cat("is not done after ", limit_text(limits.total_seconds));
    case ChildEnd::Kind::loud:
      return cat("writes more than ", limits.output, " bytes to stdout and stderr");
    case ChildEnd::Kind::signalled:
      return cat("ends the process by signal ", end.code, " (", strsignal(end.code), ")");
    case ChildEnd::Kind::exited:
      return cat("ends the process with status ", end.code);
    default:
      return "";
  }
}

// Waits for the child, and ends it when it exceeds a limit.
void wait_for(pid_t child, Board& board, Output& output, const ChildLimits& limits, ChildEnd& end,
              const std::function<void(const std::string&)>& watch) {
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  const Clock::time_point begin = Clock::now();
  Clock::time_point noted = begin;
  std::uint32_t notes = 0;
  bool ended_by_us = false;
  int status = 0;
  for (;;) {
    pollfd files[] = {{output.reader(), POLLIN, 0}, {handle, POLLIN, 0}};
    poll(files, handle < 0 ? 1 : 2, handle < 0 ? 5 : 100);
    output.take();
    const pid_t gone = waitpid(child, &status, WNOHANG);
    if (gone == child || (gone < 0 && errno != EINTR)) break;
    if (ended_by_us) continue;
    const Clock::time_point now = Clock::now();
    const auto since = [now](Clock::time_point then) {
      return std::chrono::duration<double>(now - then).count();
    };
    if (board.notes != notes) {
      notes = board.notes;
      noted = now;
    }
    if (watch) watch(text_in(board.doing));
    const bool silent = since(noted) > limits.note_seconds;
    const bool late = limits.total_seconds > 0 && since(begin) > limits.total_seconds;
    const bool loud = end.output_bytes > limits.output;
    if (!silent && !late && !loud) continue;
    end.kind = loud ? ChildEnd::Kind::loud : late ? ChildEnd::Kind::late : ChildEnd::Kind::silent;
    ended_by_us = true;
    kill(-child, SIGKILL);
    kill(child, SIGKILL);
  }
  if (handle >= 0) close(handle);
  if (ended_by_us) return;
  end.kind = WIFSIGNALED(status) ? ChildEnd::Kind::signalled : ChildEnd::Kind::exited;
  end.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  if (board.finished && end.kind == ChildEnd::Kind::exited) {
    end.kind = board.threw ? ChildEnd::Kind::threw : ChildEnd::Kind::finished;
    end.code = board.code;
  }
}

}  // namespace

ChildEnd run_in_child(const std::function<int(const ChildWork&)>& work, const ChildLimits& limits,
                      const std::function<void(const std::string&)>& watch) {
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CONVSCOPE_CHECK(memory != MAP_FAILED, "process",
                  "expected memory for two processes, got: ", std::strerror(errno));
  Board& board = *new (memory) Board{};
  ChildEnd out;
  Output output(out);
  std::cout.flush();  // otherwise both processes would write the buffer
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) be_the_child(work, parent, output.writer(), board);
  if (child < 0) {
    munmap(memory, sizeof(Board));
    fail(ErrorKind::kIo, "process", cat("expected another process, got: ", std::strerror(errno)));
  }
  setpgid(child, child);  // whichever process is first
  output.close_writer();
  wait_for(child, board, output, limits, out, watch);
  out.left_processes = kill(-child, SIGKILL) == 0 && out.finished();
  output.take();
  out.said = text_in(board.said);
  out.doing = text_in(board.doing);
  out.result = text_in(board.result);
  out.cause = cause_of(out, limits);
  if (out.finished() && out.output_bytes > limits.output) {
    out.kind = ChildEnd::Kind::loud;
    out.cause = cause_of(out, limits);
  }
  munmap(memory, sizeof(Board));
  return out;
}

}  // namespace convscope
