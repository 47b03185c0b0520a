// SPDX-License-Identifier: Apache-2.0
// unbacked.h: tensors and workspace that have an address and a size, but no memory. The program
// builds a network and compiles its steps with such tensors, to find out how much memory the steps
// need without allocating it.
//
//   UnbackedMemory nothing;                             // affects this thread while it exists
//   auto model = build_model(config, shape, classes);   // weights are not initialised
//   nothing.live_bytes(device);                         // memory that they would need
//
// While the object exists, nothing is initialised, filled or copied, except small CPU tensors. The
// tensors may outlive the object. They have no content, and no kernel may run on them.
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

  // Returns the bytes that were requested since the object was made, minus those that were freed.
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

// Returns an address for the allocator; null when the system has no more addresses.
void* map_unbacked(Device device, std::size_t bytes);
// Returns false for a pointer that map_unbacked() did not return.
bool unmap_unbacked(Device device, void* pointer) noexcept;

}  // namespace convscope
