// SPDX-License-Identifier: Apache-2.0
// plugin_file.h: opens the file of a plug-in after checking that it fits this program.
//
// Each refusal is an error of kind kUnavailable. Its message names the file, says what is wrong
// with the file and what to do. No code of a file runs before its facts (plugin_facts.h) match
// those of the program.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "framework/export.h"
#include "framework/io/bytes.h"
#include "layers/dispatch/plugin/plugin_facts.h"

namespace convscope {

// Returns the facts found in the bytes of a file, or nothing if it is not a plug-in. For another
// version only the first three members are meaningful.
CONVSCOPE_API std::optional<PluginFacts> facts_in(Bytes file);
// Returns "" if the plug-in's facts `theirs` match the program's facts `ours`. Otherwise returns
// the end of a sentence: "was built for interface 2 ...".
CONVSCOPE_API std::string misfit_of(const PluginFacts& theirs, const PluginFacts& ours);

struct PluginFile {
  std::string path;  // absolute
  std::string hash;  // FNV-1a of its bytes, 16 hexadecimal digits
};
// Reads the file and compares its facts with ours.
CONVSCOPE_API PluginFile check_plugin_file(const std::string& path, const PluginFacts& ours);
// Loads the file and returns the address of `entry`. The file stays open until the process ends.
CONVSCOPE_API void* load_plugin_file(const PluginFile& file, const char* entry);

// Throws "[plugin] expected a plug-in in PATH, but it SENTENCE".
[[noreturn]] CONVSCOPE_API void refuse_plugin(std::string_view path, std::string_view sentence);

}  // namespace convscope
