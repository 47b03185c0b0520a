// SPDX-License-Identifier: Apache-2.0
// bench_against.cpp: `convscope bench ... --against OTHER`: this build and another one in turns.
#include "experiments/cli/bench/bench_against.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/cli/bench/bench_remarks.h"
#include "experiments/cli/command.h"
#include "experiments/compare/compare_benches.h"
#include "experiments/compare/comparison_text.h"
#include "experiments/launchers/outside_program.h"
#include "experiments/trainer/ranks/rank_order.h"
#include "framework/check.h"
#include "framework/export.h"
#include "framework/io/atomic_file.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOperation = "bench --against";
constexpr const char* kLibrary = "libconvscope.so";

// Another build of this project as a callable program, for timing two builds alternately.
struct OtherBuild {
  std::string name;                // the argument that names the build
  std::vector<std::string> words;  // the first words of its command line
};

OtherBuild this_build() {
  std::error_code error;
  const std::string path = fs::read_symlink("/proc/self/exe", error).string();
  if (error) fail(ErrorKind::kRun, kOperation, "expected /proc/self/exe, which names this program");
  return {"this build", {path}};
}

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

// Returns the build at the path `given`, which is another convscope program or a libconvscope.so. A
// library runs in the program of the same build (bin/convscope next to the library's folder), or
// else in this program. In the latter case LD_LIBRARY_PATH is `scratch`, a folder with a link to
// the library, and the function checks which library the loader chooses. Throws an error of kind
// kUnavailable when `given` is neither a program nor a library, or cannot run.
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

constexpr int kUnavailable = 5;         // exit code: this build has no such algorithm
constexpr double kLongest = 24 * 3600;  // seconds of one call

std::string number_text(double value) {
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

std::vector<std::string> global_words() {
  std::vector<std::string> out = {"-q"};
  if (global_options().threads >= 0) {
    out.insert(out.end(), {"--threads", std::to_string(global_options().threads)});
  }
  for (const std::string& plugin : global_options().plugins) {
    out.insert(out.end(), {"--plugin", plugin});
  }
  return out;
}

// Both sides with the rows measured so far.
struct Side {
  OtherBuild build;
  BenchSide rows;  // rows of all cases
};

// Times one call. Returns false when this build has no algorithm for the case.
bool call(const char* command, const OtherBuild& build, const BenchWords& words,
          const std::string& file) {
  std::vector<std::string> line = build.words;
  for (const std::vector<std::string>& more : {global_words(), words, {"--json", file}}) {
    line.insert(line.end(), more.begin(), more.end());
  }
  const OutsideAnswer answer = ask_program(line, "", "it is timed", kLongest);
  if (answer.exit_code == 0) return true;
  if (answer.exit_code == kUnavailable) return false;
  fail(ErrorKind::kRun, command,
       cat("expected ", build.name, " to measure `", join(words, " "), "`, got exit code ",
           answer.exit_code, ": ", answer.last_words()));
}

void add_rows(Side& side, BenchSide more, bool only_auto) {
  const auto algorithm = std::ranges::find(more.key_names, std::string("algorithm"));
  if (only_auto && algorithm != more.key_names.end()) {
    const auto at = static_cast<std::size_t>(algorithm - more.key_names.begin());
    for (TimedRow& row : more.rows) row.key[at] = "auto";
  }
  BenchSide& all = side.rows;
  all.kind = more.kind;
  all.key_names = more.key_names;
  all.not_timed += more.not_timed;
  std::ranges::move(more.rows, std::back_inserter(all.rows));
  std::ranges::move(more.dropped, std::back_inserter(all.dropped));
  for (const auto& [mine, its] :
       {std::pair(&all.settings, &more.settings), std::pair(&all.environment, &more.environment)}) {
    for (const auto& [key, values] : *its) {
      for (const std::string& value : values) add_fact(*mine, key, value);
    }
  }
}

// Removes facts that describe a call instead of the build, such as the load.
void forget_calls(Facts& environment) {
  for (const char* key : {"load", "cores_of_others"}) environment.erase(key);
  std::erase_if(environment, [](const auto& fact) { return fact.first.starts_with("variables."); });
}

}  // namespace

