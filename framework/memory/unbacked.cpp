// SPDX-License-Identifier: Apache-2.0
// unbacked.cpp: tensors and workspace with an address and a size, but without memory. The system
// assigns addresses of a private mapping; a page consumes memory only when it is written.
#include "framework/memory/unbacked.h"

#include <sys/mman.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace convscope {
namespace {

thread_local UnbackedMemory* now = nullptr;

std::mutex blocks_mutex;
std::atomic<std::size_t> block_count{0};

// Maps each address to the size of its block in bytes. The map is never destroyed, because tensors
// with static lifetime may be freed after it.
std::unordered_map<void*, std::size_t>& blocks() {
  static auto& table = *new std::unordered_map<void*, std::size_t>;
  return table;
}

}  // namespace

UnbackedMemory::UnbackedMemory() : outer_(now) { now = this; }
UnbackedMemory::~UnbackedMemory() { now = outer_; }

std::int64_t UnbackedMemory::live_bytes(Device device) const {
  return live_[static_cast<std::size_t>(device.type)];
}

bool memory_is_unbacked() { return now != nullptr; }

void* map_unbacked(Device device, std::size_t bytes) {
  void* const block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) return nullptr;
  const std::scoped_lock lock(blocks_mutex);
  blocks().emplace(block, bytes);
  ++block_count;
  now->live_[static_cast<std::size_t>(device.type)] += static_cast<std::int64_t>(bytes);
  return block;
}

bool unmap_unbacked(Device device, void* pointer) noexcept {
  if (block_count == 0) return false;
  const std::scoped_lock lock(blocks_mutex);
  const auto found = blocks().find(pointer);
  if (found == blocks().end()) return false;
  munmap(pointer, found->second);
  if (now != nullptr) {
    now->live_[static_cast<std::size_t>(device.type)] -= static_cast<std::int64_t>(found->second);
  }
  blocks().erase(found);
  --block_count;
  return true;
}

}  // namespace convscope
