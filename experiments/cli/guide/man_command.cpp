// SPDX-License-Identifier: Apache-2.0
// man_command.cpp: `convscope man`: the manual page, for `convscope man | man -l -`.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "experiments/cli/command.h"
#include "experiments/cli/help.h"

namespace convscope {
namespace {

// Escapes text for roff: backslashes, '-', leading blanks, and line starts that look like requests.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\n') {
      out += "\n.br\n";
    } else if (c == ' ' && out.ends_with('\n')) {
      out += "\\ ";  // roff gives a meaning to a blank at the beginning of a line
    } else {
      if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
      out += c;
    }
  }
  return out;
}

std::string term(const std::string& left, const std::string& right) {
  return ".TP\n.B " + escaped(left) + "\n" + escaped(right) + "\n";
}

std::string terms(const CommandLine& line) {
  std::string out;
  for (const bool positional : {true, false}) {
    for (const HelpRow& row : option_rows(line, positional)) {
      const std::size_t begin = row.left.find_first_not_of(' ');
      if (!row.right.empty()) out += term(row.left.substr(begin), row.right);
    }
  }
  return out;
}

// Returns the usage: one line for each form of the command, with the program's name before it.
std::string forms_of(const std::string& usage) {
  std::string out;
  for (std::size_t begin = 0; begin <= usage.size();) {
    const std::size_t end = std::min(usage.find('\n', begin), usage.size());
    out += (out.empty() ? "" : ".br\n") + std::string(".B convscope ") +
           escaped(usage.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return out;
}

std::string section_of(const CommandLine& line, const std::string& path) {
  std::string out = ".SS \"" + escaped(path) + "\"\n" + escaped(line.description()) + "\n.PP\n" +
                    forms_of(usage_of(line, path)) + terms(line);
  if (const Command* command = commands().find(path)) {
    const std::vector<std::string> examples = command->calls().examples;
    if (!examples.empty()) out += ".PP\nExamples:\n.PP\n.nf\n";
    for (const std::string& example : examples) {
      out += "    convscope " + escaped(example) + "\n";
    }
    if (!examples.empty()) out += ".fi\n";
  }
  for (const CommandLine& nested : line.nested()) {
    out += section_of(nested, path + " " + nested.name());
  }
  return out;
}

constexpr const char* kRest = R"(.SH EXIT STATUS
.TP
.B 0
ok
.TP
.B 1
the run failed: a loss that is not finite, a missed gate, a wrong result
.TP
.B 2
wrong command line
.TP
.B 3
invalid config
.TP
.B 4
missing or corrupt data
.TP
.B 5
a device or algorithm is not available
.TP
.B 6
input or output failed
.TP
.B 7
slower than a baseline allows, or rows are missing
.TP
.B 8
another process of the training is lost; its checkpoint is kept
.TP
.B 9
a comparison is undecided because the machine was busy
.TP
.B 130, 143
interrupted; a checkpoint is written
.SH ENVIRONMENT
.TP
.B CONVSCOPE_DATA
folder of the data sets
.TP
.B CONVSCOPE_CACHE_DIR
folder for measurements of this machine; default ~/.cache/convscope
.TP
.B CONVSCOPE_MEMORY_MIB
largest memory of a config, MiB; 0: no limit; default: limit of machine and control group
.TP
.B CONVSCOPE_ISA
instruction set: scalar, vector4, avx2 or avx512
.TP
.B CONVSCOPE_ALONE
1: train in a single process, even under a launcher
.TP
.B CONVSCOPE_MPI_LIBRARY
path of the MPI library; default: that of the launcher
.TP
.B NO_COLOR
1: no colours
.TP
.B COLUMNS
width of text without a terminal
)";

// Returns today's date, or SOURCE_DATE_EPOCH for reproducible packages
// (https://reproducible-builds.org/docs/source-date-epoch/).
std::string date() {
  const char* const asked = std::getenv("SOURCE_DATE_EPOCH");
  const std::time_t seconds =
      asked != nullptr ? std::strtoll(asked, nullptr, 10) : std::time(nullptr);
  std::tm day{};
  if (gmtime_r(&seconds, &day) == nullptr) return "";
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &day)};
}

// Returns the manual page convscope(1) in roff, from the declared commands and options, with the
// words of the help.
std::string man_page(const CommandLine& program) {
  std::string out =
      ".\\\" Made by `convscope man`.\n.TH CONVSCOPE 1 " + date() + " \"convscope " +
      std::string(CONVSCOPE_VERSION) + "\" \"User Commands\"\n" +
      ".SH NAME\nconvscope \\- trains small networks and measures their speed, "
      "memory and accuracy\n.SH SYNOPSIS\n.B convscope\n.I COMMAND\n[options]\n"
      ".SH DESCRIPTION\nTrains small networks from YAML configs with a choice of "
      "convolution algorithms and measures speed, memory and accuracy. First command to "
      "type:\n.PP\n.nf\n    convscope run quickstart\n.fi\n.SH OPTIONS\nFor every "
      "command:\n" +
      terms(program) + ".SH COMMANDS\n";
  std::vector<std::pair<int, std::string>> ordered;
  for (const auto& [name, command] : commands().entries()) {
    ordered.emplace_back(command.order, name);
  }
  std::ranges::sort(ordered);
  for (const auto& [order, name] : ordered) {
    const auto line = std::ranges::find(program.nested(), name, &CommandLine::name);
    if (line != program.nested().end()) out += section_of(*line, name);
  }
  return out + kRest;
}

std::function<int()> declare_man(CommandLine& app) {
  return [&app] {
    print_result(man_page(*app.outer()));
    return 0;
  };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND("man", {.summary = "Print the manual page (roff).",
                                   .usage = "man",
                                   .examples = {"man | man -l -"},
                                   .order = 91,
                                   .declare = convscope::declare_man})
