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
// Choices    large kernels: the lowest estimated time chooses the tiling, and whether threads share
//            the rows of a kernel. Other kernels run where their shapes and alignments fit
// Source     L. Sifre 2014: Rigid-Motion Scattering (thesis)
// Read next  depthwise_elements_cuda.cu; depthwise_forward_cuda.cu
#include <algorithm>
#include <cmath>

#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_large_launch.h"
#include "layers/conv2d/depthwise/cuda/depthwise_launch.cuh"

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

// Tells whether every image of x and of y begins at a multiple of 16 bytes.
bool images_are_whole(const Conv2dProblem& z) {
  const auto is_whole = [&](std::int64_t plane) {
    return z.c * plane * static_cast<std::int64_t>(size_of(z.dtype)) % 16 == 0;
  };
  return is_whole(z.h * z.w) && is_whole(z.p() * z.q());
}

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
  images_are_whole(z) && depthwise::fits_small_planes(z, args.x, args.dy)
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

// ---- counts ------------------------------------------------------------------------------------

// Counts of all kernels that have at most one launch and no sums of slices.
Cost counts_of(const Conv2dProblem& z, const char* schedule) {
  return {.flops = z.nominal_flops(), .bytes = z.nominal_bytes(), .schedule = schedule};
}

double element_of(const Conv2dProblem& z) { return static_cast<double>(size_of(z.dtype)); }

// A tile in shared memory with a strip of results for each thread.
Cost tiles_cost(const Conv2dProblem& z, Direction direction) {
  const bool weight = direction == Direction::backward_weight;
  const bool parities = direction == Direction::backward_data && z.stride_h == 2;
  const DepthwiseTiling t = weight     ? depthwise::tiling_of_weight(z)
                            : parities ? depthwise::tiling_of_parities(z)
                                       : depthwise::tiling_of_forward(z, direction);
  // Rows that are not whole units are copied element by element.
  const bool units = !parities && depthwise::unit_of(depthwise::plane_map(z)) > 0;
  const double chunks = t.chunks(static_cast<int>(z.c));
  const double slices = weight ? depthwise::weight_slices_by_tiles(z) : 1;
  const double tiles = number(z.n) * t.bands * chunks;
  const double blocks = weight ? chunks * slices : tiles;
  const double each = std::ceil(tiles / blocks);  // tiles of a block
  const double strips = ceil_div(t.items(), t.threads());
  const double taps = number(z.r * z.s) / (parities ? 4 : 1);  // that reach one of four parities
  const double copied = static_cast<double>(t.planes) * t.rows * t.pitch;
  const double results = weight ? taps * t.threads() : t.staged_floats();
  const double bytes = std::max(copied * element_of(z), weight ? 4 * results : 0.0) + 1024;
  Cost out = counts_of(z, units ? "tiles" : "tiles of single elements");
  out.issued = tiles * strips * t.threads() * 2 * DepthwiseTiling::kGroup *
               (weight ? t.in_strip / std::max(number(z.stride_h), 1.0) : t.out_strip) * taps;
  out.cached = tiles * t.planes * t.rows * t.in_w * element_of(z);
  out.blocks = blocks;
  const double fit = cuda_device_facts().shared_bytes_per_block / bytes;
  out.resident = std::clamp(std::floor(std::min(2048.0 / t.threads(), fit)), 1.0, 32.0);
  out.chain = each * strips * (t.rows - (t.strips - 1) * t.in_strip);
  out.copies = each * std::ceil(copied / (units ? t.unit : 1) / t.threads());
  out.waits = each + (weight ? taps : 0);  // barriers, and sums of the threads
  out.stored = weight ? blocks * t.planes * taps : tiles * results;
  if (weight) {
    out.pass_bytes = 2 * 4 * slices * number(z.k) * taps;  // partial sums
    out.launches = 2;
  }
  return out;
}

// A window in registers: a thread has some results of a row, and loads the rows that they need.
Cost window_cost(const Conv2dProblem& z, Direction direction) {
  constexpr double kThreadsOfBlock = 128;
  constexpr double kResident = 8;  // with 64 registers of a thread
  const bool parities = direction == Direction::backward_data && z.stride_h == 2;
  const bool weight = direction == Direction::backward_weight;
  const std::int64_t row = direction == Direction::backward_data ? z.w : z.q();
  const double columns = depthwise::unit_of_rows(static_cast<int>(row));
  const double taps = number(z.r * z.s) / (parities ? 4 : 1);
  const double rows = parities ? std::ceil(number(z.r) / 2) : number(z.r);  // loaded
  const double wide = parities ? columns / 2 + 1 : columns * number(z.stride_w) + number(z.s);
  const double results = parities ? 2 * columns : columns;  // of a thread
  const double elements =
      number((direction == Direction::backward_data ? z.x_shape() : z.y_shape()).numel());
  Cost out = counts_of(z, "window");
  out.cached = elements / results * rows * wide * element_of(z);
  out.resident = kResident;
  if (weight) {  // a block for each channel
    const double rounds = std::ceil(elements / number(z.c) / columns / kThreadsOfBlock);
    out.blocks = number(z.c);
    out.issued = out.blocks * rounds * kThreadsOfBlock * columns * 2 * taps;
    out.chain = rounds * rows;
    out.waits = taps;  // sums of the threads
    return out;
  }
  out.issued = 2 * elements * taps;
  out.blocks = std::ceil(elements / results / kThreadsOfBlock);
  out.chain = rows;
  return out;
}

