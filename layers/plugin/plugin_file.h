// SPDX-License-Identifier: Apache-2.0
// plugin_file.h: opens the file of a plug-in (plugin.h) after checking that it fits this program.
//
// Each refusal is an error of kind kUnavailable. Its message names the file, says what is wrong
// with the file and what to do. A file is loaded, which runs its static constructors, only if it
// contains a ConvscopePlugin of this version.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/export.h"
#include "framework/io/bytes.h"
#include "layers/plugin/plugin.h"

namespace convscope {

// Returns the members up to `size` of the first ConvscopePlugin in the bytes of a file, or nothing
// if there is none.
CONVSCOPE_API std::optional<ConvscopePlugin> plugin_in(Bytes file);
// Returns "" if the members up to `size` fit this program. Otherwise returns the end of a sentence:
// "was built for version 5 ...".
CONVSCOPE_API std::string misfit_of(const ConvscopePlugin& plugin);

struct PluginFile {
  std::string path;  // absolute
  std::string hash;  // FNV-1a of its bytes, 16 hexadecimal digits
};
// Reads the file and compares its version with that of this program.
CONVSCOPE_API PluginFile check_plugin_file(const std::string& path);
// Loads the file, which stays open until the process ends. Members that the plug-in does not have,
// because it was built with an older header, are 0.
CONVSCOPE_API ConvscopePlugin load_plugin_file(const PluginFile& file);

// Throws "[plugin] expected a plug-in in PATH, but it SENTENCE".
[[noreturn]] CONVSCOPE_API void refuse_plugin(std::string_view path, std::string_view sentence);

// Returns "" if a struct of a plug-in has a size from `least` to that of this program, `most`.
// Otherwise returns the end of a sentence.
CONVSCOPE_API std::string misfit_of_size(std::string_view name, std::size_t size, std::size_t least,
                                         std::size_t most);
// Returns the structs of an array of a plug-in, which have `size` bytes there. Members that they do
// not have are 0. Refuses the file if the size is not from `least` to that of this program.
template <class T>
std::vector<T> plugin_structs(std::string_view file, std::string_view name, const T* array,
                              std::size_t count, std::size_t size, std::size_t least) {
  std::vector<T> out;
  if (array == nullptr || count == 0) return out;
  const std::string misfit = misfit_of_size(name, size, least, sizeof(T));
  if (!misfit.empty()) refuse_plugin(file, misfit);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(&out.emplace_back(), reinterpret_cast<const char*>(array) + i * size, size);
  }
  return out;
}

}  // namespace convscope
