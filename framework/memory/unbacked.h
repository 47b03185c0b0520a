// SPDX-License-Identifier: Apache-2.0
// unbacked.h: tensors and workspace that have an address and a size, but no memory behind them: to
// build a network and plan its steps, and so learn what they would need, without paying for it.
//
//   UnbackedMemory nothing;                             // of this thread, until its end
//   auto model = build_model(config, shape, classes);   // weights that nobody draws
//   nothing.live_bytes(device);                         // what they would take
//
// Nothing is drawn, filled or copied meanwhile, but for small tensors of the CPU. Tensors made so
// may outlive it; what they hold is nothing, and no kernel may run on them.
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

  // Asked for since the beginning and not given back.
  std::int64_t live_bytes(Device device) const;

 private:
  friend void* map_unbacked(Device device, std::size_t bytes);
  friend bool unmap_unbacked(Device device, void* pointer) noexcept;
  std::array<std::int64_t, kDeviceTypeCount> live_{};
  UnbackedMemory* outer_;
};

CONVSCOPE_API bool memory_is_unbacked();
// Whether a tensor of `bytes` on `device` may be filled and copied now.
inline bool is_filled(Device device, std::size_t bytes) {
  return !memory_is_unbacked() || (device.type == DeviceType::cpu && bytes <= 65536);
}

// For the allocator. Null when the system gives no more addresses.
void* map_unbacked(Device device, std::size_t bytes);
// False: the pointer is none of these.
bool unmap_unbacked(Device device, void* pointer) noexcept;

}  // namespace convscope
