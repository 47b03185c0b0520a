// SPDX-License-Identifier: Apache-2.0
// device.h: devices that hold tensors. The CPU is always available. The CUDA library is opened when
// a CUDA device is first requested, so one build runs on machines with and without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

enum class DeviceType : std::uint8_t { cpu, cuda };
inline constexpr int kDeviceTypeCount = 2;

constexpr std::string_view name_of(DeviceType type) {
  return type == DeviceType::cpu ? "cpu" : "cuda";
}

struct Device {
  DeviceType type = DeviceType::cpu;
  std::uint8_t index = 0;

  // Parses "cpu", "cuda" or "cuda:1". Throws for any other text.
  CONVSCOPE_API static Device parse(std::string_view text);
  CONVSCOPE_API std::string str() const;
  bool operator==(const Device&) const = default;
};

// Facts about one device. A field that does not apply is empty or 0.
struct DeviceFacts {
  std::string name;                // "NVIDIA H200"
  std::string compute_capability;  // "9.0"
  std::string driver_api;          // highest CUDA version that the driver supports: "13.0"
  std::string runtime;             // CUDA version that the library was built with
  int multiprocessors = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t total_bytes = 0, free_bytes = 0;  // memory
};

// The functions that a kind of device provides. memory/memory_cpu.cpp fills in the CPU's functions,
// and libconvscope_cuda fills in CUDA's when it is opened. Sizes are bytes. Work is queued in order
// without waiting, except where a comment says that a function waits.
struct DeviceBackend {
  const char* name = nullptr;
  void* (*system_allocate)(int index, std::size_t bytes) = nullptr;  // null on failure
  void (*system_free)(int index, void* pointer, std::size_t bytes) = nullptr;
  // Waits until the copy has finished.
  void (*copy_to_host)(int index, void* to, const void* from, std::size_t bytes) = nullptr;
  // Queues the copy. Returns at once when `from` is pinned. In that case, set a mark after the
  // copy, and do not change `from` before the device has reached the mark.
  void (*copy_from_host)(int index, void* to, const void* from, std::size_t bytes) = nullptr;
  // Queues the copy and returns at once. `to` is pinned. Set a mark after the copy: `to` is valid
  // when the device has reached the mark.
  void (*queue_copy_to_host)(int index, void* to, const void* from, std::size_t bytes) = nullptr;
  void (*copy_within)(int index, void* to, const void* from, std::size_t bytes) = nullptr;
  void (*fill_bytes)(int index, void* to, int value, std::size_t bytes) = nullptr;
  void (*synchronize)(int index) = nullptr;  // waits for all queued work
  int (*device_count)() = nullptr;

  // Allocates pinned host memory, which the device can access asynchronously.
  void* (*allocate_pinned)(std::size_t bytes) = nullptr;
  void (*free_pinned)(void* pointer) = nullptr;

  // Marks (CUDA events) in the queue, for waiting and timing. A mark that is set during a recording
  // (a CUDA graph capture) becomes part of the recording, and each replay sets the mark again.
  void* (*make_mark)(int index) = nullptr;
  void (*free_mark)(int index, void* mark) = nullptr;
  void (*set_mark)(int index, void* mark) = nullptr;
  void (*wait_for_mark)(int index, void* mark) = nullptr;           // waits
  double (*ms_between)(int index, void* from, void* to) = nullptr;  // waits for `to`

  // Between begin and end, work is recorded (CUDA: a captured graph), and replayed as one unit.
  // These functions are null on devices that cannot record. Do not allocate or wait during a
  // recording.
  void (*begin_recording)(int index) = nullptr;
  void* (*end_recording)(int index) = nullptr;
  void (*replay)(int index, void* recording) = nullptr;
  void (*free_recording)(int index, void* recording) = nullptr;

  DeviceFacts (*facts)(int index) = nullptr;
};

// Registers the backend of a kind of device. Each device library calls this function while the
// library is being loaded.
CONVSCOPE_API void register_device_backend(DeviceType type, const DeviceBackend& backend);

// Returns the backend of a device. Throws kUnavailable, with the reason, when there is none.
CONVSCOPE_API const DeviceBackend& backend_of(Device device);

struct DeviceStatus {
  bool available = false;
  std::string reason;  // why it is unavailable; empty when available
};

// Tries to open the backend on the first call and remembers the result. Never throws.
CONVSCOPE_API const DeviceStatus& status_of(DeviceType type);

}  // namespace convscope
