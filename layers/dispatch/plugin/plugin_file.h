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
  std::string path;          // absolute
  std::string hash;          // FNV-1a of its bytes, 16 hexadecimal digits
  void* function = nullptr;  // `entry`
};
// Stays open until the process ends.
CONVSCOPE_API PluginFile open_plugin_file(const std::string& path, const PluginFacts& ours,
                                          const char* entry);

// "[plugin] expected a plug-in in PATH, but it SENTENCE"
[[noreturn]] CONVSCOPE_API void refuse_plugin(std::string_view path, std::string_view sentence);

}  // namespace convscope
