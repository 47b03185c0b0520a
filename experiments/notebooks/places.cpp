// SPDX-License-Identifier: Apache-2.0
// places.cpp: finds the notebooks, and what their kernel includes and loads.
#include "experiments/notebooks/places.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "framework/check.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".ipynb";
constexpr std::size_t kLargest = std::size_t{8} << 20;  // bytes of a notebook

// Returns the path of this library.
std::string own_library() {
  Dl_info info;
  const bool known = dladdr(reinterpret_cast<const void*>(&own_library), &info) != 0;
  return known && info.dli_fname != nullptr
             ? fs::absolute(info.dli_fname).lexically_normal().string()
             : "";
}

bool holds_notebooks(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "set_up.py", error);
}

// "**Question.** Nine numbers ...\nhow?\n\nYou need" -> "Nine numbers ... how?"
std::string question_in(const std::string& text) {
  constexpr std::string_view kMark = "**Question.**";
  const std::size_t at = text.find(kMark);
  if (at == std::string::npos) return "";
  std::string out = text.substr(at + kMark.size());
  out.resize(std::min(out.size(), out.find("\n\n")));
  std::replace(out.begin(), out.end(), '\n', ' ');
  out.erase(0, out.find_first_not_of(' '));
  return out;
}

std::string first_cell(const std::string& path) {
  const auto text = text_if_there(path, kLargest);
  const nlohmann::json notebook = nlohmann::json::parse(text.value_or(""), nullptr, false);
  std::string out;
  if (!notebook.is_object() || !notebook.contains("cells")) return out;
  for (const auto& cell : notebook["cells"]) {
    if (!cell.is_object() || !cell.contains("source") || !cell["source"].is_array()) continue;
    for (const auto& line : cell["source"]) {
      if (line.is_string()) out += line.get<std::string>();
    }
    break;
  }
  return out;
}

}  // namespace

NotebookPaths notebook_paths() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path bin = program.parent_path();
  const fs::path installed = (bin / CONVSCOPE_NOTEBOOKS_FROM_PROGRAM).lexically_normal();
  const fs::path source = CONVSCOPE_SOURCE_NOTEBOOKS;
  if (!error && holds_notebooks(installed)) {
    const fs::path include = (bin / CONVSCOPE_INCLUDE_FROM_PROGRAM).lexically_normal();
    return {.folder = installed.string(),
            .include = {include.string(), (include / "convscope").string()},
            .library = own_library(),
            .installed = true};
  }
  if (!holds_notebooks(source)) {
    fail(ErrorKind::kIo, "notebook",
         cat("expected the notebooks in ", installed.string(), " or in ", source.string(),
             ", got none; `cmake --install` puts them there"));
  }
  return {.folder = source.string(),
          .include = {CONVSCOPE_NOTEBOOK_INCLUDE, source.parent_path().parent_path().string()},
          .library = own_library()};
}

std::vector<ShippedNotebook> shipped_notebooks(const std::string& folder) {
  std::vector<ShippedNotebook> out;
  for (const std::string& name : notebook_names(folder)) {
    out.push_back({name, question_in(first_cell(folder + "/" + name + kEnding))});
  }
  return out;
}

std::vector<std::string> notebook_names(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().stem().string();
    const bool numbered = name.size() > 3 && name[0] >= '0' && name[0] <= '9' && name[2] == '_';
    if (entry.path().extension() == kEnding && numbered) out.push_back(name);
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace convscope
