// SPDX-License-Identifier: Apache-2.0
// nchw16c_images.h: test data on which kernels for NCHW and for NCHW16c are compared, and tensors
// that hold garbage until a kernel writes them.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>

#include "layers/dispatch/activation_layout.h"
#include "tests/support/numbers.h"

namespace convscope::testing {

inline constexpr ActivationLayout kNchw16c = ActivationLayout::nchw16c;
inline const Device kCpu{};

// Kinds of test data. `offset`: the mean is a million standard deviations. `ties`: many equal
// numbers, with +0, -0 and some NaN among them.
enum class Numbers { normal, offset, heavy_tails, ties };
inline constexpr Numbers kAllNumbers[] = {Numbers::normal, Numbers::offset, Numbers::heavy_tails,
                                          Numbers::ties};

inline Tensor images_of(Numbers kind, const Shape& shape, std::uint64_t seed = 1) {
  Tensor out = normal(shape, DType::f32, seed);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    float& v = out.data<float>()[i];
    if (kind == Numbers::offset) v += 1e6f;
    if (kind == Numbers::heavy_tails) v = v * v * v * v * v;
    if (kind == Numbers::ties) {
      v = i % 53 == 0 ? std::numeric_limits<float>::quiet_NaN() : std::round(v);  // -0 too
    }
  }
  return out;
}

inline Tensor nchw16c(const Tensor& images) { return stored_images(images, kNchw16c); }
inline Tensor plain(const Tensor& stored, const Shape& images) {
  return plain_images(stored, images, kNchw16c);
}

// Returns a tensor whose bytes are all 255, a value that no kernel writes. Floats then are NaN.
inline Tensor dirty(const Shape& shape, DType dtype = DType::f32) {
  const Tensor out = Tensor::empty(shape, dtype);
  if (out.numel() > 0) {
    std::memset(out.raw_data(), 0xff, static_cast<std::size_t>(out.size_bytes()));
  }
  return out;
}
inline Tensor dirty_nchw16c(const Shape& images, DType dtype = DType::f32) {
  return dirty(stored_shape(images, kNchw16c), dtype);
}

// Runs check() with each instruction set of this CPU, with 1 and with 2 threads.
template <class Check>
void on_every_isa(const Check& check) {
  const MachineScope scope;
  for (int i = 0; i < kIsaCount; ++i) {
    const Isa isa = static_cast<Isa>(i);
    if (!supports_isa(isa)) continue;
    set_isa(isa);
    for (const int threads : {1, 2}) {
      set_num_threads(threads);
      SCOPED_TRACE(std::string(name_of(isa)) + ", threads " + std::to_string(threads));
      check();
    }
  }
}

}  // namespace convscope::testing
