// SPDX-License-Identifier: Apache-2.0
// watch_command.cpp: `convscope watch`: the progress of a run or of a folder of runs.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>

#include "experiments/cli/command.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/trainer/signals.h"
#include "experiments/watch/folder_view.h"
#include "experiments/watch/screen.h"
#include "framework/number_text.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

struct WatchArguments {
  std::string run = "runs";
  double interval = 1;
  bool once = false;
};

FrameLook look_now() {
  const TerminalSize size = terminal_size();
  return {.columns = size.columns,
          .rows = size.rows,
          .ink = ink_of_terminal(),
          .color = use_color(STDOUT_FILENO)};
}

void print(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Returns the exit code of a finished run.
int code_of(const RunStatus& status) {
  if (status.state == "UNREADABLE") return exit_code(ErrorKind::kIo);
  if (status.state == "KILLED") return exit_code(ErrorKind::kRun);
  return std::max(0, status.exit_code);
}

// Repeats until the end: calls `look`, which reads the run and returns whether to go on. Then shows
// `draw` on a terminal, or else prints the new lines of `tell`. Returns false when a signal ended
// the loop.
template <class Look, class Draw, class Tell>
bool watch_until_end(const WatchArguments& arguments, Look look, Draw draw, Tell tell) {
  const StopSignals signals;
  std::optional<Screen> screen;
  if (isatty(STDOUT_FILENO) == 1) screen.emplace();
  while (true) {
    const bool going = look();
    if (screen) {
      screen->show(draw(look_now()));
    } else {
      print(tell());
    }
    if (!going) return true;
    if (StopSignals::received() == 0) wait_for_next_frame(arguments.interval);
    if (StopSignals::received() != 0) return false;
  }
}

int watch_run(const WatchArguments& arguments, const std::string& path) {
  RunReader reader(path);
  const RunView* view = &reader.look();
  if (arguments.once) {
    FrameLook look = look_now();
    print(run_frame(*view, look));
    return view->status.state == "UNREADABLE" ? exit_code(ErrorKind::kIo) : 0;
  }
  std::string before;
  const bool ended = watch_until_end(
      arguments,
      [&] {
        view = &reader.look();
        return view->is_going();
      },
      [&](const FrameLook& look) { return run_frame(*view, look); },
      [&]() -> std::vector<std::string> {
        const std::string key =
            cat(view->status.state, " ", view->epoch, " ", view->step, " ", view->loss);
        if (key == before) return {};
        before = key;
        return {run_line(*view)};
      });
  return ended ? code_of(view->status) : 128 + StopSignals::received();
}

int watch_folder(const WatchArguments& arguments) {
  FolderReader reader(arguments.run);
  reader.look();
  if (reader.count() == 0 && !reader.is_going()) {
    fail(ErrorKind::kIo, "watch",
         cat("expected at least one run in ", arguments.run, ", got none"));
  }
  if (arguments.once) {
    FrameLook look = look_now();
    if (isatty(STDOUT_FILENO) != 1) look.rows = 1'000'000;  // a pipe has no limit
    print(reader.frame(look));
    return 0;
  }
  const bool ended = watch_until_end(
      arguments,
      [&] {
        reader.look();
        return reader.is_going();
      },
      [&](const FrameLook& look) { return reader.frame(look); }, [&] { return reader.changes(); });
  if (!ended) return 128 + StopSignals::received();
  return reader.any_failed() ? exit_code(ErrorKind::kRun) : 0;
}

int watch(const WatchArguments& arguments) {
  std::error_code error;
  const std::string& run = arguments.run;
  if (!fs::is_directory(run, error)) {
    fail(ErrorKind::kIo, "watch",
         cat("expected a run folder or a folder of runs, because their files are read, got ", run,
             ", which is no folder; a run makes it when it begins"));
  }
  for (const char* file : {"/config.yaml", "/status.json", "/latest/config.yaml"}) {
    if (!fs::exists(run + file, error)) continue;
    return watch_run(arguments, file == std::string("/status.json") ? run : resolve_run(run));
  }
  return watch_folder(arguments);
}

std::function<int()> declare_watch(CommandLine& app) {
  auto arguments = std::make_shared<WatchArguments>();
  app.add_option("RUN", arguments->run,
                 "run folder, runs/<name> (its latest run), folder of a sweep, or runs/")
      ->capture_default_str();
  app.add_option("--interval", arguments->interval, "seconds between two frames")
      ->type_name("S")
      ->capture_default_str()
      ->check([](const std::string& word) {
        const double value = parse_number<double>(word).value_or(0);
        return value >= 0.05 && value <= 3600
                   ? std::string()
                   : cat("expected seconds from 0.05 to 3600, got '", word, "'");
      });
  app.add_flag("--once", arguments->once, "only one frame");
  return [arguments] { return watch(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND("watch", {.summary = "Watch a run in the terminal until it ends.",
                                     .usage = "watch [RUN] [--interval S] [--once]",
                                     .examples = {"watch runs/quickstart", "watch runs/ --once"},
                                     .order = 25,
                                     .group = "Train",
                                     .declare = convscope::declare_watch})
