// SPDX-License-Identifier: Apache-2.0
// cli.cpp: parses the command line, runs one command, and turns every failure into one line on
// stderr and an exit code. CLI11 parses; this file replaces its error texts and exit codes.
#include "experiments/cli/cli.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <new>

#include "experiments/cli/command.h"
#include "experiments/cli/help.h"
#include "experiments/cli/screen/stdout.h"
#include "experiments/cli/shell_words.h"
#include "experiments/plugins/plugins.h"
#include "experiments/report/table/fit_text.h"
#include "experiments/run_folder/machine_load.h"
#include "experiments/run_folder/user_words.h"
#include "framework/io/clean_text.h"
#include "framework/number_text.h"
#include "framework/parallel.h"

namespace convscope {

Registry<Command>& commands() {
  static Registry<Command> table("command");
  return table;
}

namespace {

GlobalOptions& mutable_globals() {
  static GlobalOptions options;
  return options;
}

void print_error(std::string_view raw) {
  const std::string text = clean_text(raw);
  std::cout.flush();
  std::fflush(stdout);
  const char* before = use_color(2) ? "\033[1;31merror:\033[0m " : "error: ";
  std::fprintf(stderr, "%s%.*s\n", before, static_cast<int>(text.size()), text.data());
}

// Returns the innermost recognised subcommand, and its path: "config show".
const CommandLine* innermost(const CommandLine& program, std::string& path) {
  const CommandLine* here = &program;
  while (const CommandLine* next = here->chosen()) {
    here = next;
    path += (path.empty() ? "" : " ") + here->name();
  }
  return here;
}

std::vector<std::string> nested_names(const CommandLine& line) {
  std::vector<std::string> names;
  for (const CommandLine& nested : line.nested()) names.push_back(nested.name());
  return names;
}

std::vector<std::string> option_names(const CommandLine& line) {
  std::vector<std::string> names;
  for (const CommandLine* here = &line; here != nullptr; here = here->outer()) {
    for (const CommandOption::Facts& option : here->options()) {
      for (const std::string& name : option.names) names.push_back("--" + name);
      for (const std::string& name : option.short_names) names.push_back("-" + name);
    }
  }
  return names;
}

// Rewords CLI11's sentences: "CONFIG is required", "--threads: 1 required INT missing".
std::string in_our_words(const CommandLine::Parsed& mistake) {
  const std::string& text = mistake.text;
  const std::size_t required = text.find(" is required");
  if (mistake.kind == "RequiredError" && required != std::string::npos) {
    return cat("expected ", text.substr(0, required), ", got nothing");
  }
  const std::size_t colon = text.find(": ");
  if (mistake.kind == "ArgumentMismatch" && text.ends_with("missing") &&
      colon != std::string::npos) {
    return cat(text.substr(0, colon), ": expected a value, got nothing");
  }
  constexpr std::string_view kConversion = "Could not convert: ";  // "--epochs = many"
  const std::size_t equals = text.find(" = ");
  if (text.starts_with(kConversion) && equals != std::string::npos) {
    return cat(text.substr(kConversion.size(), equals - kConversion.size()),
               ": expected a number, got '", text.substr(equals + 3), "'");
  }
  return text;
}

// Returns what is wrong with the command line.
std::string explain_parse_error(const CommandLine& program, const CommandLine::Parsed& mistake) {
  std::string path;
  const CommandLine* here = innermost(program, path);
  const std::string prefix = path.empty() ? "" : cat("[", path, "] ");
  const std::vector<std::string> rest = program.remaining();
  for (const std::string& word : rest) {
    if (!word.starts_with("-") || word == "-") continue;
    const std::string name = word.substr(0, word.find('='));
    return cat(prefix, "unknown option '", name, "'", did_you_mean(name, option_names(*here)));
  }
  if (mistake.kind == "ConversionError" || mistake.kind == "ValidationError") {
    return cat(prefix, in_our_words(mistake));  // later words were not read
  }
  const std::vector<std::string> nested = nested_names(*here);
  if (!nested.empty() && (!rest.empty() || mistake.kind == "RequiredError")) {
    if (rest.empty()) return cat(prefix, "expected one of the commands ", join(nested));
    return cat(prefix, "unknown command '", rest[0], "'", did_you_mean(rest[0], nested),
               " (known: ", join(nested), ")");
  }
  if (!rest.empty()) return cat(prefix, "expected no further argument, got '", rest[0], "'");
  return cat(prefix, in_our_words(mistake));
}

int usage_error(const CommandLine& program, const CommandLine::Parsed& mistake) {
  std::string path;
  innermost(program, path);
  print_error(explain_parse_error(program, mistake));
  std::fprintf(stderr, "hint: `convscope %s%s--help` shows how it is called\n", path.c_str(),
               path.empty() ? "" : " ");
  return 2;
}

void print_help(const CommandLine& program) {
  std::string path;
  const CommandLine* here = innermost(program, path);
  std::cout << (path.empty() ? program_help(program) : command_help(*here, path));
}

void declare_globals(CommandLine& program, GlobalOptions& globals) {
  program.set_help_flag("-h,--help", "help of the program or of a command");
  program.set_version_flag("-V,--version", "convscope " CONVSCOPE_VERSION,
                           "version of the program");
  program.add_flag_function(
      "-v,--verbose",
      [&globals](std::int64_t count) { globals.verbosity = static_cast<int>(count); },
      "more messages (-vv: still more)");
  program.add_flag_function(
      "-q,--quiet", [&globals](std::int64_t) { globals.verbosity = -1; }, "errors only");
  program
      .add_option_function(
          "--threads",
          [&globals](const std::string& word) {
            globals.threads = parse_number<int>(word).value_or(-1);
          },
          "number of threads; 0: all cores; replaces the config's value")
      ->type_name("N")
      ->range(0, 1024);
  program
      .add_option("--plugin", globals.plugins,
                  "plug-in with a custom algorithm (convscope new algorithm), or a folder of "
                  "plug-ins; may be given several times. A plug-in is code that runs with your "
                  "rights: open only files that you trust")
      ->type_name("FILE")
      ->one_at_a_time();
  program
      .add_option_function(
          "--color",
          [&globals](const std::string& word) {
            globals.color = word == "always"  ? ColorMode::always
                            : word == "never" ? ColorMode::never
                                              : ColorMode::automatic;
          },
          "use of colours: auto, always or never; NO_COLOR=1 in the environment means never")
      ->type_name("WHEN")
      ->suggest({"auto", "always", "never"})
      ->check([](const std::string& word) -> std::string {
        const bool fits = word == "auto" || word == "always" || word == "never";
        return fits ? "" : cat("expected auto, always or never, got '", word, "'");
      });
}

// Returns whether a word before --help names no command.
bool asks_for_help_of_nothing(const CommandLine& program) {
  std::string path;
  const CommandLine* const here = innermost(program, path);
  const std::vector<std::string> rest = program.remaining();
  return !here->nested().empty() &&
         std::ranges::any_of(rest, [](const std::string& word) { return !word.starts_with("-"); });
}

// Refuses words that the shell has split because quotes are missing.
void refuse_missing_quotes(int argc, char** argv) {
  const std::vector<std::string> given(argv + std::min(argc, 1), argv + argc);
  const std::string sentence = missing_quotes(given);
  if (sentence.empty()) return;
  const std::string& first = given.front();
  fail(ErrorKind::kInvalid, first.starts_with("-") ? "convscope" : first, sentence);
}

int parse_and_run(int argc, char** argv) {
  GlobalOptions& globals = mutable_globals();
  globals = GlobalOptions{};
  CommandLine program("convscope");
  const StdoutFile stdout_file;
  const FittedStdout fitted_stdout;
  begin_load_watch();
  refuse_missing_quotes(argc, argv);
  declare_globals(program, globals);
  program.require_subcommand(0, 1);
  std::map<std::string, std::function<int()>> actions;
  for (const auto& [name, command] : commands().entries()) {
    CommandLine* line = program.add_subcommand(name, command.summary);
    line->fallthrough();  // nested commands do the same
    actions[name] = command.declare(*line);
  }
  CommandLine::Parsed parsed = program.parse(argc, argv);
  if (parsed.outcome == CommandLine::Outcome::help && asks_for_help_of_nothing(program)) {
    parsed = {.outcome = CommandLine::Outcome::mistake, .text = "", .kind = ""};
  }
  if (parsed.outcome == CommandLine::Outcome::mistake) return usage_error(program, parsed);
  if (parsed.outcome == CommandLine::Outcome::version) {
    std::cout << parsed.text << "\n";
    return 0;
  }
  const CommandLine* command = program.chosen();
  if (parsed.outcome == CommandLine::Outcome::help || command == nullptr) {
    print_help(program);
    return 0;
  }
  // Tests of the documentation set this variable to check that the program accepts a command line;
  // the command does not run.
  if (std::getenv("CONVSCOPE_PARSE_ONLY") != nullptr) return 0;
  if (globals.threads >= 0) set_num_threads(globals.threads);
  if (commands().get(command->name()).opens_plugins && !globals.plugins.empty()) {
    open_plugins_of_command_line(globals.plugins, [](const std::string& refusal) {
      print_remark(cat("warning: ", refusal, "; it is left out"));
    });
    print_remark(cat("note: ", kPluginWarning));
  }
  return actions.at(command->name())();
}

// A write error such as a full disk may appear only when the last bytes are written, so the streams
// are flushed and checked.
int flush_results(int code) {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::cout.good() && std::ferror(stdout) == 0) return code;
  std::fprintf(stderr, "error: [stdout] expected to write the results, got: %s\n",
               std::strerror(errno));
  return code == 0 ? exit_code(ErrorKind::kIo) : code;
}

}  // namespace

