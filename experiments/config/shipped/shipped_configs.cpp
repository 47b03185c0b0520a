// SPDX-License-Identifier: Apache-2.0
// shipped_configs.cpp: the configs of the program, which are found by name in any current folder.
#include "experiments/config/shipped/shipped_configs.h"

#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "experiments/config/document.h"
#include "experiments/run_folder/user_words.h"
#include "framework/check.h"
#include "framework/io/bytes.h"
#include "framework/io/file_names.h"
#include "framework/registry.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".yaml";

// Returns the folder of this library, from which the Python package finds the configs.
fs::path library_folder() {
  Dl_info info;
  const bool known = dladdr(reinterpret_cast<const void*>(&library_folder), &info) != 0;
  return known && info.dli_fname != nullptr ? fs::absolute(info.dli_fname).parent_path()
                                            : fs::path();
}

std::vector<fs::path> folders() {
  std::vector<fs::path> out = {fs::path("experiments") / "configs"};
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) out.push_back((program.parent_path() / CONVSCOPE_CONFIGS_FROM_PROGRAM));
  out.push_back(library_folder() / "../share/convscope/configs");
  out.emplace_back(CONVSCOPE_SOURCE_CONFIGS);
  return out;
}

// "# Question: does it work, from\n# end to end?\n" -> "does it work, from end to end?"
std::string first_sentence(const fs::path& path) {
  std::istringstream file(text_if_there(path.string(), 65536).value_or(""));
  std::string text;
  for (std::string line; std::getline(file, line) && line.starts_with("#");) {
    const std::size_t begin = line.find_first_not_of("# ");
    if (begin == std::string::npos) break;
    text += (text.empty() ? "" : " ") + line.substr(begin);
    if (text.ends_with('?') || text.ends_with('.')) break;
  }
  const std::size_t end = std::min(text.find("? "), text.find(". "));
  if (end != std::string::npos) text.resize(end + 1);
  constexpr std::string_view kQuestion = "Question: ";
  return text.starts_with(kQuestion) ? text.substr(kQuestion.size()) : text;
}

}  // namespace

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) && !fs::is_directory(path, error);
}

std::vector<ShippedConfig> shipped_configs() {
  std::map<std::string, ShippedConfig> found;
  for (const fs::path& folder : folders()) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() != kEnding || is_hidden(entry.path())) continue;
      const std::string name = entry.path().stem().string();
      const fs::path path = entry.path().lexically_normal();
      if (!found.contains(name)) found[name] = {name, path.string(), first_sentence(path)};
    }
  }
  std::vector<ShippedConfig> out;
  for (auto& [name, config] : found) out.push_back(std::move(config));
  return out;
}

std::string shipped_shapes() {
  for (const fs::path& folder : folders()) {
    const fs::path beside = folder.parent_path() / "shapes";
    if (folder.is_relative() || !is_file(beside / "edge_cases.txt")) continue;
    return beside.lexically_normal().string();
  }
  fail(ErrorKind::kIo, "shapes",
       "expected the folder of the problems that come with the program (shapes/edge_cases.txt), "
       "found it neither with the installed configs nor in the source tree");
}

std::string find_shapes(const std::string& word) {
  constexpr std::string_view kFolder = "experiments/shapes/", kShapes = ".txt";
  std::string name = word.starts_with(kFolder) ? word.substr(kFolder.size()) : word;
  if (is_file(word) || name.empty() || name.find('/') != std::string::npos) return word;
  if (!name.ends_with(kShapes)) name += kShapes;
  const fs::path shipped = fs::path(shipped_shapes()) / name;
  return is_file(shipped) ? shipped.string() : word;
}

std::string find_config(const std::string& word) {
  if (word.empty() || word.find('/') != std::string::npos || is_file(word)) return word;
  if (is_file(word + std::string(kEnding))) return word + std::string(kEnding);
  const bool is_file_name = word.ends_with(kEnding);
  const std::string name = is_file_name ? word.substr(0, word.size() - kEnding.size()) : word;
  std::vector<std::string> known;
  for (const ShippedConfig& config : shipped_configs()) {
    if (config.name == name) return config.path;
    known.push_back(config.name);
  }
  std::error_code error;
  if (is_file_name || fs::is_directory(word, error)) return word;  // its reader reports the error
  fail(ErrorKind::kConfig, "config",
       cat("error: expected a config file or the name of a shipped config, got '",
           config::printable(word), "'", did_you_mean(word.substr(0, 100), known),
           " (`convscope config list` shows them)"));
}

}  // namespace convscope
