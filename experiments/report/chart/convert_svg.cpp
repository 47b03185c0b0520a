// SPDX-License-Identifier: Apache-2.0
// convert_svg.cpp: converts an SVG to PNG or PDF with the program rsvg-convert.
#include "experiments/report/chart/convert_svg.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "framework/check.h"
#include "framework/io/atomic_file.h"

extern char** environ;

namespace convscope {
namespace {

namespace fs = std::filesystem;

// The names of temporary files next to the output file. They are removed at the end.
struct TemporaryFiles {
  std::string svg, picture, errors;
  explicit TemporaryFiles(const std::string& file)
      : svg(cat(file, ".", ::getpid(), ".svg")),
        picture(cat(file, ".", ::getpid(), ".tmp")),
        errors(cat(file, ".", ::getpid(), ".err")) {}
  ~TemporaryFiles() {
    std::error_code error;
    for (const std::string& path : {svg, picture, errors}) fs::remove(path, error);
  }
  TemporaryFiles(const TemporaryFiles&) = delete;
  TemporaryFiles& operator=(const TemporaryFiles&) = delete;
};

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// Returns the exit code of the program; its stderr goes to a file.
int call(const std::vector<std::string>& words, const std::string& errors) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int failed = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    fail(ErrorKind::kIo, "plot", cat("expected to start ", words[0], ", got ", strerror(failed)));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::string svg_converter() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.empty() || folder[0] != '/') continue;  // never from the current folder
    const std::string program = folder + "/rsvg-convert";
    std::error_code error;
    if (fs::is_regular_file(program, error) && ::access(program.c_str(), X_OK) == 0) {
      return program;
    }
  }
  return "";
}

void convert_svg(const std::string& svg, const std::string& file, int dpi) {
  const bool pdf = file.ends_with(".pdf");
  const std::string program = svg_converter();
  if (program.empty()) {
    fail(ErrorKind::kIo, "plot",
         cat("expected the program rsvg-convert in PATH, because it makes ", file,
             ", got none; install the package librsvg2-bin, or ask for SVG only"));
  }
  // The converter would read a name that begins with - as an option.
  const std::string path = fs::absolute(file).string();
  const TemporaryFiles files(path);
  write_file(files.svg, svg);
  std::vector<std::string> words = {program,   "--format", pdf ? "pdf" : "png", "--dpi-x", "96",
                                    "--dpi-y", "96"};
  if (!pdf) {
    words.emplace_back("--zoom");
    words.push_back(fmt::format("{:.6f}", dpi / 96.0));
  }
  words.insert(words.end(), {"--output", files.picture, files.svg});
  if (const int code = call(words, files.errors); code != 0) {
    fail(ErrorKind::kIo, "plot",
         cat("expected ", program, " to make ", file, ", got exit code ", code, ": ",
             first_line(files.errors)));
  }
  std::error_code error;
  fs::rename(files.picture, path, error);
  if (error) {
    fail(ErrorKind::kIo, "plot", cat("expected to write ", file, ", got: ", error.message()));
  }
}

}  // namespace convscope
