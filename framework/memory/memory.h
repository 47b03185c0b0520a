// SPDX-License-Identifier: Apache-2.0
// memory.h: a caching, counting allocator for each device, and scratch memory that uses the
// allocator.
//
// Freed blocks are kept in size classes and reused. So a training step that repeats the same shapes
// makes no system allocation after the first few steps; `system_allocations` shows this.
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

// All sizes in bytes, as requested (not rounded up), except cached_bytes.
struct MemoryStats {
  std::int64_t live_bytes = 0;            // tensors and workspace in use now
  std::int64_t peak_bytes = 0;            // highest live_bytes since the last reset
  std::int64_t workspace_bytes = 0;       // the part of live_bytes that is workspace
  std::int64_t workspace_peak_bytes = 0;  // highest workspace_bytes since the last reset
  std::int64_t cached_bytes = 0;          // bytes obtained from the system and not in use
  std::int64_t allocations = 0;           // answered calls, from the cache or not
  std::int64_t system_allocations = 0;    // calls that needed the system
};

// Allocates a block; thread-safe. A block of 0 bytes is a null pointer. The error for exhausted
// memory names the size, the device and the memory in use.
CONVSCOPE_API void* allocate(Device device, std::size_t bytes, MemoryUse use = MemoryUse::kTensor);
CONVSCOPE_API void deallocate(Device device, void* pointer, std::size_t bytes,
                              MemoryUse use = MemoryUse::kTensor) noexcept;

// Does the same, but returns null when memory is exhausted; fail_out_of_memory() throws the error.
// `what` says what the bytes are for: "a tensor f32[64,3,32,32]".
CONVSCOPE_API void* try_allocate(Device device, std::size_t bytes,
                                 MemoryUse use = MemoryUse::kTensor);
[[noreturn]] CONVSCOPE_API void fail_out_of_memory(Device device, std::size_t bytes,
                                                   std::string_view what);

// Sets the maximum number of bytes to hold on a device, including the cache; 0 = unlimited.
CONVSCOPE_API void set_memory_limit(Device device, std::int64_t bytes);

CONVSCOPE_API MemoryStats memory_stats(Device device);
CONVSCOPE_API void reset_peak(Device device);      // sets the peaks to the live bytes
CONVSCOPE_API void release_cached(Device device);  // returns cached blocks to the system

// Allocates small host objects (graph nodes, tensor headers, closures) from per-thread free lists.
CONVSCOPE_API void* allocate_small(std::size_t bytes);
CONVSCOPE_API void deallocate_small(void* pointer, std::size_t bytes) noexcept;

// Scratch memory during one kernel call; counted separately from tensors.
class CONVSCOPE_API Workspace {
 public:
  Workspace(Device device, std::size_t bytes);
  ~Workspace();
  Workspace(Workspace&& other) noexcept;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Device device_;
  void* data_;
  std::size_t bytes_;
};

// Divides one block of memory into 64-byte aligned arrays, in order of the calls. The arrays are
// valid until the block is freed.
class ScratchArena {
 public:
  ScratchArena(void* memory, std::size_t bytes)
      : next_(static_cast<std::byte*>(memory)), left_(bytes) {}
  // Returns `count` elements of T, or null when the block is exhausted.
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
