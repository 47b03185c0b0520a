// SPDX-License-Identifier: Apache-2.0
// plugins.h: opens plug-ins (layers/conv2d/plugin.h) and adds their algorithms and ladders to the
// tables, so that everything that iterates over the tables includes them.
//
// A plug-in is code: it runs with the rights of the user who opens it. A file that does not fit is
// an error of kind kUnavailable in one sentence. Everything is tried out in a separate process
// first, so that a crash there becomes such a sentence, too.
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
  std::string source;  // the source file that it was built from
  std::vector<std::string> algorithms, ladders;
};

// Returns the files that a word means, absolute: a file, or all *.so of a folder, by name. Throws
// an error when a folder has none.
CONVSCOPE_API std::vector<std::string> plugin_files(const std::string& word);

// Opens a file once: further calls have no effect.
CONVSCOPE_API void open_plugin(const std::string& file);
// Opens without another process: for a process that was made for this file.
CONVSCOPE_API OpenedPlugin open_plugin_here(const std::string& file, const ChildNote& note);
// Returns the opened plug-ins, in order.
CONVSCOPE_API const std::vector<OpenedPlugin>& opened_plugins();

// Warns users who open a plug-in about its rights.
inline constexpr const char* kPluginWarning =
    "a plug-in is foreign code and runs with your rights: open only files that you trust";

// Opens the files of --plugin, which are added to every config. From a folder, files that do not
// fit are left out, each with a sentence in `left_out`; throws an error when none fits.
CONVSCOPE_API void open_plugins_of_command_line(
    const std::vector<std::string>& words,
    const std::function<void(const std::string&)>& left_out = {});
CONVSCOPE_API const std::vector<std::string>& plugins_of_command_line();

// Returns "mine of /path/mine.so" for an algorithm of a plug-in; "" for a built-in one.
CONVSCOPE_API std::string plugin_remark(const std::string& algorithm);

}  // namespace convscope
