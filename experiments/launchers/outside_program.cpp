// SPDX-License-Identifier: Apache-2.0
// outside_program.cpp: runs external programs, such as sbatch and mpirun, as child processes.
#include "experiments/launchers/outside_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "experiments/run_folder/files/own_file.h"
#include "framework/check.h"
#include "framework/io/bytes.h"
#include "framework/io/clean_text.h"
#include "framework/registry.h"

namespace convscope {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

struct Pipe {
  std::array<int, 2> ends = {-1, -1};
  Pipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      fail(ErrorKind::kRun, "sweep", cat("expected a pipe, got: ", std::strerror(errno)));
    }
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(std::size_t end) {
    if (ends[end] >= 0) close(ends[end]);
    ends[end] = -1;
  }
};

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return "";
  const std::size_t begin = text.find_last_of('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? -1 : begin));
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  const std::string places = path == nullptr ? "/usr/bin:/bin" : path;
  for (std::size_t at = 0; at <= places.size();) {
    const std::size_t colon = std::min(places.find(':', at), places.size());
    const std::string file = places.substr(at, colon - at) + "/" + name;
    at = colon + 1;
    std::error_code error;
    if (file.front() == '/' && file.size() > name.size() + 1 && access(file.c_str(), X_OK) == 0 &&
        std::filesystem::is_regular_file(file, error)) {
      return file;
    }
  }
  return "";
}

std::string need_program(const std::string& name, const std::string& missing) {
  const std::string program = find_program(name);
  if (program.empty()) {
    fail(ErrorKind::kUnavailable, "sweep",
         cat("expected the program ", name, " in $PATH, got none; ", missing));
  }
  return program;
}

std::string OutsideAnswer::last_words() const {
  const std::string line = last_line(last_line(err).empty() ? out : err);
  return line.empty() ? cat("exit code ", exit_code) : clean_line(line);
}

OutsideAnswer ask_program(const std::vector<std::string>& words, const std::string& folder,
                          const std::string& missing, double seconds) {
  using Clock = std::chrono::steady_clock;
  const std::string program = need_program(words.at(0), missing);
  std::vector<std::string> kept = words;
  std::vector<char*> argv;
  for (std::string& word : kept) argv.push_back(word.data());
  argv.push_back(nullptr);
  Pipe out, err;
  const pid_t pid = fork();
  if (pid < 0) {
    fail(ErrorKind::kRun, "sweep",
         cat("expected to start ", words[0], ", got: ", std::strerror(errno)));
  }
  if (pid == 0) {   // system calls only
    setpgid(0, 0);  // only the parent gets a terminal's Ctrl-C; it then ends the child
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    dup2(out.ends[1], STDOUT_FILENO);
    dup2(err.ends[1], STDERR_FILENO);
    if (!folder.empty() && chdir(folder.c_str()) != 0) _exit(126);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  out.close_end(1);
  err.close_end(1);
  OutsideAnswer answer;
  std::array<pollfd, 2> files = {pollfd{out.ends[0], POLLIN, 0}, pollfd{err.ends[0], POLLIN, 0}};
  const Clock::time_point end =
      Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds));
  bool late = false;
  while (files[0].fd >= 0 || files[1].fd >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    late = left.count() <= 0;
    if (late) break;
    if (poll(files.data(), files.size(),
             static_cast<int>(std::min<std::int64_t>(left.count(), 1000))) < 0) {
      continue;
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (files[i].fd < 0 || files[i].revents == 0) continue;
      std::array<char, 65536> buffer;
      const ssize_t got = read(files[i].fd, buffer.data(), buffer.size());
      std::string& text = i == 0 ? answer.out : answer.err;
      if (got > 0 && text.size() < kMaxBytes) text.append(buffer.data(), std::size_t(got));
      if (got == 0 || (got < 0 && errno != EINTR)) files[i].fd = -1;
    }
  }
  if (late) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  answer.exit_code = late                  ? 124
                     : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                           : WEXITSTATUS(status);
  if (late) answer.err += cat("no answer within ", static_cast<std::int64_t>(seconds), " s\n");
  return answer;
}

OutsideProcess::OutsideProcess(const std::vector<std::string>& words, std::string log)
    : StartedProcess(std::move(log)) {
  const std::string program = need_program(words.at(0), "it starts the workers");
  std::vector<std::string> kept = words;
  std::vector<char*> argv;
  for (std::string& word : kept) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int file = open_own(log_, O_WRONLY | O_CREAT | O_TRUNC);
  if (file < 0) {
    fail(ErrorKind::kIo, "sweep", cat("expected to open ", log_, ", got: ", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {  // system calls only
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    setpgid(0, 0);
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  const int error = errno;
  close(file);
  if (pid_ < 0) {
    fail(ErrorKind::kRun, "sweep",
         cat("expected to start ", words[0], ", got: ", std::strerror(error)));
  }
}

StartedProcess::~StartedProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool StartedProcess::running() {
  if (pid_ < 0) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return true;
  pid_ = -1;
  by_signal_ = WIFSIGNALED(status);
  exit_code_ = by_signal_ ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return false;
}

void StartedProcess::send(int signal) {
  if (pid_ >= 0) kill(pid_, signal);
}

std::string OutsideProcess::last_words() const {
  std::istringstream lines(text_if_there(log_).value_or(""));
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    // mpirun prints lines of dashes around its messages.
    if (line.find_first_not_of("-= \t") != std::string::npos) last = line;
  }
  return last.empty() ? cat("exit code ", exit_code_) : clean_line(last);
}

}  // namespace convscope
