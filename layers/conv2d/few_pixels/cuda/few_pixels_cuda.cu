// SPDX-License-Identifier: Apache-2.0
// few_pixels_cuda.cu: computes the weight gradient of a layer with few pixels in one launch. Images
// and gradients are copied to shared memory unchanged, and split into two TF32 numbers when they
// are read.
//
// Formula    dw[k,c,r,s] = sum over n, p, q of dy[n,k,p,q] x[n, c, p stride_h - pad_top +
//            r dilation_h, q stride_w - pad_left + s dilation_w], x = 0 outside
// Textbook   for each tile of k, for each tile of c:                  # a block of threads
//              for each piece of the pixels (n,p,q):
//                copy dy[k tile][pixels] and x[c tile][planes with zeros around]
//                for 8 pixels, for 16 k, for 8 c of a tap (r,s):      # a warp
//                  sums [16 x 8] += dy [16 x 8] x [8 x 8]             # high and low parts
// Method     Schedule of implicit_gemm: the loop nest of backward_weight in
//            implicit_gemm_lesson_cuda.cu. It adds all pixels in shared memory, in one launch.
//            few_pixels_plan.h defines piece, plane, fragment, step and share, and chooses the
//            tile; few_pixels_weight.cuh is the kernel. The kernel computes no maxima, packs no
//            operands and writes no partial results to memory, because with few pixels separate
//            launches for these steps would take longer than the product
// Shapes     x [N,C,H,W], w [K,C,R,S], y [N,K,P,Q] f32 row-major, any alignment; 16-byte aligned
//            rows are copied faster
// Supports   f32 as f32, only backward_weight; one group; at most 49 taps and 4096 pixels of y in
//            all images; every stride, padding and dilation; sm_80 and newer
// Cost       FLOPs = 3 x 2 N K P Q C R S; bytes = x, dy and dw. A block of k x c reads k rows of dy
//            and c planes of x. At least 0.69 GFLOP and 2.8 MB for 256->256, 3x3, 14x14, one image.
//            No workspace. Compute-bound with 3x3 taps
// Numerics   v = high + low + at most 2^-21 |v|. high is v rounded to TF32; low is v - high,
//            truncated to TF32 by the tensor cores. low high + high low + high high are exact
//            products. The omitted product low low is 2^-22 of a product. Together these errors are
//            10 eps of 2^-23 in the worst case. A sum is rounded towards zero after each product,
//            with an error of at most 1 eps of a sum that grows from zero. So 42 products, the
//            longest chain, have an error of at most half of 42 eps, and less than half of that on
//            average. Then the sum of a chain is added in f32. Same bits on each run; exact on
//            integers up to 2^11, sums below 2^24. The low part of an infinity is infinite, so
//            infinities yield NaN
// Backward   dw assigned or added to
// Choices    Shared memory is read in 4-byte words: ldmatrix requires 16 aligned bytes, but taps
//            are not aligned. When a tile has fewer fragments than the warps take, warps split the
//            K dimension
// Source     H. Ootomo, R. Yokota 2022: Recovering single precision accuracy from Tensor Cores,
//            arXiv 2203.03341 (the split); own work (the kernel)
// Read next  ../../implicit_gemm/implicit_gemm_lesson_cuda.cu, a simpler kernel
#include <algorithm>
#include <cstdint>
#include <memory>

#include "framework/cuda/carveout.cuh"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/few_pixels/cuda/few_pixels_plan.h"
#include "layers/conv2d/few_pixels/cuda/few_pixels_weight.cuh"
#include "layers/conv2d/shared/kept_plans.h"