// Planes of 7x7 and 14x14: a thread has 7 rows of results in registers.
Cost small_cost(const Conv2dProblem& z, Direction direction) {
  constexpr double kThreadsOfBlock = 64, kRows = 7;
  const bool weight = direction == Direction::backward_weight;
  const double side = number(z.h), out_side = number(z.p());
  const double planes = kThreadsOfBlock / std::ceil(out_side / kRows);  // of a block
  const double area = side * side + out_side * out_side;
  const double taps = number(z.r * z.s);
  const double slices = weight ? depthwise::weight_slices_of_small_planes(z) : 1;
  const double each = weight ? std::ceil(number(z.n) / slices) : 1;  // planes of a thread
  Cost out = counts_of(z, "small planes");
  out.blocks = weight ? std::ceil(number(z.c) / planes) * slices
                      : std::ceil(number(z.n * z.c) / planes);
  out.issued = 2 * out.blocks * each * kThreadsOfBlock * kRows * out_side * taps;
  out.cached = number(z.n * z.c) * (weight ? area : side * side) * element_of(z);
  out.resident = std::clamp(std::floor(cuda_device_facts().shared_bytes_per_block /
                                       (planes * area * element_of(z) + 1024)),
                            1.0, 32.0);
  out.chain = each * (kRows * number(z.stride_h) + number(z.r - z.stride_h));
  out.copies = each * std::ceil(planes * (weight ? area : side * side) * element_of(z) / 16 /
                                kThreadsOfBlock);
  out.waits = 2 * each;
  out.stored = weight ? out.blocks * planes * taps : number(z.n * z.c) * out_side * out_side;
  if (weight) {
    out.pass_bytes = 2 * 4 * slices * number(z.k) * taps;  // partial sums
    out.launches = 2;
  }
  return out;
}

// A thread for each element. Each term loads an element and a weight, and computes their places.
Cost elements_cost(const Conv2dProblem& z, Direction direction) {
  const double taps = number(z.r * z.s), threads = kThreads;
  Cost out = counts_of(z, "elements");
  out.resident = 2048 / threads;
  if (direction == Direction::backward_weight) {
    const double slices = depthwise::weight_slices_by_elements(z);
    const double terms = std::ceil(number(z.n * z.p() * z.q()) / slices / threads);
    out.blocks = number(z.k) * slices;
    out.chain = taps * terms;
    out.waits = taps;  // sums of the threads
    out.pass_bytes = 2 * 4 * slices * number(z.k) * taps;
    out.launches = 2;
  } else {
    const bool data = direction == Direction::backward_data;
    const double terms = taps * (data ? number(z.k_per_group()) : 1.0);
    const double elements = number((data ? z.x_shape() : z.y_shape()).numel());
    const LaunchShape shape = grid_for(static_cast<std::int64_t>(elements));
    out.blocks = shape.grid.x;
    out.chain = terms * std::ceil(elements / (out.blocks * threads));
  }
  const double all = out.blocks * threads * out.chain;  // terms of all threads
  out.issued = 2 * all;
  out.cached = 2 * all * element_of(z);
  out.listed_warps = all / 32;
  return out;
}

// Operands count as aligned.
Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  const bool weight = direction == Direction::backward_weight;
  if (!fits_tiles(z, direction)) {
    if (!fits_large(z, direction)) return elements_cost(z, direction);
    if (weight) {
      return depthwise::fits_split_weight(z) ? depthwise::split_weight_cost(z)
                                             : depthwise::large_cost(z, direction);
    }
    return fits_split(z, direction) ? depthwise::split_cost(z, direction)
                                    : depthwise::large_cost(z, direction);
  }
  if (weight ? depthwise::fits_window_weight(z, nullptr, nullptr)
             : fits_window(z, direction, nullptr, nullptr, nullptr)) {
    return window_cost(z, direction);
  }
  const bool strided_data = direction == Direction::backward_data && z.stride_h == 2;
  return (!weight || images_are_whole(z)) && !strided_data &&
                 depthwise::fits_small_planes(z, nullptr, nullptr)
             ? small_cost(z, direction)
             : tiles_cost(z, direction);
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
