// SPDX-License-Identifier: Apache-2.0
// help.cpp: the texts that `convscope` and `convscope COMMAND --help` print.
#include "experiments/cli/help.h"

#include <algorithm>
#include <vector>

#include "experiments/cli/command.h"

namespace convscope {
namespace {

using Row = HelpRow;

std::string table(const std::string& title, const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  std::size_t width = 0;
  for (const Row& row : rows) {
    if (row.left.size() <= 26) width = std::max(width, row.left.size());
  }
  std::string out = title + "\n";
  for (const Row& row : rows) {
    out += "  " + row.left;
    if (row.right.empty()) {
      out += "\n";
    } else if (row.left.size() > width) {
      out += "\n" + std::string(width + 4, ' ') + row.right + "\n";
    } else {
      out += std::string(width - row.left.size() + 2, ' ') + row.right + "\n";
    }
  }
  return out + "\n";
}

std::vector<Row> nested_rows(const CommandLine& line) {
  std::vector<Row> rows;
  for (const CommandLine& nested : line.nested()) {
    rows.push_back({nested.name(), nested.description()});
  }
  return rows;
}

}  // namespace

std::vector<Row> option_rows(const CommandLine& line, bool positional) {
  std::vector<Row> rows;
  for (const CommandOption::Facts& option : line.options()) {
    if (option.is_positional != positional) continue;
    std::string left;
    if (positional) {
      left = option.name;
    } else {
      for (const std::string& name : option.short_names)
        left += (left.empty() ? "-" : ", -") + name;
      for (const std::string& name : option.names)
        left += (left.empty() ? "    --" : ", --") + name;
      if (option.values > 0 && !option.type.empty()) left += " " + option.type;
    }
    std::string right = option.description;
    if (option.is_required && !positional) right += " (required)";
    if (!option.default_value.empty()) right += " (default " + option.default_value + ")";
    rows.push_back({left, right});
  }
  return rows;
}

std::string usage_of(const CommandLine& line, const std::string& path) {
  const Command* command = commands().find(path);
  if (command != nullptr && !command->usage.empty()) return command->usage;
  std::string usage = path;
  if (!line.nested().empty()) usage += " COMMAND";
  for (const CommandOption::Facts& option : line.options()) {
    if (!option.is_positional) continue;
    const std::string word = option.values > 1 ? option.name + "..." : option.name;
    usage += option.is_required ? " " + word : " [" + word + "]";
  }
  return usage;
}

std::string program_help(const CommandLine& line) {
  std::string out =
      "convscope: looks at convolution. It trains small networks from YAML configs with any of "
      "its\n"
      "convolution algorithms and logs speed, memory and accuracy.\n"
      "\n"
      "First command to type (no data needed, under a minute):\n"
      "  convscope run quickstart\n"
      "\n"
      "Usage: convscope COMMAND ... [options]\n"
      "\n";
  std::vector<std::pair<int, std::string>> ordered;
  for (const auto& [name, command] : commands().entries())
    ordered.emplace_back(command.order, name);
  std::sort(ordered.begin(), ordered.end());
  std::vector<Row> rows, examples;
  for (const auto& [order, name] : ordered) {
    const Command& command = commands().get(name);
    rows.push_back({name, command.summary});
    if (!command.examples.empty()) examples.push_back({"convscope " + command.examples[0], ""});
  }
  out += table("Commands:", rows);
  out += table("Examples:", examples);
  out += table("Options, for every command:", option_rows(line, false));
  return out +
         "`convscope help COMMAND` says more about one command; so does `convscope COMMAND "
         "--help`.\n";
}

std::string command_help(const CommandLine& line, const std::string& path) {
  std::string out = "convscope " + path + ": " + line.description() + "\n\n";
  out += "Usage: convscope " + usage_of(line, path) + "\n\n";
  out += table("Commands:", nested_rows(line));
  std::vector<Row> positionals;
  for (Row& row : option_rows(line, true)) {
    if (!row.right.empty()) positionals.push_back(row);
  }
  out += table("Arguments:", positionals);
  out += table("Options:", option_rows(line, false));
  const std::string top = path.substr(0, path.find(' '));
  std::vector<Row> examples;
  if (const Command* command = commands().find(top)) {
    for (const std::string& example : command->examples) {
      if (example.starts_with(path)) examples.push_back({"convscope " + example, ""});
    }
  }
  out += table("Examples:", examples);
  return out + "Also: -v, -q, --threads N, --plugin FILE, --color WHEN (see `convscope --help`).\n";
}

}  // namespace convscope
