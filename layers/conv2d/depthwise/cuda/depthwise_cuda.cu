// SPDX-License-Identifier: Apache-2.0
// depthwise_cuda.cu: depthwise convolution of NCHW planes on the GPU, one small kernel for each
// plane. It selects one of the depthwise_*_cuda.cu kernels.
//
// Formula    y[n,k,p,q] = relu(b[k] + sum over r, s of w[k,0,r,s] x[n,k / M, p stride_h - pad_top +
//            r dilation_h, q stride_w - pad_left + s dilation_w] + residual[n,k,p,q]), M = K/C
// Textbook   for n, k, p, q:
//              y[n,k,p,q] = b[k]
//              for r, s: y[n,k,p,q] += w[k,0,r,s] * x[n,k/M,p*stride+r-pad,q*stride+s-pad]
// Method     there is no reuse between channels, so no matrix product: every byte of x is used for
//            R S outputs and then never again. The speed depends on reading it once, with many
//            bytes in flight. Square kernels of 3, 5, 7 with stride 1 or 2: tiles in shared memory
//              forward, and backward_data of stride 1    depthwise_forward_cuda.cu
//              forward, backward_data: planes 7x7, 14x14 depthwise_small_cuda.cu
//              backward_weight: planes 7x7, 14x14        depthwise_small_weight_cuda.cu
//              backward_data of stride 2                 depthwise_parities_cuda.cu
//              backward_weight, two stages               depthwise_weight_cuda.cu
//            Few planes, and 3x3 with stride 2: threads load x directly into registers
//              forward, and backward_data                depthwise_window_cuda.cu
//              backward_weight                           depthwise_window_weight_cuda.cu
//            Kernels of more taps, strides up to 3: limited by FMAs
//              forward, and backward_data                depthwise_large_cuda.cu
//              backward_weight                           depthwise_large_weight_cuda.cu
//              all three: few planes, or stride 2        depthwise_split_{,weight_}cuda.cu
//            All others (dilation, multipliers): a thread for each element,
//              depthwise_elements_cuda.cu
// Shapes     x [N,C,H,W], w [K,1,R,S], y [N,K,P,Q], f32, f16 or bf16, row-major, any alignment;
//            sums in f32
// Supports   C/G = 1; any kernel, stride, dilation, padding and multiplier M
// Cost       FLOPs = 2 N K P Q R S; bytes = the three tensors once; workspace = dw for each slice
//            of the batch (backward_weight), else none. 3x3: memory-bound
// Numerics   one rounding per FMA in the order of (r, s); backward_weight adds threads and slices
//            in a fixed order: same bits on each run; exact on integers below 2^24
// Backward   dx assigned; dw assigned or added to
// Choices    peak_share of tiles is 0.45, the share of FMAs among the instructions of the inner
//            loops; the rest are loads and index arithmetic. For large kernels it comes from the
//            plan's estimate, for single elements from their time
// Source     L. Sifre 2014: Rigid-Motion Scattering (thesis)
// Read next  depthwise_elements_cuda.cu; depthwise_forward_cuda.cu
#include "framework/machine/peaks.h"
#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_large_launch.h"
#include "layers/conv2d/depthwise/cuda/depthwise_launch.cuh"
#include "layers/conv2d/shared/cuda/device_time.cuh"

