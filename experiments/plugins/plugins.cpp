// SPDX-License-Identifier: Apache-2.0
// plugins.cpp: opens plug-ins, and adds their algorithms and ladders to the built-in ones.
#include "experiments/plugins/plugins.h"

#include <algorithm>
#include <exception>
#include <filesystem>

#include "experiments/plugins/algorithm_check.h"
#include "experiments/plugins/child_process.h"
#include "framework/io/file_names.h"
#include "layers/dispatch/plugin/plugin_algorithms.h"
#include "layers/plugin/conv2d_plugin.h"
#include "layers/plugin/plugin_file.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

constexpr double kSecondsForAnswers = 10;

std::vector<OpenedPlugin>& opened() {
  static std::vector<OpenedPlugin> plugins;
  return plugins;
}

std::vector<std::string>& named_by_command_line() {
  static std::vector<std::string> files;
  return files;
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const fs::path full = fs::canonical(path, error);
  return error ? fs::absolute(path, error).lexically_normal().string() : full.string();
}

Conv2dPlugin load(const PluginFile& file) {
  return conv2d_plugin(file.path, load_plugin_file(file));
}

// With `note`, also asks the algorithms about small problems.
void check_parts(const PluginFile& file, const Conv2dPlugin& plugin, const ChildNote* note) {
  if (plugin.algorithms.empty()) refuse_plugin(file.path, "holds no algorithm");
  std::vector<std::string> names;
  for (const Conv2dAlgorithm& algorithm : plugin.algorithms) {
    std::string problem = problem_of_algorithm(algorithm, names);
    if (!problem.empty()) refuse_plugin(file.path, cat("holds an algorithm that ", problem));
    names.emplace_back(algorithm.name);
    if (note == nullptr) continue;
    (*note)(cat("when supports(), cost() or workspace_bytes() of the algorithm '", algorithm.name,
                "' is asked"));
    problem = problem_of_answers(algorithm);
    if (!problem.empty()) {
      refuse_plugin(file.path, cat("holds an algorithm '", algorithm.name, "' that ", problem));
    }
  }
  for (const Conv2dLadder& ladder : plugin.ladders) {
    const std::string problem = problem_of_ladder(ladder, names);
    if (!problem.empty()) refuse_plugin(file.path, cat("holds a ladder that ", problem));
  }
}

// Opens and checks the file in a child process, and copies the child's output to this process.
void try_out(const PluginFile& file) {
  const ChildEnd end = run_in_child(
      [&](const ChildWork& work) {
        work.note("when it is opened");
        check_parts(file, load(file), &work.note);
        return 0;
      },
      {.note_seconds = kSecondsForAnswers});
  if (end.finished()) return;
  if (end.kind != ChildEnd::Kind::threw) {
    refuse_plugin(file.path, cat(end.cause, " ", end.doing, ": build it again, or repair it"));
  }
  constexpr std::string_view kBefore = "[plugin] ";
  if (end.said.starts_with(kBefore)) {
    fail(ErrorKind::kUnavailable, "plugin", end.said.substr(kBefore.size()));
  }
  refuse_plugin(file.path, cat("cannot be asked: ", end.said));
}

OpenedPlugin register_all(const PluginFile& file, const Conv2dPlugin& plugin) {
  // The plug-in may describe other algorithms here than in the child process, so they are checked
  // again.
  check_parts(file, plugin, nullptr);
  OpenedPlugin out{.file = file.path,
                   .hash = file.hash,
                   .source = plugin.source,
                   .algorithms = {},
                   .ladders = {}};
  for (const Conv2dAlgorithm& algorithm : plugin.algorithms) {
    register_conv2d_algorithm(algorithm, out.file.c_str());
    note_plugin_algorithm("conv2d", algorithm.name, {.file = file.path, .hash = file.hash});
    out.algorithms.emplace_back(algorithm.name);
  }
  for (const Conv2dLadder& ladder : plugin.ladders) {
    register_conv2d_ladder(ladder, out.file.c_str());
    out.ladders.emplace_back(ladder.name);
  }
  return out;
}

}  // namespace

std::vector<std::string> plugin_files(const std::string& word) {
  std::error_code error;
  if (!fs::is_directory(word, error)) return {absolute(word)};
  std::vector<std::string> out;
  for (const fs::directory_entry& entry : fs::directory_iterator(word, error)) {
    if (entry.path().extension() == ".so" && !is_hidden(entry.path()))
      out.push_back(absolute(entry.path().string()));
  }
  if (out.empty()) {
    refuse_plugin(word, "is a folder without a file *.so; `cmake --build` writes one");
  }
  std::ranges::sort(out);
  return out;
}

void open_plugin(const std::string& file) {
  const std::string path = absolute(file);
  if (std::ranges::count(opened(), path, &OpenedPlugin::file) > 0) return;
  const PluginFile library = check_plugin_file(path);
  try_out(library);
  opened().push_back(register_all(library, load(library)));
}

OpenedPlugin open_plugin_here(const std::string& file, const ChildNote& note) {
  const PluginFile library = check_plugin_file(absolute(file));
  note("when it is opened");
  const Conv2dPlugin plugin = load(library);
  check_parts(library, plugin, &note);
  opened().push_back(register_all(library, plugin));
  return opened().back();
}

const std::vector<OpenedPlugin>& opened_plugins() { return opened(); }

void open_plugins_of_command_line(const std::vector<std::string>& words,
                                  const std::function<void(const std::string&)>& left_out) {
  named_by_command_line().clear();
  for (const std::string& word : words) {
    const std::vector<std::string> files = plugin_files(word);
    std::exception_ptr first;
    std::size_t refused = 0;
    for (const std::string& file : files) {
      try {
        open_plugin(file);
      } catch (const Error& error) {
        if (files.size() == 1 || error.kind() != ErrorKind::kUnavailable) throw;
        if (!first) first = std::current_exception();
        ++refused;
        if (left_out) left_out(error.what());
        continue;
      }
      std::vector<std::string>& named = named_by_command_line();
      if (std::ranges::count(named, file) == 0) named.push_back(file);
    }
    if (refused == files.size()) std::rethrow_exception(first);
  }
}

const std::vector<std::string>& plugins_of_command_line() { return named_by_command_line(); }

std::string plugin_remark(const std::string& algorithm) {
  const PluginAlgorithm* const from = plugin_of_algorithm("conv2d", algorithm);
  return from == nullptr ? "" : cat(algorithm, " of ", from->file);
}

}  // namespace convscope
