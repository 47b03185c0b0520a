// SPDX-License-Identifier: Apache-2.0
// plugins.h: opens plug-ins (layers/conv2d/plugin.h) and puts their cards and ladders into the
// tables, so that everything that walks them knows them.
//
// A plug-in is code: it runs with the rights of whoever opens it. A file that does not fit is an
// error of kind kUnavailable in one sentence. All of it is tried out in a process of its own
// before, so that a crash there is such a sentence too.
#pragma once

#include <string>
#include <vector>

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
// Those that are open, in their order.
CONVSCOPE_API const std::vector<OpenedPlugin>& opened_plugins();

// The files of --plugin, which every config takes in. Opens them.
CONVSCOPE_API void open_plugins_of_command_line(const std::vector<std::string>& words);
CONVSCOPE_API const std::vector<std::string>& plugins_of_command_line();

// "mine of /path/mine.so": of a card that came out of a plug-in; "" of ours.
CONVSCOPE_API std::string plugin_remark(const std::string& card);

}  // namespace convscope
