// SPDX-License-Identifier: Apache-2.0
// codes_cuda.cu: arrays of codes on a GPU: rounding from f32, conversion to f32, and max pooling,
// all at memory bandwidth.
//
// Method     Conversions between planes [N,C,P] and NCHW16c [N,C/16,P,16] assign one pixel of a
//            block of 16 channels to a thread. The thread reads (or writes) this pixel in 16
//            planes, and the 16 codes are one access of 16 bytes. Adjacent threads have adjacent
//            pixels. Between two NCHW16c arrays, a thread converts four adjacent elements (16 bytes
//            of f32, 4 bytes of codes), four times.
// Numerics   The codes are those of the CPU, bit by bit (code_rounding.cuh)
#include "framework/cuda/map.cuh"
#include "framework/ops/codes/code_rounding.cuh"
#include "framework/ops/codes/codes.h"

namespace convscope {
namespace {

// Numbers of images, channels, pixels per plane, and blocks of 16 channels per image.
struct BlockSizes {
  std::int64_t images, channels, pixels, blocks;
};

BlockSizes sizes_of(std::int64_t images, std::int64_t channels, std::int64_t pixels) {
  return {images, channels, pixels, ceil_div(channels, std::int64_t{kCodeBlock})};
}

// Calls body() for one pixel of one block of 16 channels. The arguments are the index of the pixel
// in NCHW16c, the first plane of the block, the index of the pixel in that plane, and the number of
// channels.
template <class Body>
__device__ void for_pixels(const BlockSizes& s, Body&& body) {
  const std::int64_t count = s.images * s.blocks * s.pixels;
  for (std::int64_t at = global_thread(); at < count; at += global_threads()) {
    const std::int64_t block = at / s.pixels, n = block / s.blocks;
    const std::int64_t c = (block - n * s.blocks) * kCodeBlock;
    const std::int64_t rest = s.channels - c;
    body(at, n * s.channels + c, at - block * s.pixels,
         static_cast<int>(rest < kCodeBlock ? rest : kCodeBlock));
  }
}

using Pixel = Pack<std::uint8_t, kCodeBlock>;
using Four = Pack<float, 4>;
using FourCodes = Pack<std::uint8_t, 4>;
constexpr int kUnroll = 4;

__global__ void __launch_bounds__(kThreads)
    round_planes(const float* from, const double* step, BlockSizes s, std::int32_t low,
                 std::int32_t high, Pixel* to) {
  const CodeRounding rounded(*step, low, high);
  for_pixels(s, [&](std::int64_t at, std::int64_t plane, std::int64_t pixel, int channels) {
    const float* const in = from + plane * s.pixels + pixel;
    float v[kCodeBlock];
#pragma unroll
    for (int c = 0; c < kCodeBlock; ++c) v[c] = c < channels ? in[c * s.pixels] : 0.0f;
    Pixel out;
#pragma unroll
    for (int c = 0; c < kCodeBlock; ++c) {
      out.v[c] = c < channels ? rounded(v[c]) : std::uint8_t{0};
    }
    to[at] = out;
  });
}

__global__ void __launch_bounds__(kThreads)
    round_blocks(const Four* from, const double* step, std::int64_t fours, std::int32_t low,
                 std::int32_t high, FourCodes* to) {
  const CodeRounding rounded(*step, low, high);
  const std::int64_t stride = global_threads();
  for (std::int64_t first = global_thread(); first < fours; first += stride * kUnroll) {
    Four v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * stride < fours) v[u] = from[first + u * stride];
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * stride >= fours) break;
      FourCodes out;
#pragma unroll
      for (int l = 0; l < 4; ++l) out.v[l] = rounded(v[u].v[l]);
      to[first + u * stride] = out;
    }
  }
}

// A code times the step size is exact in double, and is rounded once when converted to f32.
template <bool kSigned>
__device__ float real_of(std::uint8_t code, double step) {
  const int value = kSigned ? static_cast<int>(static_cast<std::int8_t>(code)) : code;
  return static_cast<float>(step * value);
}

template <bool kSigned>
__global__ void __launch_bounds__(kThreads)
    real_planes(const Pixel* from, const double* step, BlockSizes s, float* to) {
  const double by = *step;
  for_pixels(s, [&](std::int64_t at, std::int64_t plane, std::int64_t pixel, int channels) {
    const Pixel codes = from[at];
    float* const out = to + plane * s.pixels + pixel;
#pragma unroll
    for (int c = 0; c < kCodeBlock; ++c) {
      if (c < channels) out[c * s.pixels] = real_of<kSigned>(codes.v[c], by);
    }
  });
}

