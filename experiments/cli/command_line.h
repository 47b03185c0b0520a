// SPDX-License-Identifier: Apache-2.0
// command_line.h: the options and arguments that a command declares, and their parsing. A thin
// front of CLI11: CLI11 alone takes about ten seconds to compile, so it is included in
// command_line.cpp and nowhere else. The names are those of CLI11.
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

// One option, flag or positional argument. Every call changes it and returns it.
class CommandOption {
 public:
  // `names` as the help prints them; CLI11 may know a positional argument by another name.
  CommandOption(CLI::Option* option, std::string names)
      : option_(option), names_(std::move(names)) {}

  CommandOption* required();
  CommandOption* type_name(const std::string& name);  // what the help prints for its value
  CommandOption* capture_default_str();               // the help prints its value of now
  CommandOption* delimiter(char mark);                // "a,b" is two values
  CommandOption* one_at_a_time();  // of several values: one for each time it is named
  CommandOption* one_of(const std::vector<std::string>& words);
  // Words that the shell may complete a value to; others are taken too.
  CommandOption* suggest(const std::vector<std::string>& words);
  CommandOption* range(std::int64_t least, std::int64_t most);
  CommandOption* positive();     // above 0
  CommandOption* output_file();  // a file to write a text to; "-" is stdout
  // `wrong` says what is wrong with a word; "" when nothing is.
  CommandOption* check(const std::function<std::string(const std::string&)>& wrong);

  // For the help.
  struct Facts {
    bool is_positional = false;
    bool is_required = false;
    int values = 1;                               // the most that it takes; 0: a flag
    std::string name;                             // of a positional argument
    std::vector<std::string> short_names, names;  // without their dashes
    std::string type, description, default_value;
    std::vector<std::string> choices;  // for the completion of shells; none: not known
  };
  Facts facts() const;

 private:
  friend class CommandLine;
  CLI::Option* option_;
  std::string names_;
  std::vector<std::string> choices_ = {};
};

// What a command line may hold: the options of the program or of one command, and commands inside
// it.
class CommandLine {
 public:
  explicit CommandLine(const std::string& program);  // the outermost one
  explicit CommandLine(CLI::App* nested);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  // Names as CLI11 takes them: "-o,--output" for an option, "CONFIG" for a positional argument. The
  // value is written while the line is parsed, so it must live until then.
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
  // `take` is told how often the flag stands on the line.
  CommandOption* add_flag_function(const std::string& names,
                                   const std::function<void(std::int64_t)>& take,
                                   const std::string& description);
  void set_help_flag(const std::string& names, const std::string& description);
  void set_version_flag(const std::string& names, const std::string& text,
                        const std::string& description);

  CommandLine* add_subcommand(const std::string& name, const std::string& description);
  void require_subcommand(int least, int most);
  void require_subcommand(int count) { require_subcommand(count, count); }
  void take_rest();    // the first word that is no option ends them: it and all others remain
  void fallthrough();  // options of the outer ones stand here too
  void callback(const std::function<void()>& parsed);  // called when this command was named

  enum class Outcome { run, help, version, mistake };
  struct Parsed {
    Outcome outcome = Outcome::run;
    std::string text;  // the version, or what is wrong in CLI11's words
    std::string kind;  // CLI11's name of the mistake
  };
  Parsed parse(int argc, char** argv);

  std::string name() const;
  std::string description() const;
  bool parsed() const;                // was this command named?
  const CommandLine* chosen() const;  // the command inside it that was named, or null
  const CommandLine* outer() const { return outer_; }
  const std::list<CommandLine>& nested() const { return nested_; }
  std::vector<CommandOption::Facts> options() const;  // in their order; no hidden ones
  std::vector<std::string> remaining() const;         // words that nothing took

 private:
  template <class T>
  CommandOption* add(const std::string& names, T& value, const std::string& description);
  CommandOption* keep(CLI::Option* option, const std::string& names);

  std::unique_ptr<CLI::App> owned_;  // of the outermost one
  CLI::App* app_;
  const CommandLine* outer_ = nullptr;
  std::list<CommandOption> options_;  // pointers to its elements stay valid
  std::list<CommandLine> nested_;
};

}  // namespace convscope
