// SPDX-License-Identifier: Apache-2.0
// deform_fused_simd.cpp: computes the sampling positions (places) of taps, samples of 16 channels
// at a time, and the gradients of samples: dx, and the products with the four corner pixels.
//
// Formula    sample[j, c] = sum over corners i of weight[i, j] x[pixel[i, j], c]
// Method     Places: one loop over pixels without branches, which the compiler turns into vectors
//            (CMake sets the option for GCC on this file).
//            Samples: a corner's 16 channels are one cache line (a block, activation_layout.h), so
//            a sample takes four loads with a multiplication, and one store. All blocks of channels
//            use the same addresses and weights. The code is unrolled for four corners inside the
//            image; at the border a loop runs over the corners that exist.
// Numerics   v and u are rounded as place.h says, and so are down and right. A corner's weight has
//            at most four roundings; its product and the sum over corners have three. A NaN
//            position has NaN weights at pixel 0.
// Read next  layers/deform_conv2d/place.h, the rules; deform_fused_cpu.cpp, which uses this
#include "framework/simd/lane_sums.h"
#include "framework/simd/simd.h"
#include "layers/deform_conv2d/fused/cpu/deform_kernels.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;
constexpr int kBlock = 16;  // channels of a block

void places(const DeformPlacesTask& task) {
  const float* __restrict const base_v = task.base_v;
  const float* __restrict const base_u = task.base_u;
  const float* __restrict const offset_v = task.offset_v;
  const float* __restrict const offset_u = task.offset_u;
  const float tap_v = task.tap_v, tap_u = task.tap_u;
  const std::int32_t height = task.height, width = task.width;
  const float height_f = static_cast<float>(height), width_f = static_cast<float>(width);
  const Index pixels = task.pixels;
  float* __restrict const to = task.to.data;
  const auto row = [=](PlaceRow which, int corner = 0) __attribute__((always_inline)) {
    return (static_cast<int>(which) + corner) * Index{DeformPlaces::kMax};
  };
  const Index factor = row(PlaceRow::factor);
  for (Index j = 0; j < pixels; ++j) to[factor + j] = task.mask == nullptr ? 1 : task.mask[j];
  for (Index j = 0; j < pixels; ++j) {
    const float v = base_v[j] + tap_v + offset_v[j];
    const float u = base_u[j] + tap_u + offset_u[j];
    // A NaN position counts as inside, because comparisons with NaN are false. Its sample is NaN.
    const std::int32_t outside = (v <= -1.0f ? 1 : 0) | (v >= height_f ? 1 : 0) |
                                 (u <= -1.0f ? 1 : 0) | (u >= width_f ? 1 : 0);
    // NaN and positions outside of the image take row or column 0, which exists.
    const float v_floor = __builtin_floorf(v), u_floor = __builtin_floorf(u);
    const float h_kept = ((outside == 0) & (v_floor >= -1.0f)) ? v_floor : 0.0f;
    const float w_kept = ((outside == 0) & (u_floor >= -1.0f)) ? u_floor : 0.0f;
    const auto h = static_cast<std::int32_t>(h_kept), w = static_cast<std::int32_t>(w_kept);
    const std::int32_t inside = 1 - outside;
    const std::int32_t above = inside & (h >= 0 ? 1 : 0), below = inside & (h + 1 < height ? 1 : 0);
    const std::int32_t left = w >= 0 ? 1 : 0, beside = w + 1 < width ? 1 : 0;
    const float down = v - v_floor, right = u - u_floor;
    const std::int32_t at = h * width + w;
    const auto put = [=](PlaceRow which, int corner, std::int32_t value)
        __attribute__((always_inline)) {
      to[row(which, corner) + j] = __builtin_bit_cast(float, value);
    };
    // A corner outside of the image gets the index of pixel 0, which is not read.
    put(PlaceRow::pixel, 0, (above & left) != 0 ? at : 0);
    put(PlaceRow::pixel, 1, (above & beside) != 0 ? at + 1 : 0);
    put(PlaceRow::pixel, 2, (below & left) != 0 ? at + width : 0);
    put(PlaceRow::pixel, 3, (below & beside) != 0 ? at + width + 1 : 0);
    put(PlaceRow::corners, 0,
        (above & left) | (above & beside) << 1 | (below & left) << 2 | (below & beside) << 3);
    const float upper = to[factor + j] * (1 - down), lower = to[factor + j] * down;
    to[row(PlaceRow::weight, 0) + j] = upper * (1 - right);
    to[row(PlaceRow::weight, 1) + j] = upper * right;
    to[row(PlaceRow::weight, 2) + j] = lower * (1 - right);
    to[row(PlaceRow::weight, 3) + j] = lower * right;
    to[row(PlaceRow::down) + j] = down;
    to[row(PlaceRow::right) + j] = right;
  }
}

