// SPDX-License-Identifier: Apache-2.0
// plugin_file.h: opens the file of a plug-in, once it is known to fit.
//
// Each refusal is an error of kind kUnavailable in one sentence: which file, what is wrong with it,
// what to do. Nothing of a file runs before its facts (plugin_facts.h) are found to be ours.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "framework/export.h"
#include "framework/io/bytes.h"
#include "layers/dispatch/plugin/plugin_facts.h"

namespace convscope {

// The facts in the bytes of a file; none: it holds no plug-in. Of another version only the first
// three members mean something.
CONVSCOPE_API std::optional<PluginFacts> facts_in(Bytes file);
// What is wrong with them, as the end of a sentence: "was built for interface 2 ..."; "": nothing.
CONVSCOPE_API std::string misfit_of(const PluginFacts& theirs, const PluginFacts& ours);

struct PluginFile {
  std::string path;  // absolute
  std::string hash;  // FNV-1a of its bytes, 16 hexadecimal digits
};
// Reads the file and compares its facts with ours.
CONVSCOPE_API PluginFile check_plugin_file(const std::string& path, const PluginFacts& ours);
// Loads it, and gives the address of `entry`. It stays open until the process ends.
CONVSCOPE_API void* load_plugin_file(const PluginFile& file, const char* entry);

// "[plugin] expected a plug-in in PATH, but it SENTENCE"
[[noreturn]] CONVSCOPE_API void refuse_plugin(std::string_view path, std::string_view sentence);

}  // namespace convscope
