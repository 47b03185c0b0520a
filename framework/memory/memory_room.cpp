// SPDX-License-Identifier: Apache-2.0
// memory_room.cpp: the maximum memory of a process on this machine.
#include "framework/memory/memory_room.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>

#include "framework/check.h"
#include "framework/io/bytes.h"
#include "framework/memory/memory.h"

namespace convscope {
namespace {

constexpr std::size_t kMaxBytes = 65536;  // for a file that the system writes

std::string text_at(const std::string& path) {
  try {
    return read_text(path, kMaxBytes);
  } catch (const Error&) {
    return "";
  }
}

// Returns the number in a file. Returns 0 when there is no file, or when the file contains "max".
std::int64_t number_at(const std::string& path) {
  const std::string text = text_at(path);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && value > 0 ? value : 0;
}

// Lowers `room` to the smallest limit of a control group (cgroup) and its ancestors.
void lower_to(MemoryRoom& room, const std::string& folder, std::string group, const char* file) {
  while (true) {
    const std::string path = cat(folder, group == "/" ? "" : group, "/", file);
    const std::int64_t limit = number_at(path);
    if (limit > 0 && (room.bytes == 0 || limit < room.bytes)) {
      room = {limit, cat(path, " allows")};
    }
    if (group.empty() || group == "/") return;
    group.resize(group.find_last_of('/'));
  }
}

bool names_memory(const std::string& controllers) {
  std::istringstream words(controllers);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "memory") return true;
  }
  return false;
}

}  // namespace

MemoryRoom host_memory_room(const ControlGroups& groups) {
  MemoryRoom room;
  const char* const said = std::getenv("CONVSCOPE_MEMORY_MIB");
  if (said != nullptr && *said != '\0') {
    return {std::max<std::int64_t>(0, std::strtoll(said, nullptr, 10)) << 20,
            "CONVSCOPE_MEMORY_MIB allows"};
  }
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) room = {std::int64_t{pages} * page, "this machine has"};
  // A line is "<number>:<controllers>:/<group>". Version 2 of cgroups has number 0 and no
  // controllers.
  std::istringstream lines(text_at(groups.own));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (!group.starts_with('/')) continue;
    if (controllers.empty()) lower_to(room, groups.folder, group, "memory.max");
    if (names_memory(controllers)) {
      lower_to(room, groups.folder + "/memory", group, "memory.limit_in_bytes");
    }
  }
  return room;
}

MemoryRoom memory_room(Device device, const ControlGroups& groups) {
  if (device.type == DeviceType::cpu) return host_memory_room(groups);
  const std::int64_t free = backend_of(device).facts(device.index).free_bytes;
  if (free <= 0) return {};
  const MemoryStats own = memory_stats(device);
  return {free + own.live_bytes + own.cached_bytes, cat("are free on ", device.str())};
}

}  // namespace convscope
