// SPDX-License-Identifier: Apache-2.0
// command_line.h: declaration and parsing of options and arguments. A thin wrapper of CLI11 that
// keeps CLI11's names. Only command_line.cpp includes CLI11, which takes about ten seconds to
// compile.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace convscope {

// One option, flag or positional argument. Every setter returns the option itself.
class CommandOption {
 public:
  // Keeps `names`, which the help prints. CLI11 may use another name for a positional argument.
  CommandOption(CLI::Option* option, std::string names)
      : option_(option), names_(std::move(names)) {}

  CommandOption* required();
  CommandOption* type_name(const std::string& name);  // placeholder of the value in the help
  CommandOption* capture_default_str();               // the help prints its present value
  CommandOption* delimiter(char mark);                // "a,b" is two values
  CommandOption* one_at_a_time();  // an option with several values takes one per occurrence
  CommandOption* one_of(const std::vector<std::string>& words);
  // Sets values that the shell completes; other values are accepted too.
  CommandOption* suggest(const std::vector<std::string>& words);
  CommandOption* range(std::int64_t least, std::int64_t most);
  CommandOption* positive();     // above 0
  CommandOption* output_file();  // a text file to write; "-" is stdout
  // Checks each value with `wrong`, which returns an error sentence, or "" for a valid value.
  CommandOption* check(const std::function<std::string(const std::string&)>& wrong);

  // Facts for the help.
  struct Facts {
    bool is_positional = false;
    bool is_required = false;
    int values = 1;                               // largest number of values; 0: a flag
    std::string name;                             // name of a positional argument
    std::vector<std::string> short_names, names;  // without their dashes
    std::string type, description, default_value;
    std::vector<std::string> choices;  // for shell completion; empty: unknown
  };
  Facts facts() const;

 private:
  friend class CommandLine;
  CLI::Option* option_;
  std::string names_;
  std::vector<std::string> choices_ = {};
};

// The options of the program or of one command, with its nested commands.
class CommandLine {
 public:
  explicit CommandLine(const std::string& program);  // the program itself
  explicit CommandLine(CLI::App* nested);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  // Adds an option; names as in CLI11: "-o,--output" for an option, "CONFIG" for a positional
  // argument. Parsing writes to `value`, which must exist until then.
  CommandOption* add_option(const std::string& names, std::string& value,
                            const std::string& description);
  CommandOption* add_option(const std::string& names, int& value, const std::string& description);
  CommandOption* add_option(const std::string& names, std::int64_t& value,
                            const std::string& description);
  CommandOption* add_option(const std::string& names, std::uint64_t& value,
                            const std::string& description);
  CommandOption* add_option(const std::string& names, double& value,
                            const std::string& description);
  CommandOption* add_option(const std::string& names, std::vector<std::string>& values,
                            const std::string& description);
  CommandOption* add_option_function(const std::string& names,
                                     const std::function<void(const std::string&)>& take,
                                     const std::string& description);
  CommandOption* add_flag(const std::string& names, bool& value, const std::string& description);
  // Calls `take` with the number of occurrences of the flag.
  CommandOption* add_flag_function(const std::string& names,
                                   const std::function<void(std::int64_t)>& take,
                                   const std::string& description);
  // Accepts the former name of an option: the option `former` sets `value`, as the option `today`
  // does, and prints a warning.
  void add_former_name(const std::string& former, const std::string& today, std::string& value);
  void set_help_flag(const std::string& names, const std::string& description);
  void set_version_flag(const std::string& names, const std::string& text,
                        const std::string& description);

  CommandLine* add_subcommand(const std::string& name, const std::string& description);
  void require_subcommand(int least, int most);
  void require_subcommand(int count) { require_subcommand(count, count); }
  void take_rest();    // parsing stops at the first other word; remaining() has the rest
  void fallthrough();  // accepts options of the outer commands too
  void callback(const std::function<void()>& parsed);  // called when this command was given

  enum class Outcome { run, help, version, mistake };
  struct Parsed {
    Outcome outcome = Outcome::run;
    std::string text;  // the version, or CLI11's error text
    std::string kind;  // CLI11's name of the error
  };
  Parsed parse(int argc, char** argv);

  std::string name() const;
  std::string description() const;
  bool parsed() const;                // whether this command was given
  const CommandLine* chosen() const;  // the nested command that was given, or null
  const CommandLine* outer() const { return outer_; }
  const std::list<CommandLine>& nested() const { return nested_; }
  std::vector<CommandOption::Facts> options() const;  // as declared; no hidden ones
  std::vector<std::string> remaining() const;         // words that nothing consumed

 private:
  template <class T>
  CommandOption* add(const std::string& names, T& value, const std::string& description);
  CommandOption* keep(CLI::Option* option, const std::string& names);

  std::unique_ptr<CLI::App> owned_;  // only for the program itself
  CLI::App* app_;
  const CommandLine* outer_ = nullptr;
  std::list<CommandOption> options_;  // pointers to elements stay valid
  std::list<CommandLine> nested_;
};

}  // namespace convscope
