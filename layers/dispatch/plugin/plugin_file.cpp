// SPDX-License-Identifier: Apache-2.0
// plugin_file.cpp: opens the file of a plug-in after checking that it fits this program.
#include "layers/dispatch/plugin/plugin_file.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "framework/check.h"
#include "layers/dispatch/plugin/elf_entries.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBuildAgain =
    "build it again against this convscope (cmake --build, in a build folder without files of an "
    "older build)";

std::string hash_of(Bytes bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

// Reads a text from a struct of a plug-in. The text may lack its terminating zero.
template <std::size_t N>
std::string text_in(const char (&text)[N]) {
  return {text, strnlen(text, N)};
}

std::vector<std::uint8_t> bytes_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    refuse_plugin(path, "does not exist; `cmake --build` writes it into the build folder");
  }
  if (!fs::is_regular_file(status)) refuse_plugin(path, "is not a file");
  if (fs::file_size(path, error) > kMaxTextBytes) refuse_plugin(path, "is too large for one");
  try {
    return read_file(path);
  } catch (const Error& unread) {
    const std::string_view text = unread.what();
    refuse_plugin(path, cat("cannot be read: ", text.substr(text.find("] ") + 2)));
  }
}

}  // namespace

void refuse_plugin(std::string_view path, std::string_view sentence) {
  fail(ErrorKind::kUnavailable, "plugin",
       cat("expected a plug-in in ", path, ", but it ", sentence));
}

std::optional<PluginFacts> facts_in(Bytes file) {
  const auto at = std::search(file.begin(), file.end(), kPluginMark.begin(), kPluginMark.end());
  if (file.end() - at < static_cast<std::ptrdiff_t>(sizeof(PluginFacts))) return std::nullopt;
  PluginFacts out;
  std::memcpy(&out, &*at, sizeof out);
  return out;
}

std::string misfit_of(const PluginFacts& theirs, const PluginFacts& ours) {
  if (theirs.interface != ours.interface) {
    return cat("was built for interface ", theirs.interface, " of plug-ins, and this program has ",
               ours.interface, ": ", kBuildAgain);
  }
  if (std::memcmp(theirs.operation, ours.operation, sizeof ours.operation) != 0) {
    return cat("holds algorithms of '", text_in(theirs.operation), "', not of ", ours.operation);
  }
  if (std::memcmp(theirs.library, ours.library, sizeof ours.library) != 0) {
    return cat("was built for convscope ", text_in(theirs.library), ", and this is ", ours.library,
               ": ", kBuildAgain);
  }
  if (theirs == ours) return "";
  const struct {
    const char* what;
    std::int32_t theirs, ours;
  } sizes[] = {{"its facts have", theirs.bytes, ours.bytes},
               {"an algorithm has", theirs.algorithm_bytes, ours.algorithm_bytes},
               {"a problem has", theirs.problem_bytes, ours.problem_bytes},
               {"a pointer has", theirs.pointer_bytes, ours.pointer_bytes}};
  for (const auto& size : sizes) {
    if (size.theirs == size.ours) continue;
    return cat("was built with other structs, although the interface is the same: ", size.what, " ",
               size.theirs, " bytes there and ", size.ours, " here: ", kBuildAgain);
  }
  if (theirs.cxx11_abi != ours.cxx11_abi) {
    return cat("was built with _GLIBCXX_USE_CXX11_ABI=", theirs.cxx11_abi,
               ", and this program with ", ours.cxx11_abi, ": ", kBuildAgain);
  }
  return cat(
      "was built with structs whose members have other offsets, although the interface is the "
      "same: ",
      kBuildAgain);
}

PluginFile check_plugin_file(const std::string& path, const PluginFacts& ours) {
  const std::vector<std::uint8_t> bytes = bytes_of(path);
  std::error_code error;
  PluginFile out{.path = fs::canonical(path, error).string(), .hash = hash_of(bytes)};
  if (out.path.empty()) out.path = path;
  constexpr std::string_view kElf = "\177ELF";
  if (bytes.size() < kElf.size() || !std::equal(kElf.begin(), kElf.end(), bytes.begin())) {
    refuse_plugin(path, "is not a shared library");
  }
  const std::optional<PluginFacts> theirs = facts_in(bytes);
  if (!theirs) {
    refuse_plugin(path,
                  "holds no plug-in: its source must end with CONVSCOPE_CONV2D_PLUGIN(algorithm)");
  }
  const std::string misfit = misfit_of(*theirs, ours);
  if (!misfit.empty()) refuse_plugin(path, misfit);
  const std::string damage = damage_of_elf(bytes);
  if (!damage.empty()) refuse_plugin(path, cat(damage, "; ", kBuildAgain));
  return out;
}

void* load_plugin_file(const PluginFile& file, const char* entry) {
  void* const library = dlopen(file.path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const why = dlerror();
    refuse_plugin(file.path, cat("cannot be opened: ", why, "; ", kBuildAgain));
  }
  void* const function = dlsym(library, entry);
  if (function == nullptr) {
    refuse_plugin(file.path,
                  cat("exports no ", entry,
                      "(): its source must end with CONVSCOPE_CONV2D_PLUGIN(algorithm)"));
  }
  return function;
}

}  // namespace convscope
