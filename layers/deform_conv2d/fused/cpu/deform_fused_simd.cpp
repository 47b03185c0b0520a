// SPDX-License-Identifier: Apache-2.0
// deform_fused_simd.cpp: places of taps, samples of 16 channels at a time, and the way back from a
// sample's gradient to x and to its four corners' products.
//
// Formula    sample[j, c] = sum over corners i of weight[i, j] x[pixel[i, j], c]
// Plan       Places: one loop over pixels without branches, which the compiler turns into vectors.
//            Samples: a corner's 16 channels are one cache line (a block, activation_layout.h), so
//            a sample is four loads that multiply, and one store; the addresses and weights serve
//            all blocks of channels. Four corners inside the image is the case that is unrolled;
//            at the border the corners that exist are counted one by one.
// Numerics   v and u are rounded as place.h says; weights and samples take six roundings beside
//            those of the sum over corners. A NaN place has NaN weights at pixel 0.
// Read next  layers/deform_conv2d/place.h, the rules; deform_fused_cpu.cpp, which uses this
#include "framework/simd/simd.h"
#include "layers/deform_conv2d/fused/cpu/deform_kernels.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;
constexpr int kBlock = 16;                 // channels of a block
constexpr int kVectors = kBlock / kLanes;  // of a block

void places(const DeformPlacesTask& task) {
  std::int32_t* __restrict const pixel0 = task.to.integers(PlaceRow::pixel, 0);
  std::int32_t* __restrict const pixel1 = task.to.integers(PlaceRow::pixel, 1);
  std::int32_t* __restrict const pixel2 = task.to.integers(PlaceRow::pixel, 2);
  std::int32_t* __restrict const pixel3 = task.to.integers(PlaceRow::pixel, 3);
  float* __restrict const weight0 = task.to.row(PlaceRow::weight, 0);
  float* __restrict const weight1 = task.to.row(PlaceRow::weight, 1);
  float* __restrict const weight2 = task.to.row(PlaceRow::weight, 2);
  float* __restrict const weight3 = task.to.row(PlaceRow::weight, 3);
  std::int32_t* __restrict const corners = task.to.integers(PlaceRow::corners);
  float* __restrict const down_to = task.to.row(PlaceRow::down);
  float* __restrict const right_to = task.to.row(PlaceRow::right);
  float* __restrict const factor_to = task.to.row(PlaceRow::factor);
  const float *const base_v = task.base_v, *const base_u = task.base_u;
  const float *const offset_v = task.offset_v, *const offset_u = task.offset_u;
  const std::int32_t height = task.height, width = task.width;
  const float height_f = static_cast<float>(height), width_f = static_cast<float>(width);
  for (int j = 0; j < task.pixels; ++j) factor_to[j] = task.mask == nullptr ? 1 : task.mask[j];
  for (int j = 0; j < task.pixels; ++j) {
    const float v = base_v[j] + task.tap_v + offset_v[j];
    const float u = base_u[j] + task.tap_u + offset_u[j];
    const float v_floor = __builtin_floorf(v), u_floor = __builtin_floorf(u);
    // A NaN is not outside: it is neither below nor above.
    const bool inside = !((v <= -1.0f) | (v >= height_f) | (u <= -1.0f) | (u >= width_f));
    // Of NaN, and of what is outside: row or column 0, which exists.
    const float h_f = inside & (v_floor >= -1.0f) ? v_floor : 0.0f;
    const float w_f = inside & (u_floor >= -1.0f) ? u_floor : 0.0f;
    const auto h = static_cast<std::int32_t>(h_f), w = static_cast<std::int32_t>(w_f);
    const std::int32_t above = inside & (h >= 0), below = inside & (h + 1 < height);
    const std::int32_t left = w >= 0, beside = w + 1 < width;
    const float down = v - v_floor, right = u - u_floor;
    const float m = factor_to[j];
    const std::int32_t at = h * width + w;
    // Where a corner does not exist, its pixel is one that does, and is not read.
    pixel0[j] = (above & left) != 0 ? at : 0;
    pixel1[j] = (above & beside) != 0 ? at + 1 : 0;
    pixel2[j] = (below & left) != 0 ? at + width : 0;
    pixel3[j] = (below & beside) != 0 ? at + width + 1 : 0;
    const float upper = m * (1 - down), lower = m * down;
    weight0[j] = upper * (1 - right);
    weight1[j] = upper * right;
    weight2[j] = lower * (1 - right);
    weight3[j] = lower * right;
    corners[j] =
        (above & left) | (above & beside) << 1 | (below & left) << 2 | (below & beside) << 3;
    down_to[j] = down;
    right_to[j] = right;
  }
}

