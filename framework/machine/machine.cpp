// SPDX-License-Identifier: Apache-2.0
// machine.cpp: the names of this machine's processors, and the folder that stores measurements of
// the machine.
#include "framework/machine/machine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "framework/check.h"

namespace convscope {

std::string cpu_model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

std::string gpu_model_name() {
  static const std::string kFirst = [] {
    const bool exists = status_of(DeviceType::cuda).available;
    return exists ? backend_of({.type = DeviceType::cuda}).facts(0).name : "";
  }();
  return kFirst;
}

std::string gpu_name(Device device) {
  const auto ask = [](Device of) {
    const DeviceFacts facts = backend_of(of).facts(of.index);
    return cat(facts.name, " | driver ", facts.driver_api);
  };
  if (device.index != 0) return ask(device);
  // The result is cached, because every estimate needs the name, and the driver answers slowly.
  static const std::string kFirst = ask(device);
  return kFirst;
}

std::string cache_folder() {
  const auto given = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? std::string(value) : std::string();
  };
  if (const std::string own = given("CONVSCOPE_CACHE_DIR"); !own.empty()) return own;
  if (const std::string xdg = given("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/convscope";
  if (const std::string home = given("HOME"); !home.empty()) return home + "/.cache/convscope";
  return private_folder(cat("/tmp/convscope-cache-", static_cast<std::int64_t>(geteuid())));
}

std::string cache_path(const std::string& file) {
  const std::string folder = cache_folder();
  return folder.empty() ? "" : cat(folder, "/", file);
}

std::string private_folder(const std::string& path) {
  (void)mkdir(path.c_str(), 0700);
  struct stat facts {};
  const bool ours = lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) &&
                    facts.st_uid == geteuid() && (facts.st_mode & 077) == 0;
  return ours ? path : "";
}

}  // namespace convscope
