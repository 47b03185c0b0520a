// SPDX-License-Identifier: Apache-2.0
// half_copies_cuda.cu: copies images between f32 NCHW and fp16, bf16 or f32 NHWC.
//
// Method    A thread copies eight channels of a pixel, or four of f32: 16 bytes of the NHWC image,
//           and one element of each of eight (or four) planes. Neighbouring threads have
//           neighbouring pixels, so a warp accesses 128 contiguous bytes of each plane. In the NHWC
//           image the 16-byte segments of a warp are Cp elements apart; L2 combines accesses of
//           different warps to one cache line.
// Numerics  A conversion to fp16/bf16 rounds once, to nearest; the conversion back is exact. Copies
//           of f32 are exact in both directions.
#include "framework/cuda/half_piece.cuh"
#include "layers/dispatch/activation_layout.h"
#include "layers/dispatch/layout/half_copies.h"

namespace convscope {
namespace {

struct Copy {
  int channels, pieces;
  FastDivisor by_area, by_pieces;
  bool accumulate;
};

template <class T, bool kToNhwc>
__global__ void __launch_bounds__(kThreads)
    copy_pieces(const void* from, Copy z, void* to, std::int64_t count) {
  const std::int64_t area = z.by_area.d;
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (std::int64_t at = global_thread(); at < count; at += global_threads()) {
    const int plane = z.by_area.divide(static_cast<int>(at));  // index of the 16-byte segment in
                                                               // its image
    const int pixel = static_cast<int>(at) - plane * z.by_area.d;
    const int n = z.by_pieces.divide(plane);
    const int piece = plane - n * z.pieces;
    const int left = z.channels - piece * kLanesOf<T>;
    const std::int64_t first =
        (static_cast<std::int64_t>(n) * z.channels + piece * kLanesOf<T>)*area + pixel;
    const std::int64_t stored = (n * area + pixel) * z.pieces + piece;
    float v[kLanesOf<T>];
    if constexpr (kToNhwc) {
      const float* const planes = static_cast<const float*>(from) + first;
      uint4* const out = static_cast<uint4*>(to) + stored;
#pragma unroll
      for (int l = 0; l < kLanesOf<T>; ++l) v[l] = l < left ? planes[l * area] : 0.0f;
      if (z.accumulate) {
        float before[kLanesOf<T>];
        floats_of_piece<T>(*out, before);
#pragma unroll
        for (int l = 0; l < kLanesOf<T>; ++l) v[l] += before[l];
      }
      *out = piece_of_floats<T>(v);
    } else {
      float* const planes = static_cast<float*>(to) + first;
      floats_of_piece<T>(static_cast<const uint4*>(from)[stored], v);
#pragma unroll
      for (int l = 0; l < kLanesOf<T>; ++l) {
        if (l >= left) continue;
        planes[l * area] = z.accumulate ? planes[l * area] + v[l] : v[l];
      }
    }
  }
}

template <class T>
void copy_typed(const HalfCopy& a) {
  const std::int64_t area = a.images[2] * a.images[3];
  const std::int64_t pieces =
      channel_block(a.images[1], ActivationLayout::nhwc) / kLanesOf<T>;
  const std::int64_t count = a.images[0] * pieces * area;
  CONVSCOPE_CHECK(count < (std::int64_t{1} << 31), "convert_layout",
                  "expected fewer than 2^31 pieces of 16 bytes, because their places have 32 ",
                  "bits, got ", count);
  CONVSCOPE_CHECK(is_aligned(a.to_nhwc ? a.to : a.from, 16), "convert_layout",
                  "expected channels at an address that 16 divides, because a thread takes 16 "
                  "bytes at once, got other addresses");
  if (count == 0) return;
  const Copy z{.channels = static_cast<int>(a.images[1]),
               .pieces = static_cast<int>(pieces),
               .by_area = FastDivisor(static_cast<int>(area)),
               .by_pieces = FastDivisor(static_cast<int>(pieces)),
               .accumulate = a.accumulate};
  LaunchShape shape = grid_of_packs(count);
  shape.overlaps_previous = true;
  launch(a.to_nhwc ? copy_pieces<T, true> : copy_pieces<T, false>, shape, a.from, z, a.to, count);
}

void copy_cuda(const HalfCopy& a) {
  with_stored_type(a.half, [&](auto zero) { copy_typed<decltype(zero)>(a); });
}

}  // namespace
CONVSCOPE_KERNEL(half_copy_kernel, cuda, copy_cuda)
}  // namespace convscope
