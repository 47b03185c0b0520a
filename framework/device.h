// SPDX-License-Identifier: Apache-2.0
// device.h: where tensors live. The CPU is always there; CUDA is a library that is opened when a
// CUDA device is first asked for, so one build runs on machines with and without a GPU.
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

  // "cpu", "cuda" or "cuda:1"; anything else is an error.
  CONVSCOPE_API static Device parse(std::string_view text);
  CONVSCOPE_API std::string str() const;
  bool operator==(const Device&) const = default;
};

// What is known about one device; empty or 0 where it does not apply.
struct DeviceFacts {
  std::string name;                // "NVIDIA H200"
  std::string compute_capability;  // "9.0"
  std::string driver_api;          // highest CUDA version that the driver speaks: "13.0"
  std::string runtime;             // CUDA version that the library was built with
  int multiprocessors = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t total_bytes = 0, free_bytes = 0;  // memory
};

// What a kind of device must offer to the framework: plain function pointers, filled in by the CPU
// here and by libconvscope_cuda when it is opened. Sizes are bytes. Work is queued in order and the
// host goes on, except where a function says that it waits.
struct DeviceBackend {
  const char* name = nullptr;
  void* (*system_allocate)(int index, std::size_t bytes) = nullptr;  // null on failure
  void (*system_free)(int index, void* pointer, std::size_t bytes) = nullptr;
  // Waits until the bytes are there.
  void (*copy_to_host)(int index, void* to, const void* from, std::size_t bytes) = nullptr;
  // Does not wait when `from` is pinned: then leave it alone until a mark behind the copy is
  // reached.
  void (*copy_from_host)(int index, void* to, const void* from, std::size_t bytes) = nullptr;
  // Does not wait; `to` is pinned, and holds the bytes once a mark behind the copy is reached.
  void (*queue_copy_to_host)(int index, void* to, const void* from, std::size_t bytes) = nullptr;
  void (*copy_within)(int index, void* to, const void* from, std::size_t bytes) = nullptr;
  void (*fill_bytes)(int index, void* to, int value, std::size_t bytes) = nullptr;
  void (*synchronize)(int index) = nullptr;  // waits for all that is queued
  int (*device_count)() = nullptr;

  // Host memory that the device reads and writes while the host goes on.
  void* (*allocate_pinned)(std::size_t bytes) = nullptr;
  void (*free_pinned)(void* pointer) = nullptr;

  // Marks in the queue, for waiting and for timing. One that is set while recording is part of the
  // recording, and each replay sets it.
  void* (*make_mark)(int index) = nullptr;
  void (*free_mark)(int index, void* mark) = nullptr;
  void (*set_mark)(int index, void* mark) = nullptr;
  void (*wait_for_mark)(int index, void* mark) = nullptr;           // waits
  double (*ms_between)(int index, void* from, void* to) = nullptr;  // waits for `to`

  // What is queued between begin and end is not run but recorded, to be replayed as one. Null on
  // devices without this. Nothing may be allocated or waited for while recording.
  void (*begin_recording)(int index) = nullptr;
  void* (*end_recording)(int index) = nullptr;
  void (*replay)(int index, void* recording) = nullptr;
  void (*free_recording)(int index, void* recording) = nullptr;

  DeviceFacts (*facts)(int index) = nullptr;
};

// Called by a backend's library while it is being loaded.
CONVSCOPE_API void register_device_backend(DeviceType type, const DeviceBackend& backend);

// The backend of a device; an error of kind kUnavailable, with the reason, when there is none.
CONVSCOPE_API const DeviceBackend& backend_of(Device device);

struct DeviceStatus {
  bool available = false;
  std::string reason;  // why not; empty when available
};

// Tries to open the backend once and remembers the answer. Never throws.
CONVSCOPE_API const DeviceStatus& status_of(DeviceType type);

}  // namespace convscope
