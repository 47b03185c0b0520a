// SPDX-License-Identifier: Apache-2.0
// help.cpp: the texts that `convscope` and `convscope COMMAND --help` print.
#include "experiments/cli/help.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "experiments/cli/command.h"
#include "experiments/report/table/fit_text.h"

namespace convscope {
namespace {

using Row = HelpRow;

// Returns the width of the terminal, or a default width if stdout is not a terminal.
std::size_t width_of_pages() {
  const std::size_t width = screen_width(STDOUT_FILENO);
  return width == 0 ? kUsualWidth : width;
}

std::string table(const std::string& title, const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  std::size_t left = 0;
  for (const Row& row : rows) {
    if (row.left.size() <= 26) left = std::max(left, row.left.size());
  }
  const std::size_t column = left + 4, width = width_of_pages();
  std::string out = title + "\n";
  for (const Row& row : rows) {
    std::string first = "  " + row.left;
    if (row.right.empty()) {
      out += first + "\n";
      continue;
    }
    if (row.left.size() > left) {
      out += fit_text(first + "\n", width);
      first.clear();
    }
    first.resize(column, ' ');
    out += hanging_text(first, row.right, column, width);
  }
  return out + "\n";
}

// Returns a shell command; a long one continues on the next line after a backslash.
std::string command_lines(const std::string& command) {
  constexpr std::size_t kIndent = 8;  // farther right than options
  const std::size_t width = width_of_pages();
  std::string out, line = "  ";
  char quote = '\0';
  bool begins = true;
  for (std::size_t begin = 0; begin < command.size();) {
    std::size_t end = begin;  // end of the word, including quoted blanks
    for (; end < command.size() && (command[end] != ' ' || quote != '\0'); ++end) {
      const char c = command[end];
      if (quote == c) {
        quote = '\0';
      } else if (quote == '\0' && (c == '"' || c == '\'')) {
        quote = c;
      }
    }
    const std::string word = command.substr(begin, end - begin);
    if (!begins && line.size() + 1 + word.size() + 2 > width) {
      out += line + " \\\n";
      line = std::string(kIndent, ' ') + word;
    } else {
      line += (begins ? "" : " ") + word;
    }
    begins = false;
    begin = end + 1;
  }
  return out + line + "\n";
}

std::string examples_text(const std::vector<std::string>& examples) {
  if (examples.empty()) return "";
  std::string out = "Examples:\n";
  for (const std::string& example : examples) out += command_lines("convscope " + example);
  return out + "\n";
}

// Returns "Usage: convscope bench net ...", each usage on its own lines.
std::string usage_text(const std::string& usage) {
  constexpr std::string_view kTitle = "Usage: ";
  std::string out;
  for (std::size_t begin = 0; begin <= usage.size();) {
    const std::size_t end = std::min(usage.find('\n', begin), usage.size());
    const std::string first = out.empty() ? std::string(kTitle) : std::string(kTitle.size(), ' ');
    out += hanging_text(first, "convscope " + usage.substr(begin, end - begin), kTitle.size() + 4,
                        width_of_pages());
    begin = end + 1;
  }
  return out + "\n";
}

// Returns whether a usage line already names the option.
bool is_named(const std::string& usage, const CommandOption::Facts& option) {
  const auto has = [&](const std::string& word) {
    for (std::size_t at = usage.find(word); at != std::string::npos;
         at = usage.find(word, at + 1)) {
      const char after = at + word.size() < usage.size() ? usage[at + word.size()] : ' ';
      if (std::isalnum(static_cast<unsigned char>(after)) == 0 && after != '-') return true;
    }
    return false;
  };
  return std::ranges::any_of(option.names, [&](const auto& name) { return has("--" + name); }) ||
         std::ranges::any_of(option.short_names, [&](const auto& name) { return has("-" + name); });
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
  std::string usage = command != nullptr ? command->calls().usage : "";
  const bool written = !usage.empty();
  if (!written) usage = path;
  if (!written && !line.nested().empty()) usage += " COMMAND";
  bool others = false;
  for (const CommandOption::Facts& option : line.options()) {
    const bool help = std::ranges::count(option.names, "help") > 0;
    if (!option.is_positional) {
      const bool named = help || is_named(usage, option);
      if (!named && option.is_required) usage += cat(" --", option.names.front(), " ", option.type);
      others = others || (!named && !option.is_required);
    } else if (!written) {
      const std::string word = option.values > 1 ? option.name + "..." : option.name;
      usage += option.is_required ? " " + word : " [" + word + "]";
    }
  }
  return others ? usage + " [options]" : usage;
}

std::string program_help(const CommandLine& line) {
  std::string out = hanging_text(
      "",
      "convscope: trains small networks from YAML configs with a choice of convolution algorithms, "
      "and measures speed, memory and accuracy.",
      0, width_of_pages());
  out +=
      "\n"
      "First command to type (no data needed, under a minute):\n"
      "  convscope run quickstart\n"
      "\n"
      "Usage: convscope COMMAND ... [options]\n"
      "\n";
  std::vector<std::pair<int, std::string>> ordered;
  std::size_t left = 0;  // width of the left column, equal in all lists
  for (const auto& [name, command] : commands().entries()) {
    ordered.emplace_back(command.order, name);
    left = std::max(left, name.size());
  }
  std::sort(ordered.begin(), ordered.end());
  std::vector<std::pair<std::string, std::vector<Row>>> groups;
  std::vector<Row> others;
  std::vector<std::string> examples;
  for (const auto& [order, name] : ordered) {
    const Command& command = commands().get(name);
    Row row{name, command.summary};
    row.left.resize(left, ' ');
    if (command.group.empty()) {
      others.push_back(row);
      continue;
    }
    const std::vector<std::string> own = command.calls().examples;
    if (!own.empty()) examples.push_back(own[0]);
    const std::string& title = command.group;
    auto group = std::ranges::find_if(groups, [&](const auto& one) { return one.first == title; });
    if (group == groups.end()) group = groups.emplace(group, title, std::vector<Row>());
    group->second.push_back(row);
  }
  for (const auto& [title, rows] : groups) out += table(title + ":", rows);
  out += table("More commands:", others);
  out += examples_text(examples);
  out += table("Options, for every command:", option_rows(line, false));
  return out + "`convscope help COMMAND` or `convscope COMMAND --help` shows its options.\n";
}

std::string command_help(const CommandLine& line, const std::string& path) {
  std::string out =
      hanging_text("", "convscope " + path + ": " + line.description(), 2, width_of_pages()) + "\n";
  out += usage_text(usage_of(line, path));
  out += table("Commands:", nested_rows(line));
  std::vector<Row> positionals;
  for (Row& row : option_rows(line, true)) {
    if (!row.right.empty()) positionals.push_back(row);
  }
  out += table("Arguments:", positionals);
  out += table("Options:", option_rows(line, false));
  const std::string top = path.substr(0, path.find(' '));
  std::vector<std::string> examples;
  if (const Command* command = commands().find(top)) {
    for (const std::string& example : command->calls().examples) {
      if (example.starts_with(path)) examples.push_back(example);
    }
  }
  out += examples_text(examples);
  return out + "Also: -v, -q, --threads N, --plugin FILE, --color WHEN (`convscope --help`).\n";
}

}  // namespace convscope
