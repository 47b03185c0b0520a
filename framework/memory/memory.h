// SPDX-License-Identifier: Apache-2.0
// memory.h: a caching, counting allocator per device, and scratch memory on top of it.
//
// Freed blocks are kept in size classes and handed out again, so a training step that repeats the
// same shapes asks the system for nothing after the first few steps; `system_allocations` proves
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "framework/device.h"
#include "framework/export.h"
#include "framework/int_math.h"

namespace convscope {

inline constexpr std::size_t kAlignmentBytes = 64;  // one cache line, one AVX-512 register

enum class MemoryUse : std::uint8_t { kTensor, kWorkspace };

// All sizes in bytes, as asked for (not rounded up), except cached_bytes.
struct MemoryStats {
  std::int64_t live_bytes = 0;            // tensors and workspace in use now
  std::int64_t peak_bytes = 0;            // highest live_bytes since the last reset
  std::int64_t workspace_bytes = 0;       // the part of live_bytes that is workspace
  std::int64_t workspace_peak_bytes = 0;  // highest workspace_bytes since the last reset
  std::int64_t cached_bytes = 0;          // held from the system but not in use
  std::int64_t allocations = 0;           // calls answered, from the cache or not
  std::int64_t system_allocations = 0;    // calls that had to ask the system
};

// Thread-safe. A block of 0 bytes is a null pointer. Out of memory is one clear error that names
// the size, the device and what is held.
CONVSCOPE_API void* allocate(Device device, std::size_t bytes, MemoryUse use = MemoryUse::kTensor);
CONVSCOPE_API void deallocate(Device device, void* pointer, std::size_t bytes,
                              MemoryUse use = MemoryUse::kTensor) noexcept;

// The same, but null when there is no room; and the error that is thrown then. `what` is what the
// bytes are for: "a tensor f32[64,3,32,32]".
CONVSCOPE_API void* try_allocate(Device device, std::size_t bytes,
                                 MemoryUse use = MemoryUse::kTensor);
[[noreturn]] CONVSCOPE_API void fail_out_of_memory(Device device, std::size_t bytes,
                                                   std::string_view what);

// Most bytes to hold of a device's memory, the cache included; 0 = all that there is.
CONVSCOPE_API void set_memory_limit(Device device, std::int64_t bytes);

CONVSCOPE_API MemoryStats memory_stats(Device device);
CONVSCOPE_API void reset_peak(Device device);      // peaks := what is live now
CONVSCOPE_API void release_cached(Device device);  // give cached blocks back to the system

// Small host objects (graph nodes, tensor headers, closures): same idea, per-thread free lists.
CONVSCOPE_API void* allocate_small(std::size_t bytes);
CONVSCOPE_API void deallocate_small(void* pointer, std::size_t bytes) noexcept;

// Workspace for the time of one kernel call: counted apart from tensors.
class CONVSCOPE_API Workspace {
 public:
  Workspace(Device device, std::size_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Device device_;
  void* data_;
  std::size_t bytes_;
};

// Hands out 64-byte aligned pieces of one block, front to back; the pieces end with the block.
class ScratchArena {
 public:
  ScratchArena(void* memory, std::size_t bytes)
      : next_(static_cast<std::byte*>(memory)), left_(bytes) {}
  // `count` elements of T, or null when the block is used up.
  template <class T>
  T* take(std::size_t count) {
    const std::size_t need = round_up(count * sizeof(T));
    if (need > left_) return nullptr;
    std::byte* piece = next_;
    next_ += need;
    left_ -= need;
    return reinterpret_cast<T*>(piece);
  }
  static constexpr std::size_t round_up(std::size_t bytes) {
    return convscope::round_up(bytes, kAlignmentBytes);
  }

 private:
  std::byte* next_;
  std::size_t left_;
};

}  // namespace convscope