void print_result(std::string_view text) {
  const std::string clean = clean_text(text);
  std::cout.flush();
  std::fwrite(clean.data(), 1, clean.size(), stdout);
}

void print_screen(std::string_view text) { std::cout << clean_text(text); }

void print_remark(std::string_view line) {
  if (mutable_globals().verbosity < 0) return;
  std::fprintf(stderr, "%s\n", fit_text(clean_text(line), screen_width(STDERR_FILENO)).c_str());
}

const GlobalOptions& global_options() { return mutable_globals(); }

std::vector<std::string> global_overrides() {
  const int threads = mutable_globals().threads;
  if (threads < 0) return {};
  return {cat("threads=", threads)};
}

bool use_color(int file_descriptor) {
  if (mutable_globals().color != ColorMode::automatic) {
    return mutable_globals().color == ColorMode::always;
  }
  const char* no_color = std::getenv("NO_COLOR");  // https://no-color.org
  if (no_color != nullptr && no_color[0] != '\0') return false;
  const char* terminal = std::getenv("TERM");
  if (terminal != nullptr && std::strcmp(terminal, "dumb") == 0) return false;
  return isatty(file_descriptor) == 1;
}

void fail_usage(std::string_view command, std::string_view sentence) {
  fail(ErrorKind::kInvalid, command,
       cat(sentence, " (`convscope ", command, " --help` shows how it is called)"));
}

int report_failure(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    // The config loader reports whole lines, `file:line:col: error: ...`, which editors understand.
    constexpr std::string_view kConfigPrefix = "[config] ";
    const std::string_view text = error.what();
    if (error.kind() == ErrorKind::kConfig && text.starts_with(kConfigPrefix)) {
      std::cout.flush();
      const std::string_view lines = text.substr(kConfigPrefix.size());
      std::fprintf(stderr, "%.*s\n", static_cast<int>(lines.size()), lines.data());
    } else {
      print_error(text);
    }
    return exit_code(error.kind());
  } catch (const std::filesystem::filesystem_error& error) {
    // A system call with this path fails, because the path is too long or a folder is not readable.
    print_error(cat("expected to use the path '", error.path1().string(),
                    "', got: ", error.code().message()));
    return exit_code(ErrorKind::kIo);
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
  } catch (const std::exception& error) {
    print_error(error.what());
  } catch (...) {
    print_error("an unknown failure");
  }
  return 1;
}

int run_command_line(int argc, char** argv) {
  int code = 1;
  try {
    code = parse_and_run(argc, argv);
  } catch (...) {
    code = report_failure(std::current_exception());
  }
  return flush_results(code);
}

}  // namespace convscope
