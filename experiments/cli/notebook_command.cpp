// SPDX-License-Identifier: Apache-2.0
// notebook_command.cpp: `convscope notebook`: opens the course in JupyterLab.
// experiments/notebooks/set_up.py does the work; this command finds the files and a Python.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "experiments/cli/command.h"
#include "experiments/notebooks/places.h"
#include "experiments/run_folder/user_words.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

struct NotebookArguments {
  std::string name, folder;
  bool no_browser = false, yes = false, fresh = false, list = false, paths = false;
};

// Returns the path of `program` in PATH, or "".
std::string in_path(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    return access(program.c_str(), X_OK) == 0 ? program : "";
  }
  const char* const path = std::getenv("PATH");
  std::string rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const std::string candidate = rest.substr(0, end) + "/" + program;
    if (end > 0 && access(candidate.c_str(), X_OK) == 0) return candidate;
    rest.erase(0, end + 1);
  }
  return "";
}

// Returns whether this program runs and is a Python version that cppyy has packages for. A name in
// PATH may be a wrapper script that finds no Python.
bool is_python(const std::string& program) {
  const pid_t child = fork();
  if (child == 0) {
    const int nowhere = open("/dev/null", O_RDWR);
    for (int stream = 0; stream < 3; ++stream) dup2(nowhere, stream);
    execl(program.c_str(), program.c_str(), "-c",
          "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))",
          static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

std::string find_python() {
  const char* const named = std::getenv("CONVSCOPE_PYTHON");
  const std::vector<std::string> names =
      named != nullptr
          ? std::vector<std::string>{named}
          : std::vector<std::string>{"python3", "python3.13", "python3.12", "python3.11"};
  for (const std::string& name : names) {
    const std::string found = in_path(name);
    if (!found.empty() && is_python(found)) return found;
  }
  fail(ErrorKind::kUnavailable, "notebook",
       named != nullptr
           ? cat("expected Python 3.11 to 3.13, because CONVSCOPE_PYTHON names it, got '", named,
                 "', which does not run or is another version")
           : std::string("expected python3 of version 3.11 to 3.13 in PATH, because it runs "
                         "JupyterLab and the kernel, got none; on Debian: apt-get install python3 "
                         "python3-venv python3-dev; CONVSCOPE_PYTHON names one elsewhere"));
}

// Returns the user's data folder.
fs::path data_folder() {
  const char* const data = std::getenv("XDG_DATA_HOME");
  const char* const home = std::getenv("HOME");
  const fs::path base = data != nullptr && *data != '\0' ? fs::path(data)
                        : home != nullptr                ? fs::path(home) / ".local" / "share"
                                                         : fs::path(".");
  return base / "convscope";
}

void list(const NotebookPaths& from) {
  for (const ShippedNotebook& one : shipped_notebooks(from.folder)) {
    print_screen(cat(one.name, "\n    ", one.question, "\n"));
  }
}

std::string checked_name(const std::string& word, const NotebookPaths& from) {
  const std::vector<std::string> names = notebook_names(from.folder);
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (name.starts_with(word)) found.push_back(name);
  }
  if (found.size() == 1) return found.front();
  fail_usage("notebook", cat("expected the number or the name of one notebook, got '", word, "'",
                             did_you_mean(word, names), " (there are: ", join(names), ")"));
}

int open_notebooks(NotebookArguments arguments) {
  const NotebookPaths from = notebook_paths();
  if (arguments.list) {
    list(from);
    return 0;
  }
  const std::string include = join(from.include, ":");
  if (arguments.paths) {
    print_result(cat("CPLUS_INCLUDE_PATH=", include, "\nCONVSCOPE_LIBRARY=", from.library, "\n"));
    return 0;
  }
  if (!arguments.name.empty()) arguments.name = checked_name(arguments.name, from);
  const fs::path data = from.installed ? data_folder() : fs::path(from.folder) / "../../build";
  std::vector<std::string> words = {
      find_python(),
      from.folder + "/set_up.py",
      "--lab",
      "--environment",
      (data / "notebooks" / "env").lexically_normal().string(),
      "--include",
      include,
      "--library",
      from.library,
      "--course",
      arguments.folder.empty() ? (data / "notebooks" / "course").lexically_normal().string()
                               : fs::absolute(arguments.folder).string()};
  if (arguments.no_browser) words.emplace_back("--no-browser");
  if (arguments.yes) words.emplace_back("--yes");
  if (arguments.fresh) words.emplace_back("--fresh");
  if (!arguments.name.empty()) words.push_back(arguments.name);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  fail(ErrorKind::kUnavailable, "notebook", cat("expected ", words[0], " to start, got an error"));
}

std::function<int()> declare_notebook(CommandLine& app) {
  auto arguments = std::make_shared<NotebookArguments>();
  std::vector<std::string> names;
  try {
    names = notebook_names(notebook_paths().folder);
  } catch (const Error&) {  // the command says so when it runs
  }
  app.add_option("NAME", arguments->name, "notebook to open, by number or name (04_winograd)")
      ->suggest(names);
  app.add_flag("--no-browser", arguments->no_browser,
               "print the address instead of opening a window");
  app.add_option(
         "--folder", arguments->folder,
         "folder of your copy of the notebooks; existing files are kept (default "
         "~/.local/share/convscope/notebooks/course; in a source tree build/notebooks/course)")
      ->type_name("DIR");
  app.add_flag("--yes", arguments->yes, "install the packages without asking");
  app.add_flag("--fresh", arguments->fresh,
               "new copies of all notebooks; your old ones are renamed");
  app.add_flag("--list", arguments->list, "list of the notebooks with their questions");
  app.add_flag("--paths", arguments->paths,
               "include path and library, for other engines (xeus-cpp)");
  return [arguments] { return open_notebooks(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "notebook",
    {.summary = "Open the course: algorithms in C++ notebooks.",
     .usage = "notebook [NAME] [--no-browser] [--folder DIR] [--fresh] [--yes] | --list | --paths",
     .examples = {"notebook", "notebook 04 --no-browser", "notebook --list"},
     .order = 60,
     .declare = convscope::declare_notebook})
