// SPDX-License-Identifier: Apache-2.0
// data_files.cpp: finds the files of a data set.
#include "datasets/files/data_files.h"

#include <cstdlib>
#include <filesystem>

#include "framework/registry.h"

namespace convscope {
namespace {

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

// Returns "" when there is none.
std::string first_file(const std::string& folder, const std::vector<std::string>& spellings) {
  for (const std::string& name : spellings) {
    const std::string path = folder + "/" + name;
    if (is_file(path)) return path;
  }
  return "";
}

[[noreturn]] void fail_missing(const std::string& set, const std::vector<std::string>& spellings,
                               const std::vector<std::string>& folders, const std::string& root) {
  fail(ErrorKind::kData, set,
       cat("expected the file ", join(spellings, " or "), " in ", join(folders, " or "),
           ", got none; fetch the set with `convscope data fetch ", set,
           root.empty() ? "" : " --root " + root, "`, or name its folder with `root` or $",
           "CONVSCOPE_DATA"));
}

}  // namespace

std::vector<std::string> data_folders(const std::string& set, const std::string& root) {
  std::vector<std::string> folders;
  if (!root.empty()) {
    folders = {root, root + "/" + set};
  } else {
    const char* data = std::getenv("CONVSCOPE_DATA");
    if (data != nullptr && *data != '\0') folders.push_back(cat(data, "/", set));
    folders.push_back("./data/" + set);
  }
  if (set == "cifar10") {  // its archive contains a folder with this name
    for (std::size_t i = 0, count = folders.size(); i < count; ++i) {
      folders.push_back(folders[i] + "/cifar-10-batches-bin");
    }
  }
  return folders;
}

std::string find_data_folder(const std::string& set, const std::string& root,
                             const std::vector<std::string>& spellings) {
  const std::vector<std::string> folders = data_folders(set, root);
  for (const std::string& folder : folders) {
    if (!first_file(folder, spellings).empty()) return folder;
  }
  fail_missing(set, spellings, folders, root);
}

std::string find_data_file(const std::string& set, const std::string& folder,
                           const std::vector<std::string>& spellings) {
  const std::string path = first_file(folder, spellings);
  if (path.empty()) fail_missing(set, spellings, {folder}, folder);
  return path;
}

OptionField root_field() {
  return {.name = "root",
          .type = OptionType::text,
          .default_value = {},
          .doc = "folder of the files; default $CONVSCOPE_DATA/<set>, then ./data/<set>"};
}

std::string root_of(const Options& options) {
  return options.has("root") ? options.text("root") : "";
}

}  // namespace convscope
