// SPDX-License-Identifier: Apache-2.0
// guarded_block.h: device memory for a tensor, off alignment and between guards.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "framework/check.h"
#include "framework/device.h"
#include "framework/precision.h"

namespace convscope::matrix {

// Returns the nearest number of the type.
inline float rounded_to(DType dtype, float value) {
  if (dtype == DType::f16) return static_cast<float>(Float16(value));
  if (dtype == DType::bf16) return static_cast<float>(BFloat16(value));
  return value;
}

// Holds `count` elements, `shift` elements off an aligned address, with `guard_bytes` of 0xff on
// each side. The system allocates each block separately, with no valid memory next to it, so the
// address sanitizer or compute-sanitizer finds accesses beyond both ends.
class GuardedBlock {
 public:
  // Copies `values`. If `values` is null, sets all bytes to 0xff, which is NaN in each
  // floating-point type.
  GuardedBlock(Device device, DType dtype, const float* values, std::int64_t count,
               std::int64_t shift, std::size_t guard_bytes)
      : device_(device),
        dtype_(dtype),
        count_(count),
        front_(guard_bytes + static_cast<std::size_t>(shift) * size_of(dtype)),
        before_(front_ + static_cast<std::size_t>(count) * size_of(dtype) + guard_bytes, 0xff) {
    for (std::int64_t i = 0; values != nullptr && i < count; ++i) store(i, values[i]);
    if (before_.empty()) return;
    const DeviceBackend& backend = backend_of(device);
    block_ = static_cast<unsigned char*>(backend.system_allocate(device.index, before_.size()));
    CONVSCOPE_CHECK(block_ != nullptr, "check", "expected ", before_.size(), " bytes on ",
                    device.str());
    backend.copy_from_host(device.index, block_, before_.data(), before_.size());
  }
  ~GuardedBlock() {
    if (block_ != nullptr) backend_of(device_).system_free(device_.index, block_, before_.size());
  }
  GuardedBlock(const GuardedBlock&) = delete;
  GuardedBlock& operator=(const GuardedBlock&) = delete;

  void* data() const { return block_ + front_; }

  std::vector<float> floats() const {
    const std::vector<unsigned char> now = bytes();
    std::vector<float> out(static_cast<std::size_t>(count_));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const unsigned char* at = now.data() + front_ + i * size_of(dtype_);
      if (dtype_ == DType::f32) {
        std::memcpy(&out[i], at, sizeof(float));
      } else if (dtype_ == DType::f16) {
        out[i] = read<Float16>(at);
      } else {
        out[i] = read<BFloat16>(at);
      }
    }
    return out;
  }

  // Returns which guard has changed ("before the start", "past the end"), or null.
  const char* damage() const {
    const std::vector<unsigned char> now = bytes();
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (now[i] == 0xff) continue;
      if (i < front_) return "before the start of";
      if (i >= front_ + static_cast<std::size_t>(count_) * size_of(dtype_))
        return "past the end of";
    }
    return nullptr;
  }
  bool unchanged() const { return bytes() == before_; }
  // Returns all bytes, guards included.
  std::vector<unsigned char> bytes() const {
    std::vector<unsigned char> out(before_.size());
    if (block_ != nullptr) {
      backend_of(device_).copy_to_host(device_.index, out.data(), block_, out.size());
    }
    return out;
  }

 private:
  template <class T>
  static float read(const unsigned char* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return static_cast<float>(value);
  }
  void store(std::int64_t i, float value) {
    unsigned char* to = before_.data() + front_ + static_cast<std::size_t>(i) * size_of(dtype_);
    const Float16 f16(value);
    const BFloat16 bf16(value);
    if (dtype_ == DType::f32) std::memcpy(to, &value, sizeof(value));
    if (dtype_ == DType::f16) std::memcpy(to, &f16, sizeof(f16));
    if (dtype_ == DType::bf16) std::memcpy(to, &bf16, sizeof(bf16));
  }
  Device device_;
  DType dtype_;
  std::int64_t count_;
  std::size_t front_;
  std::vector<unsigned char> before_;
  unsigned char* block_ = nullptr;
};

}  // namespace convscope::matrix
