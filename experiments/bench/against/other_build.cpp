// SPDX-License-Identifier: Apache-2.0
// other_build.cpp: another build of this project as a callable program.
#include "experiments/bench/against/other_build.h"

#include <elf.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "experiments/launchers/outside_program.h"
#include "framework/check.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOperation = "bench --against";
constexpr const char* kLibrary = "libconvscope.so";

struct LoadedLibrary {
  std::string name, path;  // "libconvscope.so.0", "/usr/lib/libconvscope.so.0.9.0"; "": none
};

// Returns which libconvscope the loader uses for a program, as the program itself reports.
LoadedLibrary library_of(const std::vector<std::string>& words) {
  std::vector<std::string> ask = {"env", "LD_TRACE_LOADED_OBJECTS=1"};
  ask.insert(ask.end(), words.begin(), words.end());
  std::istringstream lines(ask_program(ask, "", "it sets the loader's variables").out);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find(kLibrary), arrow = line.find(" => ");
    if (begin == std::string::npos || arrow == std::string::npos || begin > arrow) continue;
    const std::string path = line.substr(arrow + 4);
    return {line.substr(begin, arrow - begin), path.substr(0, path.rfind(" ("))};
  }
  return {};
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

// Returns whether an ELF file is a shared library. A position-independent program has the same ELF
// type as a library, but only the program names a loader.
bool is_library(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return name.find(".so") != std::string::npos;
}

bool is_elf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  char mark[SELFMAG] = {};
  in.read(mark, sizeof mark);
  return in && std::string_view(mark, SELFMAG) == ELFMAG;
}

[[noreturn]] void refuse(const std::string& given, const std::string& got) {
  fail(
      ErrorKind::kUnavailable, kOperation,
      cat("expected another convscope program or another libconvscope.so, got ", given, ", ", got));
}

OtherBuild library_build(const std::string& given, const std::string& scratch) {
  std::error_code error;
  const fs::path library = fs::canonical(given, error);
  if (error || !is_elf(library)) refuse(given, "which is not a shared library");
  const std::vector<std::string> own = this_build().words;
  for (const fs::path& folder : {library.parent_path(), library.parent_path().parent_path()}) {
    const std::string program = (folder.parent_path() / "bin" / "convscope").string();
    if (find_program(program).empty() || is_same_file(program, own[0])) continue;
    if (is_same_file(library_of({program}).path, library)) return {given, {program}};
  }
  const std::string name = library_of(own).name;
  if (name.empty()) {
    refuse(given,
           "but this program is linked without a libconvscope.so that could be replaced; "
           "give a program");
  }
  fs::create_symlink(library, fs::path(scratch) / name, error);
  if (error) {
    fail(ErrorKind::kIo, kOperation,
         cat("expected to link ", given, " in ", scratch, ", got: ", error.message()));
  }
  OtherBuild out{given,
                 {"env", cat("LD_LIBRARY_PATH=", scratch, ":", library.parent_path().string())}};
  out.words.insert(out.words.end(), own.begin(), own.end());
  if (!is_same_file(library_of({out.words.begin() + 1, out.words.end()}).path, library)) {
    refuse(given, cat("but the loader takes another ", name, " for this program; give a program"));
  }
  return out;
}

}  // namespace

OtherBuild this_build() {
  std::error_code error;
  const std::string path = fs::read_symlink("/proc/self/exe", error).string();
  if (error) fail(ErrorKind::kRun, kOperation, "expected /proc/self/exe, which names this program");
  return {"this build", {path}};
}

OtherBuild find_other_build(const std::string& given, const std::string& scratch) {
  std::error_code error;
  if (is_library(given) && fs::is_regular_file(given, error)) return library_build(given, scratch);
  const std::string program = find_program(given);
  if (program.empty() || fs::is_directory(program, error)) {
    refuse(given, fs::exists(given, error) ? "which is not a program" : "which is not there");
  }
  const OutsideAnswer answer = ask_program({program, "--version"}, "", "it is timed");
  if (answer.exit_code != 0 || answer.out.find("convscope") == std::string::npos) {
    refuse(given, cat("which says to --version: ", answer.last_words()));
  }
  return {given, {program}};
}

}  // namespace convscope
