// SPDX-License-Identifier: Apache-2.0
// plugin_file.cpp: opens the file of a plug-in after checking that it fits this program.
#include "layers/plugin/plugin_file.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "framework/check.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBuildAgain =
    "build it again against this convscope (cmake --build, in a build folder without files of an "
    "older build)";
constexpr const char* kLastLine = "its source must end with CONVSCOPE_PLUGIN(algorithms)";

// The size of version 7 without the members that a plug-in may lack.
constexpr std::size_t kLeastPlugin = offsetof(ConvscopePlugin, conv2d_ladders);

std::string hash_of(Bytes bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
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

std::optional<ConvscopePlugin> plugin_in(Bytes file) {
  constexpr std::string_view kMagic(CONVSCOPE_PLUGIN_MAGIC, sizeof CONVSCOPE_PLUGIN_MAGIC);
  constexpr std::size_t kHead = offsetof(ConvscopePlugin, source);
  const auto at = std::search(file.begin(), file.end(), kMagic.begin(), kMagic.end());
  if (file.end() - at < static_cast<std::ptrdiff_t>(kHead)) return std::nullopt;
  ConvscopePlugin out{};
  std::memcpy(&out, &*at, kHead);
  return out;
}

std::string misfit_of_size(std::string_view name, std::size_t size, std::size_t least,
                           std::size_t most) {
  if (size >= least && size <= most) return "";
  return cat(size < least ? "is damaged" : "was built for a newer convscope", " (", name, ": ",
             size, " bytes there, ", least, " to ", most, " here): ", kBuildAgain);
}

std::string misfit_of(const ConvscopePlugin& plugin) {
  const bool is_version = plugin.version < 1000;  // else the mark is in another file's texts
  if (!is_version || std::memcmp(plugin.magic, CONVSCOPE_PLUGIN_MAGIC, sizeof plugin.magic) != 0) {
    return cat("holds no plug-in: ", kLastLine);
  }
  if (plugin.version != CONVSCOPE_PLUGIN_VERSION) {
    return cat("was built for version ", plugin.version,
               " of the plug-in interface, and this program has version ", CONVSCOPE_PLUGIN_VERSION,
               ": ", kBuildAgain);
  }
  const std::string misfit =
      misfit_of_size("ConvscopePlugin", plugin.size, kLeastPlugin, sizeof plugin);
  if (!misfit.empty()) return misfit;
  return misfit_of_size("arguments of its functions", plugin.conv2d_arguments_size, 0,
                        CONVSCOPE_CONV2D_ARGUMENTS_SIZE);
}

PluginFile check_plugin_file(const std::string& path) {
  const std::vector<std::uint8_t> bytes = bytes_of(path);
  std::error_code error;
  PluginFile out{.path = fs::canonical(path, error).string(), .hash = hash_of(bytes)};
  if (out.path.empty()) out.path = path;
  constexpr std::string_view kElf = "\177ELF";
  if (bytes.size() < kElf.size() || !std::equal(kElf.begin(), kElf.end(), bytes.begin())) {
    refuse_plugin(path, "is not a shared library");
  }
  const std::string misfit = misfit_of(plugin_in(bytes).value_or(ConvscopePlugin{}));
  if (!misfit.empty()) refuse_plugin(path, misfit);
  return out;
}

ConvscopePlugin load_plugin_file(const PluginFile& file) {
  void* const library = dlopen(file.path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const why = dlerror();
    refuse_plugin(file.path, cat("cannot be opened: ", why, "; ", kBuildAgain));
  }
  const void* const plugin = dlsym(library, "convscope_plugin");
  if (plugin == nullptr) refuse_plugin(file.path, cat("exports no convscope_plugin: ", kLastLine));
  ConvscopePlugin out{};
  std::memcpy(&out, plugin, offsetof(ConvscopePlugin, source));
  const std::string misfit = misfit_of(out);
  if (!misfit.empty()) refuse_plugin(file.path, misfit);
  std::memcpy(&out, plugin, out.size);
  return out;
}

}  // namespace convscope