namespace convscope {
namespace {

using few_pixels::Operands;
using few_pixels::FewPixelsTiling;
using few_pixels::FewPixelsParams;

constexpr int kLargestSide = 32000;

std::shared_ptr<const FewPixelsTiling> plan_of(const Conv2dProblem& z) {
  static KeptPlans<FewPixelsTiling> kept;
  return kept.get(z, Direction::backward_weight, [&] {
    const CudaDeviceFacts& facts = cuda_device_facts();
    return few_pixels::plan_weight(z, {.multiprocessors = facts.multiprocessors,
                                       .shared_bytes = facts.shared_bytes_per_block});
  });
}

bool on_16_bytes(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

// Returns the operands. Copies of x and dy have 16 bytes if all groups of four elements are inside
// one image and 16-byte aligned.
Operands operands_of(const Conv2dBackwardWeightArgs& args, const FewPixelsTiling& plan) {
  const FewPixelsParams& s = plan.sizes;
  const int area = s.height * s.width, out_area = s.out_height * s.out_width;
  const int apart = s.pieces_of_image == 1 ? 0 : s.piece_lines;  // lines from one piece to the next
  Operands of{
      .x = static_cast<const float*>(args.x),
      .dy = static_cast<const float*>(args.dy),
      .dw = static_cast<float*>(args.dw),
      .x_spread = {},
      .dy_spread = {},
      .x_by_four = on_16_bytes(args.x) && s.planes_as_in_memory() && area % 4 == 0 &&
                   s.plane_words % 4 == 0 && apart * s.width % 4 == 0,
      .dy_by_four = on_16_bytes(args.dy) && out_area % 4 == 0 && apart * s.out_width % 4 == 0,
      .dw_by_four = on_16_bytes(args.dw) && s.in_channels * s.taps % 4 == 0,
      .accumulate = args.accumulate};
  const int threads = s.warps() * 32;
  of.x_spread = few_pixels::spread(s.plane_piece() / (of.x_by_four ? 4 : 1),
                                   s.octets * few_pixels::kOctet, threads);
  of.dy_spread = few_pixels::spread(
      s.piece_steps() * few_pixels::kStepPixels / (of.dy_by_four ? 4 : 1), s.rows, threads);
  return of;
}

template <int kIndex>
void launch_instance(const FewPixelsTiling& plan, const Operands& of) {
  constexpr few_pixels::Instance kOne = few_pixels::kInstances[kIndex];
  launch_beside_others(
      few_pixels::weight_kernel<kOne.row_tiles, kOne.fragments, kOne.cuts, kOne.resident>,
      {.grid = dim3(static_cast<unsigned>(plan.sizes.blocks())),
       .block = dim3(static_cast<unsigned>(plan.sizes.warps() * 32)),
       .shared_bytes = static_cast<std::size_t>(plan.shared_bytes),
       .overlaps_previous = true},
      plan.sizes, of);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const auto plan = plan_of(args.problem);
  const Operands of = operands_of(args, *plan);
  const bool two = plan->instance.row_tiles == 2;
  if (plan->instance.fragments == 4) {
    return two ? launch_instance<1>(*plan, of) : launch_instance<0>(*plan, of);
  }
  return two ? launch_instance<3>(*plan, of) : launch_instance<2>(*plan, of);
}

// ---- algorithm
// --------------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  if (z.dtype != DType::f32 || z.math != MathMode::f32) {
    return Conv2dSupport::no(
        cat("expects f32 with precision f32, because its products have two ",
            "parts of each factor, got ", name_of(z.dtype),
            z.math == MathMode::f32 ? "" : cat(" with precision ", name_of(z.math))));
  }
  if (cuda_device_facts().major < 8) {
    return Conv2dSupport::no(cat("expects a GPU of compute capability 8.0 or higher, for its ",
                                 "tensor cores and asynchronous copies, got ",
                                 cuda_device_facts().major, ".", cuda_device_facts().minor));
  }
  if (z.groups != 1) {
    return Conv2dSupport::no(cat("expects one group, because a block makes all pairs of its ",
                                 "channels, got ", z.groups, " groups"));
  }
  if (z.r * z.s > few_pixels::kMaxTaps) {
    return Conv2dSupport::no(cat("expects a kernel of at most ", few_pixels::kMaxTaps,
                                 " taps, because each is a parameter of the launch, got ", z.r, "x",
                                 z.s));
  }
  if (z.p() * z.q() > few_pixels::kMaxPixels / std::max(z.n, std::int64_t{1})) {
    return Conv2dSupport::no(cat("expects at most ", few_pixels::kMaxPixels,
                                 " pixels of y in all images, because a block reads them all, got ",
                                 z.n, " images of ", z.p(), "x", z.q()));
  }
  const std::int64_t side =
      std::max({z.h + z.pad_top + z.pad_bottom, z.w + z.pad_left + z.pad_right, z.stride_h,
                z.stride_w, z.dilation_h * z.r, z.dilation_w * z.s});
  const std::int64_t most =
      std::max({z.n * z.c * z.h * z.w, z.n * z.k * z.p() * z.q(), z.k * z.c * z.r * z.s});
  if (side > kLargestSide || most > 0x7fff0000) {
    return Conv2dSupport::no(cat("expects images of at most ", kLargestSide, "x", kLargestSide,
                                 " with padding and fewer than 2^31 numbers in a tensor, because ",
                                 "places in them have 32 bits"));
  }
  Conv2dProblem with_images = z;
  with_images.n = std::max(z.n, std::int64_t{1});
  if (!plan_of(with_images)->exists()) {
    return Conv2dSupport::no(cat("expects 8 channels of the lines of x that a line of y reads to ",
                                 "fit into shared memory with their gradients, got a kernel of ",
                                 z.r, "x", z.s, " with dilation ", z.dilation_h, "x", z.dilation_w,
                                 " on images of ", z.h, "x", z.w));
  }
  return {};
}

Conv2dCost cost(const Conv2dProblem& z, Direction) { return plan_of(z)->cost; }

std::size_t workspace_bytes(const Conv2dProblem&, Direction) { return 0; }

const Conv2dAlgorithm kAlgorithm{
    .name = "few_pixels",
    .device = DeviceType::cuda,
    .idea =
        "dw of few pixels in one launch: all pixels in shared memory, f32 split there into two "
        "TF32",
    .paper =
        "Ootomo, Yokota 2022: Recovering single precision accuracy from Tensor Cores, arXiv "
        "2203.03341",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .error_growth = 32,  // 10 for the split, 21 for a chain, 1 for adding chains
    .exact_on_integers = true,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