void add_against_options(CommandLine& app, AgainstOptions& options) {
  app.add_option("--against", options.other,
                 "another convscope program or libconvscope.so; both builds are timed in turns and "
                 "compared")
      ->type_name("OTHER");
  app.add_option("--turns", options.turns,
                 "number of calls of each build for each case (with --against)")
      ->range(3, 1000)
      ->capture_default_str();
  add_gate_options(app, options.gate);
}

void check_against(const char* command, const AgainstOptions& options) {
  check_gate(command, options.gate);
  if (options.asked()) return;
  const GateOptions& gate = options.gate;
  if (gate.fail_above > 0 || gate.require_all || gate.no_require_all) {
    fail_usage(command,
               "expected --against OTHER with --fail-above, --require-all or --no-require-all "
               "because they compare with another build, got none");
  }
}

BenchWords timing_words(const TimingArguments& arguments) {
  return {"--device",  arguments.device,
          "--cache",   arguments.cache,
          "--clock",   arguments.clock,
          "--weights", arguments.weights,
          "--rounds",  std::to_string(arguments.rounds)};
}

int bench_against(const char* command, const AgainstOptions& options, const TimingArguments& timing,
                  const std::vector<BenchWords>& cases, bool only_auto) {
  for (const std::string& path : {timing.json, timing.csv}) {
    if (!path.empty()) check_writable(path);
  }
  const ScratchFolder scratch;
  std::array<Side, 2> sides = {Side{find_other_build(options.other, scratch.path()), {}},
                               Side{this_build(), {}}};
  const std::string seconds = number_text(std::max(0.001, timing.min_time / options.turns));
  BenchRemarks remarks(cases.size());
  for (std::size_t c = 0; c < cases.size(); ++c) {
    BenchWords words = cases[c];
    remarks.begin(join(words, " "));
    words.insert(words.end(), {"--min-time", seconds});
    std::array<std::vector<std::string>, 2> files;
    for (int turn = 0; turn < options.turns; ++turn) {
      for (const std::size_t place : {std::size_t{0}, std::size_t{1}}) {
        const std::size_t s = turn % 2 == 0 ? place : 1 - place;
        remarks.say(cat("turn ", turn + 1, " of ", options.turns, ", ", sides[s].build.name));
        const std::string file = cat(scratch.path(), "/", c, "_", s, "_", turn, ".json");
        if (call(command, sides[s].build, words, file)) files[s].push_back(file);
      }
    }
    remarks.clear();
    for (std::size_t s = 0; s < 2; ++s) {
      if (!files[s].empty()) add_rows(sides[s], read_bench_side(join(files[s], ",")), only_auto);
    }
  }
  std::vector<BenchSide> compared;
  for (Side& side : sides) {
    if (side.rows.rows.empty()) {
      fail(ErrorKind::kUnavailable, command,
           cat("expected an algorithm of ", side.build.name,
               " that accepts one of the problems, but each was refused"));
    }
    side.rows.given = side.build.name;
    side.rows.files = std::vector<std::string>(static_cast<std::size_t>(options.turns),
                                               join(side.build.words, " "));
    forget_calls(side.rows.environment);
    compared.push_back(std::move(side.rows));
  }
  const CompareResult comparison = compare_benches(compared);
  for (const std::string& text : comparison.remarks) print_remark(cat(command, ": ", text));
  print_result(comparison_markdown(comparison));
  std::fflush(stdout);
  if (!timing.json.empty()) write_file(timing.json, comparison_json(comparison));
  if (!timing.csv.empty()) write_file(timing.csv, comparison_csv(comparison));
  return pass_gate(comparison, options.gate, /*both_ways=*/false);
}

}  // namespace convscope
