// SPDX-License-Identifier: Apache-2.0
// experiment_config.cpp: loads a config: text -> tree of nodes (compose) -> typed config (resolve).
#include "experiments/config/experiment_config.h"

#include <cstring>
#include <filesystem>

#include "experiments/config/compose.h"
#include "experiments/config/config_file.h"
#include "experiments/config/resolve.h"
#include "experiments/config/shipped/shipped_configs.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace config {

std::string read_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    fail(ErrorKind::kConfig, "config", "a folder");
  }
  try {
    return read_text(path, config::kMaxTextBytes);
  } catch (const Error& failure) {
    // A missing file is reported as an error of the config, because its name is probably wrong. A
    // file that cannot be read is an I/O error.
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    const bool is_there = status.type() == std::filesystem::file_type::regular ||
                          status.type() == std::filesystem::file_type::fifo ||
                          error == std::errc::permission_denied || error == std::errc::io_error;
    const std::string text = failure.what();
    const std::size_t reason = text.find(", got: ");
    fail(is_there ? ErrorKind::kIo : ErrorKind::kConfig, "config",
         reason == std::string::npos ? text : text.substr(reason + std::strlen(", got: ")));
  }
}

std::string read_named_file(const std::string& path) {
  try {
    return read_file(path);
  } catch (const Error& error) {
    const std::string reason = std::string(error.what()).substr(std::strlen("[config] "));
    const char* const before = error.kind() == ErrorKind::kConfig ? "error: " : "";
    fail(error.kind(), "config",
         cat(before, "expected the config file '", printable(path), "', got: ", reason));
  }
}

std::string folder_name(std::string_view text) {
  std::string name(text.substr(0, 100));
  for (char& c : name) {
    const bool keeps = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    if (!keeps) c = '_';
  }
  if (!name.empty() && (name[0] == '.' || name[0] == '-')) name[0] = '_';
  return name;
}

std::string name_from_file(std::string_view file_name) {
  const std::string name = folder_name(std::filesystem::path(file_name).stem().string());
  return name.empty() ? "experiment" : name;
}

}  // namespace config

ExperimentConfig parse_config_text(std::string_view yaml, std::string_view file_name,
                                   const ConfigReader& reader,
                                   const std::vector<std::string>& overrides) {
  config::Mistakes mistakes;
  const config::Node root =
      config::compose(yaml, std::string(file_name), reader, overrides, mistakes);
  // If the text could be parsed only partly, the errors are thrown here: a partial tree would cause
  // further, misleading errors.
  if (!mistakes.all_harmless()) mistakes.throw_if_any();
  ExperimentConfig config = config::resolve(root, config::name_from_file(file_name), mistakes);
  mistakes.throw_if_any();
  return config;
}

ExperimentConfig load_config(const std::string& path, const std::vector<std::string>& overrides) {
  const std::string file = find_config(path);
  return parse_config_text(config::read_named_file(file), file, config::read_file, overrides);
}

}  // namespace convscope