constexpr int kAll = 15;  // all four corners

// The corners of a pixel that exist.
struct Corners {
  int count = 0;
  Index pixel[4];  // in floats
  float weight[4];
  int corner[4];

  Corners(const DeformPlaces& places, int j, int bits) {
    for (int i = 0; i < 4; ++i) {
      if ((bits >> i & 1) == 0) continue;
      pixel[count] = Index{places.integer_at(PlaceRow::pixel, j, i)} * kBlock;
      weight[count] = places.at(PlaceRow::weight, j, i);
      corner[count++] = i;
    }
  }
};

void sample(const DeformSampleTask& task) {
  for (int j = 0; j < task.pixels; ++j) {
    float* to = task.to + j * task.to_step;
    const std::int32_t bits = task.places.integer_at(PlaceRow::corners, j);
    if (bits == kAll) {
      const float* from[4];
      Vec weight[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        from[i] = task.x + Index{task.places.integer_at(PlaceRow::pixel, j, i)} * kBlock;
        weight[i] = broadcast(task.places.at(PlaceRow::weight, j, i));
      }
      for (int b = 0; b < task.blocks; ++b, to += kBlock) {
        const Index block = b * task.x_block;
#pragma GCC unroll 16
        for (int lane = 0; lane < kBlock; lane += kLanes) {
          Vec upper = weight[0] * load(from[0] + block + lane);
          Vec lower = weight[2] * load(from[2] + block + lane);
          upper = fma(weight[1], load(from[1] + block + lane), upper);
          lower = fma(weight[3], load(from[3] + block + lane), lower);
          store(to + lane, upper + lower);
        }
      }
      continue;
    }
    const Corners some(task.places, j, bits);
    // A sample outside of the image is 0 times its mask, so a NaN mask makes the sample NaN.
    const Vec nothing = broadcast(some.count == 0 ? 0 * task.places.at(PlaceRow::factor, j) : 0.0f);
    for (int b = 0; b < task.blocks; ++b, to += kBlock) {
      const float* const x = task.x + b * task.x_block;
      for (int lane = 0; lane < kBlock; lane += kLanes) {
        Vec sum = nothing;
        for (int i = 0; i < some.count; ++i) {
          sum = fma(broadcast(some.weight[i]), load(x + some.pixel[i] + lane), sum);
        }
        store(to + lane, sum);
      }
    }
  }
}

template <bool kData, bool kPlaces>
void back(const DeformBackTask& task) {
  for (int j = 0; j < task.pixels; ++j) {
    const float* const g = task.g + Index{j} * kBlock;
    const std::int32_t bits = task.places.integer_at(PlaceRow::corners, j);
    Vec total[4] = {zero(), zero(), zero(), zero()};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      if (bits != kAll && (bits >> i & 1) == 0) continue;
      const Index at = Index{task.places.integer_at(PlaceRow::pixel, j, i)} * kBlock;
      const Vec weight = broadcast(task.places.at(PlaceRow::weight, j, i));
#pragma GCC unroll 16
      for (int lane = 0; lane < kBlock; lane += kLanes) {
        const Vec gradient = load(g + lane);
        if (kPlaces) total[i] = fma(gradient, load(task.x + at + lane), total[i]);
        if (kData) {
          float* const to = task.dx + at + lane;
          store(to, fma(gradient, weight, load(to)));
        }
      }
    }
    if (kPlaces) store_sums(total, task.products + j * task.products_step);
  }
}

void any_back(const DeformBackTask& task) {
  if (task.products == nullptr) return back<true, false>(task);
  if (task.dx == nullptr) return back<false, true>(task);
  back<true, true>(task);
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(deform_kernels, (DeformKernels{.places = CONVSCOPE_ISA::places,
                                                      .sample = CONVSCOPE_ISA::sample,
                                                      .back = CONVSCOPE_ISA::any_back}))
