// SPDX-License-Identifier: Apache-2.0
// plugins.h: opens plug-ins (layers/plugin/plugin.h), and adds their algorithms and ladders to the
// built-in ones. A ladder is a list of algorithms to compare, from the lesson to the fastest.
//
// A plug-in is code: it runs with the rights of the user who opens it. A plug-in is first opened
// and checked in a child process. A file that is not a plug-in of this program, or that crashes
// there, is an error of kind kUnavailable.
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

// Returns absolute paths: the file `word`, or all *.so of the folder `word`, sorted by name. Throws
// an error when a folder has none.
CONVSCOPE_API std::vector<std::string> plugin_files(const std::string& word);

// Checks a file in a child process and opens it. Further calls with the same file have no effect.
CONVSCOPE_API void open_plugin(const std::string& file);
// Opens a file without a child process: for a process that exists only for this file.
CONVSCOPE_API OpenedPlugin open_plugin_here(const std::string& file, const ChildNote& note);
// Returns the opened plug-ins, in order.
CONVSCOPE_API const std::vector<OpenedPlugin>& opened_plugins();

// The warning for users who open a plug-in: it runs with their rights.
inline constexpr const char* kPluginWarning =
    "a plug-in is foreign code and runs with your rights: open only files that you trust";

// Opens the files of --plugin, which are added to every config. In a folder, files that are not
// plug-ins of this program are left out; `left_out` gets a sentence for each. Throws an error when
// no file of the folder can be opened.
CONVSCOPE_API void open_plugins_of_command_line(
    const std::vector<std::string>& words,
    const std::function<void(const std::string&)>& left_out = {});
CONVSCOPE_API const std::vector<std::string>& plugins_of_command_line();

// Returns "mine of /path/mine.so" for an algorithm of a plug-in; "" for a built-in one.
CONVSCOPE_API std::string plugin_remark(const std::string& algorithm);

}  // namespace convscope
