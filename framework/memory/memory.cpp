// SPDX-License-Identifier: Apache-2.0
// memory.cpp: the size classes and counters of the allocator. It gets memory from the
// DeviceBackend.
#include "framework/memory/memory.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "framework/check.h"
#include "framework/int_math.h"
#include "framework/memory/unbacked.h"

namespace convscope {
namespace {

// Size classes: multiples of 64 B up to 512 B, then eight per power of two, so a block is at most
// 12.5 % larger than requested.
struct SizeClass {
  std::size_t index;
  std::size_t block_bytes;
};

SizeClass size_class(std::size_t bytes) {
  const std::size_t lines = ceil_div(bytes, kAlignmentBytes);
  if (lines <= 8) return {lines - 1, lines * kAlignmentBytes};
  const auto exponent = static_cast<std::size_t>(std::bit_width(lines - 1)) - 1;  // >= 3
  const std::size_t step = std::size_t{1} << (exponent - 3);
  const std::size_t rounded = round_up(lines, step);
  const std::size_t eighth = (rounded - (std::size_t{1} << exponent)) / step;  // 1..8
  return {8 + (exponent - 3) * 8 + eighth - 1, rounded * kAlignmentBytes};
}

constexpr std::size_t kClasses = 8 + 61 * 8;
// A larger request could overflow when it is rounded to a size class. No real request is that
// large.
constexpr std::size_t kLargestBytes = std::size_t{1} << 60;

// Returns true if new blocks are filled with NaN, for tests. Then a read of an unwritten element
// gives NaN, not a plausible value of an earlier tensor.
bool fills_with_nan() {
  static const bool wanted = std::getenv("CONVSCOPE_MEMORY_NAN") != nullptr;
  return wanted;
}

class CachingAllocator {
 public:
  // Returns null when memory is exhausted.
  void* allocate(Device device, std::size_t bytes, MemoryUse use) {
    if (bytes > kLargestBytes) return nullptr;
    const SizeClass wanted = size_class(bytes);
    const std::scoped_lock lock(mutex_);
    std::vector<void*>& free_blocks = free_[wanted.index];
    void* block = nullptr;
    if (!free_blocks.empty()) {
      block = free_blocks.back();
      free_blocks.pop_back();
      stats_.cached_bytes -= static_cast<std::int64_t>(wanted.block_bytes);
    } else {
      const DeviceBackend& backend = backend_of(device);
      block = from_system(backend, device, wanted.block_bytes);
      if (block == nullptr) {
        release_cached_locked(device);
        block = from_system(backend, device, wanted.block_bytes);
      }
      if (block == nullptr) return nullptr;
      ++stats_.system_allocations;
    }
    ++stats_.allocations;
    count(static_cast<std::int64_t>(bytes), use);
    if (device.type == DeviceType::cpu && fills_with_nan()) std::memset(block, 0xff, bytes);
    return block;
  }

  void deallocate(void* pointer, std::size_t bytes, MemoryUse use) noexcept {
    const SizeClass of = size_class(bytes);
    const std::scoped_lock lock(mutex_);
    free_[of.index].push_back(pointer);
    stats_.cached_bytes += static_cast<std::int64_t>(of.block_bytes);
    count(-static_cast<std::int64_t>(bytes), use);
  }

  void set_limit(std::int64_t bytes) {
    const std::scoped_lock lock(mutex_);
    limit_bytes_ = bytes;
  }

  MemoryStats stats() {
    const std::scoped_lock lock(mutex_);
    return stats_;
  }

  void reset_peak() {
    const std::scoped_lock lock(mutex_);
    stats_.peak_bytes = stats_.live_bytes;
    stats_.workspace_peak_bytes = stats_.workspace_bytes;
  }

  void release_cached(Device device) {
    const std::scoped_lock lock(mutex_);
    release_cached_locked(device);
  }

 private:
  void* from_system(const DeviceBackend& backend, Device device, std::size_t bytes) {
    const auto size = static_cast<std::int64_t>(bytes);
    if (limit_bytes_ > 0 && held_bytes_ + size > limit_bytes_) return nullptr;
    void* const block = backend.system_allocate(device.index, bytes);
    if (block != nullptr) held_bytes_ += size;
    return block;
  }

  void count(std::int64_t bytes, MemoryUse use) noexcept {
    stats_.live_bytes += bytes;
    if (stats_.live_bytes > stats_.peak_bytes) stats_.peak_bytes = stats_.live_bytes;
    if (use == MemoryUse::kWorkspace) {
      stats_.workspace_bytes += bytes;
      if (stats_.workspace_bytes > stats_.workspace_peak_bytes) {
        stats_.workspace_peak_bytes = stats_.workspace_bytes;
      }
    }
  }

  void release_cached_locked(Device device) {
    const DeviceBackend& backend = backend_of(device);
    for (std::size_t i = 0; i < kClasses; ++i) {
      for (void* block : free_[i]) backend.system_free(device.index, block, 0);
      free_[i].clear();
    }
    held_bytes_ -= stats_.cached_bytes;
    stats_.cached_bytes = 0;
  }

