// SPDX-License-Identifier: Apache-2.0
// command.h: the table of subcommands of `convscope`. A new command needs only its file,
// <name>_command.cpp, which registers the command in its last lines:
//
//   std::function<int()> declare_data(CommandLine& app) {
//     auto root = std::make_shared<std::string>("data");
//     app.add_option("--root", *root, "folder that holds the data sets");
//     return [root] { ...; return 0; };                       // runs after parsing; exit code
//   }
//   CONVSCOPE_REGISTER_COMMAND("data", {.summary = "Download and check data sets.",
//                                       .usage = "data fetch NAME [--root DIR]",
//                                       .examples = {"data fetch mnist"},
//                                       .order = 40,
//                                       .declare = declare_data})
//
// A command prints results to stdout, progress and remarks to stderr, and throws convscope::Error;
// the caller turns an error into one line and an exit code. When the returned closure runs, the
// global options have taken effect: the number of threads is set, and plug-ins are open.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "experiments/cli/command_line.h"
#include "framework/registry.h"

namespace convscope {

// How a command is called, without the program's name.
struct CommandCalls {
  std::string usage;                       // "run CONFIG [KEY=VALUE...]"
  std::vector<std::string> examples = {};  // command lines
};

struct Command {
  std::string summary;  // one line for the list of commands
  std::string usage = {};
  std::vector<std::string> examples = {};
  // Returns usage and examples that name the operators, whose table is complete only in main().
  CommandCalls (*calls_of_operators)() = nullptr;
  int order = 100;         // place in the list of commands; small comes first
  std::string group = "";  // heading in the list of commands; "": "More commands"
  // Adds options, positionals and nested subcommands to `app` and returns the action. The parser
  // fills in values after this call, so they must be in a shared_ptr that the returned closure
  // holds.
  std::function<std::function<int()>(CommandLine& app)> declare;
  // If false, the plug-ins of --plugin are not opened in this process.
  bool opens_plugins = true;

  CommandCalls calls() const {
    return calls_of_operators != nullptr ? calls_of_operators() : CommandCalls{usage, examples};
  }
};
CONVSCOPE_API Registry<Command>& commands();

enum class ColorMode { automatic, always, never };

// The values of the global options.
struct GlobalOptions {
  int verbosity = 0;  // -1 quiet: errors only; 0 normal; 1 and 2: more
  int threads = -1;   // --threads; -1: not given, the config decides; 0: all cores
  ColorMode color = ColorMode::automatic;
  std::vector<std::string> plugins;  // --plugin: files and folders
};
CONVSCOPE_API const GlobalOptions& global_options();
// Returns the global options as overrides of a config ("threads=2"). Commands that load a config
// append them to the user's overrides.
CONVSCOPE_API std::vector<std::string> global_overrides();
// Returns whether text on this stream (1 stdout, 2 stderr) is coloured: --color decides, then
// NO_COLOR, then whether the stream is a terminal.
CONVSCOPE_API bool use_color(int file_descriptor);

// Prints text: results to stdout, remarks to stderr (one line each, none with -q). Control
// characters in names and files are cleaned (framework/io/clean_text.h). print_screen() wraps text
// for people to the terminal's width; other results (CSV, YAML, paths) are never wrapped.
CONVSCOPE_API void print_result(std::string_view text);
CONVSCOPE_API void print_screen(std::string_view text);
CONVSCOPE_API void print_remark(std::string_view line);

// Prints the exception as one line on stderr and returns its exit code.
CONVSCOPE_API int report_failure(const std::exception_ptr& failure);

// Throws the error for a wrong command line: exit code 2, with a hint at `convscope <command>
// --help`.
[[noreturn]] CONVSCOPE_API void fail_usage(std::string_view command, std::string_view sentence);

}  // namespace convscope

#define CONVSCOPE_REGISTER_COMMAND(name, ...)                                               \
  namespace {                                                                               \
  const bool registered_command = ::convscope::commands().add(name, __VA_ARGS__, __FILE__); \
  }
