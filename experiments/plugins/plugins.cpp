// SPDX-License-Identifier: Apache-2.0
// plugins.cpp: opens plug-ins and puts their cards and ladders into the tables.
#include "experiments/plugins/plugins.h"

#include <algorithm>
#include <exception>
#include <filesystem>

#include "experiments/plugins/card_check.h"
#include "experiments/plugins/child_process.h"
#include "layers/conv2d/plugin.h"
#include "layers/dispatch/plugin/plugin_cards.h"
#include "layers/dispatch/plugin/plugin_file.h"

#ifdef CONVSCOPE_VERSION
static_assert(std::string_view(CONVSCOPE_VERSION).starts_with(convscope::kPluginLibrary) &&
                  std::string_view(CONVSCOPE_VERSION)[convscope::kPluginLibrary.size()] == '.',
              "kPluginLibrary (layers/dispatch/plugin/plugin_facts.h) is not of this version");
#endif

namespace convscope {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kSecondsForAnswers = 10;

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

// What the file's function says that it holds.
Conv2dPlugin ask(const PluginFile& file) {
  Conv2dPlugin out;
  const auto fill_in = reinterpret_cast<void (*)(Conv2dPlugin*)>(file.function);
  try {
    fill_in(&out);
  } catch (const std::exception& error) {
    refuse_plugin(file.path,
                  cat("ends ", kConv2dPluginEntry, "() with an exception: ", error.what()));
  } catch (...) {
    refuse_plugin(file.path, cat("ends ", kConv2dPluginEntry, "() with an exception"));
  }
  return out;
}

void check_answers(const PluginFile& file, const Conv2dAlgorithm& card) {
  std::string problem;
  const ChildEnd end = run_in_child(
      [&](const ChildNote& note) {
        note("supports(), cost() or workspace_bytes()");
        problem = problem_of_answers(card);
        if (!problem.empty()) fail("plugin", problem);  // into the other process
        return 0;
      },
      kSecondsForAnswers);
  const auto refuse = [&](const std::string& what) {
    refuse_plugin(file.path, cat("holds a card that is of no use: '", card.name, "' ", what));
  };
  if (!end.finished) {
    refuse(cat(end.cause, " when its supports(), cost() or workspace_bytes() is asked"));
  }
  constexpr std::string_view kBefore = "[plugin] ";
  if (!end.said.empty()) {
    refuse(end.said.starts_with(kBefore) ? end.said.substr(kBefore.size()) : end.said);
  }
}

OpenedPlugin register_all(const PluginFile& file, const Conv2dPlugin& plugin) {
  OpenedPlugin out{.file = file.path,
                   .hash = file.hash,
                   .source = plugin.source == nullptr ? "" : plugin.source,
                   .cards = {},
                   .ladders = {}};
  if (plugin.cards.empty()) refuse_plugin(file.path, "holds no card");
  for (const Conv2dAlgorithm& card : plugin.cards) {
    const std::string problem = problem_of_card(card, out.cards);
    if (!problem.empty()) refuse_plugin(file.path, cat("holds a card that ", problem));
    check_answers(file, card);
    out.cards.emplace_back(card.name);
  }
  for (const Conv2dLadder& ladder : plugin.ladders) {
    const std::string problem = problem_of_ladder(ladder, out.cards);
    if (!problem.empty()) refuse_plugin(file.path, cat("holds a ladder that ", problem));
    out.ladders.emplace_back(ladder.name);
  }
  for (const Conv2dAlgorithm& card : plugin.cards) {
    register_conv2d_algorithm(card, out.file.c_str());
    note_plugin_card("conv2d", card.name, {.file = file.path, .hash = file.hash});
  }
  for (const Conv2dLadder& ladder : plugin.ladders) {
    register_conv2d_ladder(ladder, out.file.c_str());
  }
  return out;
}

}  // namespace

std::vector<std::string> plugin_files(const std::string& word) {
  std::error_code error;
  if (!fs::is_directory(word, error)) return {absolute(word)};
  std::vector<std::string> out;
  for (const fs::directory_entry& entry : fs::directory_iterator(word, error)) {
    if (entry.path().extension() == ".so") out.push_back(absolute(entry.path().string()));
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
  constexpr PluginFacts kOurs = conv2d_plugin_facts();
  const PluginFile library = open_plugin_file(path, kOurs, kConv2dPluginEntry);
  opened().push_back(register_all(library, ask(library)));
}

const std::vector<OpenedPlugin>& opened_plugins() { return opened(); }

void open_plugins_of_command_line(const std::vector<std::string>& words) {
  named_by_command_line().clear();
  for (const std::string& word : words) {
    for (const std::string& file : plugin_files(word)) {
      open_plugin(file);
      std::vector<std::string>& named = named_by_command_line();
      if (std::ranges::count(named, file) == 0) named.push_back(file);
    }
  }
}

const std::vector<std::string>& plugins_of_command_line() { return named_by_command_line(); }

std::string plugin_remark(const std::string& card) {
  const PluginCard* const from = plugin_of_card("conv2d", card);
  return from == nullptr ? "" : cat(card, " of ", from->file);
}

}  // namespace convscope