  std::mutex mutex_;
  std::array<std::vector<void*>, kClasses> free_;
  MemoryStats stats_;
  std::int64_t held_bytes_ = 0;   // from the system, in use or cached
  std::int64_t limit_bytes_ = 0;  // 0: unlimited
};

constexpr std::size_t kDevicesOfAKind = 16;

CachingAllocator& allocator_of(Device device) {
  // The object is never destroyed, because tensors with static lifetime may be freed after it.
  static auto& allocators =
      *new std::array<std::array<CachingAllocator, kDevicesOfAKind>, kDeviceTypeCount>;
  CONVSCOPE_CHECK(device.index < kDevicesOfAKind, "memory", "expected a device index below ",
                  kDevicesOfAKind, ", got ", static_cast<int>(device.index));
  return allocators[static_cast<std::size_t>(device.type)][device.index];
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kPoolSmallObjects = false;  // detects uses after free
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kPoolSmallObjects = false;
#else
constexpr bool kPoolSmallObjects = true;
#endif
#else
constexpr bool kPoolSmallObjects = true;
#endif

constexpr std::size_t kSmallStepBytes = 32;
constexpr std::size_t kSmallLists = 32;  // objects up to 1 KiB

struct FreeObject {
  FreeObject* next;
};

// The array is trivially destructible, so it still exists when destructors of thread-local objects
// free objects.
thread_local std::array<FreeObject*, kSmallLists> small_lists{};
thread_local bool small_lists_closed = false;

struct SmallListsCloser {
  ~SmallListsCloser() {
    small_lists_closed = true;
    for (FreeObject*& head : small_lists) {
      while (head != nullptr) {
        FreeObject* object = head;
        head = object->next;
        ::operator delete(object);
      }
    }
  }
};
thread_local SmallListsCloser small_lists_closer;

std::size_t small_list_index(std::size_t bytes) {
  return bytes == 0 ? 0 : (bytes - 1) / kSmallStepBytes;
}

}  // namespace

void* try_allocate(Device device, std::size_t bytes, MemoryUse use) {
  if (bytes == 0) return nullptr;
  if (memory_is_unbacked()) return map_unbacked(device, bytes);
  return allocator_of(device).allocate(device, bytes, use);
}

void* allocate(Device device, std::size_t bytes, MemoryUse use) {
  void* const block = try_allocate(device, bytes, use);
  if (block == nullptr && bytes > 0) {
    fail_out_of_memory(device, bytes, use == MemoryUse::kTensor ? "a tensor" : "workspace");
  }
  return block;
}

void fail_out_of_memory(Device device, std::size_t bytes, std::string_view what) {
  const MemoryStats stats = memory_stats(device);
  fail(ErrorKind::kRun, "memory",
       cat("out of memory on ", device.str(), ": expected space for ", what, " of ", bytes,
           " bytes, ", stats.live_bytes, " bytes are in use (peak ", stats.peak_bytes, ") and ",
           stats.cached_bytes, " are cached; use a smaller batch"));
}

void set_memory_limit(Device device, std::int64_t bytes) { allocator_of(device).set_limit(bytes); }

void deallocate(Device device, void* pointer, std::size_t bytes, MemoryUse use) noexcept {
  if (pointer == nullptr || unmap_unbacked(device, pointer)) return;
  allocator_of(device).deallocate(pointer, bytes, use);
}

MemoryStats memory_stats(Device device) { return allocator_of(device).stats(); }
void reset_peak(Device device) { allocator_of(device).reset_peak(); }
void release_cached(Device device) { allocator_of(device).release_cached(device); }

void* allocate_small(std::size_t bytes) {
  const std::size_t index = small_list_index(bytes);
  if (!kPoolSmallObjects || index >= kSmallLists) return ::operator new(bytes);
  FreeObject*& head = small_lists[index];
  if (head == nullptr) return ::operator new((index + 1) * kSmallStepBytes);
  FreeObject* object = head;
  head = object->next;
  return object;
}

void deallocate_small(void* pointer, std::size_t bytes) noexcept {
  if (pointer == nullptr) return;
  const std::size_t index = small_list_index(bytes);
  if (!kPoolSmallObjects || index >= kSmallLists || small_lists_closed) {
    ::operator delete(pointer);
    return;
  }
  (void)&small_lists_closer;  // makes this thread run the closer at its end
  auto* object = static_cast<FreeObject*>(pointer);
  object->next = small_lists[index];
  small_lists[index] = object;
}

Workspace::Workspace(Device device, std::size_t bytes)
    : device_(device), data_(allocate(device, bytes, MemoryUse::kWorkspace)), bytes_(bytes) {}

Workspace::Workspace(Workspace&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Workspace::~Workspace() { deallocate(device_, data_, bytes_, MemoryUse::kWorkspace); }

}  // namespace convscope