namespace convscope {
namespace depthwise {

bool fits_tiles(const Conv2dProblem& z, Direction direction) {
  // kMax keeps fast divisions exact and indices in a plane within 32 bits. kMaxOfGrid is the
  // largest y or z dimension of a grid.
  constexpr std::int64_t kMax = 16384, kMaxOfGrid = 65535;
  if (z.r != z.s || (z.r != 3 && z.r != 5 && z.r != 7) || z.k != z.c) return false;
  if (z.stride_h != z.stride_w || z.stride_h > 2 || z.dilation_h != 1 || z.dilation_w != 1) {
    return false;
  }
  if (z.h > kMax || z.w > kMax || z.p() > kMax || z.q() > kMax) return false;
  if (z.n > kMaxOfGrid || z.c > kMaxOfGrid || z.n * z.c >= std::int64_t{1} << 32) return false;
  // Checks the size of the tile for unaligned rows, which is larger than the aligned tile. dx at
  // stride 2 has a smaller tile, with half the columns and fewer rows.
  const PlaneMap map = plane_map(z);
  const bool back = direction == Direction::backward_data;
  if (back && z.stride_h == 2) return z.w * 24 * 4 < 160 * 1024;
  return forward_tiling(back ? rotated(map) : map, 7, 0, true, z.c, 1).planes > 0;
}

}  // namespace depthwise

namespace {

using depthwise::fits_large;
using depthwise::fits_split;
using depthwise::fits_tiles;
using depthwise::fits_window;

void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  if (!fits_tiles(z, Direction::forward)) {
    return fits_split(z, Direction::forward)   ? depthwise::forward_by_split(args)
           : fits_large(z, Direction::forward) ? depthwise::forward_of_large_kernels(args)
                                               : depthwise::forward_by_elements(args);
  }
  fits_window(z, Direction::forward, args.x, args.y, args.epilogue.residual)
      ? depthwise::forward_by_window(args)
  : depthwise::fits_small_planes(z, args.x, args.y) ? depthwise::forward_of_small_planes(args)
                                                    : depthwise::forward_by_tiles(args);
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  if (!fits_tiles(z, Direction::backward_data)) {
    return fits_split(z, Direction::backward_data) ? depthwise::backward_data_by_split(args)
           : fits_large(z, Direction::backward_data)
               ? depthwise::backward_data_of_large_kernels(args)
               : depthwise::backward_data_by_elements(args);
  }
  if (fits_window(z, Direction::backward_data, args.dy, args.dx, nullptr)) {
    return depthwise::backward_data_by_window(args);
  }
  if (z.stride_h == 1 && depthwise::fits_small_planes(z, args.dy, args.dx)) {
    return depthwise::backward_data_of_small_planes(args);
  }
  z.stride_h == 1 ? depthwise::backward_data_as_forward(args)
                  : depthwise::backward_data_by_parities(args);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  if (!fits_tiles(z, Direction::backward_weight)) {
    return depthwise::fits_split_weight(z) ? depthwise::backward_weight_by_split(args)
           : fits_large(z, Direction::backward_weight)
               ? depthwise::backward_weight_of_large_kernels(args)
               : depthwise::backward_weight_by_elements(args);
  }
  if (depthwise::fits_window_weight(z, args.x, args.dy)) {
    return depthwise::backward_weight_by_window(args);
  }
  // Tells whether every image begins at a multiple of 16 bytes.
  const auto whole_units = [&](std::int64_t plane) {
    return z.c * plane * static_cast<std::int64_t>(size_of(z.dtype)) % 16 == 0;
  };
  whole_units(z.h * z.w) && whole_units(z.p() * z.q()) &&
          depthwise::fits_small_planes(z, args.x, args.dy)
      ? depthwise::backward_weight_of_small_planes(args)
      : depthwise::backward_weight_by_tiles(args);
}

// ---- algorithm
// --------------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& problem, Direction) {
  if (problem.dtype != DType::f32 && problem.dtype != DType::f16 && problem.dtype != DType::bf16) {
    return Conv2dSupport::no(
        cat("expects elements of type f32, f16 or bf16, got ", name_of(problem.dtype)));
  }
  if (problem.c_per_group() != 1) {
    return Conv2dSupport::no(cat("expects one input channel for each group, got ",
                                 problem.c_per_group(), " in each of ", problem.groups));
  }
  return {};
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  if (direction != Direction::backward_weight) return 0;
  // Whether the kernel of small planes runs also depends on the alignment of the pointers, which
  // are not known here. The workspace is therefore large enough for either kernel.
  const int slices = fits_tiles(z, direction)
                         ? std::max(depthwise::weight_slices_by_tiles(z),
                                    depthwise::fits_small_planes(z, nullptr, nullptr)
                                        ? depthwise::weight_slices_of_small_planes(z)
                                        : 0)
                     : fits_large(z, direction) ? depthwise::weight_slices_of_large_kernels(z)
                                                : depthwise::weight_slices_by_elements(z);
  return static_cast<std::size_t>(z.k * z.r * z.s * slices) * sizeof(float);
}

