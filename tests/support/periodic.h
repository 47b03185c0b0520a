// SPDX-License-Identifier: Apache-2.0
// periodic.h: device tensors that are too large for host memory, and selected elements of results.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "experiments/check/matrix/convolution_case.h"
#include "framework/memory/memory.h"
#include "framework/random.h"
#include "framework/tensor.h"
#include "tests/support/cuda.h"
#include "tests/support/tiers.h"

namespace convscope::testing {

// Random numbers on the device that repeat with a prime period. The host can compute any element
// without storing all of them, and no two rows or images are equal.
class Periodic {
 public:
  static constexpr std::int64_t kPeriod = 999983;

  Periodic(const Shape& shape, DType dtype, std::uint64_t stream)
      : values_(std::min(shape.numel(), kPeriod), Tier::bounded, stream, dtype),
        tensor_(Tensor::empty(shape, dtype, cuda())) {
    const std::int64_t all = shape.numel();
    std::int64_t done = values_.count();
    if (done == 0) return;
    const Tensor host =
        Tensor::from(std::span<const float>(values_.data(), static_cast<std::size_t>(done)), {done})
            .to(dtype);
    const DeviceBackend& backend = backend_of(cuda());
    const auto bytes = [&](std::int64_t count) {
      return static_cast<std::size_t>(count) * size_of(dtype);
    };
    auto* const data = static_cast<unsigned char*>(tensor_.raw_data());
    backend.copy_from_host(0, data, host.raw_data(), bytes(done));
    while (done < all) {  // a multiple of the period, except for the last copy
      const std::int64_t more = std::min(done, all - done);
      backend.copy_within(0, data + bytes(done), data, bytes(more));
      done += more;
    }
    backend.synchronize(0);
  }
  double at(std::int64_t i) const { return values_.data()[i % kPeriod]; }
  const void* data() const { return tensor_.raw_data(); }
  const Tensor& tensor() const { return tensor_; }

 private:
  Numbers values_;
  Tensor tensor_;
};

struct Sum {
  double value = 0, magnitude = 0;
  void add(double a, double b) {
    value += a * b;
    magnitude += std::abs(a * b);
  }
};

// Returns the indices of the elements to compare.
inline std::vector<std::int64_t> samples_of(std::int64_t count, std::int64_t anywhere) {
  std::vector<std::int64_t> out;
  const std::int64_t around = std::int64_t{1} << 31;
  for (const std::int64_t i : {std::int64_t{0}, count - 1, around - 1, around, around + 1}) {
    if (i >= 0 && i < count) out.push_back(i);
  }
  Generator random(5, static_cast<std::uint64_t>(count));
  for (std::int64_t i = 0; i < anywhere; ++i) {
    const std::uint64_t bits = std::uint64_t{random.below(1u << 31)} << 31 | random.below(1u << 31);
    out.push_back(static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(count)));
  }
  return out;
}

inline float read_element(const void* data, DType dtype, std::int64_t i) {
  unsigned char bytes[4]{};
  const std::size_t size = size_of(dtype);
  backend_of(cuda()).copy_to_host(
      0, bytes, static_cast<const unsigned char*>(data) + static_cast<std::size_t>(i) * size, size);
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, bytes, sizeof(T));
    return static_cast<float>(value);
  };
  if (dtype == DType::f16) return as(Float16());
  if (dtype == DType::bf16) return as(BFloat16());
  return as(0.0f);
}

// Returns whether the device has `bytes` free bytes, plus one GiB for other uses.
inline bool fits(std::int64_t bytes) {
  release_cached(cuda());
  return bytes + (std::int64_t{1} << 30) < backend_of(cuda()).facts(0).free_bytes;
}

}  // namespace convscope::testing