template <bool kSigned>
__global__ void __launch_bounds__(kThreads)
    real_blocks(const FourCodes* from, const double* step, std::int64_t fours, Four* to) {
  const double by = *step;
  const std::int64_t stride = global_threads();
  for (std::int64_t first = global_thread(); first < fours; first += stride * kUnroll) {
    FourCodes codes[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * stride < fours) codes[u] = from[first + u * stride];
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * stride >= fours) break;
      Four out;
#pragma unroll
      for (int l = 0; l < 4; ++l) out.v[l] = real_of<kSigned>(codes[u].v[l], by);
      to[first + u * stride] = out;
    }
  }
}

// A thread computes one pixel of y, and reads 16 bytes per pixel of its pooling window.
template <class T>
__global__ void __launch_bounds__(kThreads) pool_pixels(const CodesPool z) {
  using Codes = Pack<T, kCodeBlock>;
  const std::int64_t count = z.planes * z.p * z.q;
  for (std::int64_t at = global_thread(); at < count; at += global_threads()) {
    const std::int64_t row = at / z.q, plane = row / z.p;
    const std::int64_t top = (row - plane * z.p) * z.stride_h - z.pad_h;
    const std::int64_t left = (at - row * z.q) * z.stride_w - z.pad_w;
    const std::int64_t h_end = top + z.kernel_h < z.h ? top + z.kernel_h : z.h;
    const std::int64_t w_end = left + z.kernel_w < z.w ? left + z.kernel_w : z.w;
    const auto* const image = reinterpret_cast<const Codes*>(z.from) + plane * z.h * z.w;
    const std::int64_t h_begin = top < 0 ? 0 : top, w_begin = left < 0 ? 0 : left;
    Codes largest = image[h_begin * z.w + w_begin];
    for (std::int64_t h = h_begin; h < h_end; ++h) {
      for (std::int64_t w = w_begin; w < w_end; ++w) {
        const Codes code = image[h * z.w + w];
#pragma unroll
        for (int c = 0; c < kCodeBlock; ++c) {
          largest.v[c] = code.v[c] > largest.v[c] ? code.v[c] : largest.v[c];
        }
      }
    }
    reinterpret_cast<Codes*>(z.to)[at] = largest;
  }
}

void check_codes(const void* codes, const void* blocks) {
  CONVSCOPE_CHECK(is_aligned(codes, 16) && is_aligned(blocks, 16), "codes",
                  "expected arrays in blocks at addresses that 16 divides, because a thread reads "
                  "16 bytes at once, got other addresses");
}

LaunchShape grid_of_fours(std::int64_t fours) { return grid_of_packs(ceil_div(fours, kUnroll)); }

void round_cuda(const RoundedImages& a) {
  const BlockSizes s = sizes_of(a.images, a.channels, a.pixels);
  const std::int64_t pixels = s.images * s.blocks * s.pixels;
  check_codes(a.to, a.in_nchw16c ? a.from : nullptr);
  if (!a.in_nchw16c) {
    return launch(round_planes, grid_of_packs(pixels), a.from, a.step, s, a.low, a.high,
                  reinterpret_cast<Pixel*>(a.to));
  }
  const std::int64_t fours = pixels * (kCodeBlock / 4);
  launch(round_blocks, grid_of_fours(fours), reinterpret_cast<const Four*>(a.from), a.step, fours,
         a.low, a.high, reinterpret_cast<FourCodes*>(a.to));
}

void real_cuda(const RealImages& a) {
  const BlockSizes s = sizes_of(a.images, a.channels, a.pixels);
  const std::int64_t pixels = s.images * s.blocks * s.pixels;
  check_codes(a.from, a.in_nchw16c ? a.to : nullptr);
  if (!a.in_nchw16c) {
    return launch(a.is_signed ? real_planes<true> : real_planes<false>, grid_of_packs(pixels),
                  reinterpret_cast<const Pixel*>(a.from), a.step, s, a.to);
  }
  const std::int64_t fours = pixels * (kCodeBlock / 4);
  launch(a.is_signed ? real_blocks<true> : real_blocks<false>, grid_of_fours(fours),
         reinterpret_cast<const FourCodes*>(a.from), a.step, fours, reinterpret_cast<Four*>(a.to));
}

void pool_cuda(const CodesPool& pool) {
  check_codes(pool.from, pool.to);
  launch(pool.is_signed ? pool_pixels<std::int8_t> : pool_pixels<std::uint8_t>,
         grid_of_packs(pool.planes * pool.p * pool.q), pool);
}

}  // namespace
CONVSCOPE_KERNEL(round_images_kernel, cuda, round_cuda)
CONVSCOPE_KERNEL(real_images_kernel, cuda, real_cuda)
CONVSCOPE_KERNEL(pool_codes_kernel, cuda, pool_cuda)
}  // namespace convscope
