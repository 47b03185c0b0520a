// SPDX-License-Identifier: Apache-2.0
// command_line.cpp: declaration and parsing of options and arguments.
#include "experiments/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <optional>

#include "experiments/cli/screen/stdout.h"
#include "experiments/run_folder/user_words.h"
#include "framework/io/former_names.h"
#include "framework/number_text.h"
#include "framework/registry.h"

namespace convscope {

CommandOption* CommandOption::required() {
  option_->required();
  return this;
}

CommandOption* CommandOption::type_name(const std::string& name) {
  option_->type_name(name);
  return this;
}

CommandOption* CommandOption::capture_default_str() {
  option_->capture_default_str();
  return this;
}

CommandOption* CommandOption::delimiter(char mark) {
  option_->delimiter(mark);
  return this;
}

CommandOption* CommandOption::one_at_a_time() {
  option_->allow_extra_args(false);
  return this;
}

CommandOption* CommandOption::one_of(const std::vector<std::string>& words) {
  option_->transform([words](const std::string& word) {
    const bool is_former = std::ranges::count(words, todays_name(word)) > 0;
    return is_former ? std::string(accepted_name(word)) : word;
  });
  check([words](const std::string& word) -> std::string {
    if (std::ranges::count(words, word) > 0) return "";
    return cat("expected one of ", join(words), ", got '", word, "'",
               did_you_mean(word.substr(0, 100), words));
  });
  return suggest(words);
}

CommandOption* CommandOption::suggest(const std::vector<std::string>& words) {
  choices_ = words;
  return this;
}

CommandOption* CommandOption::range(std::int64_t least, std::int64_t most) {
  return check([=](const std::string& word) -> std::string {
    const std::optional<std::int64_t> value = parse_number<std::int64_t>(word);
    if (value && *value >= least && *value <= most) return "";
    return cat("expected an integer from ", least, " to ", most, ", got '", word, "'");
  });
}

CommandOption* CommandOption::positive() {
  return check([](const std::string& word) -> std::string {
    const std::optional<double> value = parse_number<double>(word);
    if (value && *value > 0 && std::isfinite(*value)) return "";
    return cat("expected a number above 0, got '", word, "'");
  });
}

CommandOption* CommandOption::output_file() {
  option_->transform(CLI::Validator(
      [](std::string& path) -> std::string {
        if (path != "-") return "";
        if (StdoutFile::is_taken()) return "expected one output on stdout ('-'), got two";
        path = StdoutFile::take();
        return "";
      },
      "", ""));
  return this;
}

CommandOption* CommandOption::check(const std::function<std::string(const std::string&)>& wrong) {
  option_->check(wrong);
  return this;
}

namespace {
// Returns the placeholder that the help shows for an option's value. `type` is CLI11's name of the
// type, or a name that the command has set.
std::string type_of(const std::string& type, const std::vector<std::string>& choices) {
  if (type == "INT" || type == "UINT") return "N";
  if (type == "FLOAT") return "X";
  if (type != "TEXT" || choices.empty()) return type;
  const std::string words = join(choices, "|");
  return words.size() <= 20 ? words : "NAME";
}
}  // namespace

CommandOption::Facts CommandOption::facts() const {
  return {.is_positional = option_->get_positional(),
          .is_required = option_->get_required(),
          .values = option_->get_expected_max(),
          .name = names_,
          .short_names = option_->get_snames(),
          .names = option_->get_lnames(),
          .type = type_of(option_->get_type_name(), choices_),
          .description = option_->get_description(),
          .default_value = option_->get_default_str(),
          .choices = choices_};
}

CommandLine::CommandLine(const std::string& program)
    : owned_(std::make_unique<CLI::App>(program)), app_(owned_.get()) {}

CommandLine::CommandLine(CLI::App* nested) : app_(nested) {}

CommandLine::~CommandLine() = default;

CommandOption* CommandLine::keep(CLI::Option* option, const std::string& names) {
  return &options_.emplace_back(option, names);
}

namespace {
// Newer versions of CLI11 refuse '=' in the name of a positional argument (KEY=VALUE).
std::string name_for_cli11(std::string names) {
  std::ranges::replace(names, '=', '_');
  return names;
}
}  // namespace

template <class T>
CommandOption* CommandLine::add(const std::string& names, T& value,
                                const std::string& description) {
  return keep(app_->add_option(name_for_cli11(names), value, description), names);
}

namespace {
// Refuses an empty text as the value of an option, because CLI11 treats such an option as not
// given. Commands check empty arguments themselves.
CommandOption* without_empty_texts(CommandOption* option) {
  if (option->facts().is_positional) return option;
  return option->check([](const std::string& word) -> std::string {
    return word.empty() ? "expected a value, got an empty text; leave the option out" : "";
  });
}
}  // namespace

CommandOption* CommandLine::add_option(const std::string& names, std::string& value,
                                       const std::string& description) {
  return without_empty_texts(add(names, value, description));
}

CommandOption* CommandLine::add_option(const std::string& names, int& value,
                                       const std::string& description) {
  return add(names, value, description);
}

CommandOption* CommandLine::add_option(const std::string& names, std::int64_t& value,
                                       const std::string& description) {
  return add(names, value, description);
}

CommandOption* CommandLine::add_option(const std::string& names, std::uint64_t& value,
                                       const std::string& description) {
  return add(names, value, description);
}

CommandOption* CommandLine::add_option(const std::string& names, double& value,
                                       const std::string& description) {
  return add(names, value, description);
}

CommandOption* CommandLine::add_option(const std::string& names, std::vector<std::string>& values,
                                       const std::string& description) {
  return without_empty_texts(add(names, values, description));
}

CommandOption* CommandLine::add_option_function(const std::string& names,
                                                const std::function<void(const std::string&)>& take,
                                                const std::string& description) {
  return without_empty_texts(
      keep(app_->add_option_function<std::string>(names, take, description), names));
}

CommandOption* CommandLine::add_flag(const std::string& names, bool& value,
                                     const std::string& description) {
  return keep(app_->add_flag(names, value, description), names);
}

// CLI11's group of options that no help shows. In a group without a name, errors would not name the
// option.
constexpr const char* kFormerNames = "former names";

void CommandLine::add_former_name(const std::string& former, const std::string& today,
                                  std::string& value) {
  const auto take = [former, today, &value](const std::string& text) {
    warn_of_former_name(former, today);
    value = text;
  };
  app_->add_option_function<std::string>(former, take)->group(kFormerNames);
}

CommandOption* CommandLine::add_flag_function(const std::string& names,
                                              const std::function<void(std::int64_t)>& take,
                                              const std::string& description) {
  return keep(app_->add_flag_function(names, take, description), names);
}

void CommandLine::set_help_flag(const std::string& names, const std::string& description) {
  app_->set_help_flag(names, description);
}

void CommandLine::set_version_flag(const std::string& names, const std::string& text,
                                   const std::string& description) {
  app_->set_version_flag(names, text, description);
}

CommandLine* CommandLine::add_subcommand(const std::string& name, const std::string& description) {
  CommandLine& line = nested_.emplace_back(app_->add_subcommand(name, description));
  line.outer_ = this;
  return &line;
}

void CommandLine::require_subcommand(int least, int most) {
  app_->require_subcommand(static_cast<std::size_t>(least), static_cast<std::size_t>(most));
}

void CommandLine::fallthrough() { app_->fallthrough(); }

void CommandLine::callback(const std::function<void()>& parsed) { app_->callback(parsed); }

CommandLine::Parsed CommandLine::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return {.outcome = Outcome::help, .text = "", .kind = ""};
  } catch (const CLI::CallForVersion& version) {
    return {.outcome = Outcome::version, .text = version.what(), .kind = ""};
  } catch (const CLI::ParseError& error) {
    return {.outcome = Outcome::mistake, .text = error.what(), .kind = error.get_name()};
  }
  return {};
}

std::string CommandLine::name() const { return app_->get_name(); }

std::string CommandLine::description() const { return app_->get_description(); }

bool CommandLine::parsed() const { return app_->parsed(); }

const CommandLine* CommandLine::chosen() const {
  const std::vector<CLI::App*> named = app_->get_subcommands();
  for (const CommandLine& line : nested_) {
    if (!named.empty() && line.app_ == named.front()) return &line;
  }
  return nullptr;
}

std::vector<CommandOption::Facts> CommandLine::options() const {
  std::vector<CommandOption::Facts> facts;
  for (CLI::Option* option : app_->get_options({})) {
    if (option->get_group() == kFormerNames) continue;
    const auto kept = std::ranges::find(options_, option, &CommandOption::option_);
    facts.push_back(kept != options_.end()
                        ? kept->facts()
                        : CommandOption(option, option->get_name(true, false)).facts());
  }
  return facts;
}

void CommandLine::take_rest() { app_->prefix_command()->fallthrough(false); }

std::vector<std::string> CommandLine::remaining() const { return app_->remaining(true); }

}  // namespace convscope