constexpr int kAll = 15;  // four corners

// The corners of a pixel that exist.
struct Corners {
  int count = 0;
  Index pixel[4];  // in floats
  float weight[4];
  int corner[4];

  Corners(const DeformPlaces& places, int j, int bits) {
    for (int i = 0; i < 4; ++i) {
      if ((bits >> i & 1) == 0) continue;
      pixel[count] = Index{places.integers(PlaceRow::pixel, i)[j]} * kBlock;
      weight[count] = places.row(PlaceRow::weight, i)[j];
      corner[count++] = i;
    }
  }
};

void sample(const DeformSampleTask& task) {
  const std::int32_t* const bits = task.places.integers(PlaceRow::corners);
  for (int j = 0; j < task.pixels; ++j) {
    float* to = task.to + j * task.to_step;
    if (bits[j] == kAll) {
      const float* from[4];
      Vec weight[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        from[i] = task.x + Index{task.places.integers(PlaceRow::pixel, i)[j]} * kBlock;
        weight[i] = broadcast(task.places.row(PlaceRow::weight, i)[j]);
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
    const Corners some(task.places, j, bits[j]);
    for (int b = 0; b < task.blocks; ++b, to += kBlock) {
      const float* const x = task.x + b * task.x_block;
      for (int lane = 0; lane < kBlock; lane += kLanes) {
        Vec sum = zero();
        for (int i = 0; i < some.count; ++i) {
          sum = fma(broadcast(some.weight[i]), load(x + some.pixel[i] + lane), sum);
        }
        store(to + lane, sum);
      }
    }
  }
}

// products[i] = the sum of the lanes of four vectors.
CONVSCOPE_INLINE void store_sums(const Vec (&total)[4], float* products) {
#if defined(CONVSCOPE_ISA_IS_AVX512)
  // Halves are added until each vector has one lane left, four vectors at once.
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(total[0].v, total[1].v),
                                  _mm512_unpackhi_ps(total[0].v, total[1].v));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(total[2].v, total[3].v),
                                  _mm512_unpackhi_ps(total[2].v, total[3].v));
  const __m512 all =
      _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
  const __m256 eight = _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, all, 0),
                                     _mm512_maskz_extractf32x8_ps(0xff, all, 1));
  _mm_storeu_ps(products,
                _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)));
#elif defined(CONVSCOPE_ISA_IS_AVX2)
  const __m256 ab = _mm256_hadd_ps(total[0].v, total[1].v);
  const __m256 cd = _mm256_hadd_ps(total[2].v, total[3].v);
  const __m256 all = _mm256_hadd_ps(ab, cd);
  _mm_storeu_ps(products, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
#else
  for (int i = 0; i < 4; ++i) products[i] = total[i].v;
#endif
}

template <bool kData, bool kPlaces>
void back(const DeformBackTask& task) {
  const std::int32_t* const bits = task.places.integers(PlaceRow::corners);
  for (int j = 0; j < task.pixels; ++j) {
    const float* const g = task.g + Index{j} * kBlock;
    Vec total[4] = {zero(), zero(), zero(), zero()};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      if (bits[j] != kAll && (bits[j] >> i & 1) == 0) continue;
      const Index at = Index{task.places.integers(PlaceRow::pixel, i)[j]} * kBlock;
      const Vec weight = broadcast(task.places.row(PlaceRow::weight, i)[j]);
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
