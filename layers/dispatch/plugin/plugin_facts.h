// SPDX-License-Identifier: Apache-2.0
// plugin_facts.h: facts about the build of a plug-in: constants in its file, which are read and
// compared before any code of the file runs.
//
// A plug-in is a shared library with algorithms of an operator. It is built outside of the
// repository against the installed headers (for conv2d: layers/conv2d/plugin.h). C++ structs cross
// the boundary, so program and plug-in must agree on them. kPluginInterface is raised by hand with
// each change of these structs, in layout or in meaning; tests/repo/check_plugin_interface.py
// reports changed headers. The sizes and the layout digest are computed by the compiler and detect
// changes that were forgotten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace convscope {

inline constexpr std::int32_t kPluginInterface = 5;
// The version of the library to which these headers belong. A plug-in that uses the library's CMake
// package needs the same minor version.
inline constexpr std::string_view kPluginLibrary = "0.1";

// The facts of a plug-in. The first three members have the same offsets in every version of the
// interface.
struct PluginFacts {
  char mark[32] = {};          // kPluginMark, by which a reader finds this struct in the file
  std::int32_t interface = 0;  // kPluginInterface
  std::int32_t bytes = 0;      // size of this struct
  char operation[16] = {};     // "conv2d"
  char library[16] = {};       // kPluginLibrary
  std::int32_t cxx11_abi = 0;  // _GLIBCXX_USE_CXX11_ABI
  std::int32_t pointer_bytes = 0;
  std::int32_t algorithm_bytes = 0, problem_bytes = 0;
  std::uint64_t layout = 0;  // digest of the offsets of all members of all structs

  bool operator==(const PluginFacts&) const = default;
};
inline constexpr std::string_view kPluginMark = "convscope plug-in, facts behind";

// Returns the FNV-1a hash of the given offsets and sizes.
constexpr std::uint64_t layout_digest(std::initializer_list<std::size_t> numbers) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::size_t number : numbers) {
    for (int byte = 0; byte < 8; ++byte) {
      hash = (hash ^ (number >> (8 * byte) & 0xff)) * 0x100000001b3u;
    }
  }
  return hash;
}

constexpr PluginFacts plugin_facts(std::string_view operation, std::size_t algorithm_bytes,
                                   std::size_t problem_bytes, std::uint64_t layout) {
  PluginFacts out;
  const auto copy = [](std::string_view text, char* to, std::size_t room) {
    for (std::size_t i = 0; i < text.size() && i + 1 < room; ++i) to[i] = text[i];
  };
  copy(kPluginMark, out.mark, sizeof(out.mark));
  copy(operation, out.operation, sizeof(out.operation));
  copy(kPluginLibrary, out.library, sizeof(out.library));
  out.interface = kPluginInterface;
  out.bytes = sizeof(PluginFacts);
#ifdef _GLIBCXX_USE_CXX11_ABI
  out.cxx11_abi = _GLIBCXX_USE_CXX11_ABI;
#endif
  out.pointer_bytes = sizeof(void*);
  out.algorithm_bytes = static_cast<std::int32_t>(algorithm_bytes);
  out.problem_bytes = static_cast<std::int32_t>(problem_bytes);
  out.layout = layout;
  return out;
}

}  // namespace convscope
