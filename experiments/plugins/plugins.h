// SPDX-License-Identifier: Apache-2.0
// plugins.h: opens plug-ins (layers/conv2d/plugin.h) and puts their cards and ladders into the
// tables, so that everything that walks them knows them.
//
// A plug-in is code: it runs with the rights of whoever opens it. A file that does not fit is an
// error of kind kUnavailable in one sentence. All of it is tried out in a process of its own
// before, so that a crash there is such a sentence too.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/plugins/child_process.h"
#include "framework/export.h"

namespace convscope {

struct OpenedPlugin {
  std::string file;    // absolute
  std::string hash;    // of its bytes, 16 digits
  std::string source;  // the file that it was made of
  std::vector<std::string> cards, ladders;
};

// The files that a word means, absolute: a file, or all *.so of a folder, by name. An error when a
// folder has none.
CONVSCOPE_API std::vector<std::string> plugin_files(const std::string& word);

// Opens a file, once: a second time nothing happens.
CONVSCOPE_API void open_plugin(const std::string& file);
// The same without another process: for one that was made for this file.
CONVSCOPE_API OpenedPlugin open_plugin_here(const std::string& file, const ChildNote& note);
// Those that are open, in their order.
CONVSCOPE_API const std::vector<OpenedPlugin>& opened_plugins();

// What everybody should know who opens one: its rights.
inline constexpr const char* kPluginWarning =
    "a plug-in is foreign code and runs with your rights: open only files that you trust";

// The files of --plugin, which every config takes in. Opens them. Of a folder those that do not fit
// are left out, each with a sentence to `left_out`; an error when none fits.
CONVSCOPE_API void open_plugins_of_command_line(
    const std::vector<std::string>& words,
    const std::function<void(const std::string&)>& left_out = {});
CONVSCOPE_API const std::vector<std::string>& plugins_of_command_line();

// "mine of /path/mine.so": of a card that came out of a plug-in; "" of ours.
CONVSCOPE_API std::string plugin_remark(const std::string& card);

}  // namespace convscope
