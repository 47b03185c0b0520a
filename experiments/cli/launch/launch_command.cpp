// SPDX-License-Identifier: Apache-2.0
// launch_command.cpp: `convscope launch`: starts a command in several processes that train one
// network together, by mpirun or srun. This program chooses their options and passes signals on so
// that a checkpoint is written. It turns their messages about a failure into one sentence.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "experiments/cli/command.h"
#include "experiments/launchers/launcher.h"
#include "framework/distributed/process_group.h"
#include "framework/io/clean_text.h"

namespace convscope {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  int processes = 0;
  std::string hosts, launcher;
  bool dry_run = false;
};

volatile std::sig_atomic_t stops_asked = 0;
volatile std::sig_atomic_t first_stop = 0;  // the signal
void ask_stop(int signal) {
  if (stops_asked == 0) first_stop = signal;
  stops_asked = stops_asked + 1;
}

// The launcher's process.
class Child {
 public:
  explicit Child(const std::vector<std::string>& words) {
    int ends[2][2] = {{-1, -1}, {-1, -1}};  // pipes for stdout and stderr: Open MPI reports the
                                            // end of a process on one, MPICH on the other
    if (pipe2(ends[0], O_CLOEXEC) != 0 || pipe2(ends[1], O_CLOEXEC) != 0) {
      fail(ErrorKind::kRun, "launch", cat("expected a pipe, got: ", std::strerror(errno)));
    }
    std::vector<std::string> copy = words;
    std::vector<char*> argv;
    for (std::string& word : copy) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGUSR1);  // whatever ends this program, the processes stop properly
      if (getppid() != parent) _exit(1);
      // The parent may have set these signals to be ignored, and an ignored signal stays ignored
      // after exec.
      for (const int signal : {SIGUSR1, SIGUSR2}) std::signal(signal, SIG_DFL);
      setpgid(0, 0);  // Ctrl-C of the terminal reaches this program, which passes it on
      const int nothing = open("/dev/null", O_RDONLY);
      dup2(nothing, STDIN_FILENO);
      dup2(ends[0][1], STDOUT_FILENO);
      dup2(ends[1][1], STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    for (int i = 0; i < 2; ++i) {
      close(ends[i][1]);
      streams_[i] = ends[i][0];
    }
    if (pid_ < 0) {
      fail(ErrorKind::kRun, "launch",
           cat("expected to start ", words[0], ", got: ", std::strerror(errno)));
    }
  }
  ~Child() {
    for (const int stream : streams_) {
      if (stream >= 0) close(stream);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Copies the output lines until the launcher closes both streams. When this program receives a
  // signal, it sends SIGUSR1 or SIGUSR2 to the launcher, which forwards it to the processes; they
  // then stop (trainer/signals.h). A second signal ends the launcher.
  void read_lines(LauncherOutput& out, LauncherOutput& error) {
    LauncherOutput* const outputs[2] = {&out, &error};
    std::string lines[2];
    int sent = 0;
    Clock::time_point asked{};
    while (streams_[0] >= 0 || streams_[1] >= 0) {
      pollfd ready[2] = {{streams_[0], POLLIN, 0}, {streams_[1], POLLIN, 0}};
      // poll() has a timeout, because a signal may come just before the call.
      const int found = poll(ready, 2, 200);
      // The signal is sent again each second, because a launcher ignores a signal that comes before
      // its processes begin.
      if (stops_asked > sent || (sent == 1 && Clock::now() - asked >= std::chrono::seconds(1))) {
        kill(pid_, stops_asked > 1 ? SIGTERM : first_stop == SIGINT ? SIGUSR2 : SIGUSR1);
        sent = stops_asked;
        asked = Clock::now();
      }
      if (found < 0 && errno != EINTR) break;
      for (int i = 0; found > 0 && i < 2; ++i) {
        if (streams_[i] >= 0 && ready[i].revents != 0)
          read_some(streams_[i], lines[i], *outputs[i]);
      }
    }
    for (int i = 0; i < 2; ++i) {
      if (!lines[i].empty()) outputs[i]->line(lines[i]);
      outputs[i]->finish();
    }
  }

  int wait_code() const {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  static void read_some(int& stream, std::string& line, LauncherOutput& output) {
    char text[4096];
    const ssize_t count = read(stream, text, sizeof(text));
    if (count < 0 && errno == EINTR) return;
    if (count <= 0) {
      close(stream);
      stream = -1;
      return;
    }
    for (ssize_t i = 0; i < count; ++i) {
      if (text[i] != '\n') {
        line += text[i];
      } else {
        output.line(line);
        line.clear();
      }
    }
  }

  pid_t pid_ = -1;
  int streams_[2] = {-1, -1};  // its stdout and stderr; -1: closed
};

void listen_for_signals() {
  struct sigaction action {};
  action.sa_handler = ask_stop;  // without SA_RESTART: a read comes back
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

// Returns this program and its words without those of `launch` itself.
std::vector<std::string> command_of(const std::vector<std::string>& rest) {
  if (rest.empty())
    fail_usage("launch", "expected a command for the processes, such as run CONFIG");
  const bool measures = rest.size() > 1 && rest[0] == "bench" && rest[1] == "exchange";
  if (rest[0] != "run" && !measures) {
    fail_usage("launch", cat("expected the command run or bench exchange, because only these work "
                             "in several processes, got '",
                             rest[0], "'"));
  }
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) fail(ErrorKind::kRun, "launch", "expected /proc/self/exe, which names this program");
  std::vector<std::string> out = {self};
  const GlobalOptions& globals = global_options();
  if (globals.verbosity < 0) out.emplace_back("-q");
  if (globals.threads >= 0) out.push_back(cat("--threads=", globals.threads));
  for (const std::string& plugin : globals.plugins) out.push_back("--plugin=" + plugin);
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

int launch(const Arguments& arguments, const std::vector<std::string>& rest) {
  if (arguments.processes < 1) fail_usage("launch", "expected -n N, the number of processes");
  LaunchRequest request{.processes = arguments.processes,
                        .hosts = arguments.hosts,
                        .launcher = arguments.launcher,
                        .command = command_of(rest)};
  if (!request.hosts.empty() && access(request.hosts.c_str(), R_OK) != 0) {
    fail(ErrorKind::kIo, "launch",
         cat("expected a file of hosts, one a line, got ", request.hosts, ": ",
             std::strerror(errno)));
  }
  const Launcher launcher = find_launcher(request.launcher);
  const std::vector<std::string> words = launcher_words(launcher, request);
  if (arguments.dry_run) {
    std::string line;
    for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
    print_result(line + "\n");
    return 0;
  }
  let_root_launch();
  listen_for_signals();
  Child child(words);
  LauncherOutput out([](const std::string& line) { print_result(line + "\n"); });
  LauncherOutput error(
      [](const std::string& line) { std::fprintf(stderr, "%s\n", clean_text(line).c_str()); });
  child.read_lines(out, error);
  const int code = child.wait_code();
  // After a stop, launchers report different things: the exit code of the first process to end, a
  // killed process, or only the end of the launcher.
  if (first_stop != 0 && code != 0) return 128 + first_stop;
  const std::string& killed = error.killed().empty() ? out.killed() : error.killed();
  if (!killed.empty()) {
    std::fprintf(stderr,
                 "error: [launch] expected %d processes to the end, but %s; the last checkpoint is "
                 "kept, --resume goes on from it\n",
                 arguments.processes, killed.c_str());
    return ProcessGroup::kLostExitCode;
  }
  return code;
}

std::function<int()> declare_launch(CommandLine& app) {
  auto arguments = std::make_shared<Arguments>();
  app.add_option("-n,--processes", arguments->processes,
                 "number of processes; each takes its share of every batch")
      ->type_name("N")
      ->range(1, 65536);
  app.add_option("--hosts", arguments->hosts,
                 "file with one host per line, as mpirun reads it (default: this host)")
      ->type_name("FILE");
  app.add_option("--launcher", arguments->launcher,
                 "launcher: mpirun, mpiexec, srun or a path (default: srun inside a Slurm job, "
                 "else mpirun)")
      ->type_name("PROGRAM");
  app.add_flag("--dry-run", arguments->dry_run, "only print the launcher's command line");
  app.take_rest();
  return [arguments, line = &app] { return launch(*arguments, line->remaining()); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "launch", {.summary = "Train one network on several processes, GPUs or hosts.",
               .usage = "launch -n N [--hosts FILE] run CONFIG|NAME [KEY=VALUE...]",
               .examples = {"launch -n 2 run quickstart",
                            "launch -n 4 --hosts hosts.txt run my_config.yaml device=cuda",
                            "launch -n 2 run quickstart train.deterministic_ranks=true",
                            "launch -n 2 bench exchange"},
               .order = 12,
               .declare = convscope::declare_launch})