// Returns the share of the peak that depthwise_elements_cuda.cu reaches. For y and dx, the
// constants are the time of one term of a thread, and the time of one term in all threads of an SM.
// For dw, they are the time of adding up one tap in a block, and the time of one term in each
// thread of the blocks on an SM. All are microseconds on one H200.
double share_of_elements(const Conv2dProblem& z, Direction direction) {
  using device_time::number, device_time::processors;
  const double taps = number(z.r * z.s);
  double us = 0;
  if (direction == Direction::backward_weight) {
    const double slices = depthwise::weight_slices_by_elements(z);
    const double terms = std::ceil(number(z.n * z.p() * z.q()) / slices / kThreads);
    us = taps * std::ceil(number(z.k) * slices / (8 * processors())) * (0.057 + 1.1 * terms);
  } else {
    const bool data = direction == Direction::backward_data;
    const double terms = taps * (data ? number(z.k_per_group()) : 1.0);
    const double elements = number((data ? z.x_shape() : z.y_shape()).numel());
    us = terms * (0.12 + (data ? 0.76 : 0.33) * elements / (2048 * processors()));
  }
  return device_time::share_of(z.nominal_flops(), us, kUnmeasuredGpu.f32_flops);
}

// If rows are not whole units of 4 or 2 elements, they are copied to tiles element by element. The
// extra time grows with the number of padded elements of an SM's planes: kNumberUs microseconds for
// each element on one H200. While each thread has few elements, each costs kFirstNumberUs more, up
// to kMaxFirstUs in total. Tiles of dw take twice as long.
constexpr double kFirstNumberUs = 0.0023, kMaxFirstUs = 3.5, kNumberUs = 0.00012;
double single_numbers_us(const Conv2dProblem& z, Direction direction) {
  using device_time::number;
  const bool weight = direction == Direction::backward_weight;
  if (depthwise::unit_of(depthwise::plane_map(z)) > 0 ||
      depthwise::fits_small_planes(z, nullptr, nullptr) ||
      (weight ? depthwise::fits_window_weight(z, nullptr, nullptr)
              : fits_window(z, direction, nullptr, nullptr, nullptr))) {
    return 0;
  }
  const double numbers = std::ceil(number(z.n * z.c) / device_time::processors()) *
                         number((z.h + z.r - 1) * (z.w + z.s - 1));
  return (weight ? 2 : 1) *
         (std::min(kFirstNumberUs * numbers, kMaxFirstUs) + kNumberUs * numbers);
}

Conv2dCost cost(const Conv2dProblem& problem, Direction direction) {
  const bool tiles = fits_tiles(problem, direction);
  const bool weight = direction == Direction::backward_weight;
  const auto partial = static_cast<double>(workspace_bytes(problem, direction));
  const bool one_launch = tiles ? depthwise::fits_window_weight(problem, nullptr, nullptr)
                                : depthwise::fits_split_weight(problem);
  double share = 0.45;
  if (!tiles && fits_large(problem, direction)) {
    const double seconds = weight && one_launch ? depthwise::split_weight_seconds(problem)
                           : !weight && depthwise::fits_split(problem, direction)
                               ? depthwise::split_seconds(problem, direction)
                               : depthwise::large_seconds(problem, direction);
    share = problem.nominal_flops() / (seconds * kUnmeasuredGpu.f32_flops);
  } else if (!tiles) {
    share = share_of_elements(problem, direction);
  }
  return {.flops = problem.nominal_flops(),
          .bytes = problem.nominal_bytes() + partial,
          .peak_share = share,
          .pass_bytes = partial,
          .launches =
              (weight && !one_launch ? 2.0 : 1.0) +
              (tiles ? 1e-6 * single_numbers_us(problem, direction) / kUnmeasuredGpu.launch_seconds
                     : 0)};
}

const Conv2dAlgorithm kAlgorithm{
    .name = "depthwise",
    .device = DeviceType::cuda,
    .idea = "one kernel slides over one plane: tiles in shared memory, accumulators in registers",
    .paper = "Sifre 2014: Rigid-Motion Scattering for Image Classification (thesis)",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .error_growth = 8,
    .one_chain = true,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
