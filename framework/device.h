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

// What a kind of device must offer to the framework: plain function pointers, filled in by the CPU
// here and by libconvscope_cuda when it is opened. Sizes are bytes.
struct DeviceBackend {
  const char* name = nullptr;
  void* (*system_allocate)(int index, std::size_t bytes) = nullptr;  // null on failure
  void (*system_free)(int index, void* pointer, std::size_t bytes) = nullptr;
  void (*copy_to_host)(int index, void* to, const void* from, std::size_t bytes) = nullptr;
  void (*copy_from_host)(int index, void* to, const void* from, std::size_t bytes) = nullptr;
  void (*copy_within)(int index, void* to, const void* from, std::size_t bytes) = nullptr;
  void (*fill_bytes)(int index, void* to, int value, std::size_t bytes) = nullptr;
  void (*synchronize)(int index) = nullptr;
  int (*device_count)() = nullptr;
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
