// SPDX-License-Identifier: Apache-2.0
// unbacked.h: tensors and workspace with an address and a size, but without memory. They allow
// building a network and compiling its steps to find the memory requirement, without allocating it.
//
//   UnbackedMemory nothing;                             // affects this thread while it exists
//   auto model = build_model(config, shape, classes);   // weights are not initialised
//   nothing.live_bytes(device);                         // memory that they would need
//
// Meanwhile nothing is initialised, filled or copied, except small CPU tensors. The tensors may
// outlive the object; they have no content, and no kernel may run on them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "framework/device.h"
#include "framework/export.h"

namespace convscope {

class CONVSCOPE_API UnbackedMemory {
 public:
  UnbackedMemory();
  ~UnbackedMemory();
  UnbackedMemory(const UnbackedMemory&) = delete;
  UnbackedMemory& operator=(const UnbackedMemory&) = delete;

  // Returns the bytes that were requested and not freed since the beginning.
  std::int64_t live_bytes(Device device) const;

 private:
  friend void* map_unbacked(Device device, std::size_t bytes);
  friend bool unmap_unbacked(Device device, void* pointer) noexcept;
  std::array<std::int64_t, kDeviceTypeCount> live_{};
  UnbackedMemory* outer_;
};

CONVSCOPE_API bool memory_is_unbacked();
// Returns true if a tensor of `bytes` on `device` may be filled and copied now.
inline bool is_filled(Device device, std::size_t bytes) {
  return !memory_is_unbacked() || (device.type == DeviceType::cpu && bytes <= 65536);
}

// Returns addresses for the allocator; null when the system has no more.
void* map_unbacked(Device device, std::size_t bytes);
// Returns false for a pointer that map_unbacked() did not return.
bool unmap_unbacked(Device device, void* pointer) noexcept;

}  // namespace convscope
