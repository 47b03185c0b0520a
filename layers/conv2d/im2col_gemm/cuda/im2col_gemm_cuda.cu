// SPDX-License-Identifier: Apache-2.0
// im2col_gemm_cuda.cu: convolution as one large matrix product: the inputs of each output pixel
// form one column, with the pixels of many images next to each other.
//
// Formula    y[k,(n,p,q)] = b[k] + sum over (c,r,s) of w[k,(c,r,s)] col[(c,r,s),(n,p,q)],
//            col[(c,r,s),(n,p,q)] = x[n, g C/G + c, p stride_h - pad_top + r dilation_h,
//                                                   q stride_w - pad_left + s dilation_w], or 0
// Textbook   for each image: col = im2col(x)      # [C/G R S, P Q]
//                            y = w * col + b      # [K/G, P Q]
//            dcol = w^T * dy; dx = col2im(dcol);  dw += dy * col^T
// Method     Pixels run through all images. A chunk has as many pixels as have columns of
//            kColumnBytes.
//              forward          makes the columns of a chunk, then one product for all groups;
//                               y[K][pixels] is copied to [N,K,P,Q], and the copy adds the bias
//              backward_data    copies dy of some images next to each other, computes columns = w^T
//                               dy, then each pixel of dx gathers the columns that contain it
//              backward_weight  cuts the pixels of a chunk into equal runs ("slots"). Each slot and
//                               group has one product of columns and dy, which is accumulated over
//                               the chunks. The last pass adds the slots in order
//            One thread writes the R S elements of one pixel and one channel. Neighbouring threads
//            of a warp take neighbouring pixels: loads hit L1, and stores are whole cache lines.
// Shapes     x [N,C,H,W], w [K,C/G,R,S], y [N,K,P,Q], row-major, any alignment, f32, f16 or bf16;
//            columns [slot][C R S][pixels of a slot] of the same type (backward_data: f32);
//            sums in f32
// Supports   f32, f16, bf16; every stride, dilation, padding and number of groups; planes below
//            2^31
// Cost       FLOPs = 2 N K P Q (C/G) R S; bytes = the columns, written and read (2 R S times the
//            bytes of x at stride 1), plus the three tensors; workspace = one chunk of columns and
//            of y. Memory-bound on small K/G: 50 TFLOP/s with 4.2 TB/s need K/G > 12 in f32, > 90
//            in TF32
// Numerics   f32: cuBLAS without TF32 (TF32 only when the problem asks); one rounding per FMA.
//            Chunks and slots depend on the problem only: same bits on each run on one GPU.
//            Exact on integers below 2^24 in f32.
// Backward   dx assigned; dw assigned or added to, summed in f32 also for fp16 and bf16
// Choices    kColumnBytes 256 MiB: smaller chunks would fit the L2 cache (50 MB), but they cost
//            more time in launches and partly filled waves than they save
//            kSlotPixels 4096: long enough for a product's inner loop, and short enough that the
//            slots of 64 x 576 weights (5 tiles of 128 x 128) fill the GPU
//            kSlotBytes 256 MiB: limit for the sums of all slots together
// Source     K. Chellapilla, S. Puri, P. Simard 2006, hal inria-00112631; Y. Jia et al. 2014:
//            Caffe, arXiv 1408.5093 (a product for each image; here one for many images)
// Read next  gemm_1x1_cuda.cu, without columns; implicit_gemm_cuda.cu, where columns exist in
//            shared memory only
#include <algorithm>
#include <climits>

#include "framework/cuda/blas.cuh"
#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/int_math.h"
#include "framework/memory/memory.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/shared/cuda/blas_cost.h"

namespace convscope {
namespace {

using Index = std::int64_t;

constexpr Index kColumnBytes = Index{256} << 20;
constexpr Index kSlotPixels = 4096;
constexpr Index kSlotBytes = Index{256} << 20;
constexpr Index kPixelStep = 64;  // chunks and slots are multiples of it, so rows are aligned
constexpr Index kChannelsPerThread = 4;

// Sizes for the kernels. All of them fit into 32 bits, except the number of pixels of a whole
// tensor.
struct Geometry {
  explicit Geometry(const Conv2dProblem& z)
      : pixels(z.n * z.p() * z.q()),
        c(int(z.c)),
        h(int(z.h)),
        w(int(z.w)),
        k(int(z.k)),
        r(int(z.r)),
        s(int(z.s)),
        p(int(z.p())),
        q(int(z.q())),
        stride_h(int(z.stride_h)),
        stride_w(int(z.stride_w)),
        pad_top(int(z.pad_top)),
        pad_left(int(z.pad_left)),
        dilation_h(int(z.dilation_h)),
        dilation_w(int(z.dilation_w)) {}
  Index pixels;  // N P Q
  int c, h, w, k, r, s, p, q, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
};

// A chunk: `count` pixels from `begin` on. Its matrix is stored in slots, runs of `slot` pixels:
// with `rows` rows, element (i, j) is at ((j / slot) rows + i) slot + j % slot.
struct Chunk {
  Index begin;
  int count, slot;
};

// ---- kernels -----------------------------------------------------------------------------------

// Writes the R S elements of pixel j of the chunk for some channels of x, each into its row of
// columns.
template <class T>
__global__ void im2col_kernel(Geometry z, Chunk chunk, const T* x, T* columns) {
  const Index j = global_thread();
  if (j >= chunk.count) return;
  const int plane = z.p * z.q;
  const int first = static_cast<int>(chunk.begin % plane) + static_cast<int>(j);
  const Index n = chunk.begin / plane + first / plane;
  const bool real = chunk.begin + j < z.pixels;  // the last chunk is filled up with zeros
  const int top = first % plane / z.q * z.stride_h - z.pad_top;
  const int left = first % plane % z.q * z.stride_w - z.pad_left;
  const int taps = z.r * z.s;
  const int slot = static_cast<int>(j) / chunk.slot;
  const int at = static_cast<int>(j) % chunk.slot;
  const int groups_of_channels = static_cast<int>(gridDim.y);
  for (int c = static_cast<int>(blockIdx.y); c < z.c; c += groups_of_channels) {
    const T* const image = x + (n * z.c + c) * (Index{z.h} * z.w);
    T* to = columns + (Index{slot} * z.c + c) * taps * chunk.slot + at;
    for (int r = 0; r < z.r; ++r) {
      const int row = top + r * z.dilation_h;
      const bool row_inside = real && row >= 0 && row < z.h;
      for (int s = 0; s < z.s; ++s, to += chunk.slot) {
        const int column = left + s * z.dilation_w;
        const bool inside = row_inside && column >= 0 && column < z.w;
        *to = inside ? image[Index{row} * z.w + column] : T{};
      }
    }
  }
}

// Copies dy [N,K,P,Q] to [slot][K][pixels of a slot], with zeros after the last pixel.
template <class T>
__global__ void side_by_side_kernel(Geometry z, Chunk chunk, const T* dy, T* out) {
  const Index j = global_thread();
  if (j >= chunk.count) return;
  const int plane = z.p * z.q;
  const int first = static_cast<int>(chunk.begin % plane) + static_cast<int>(j);
  const Index n = chunk.begin / plane + first / plane;
  const bool real = chunk.begin + j < z.pixels;
  const T* const from = dy + n * z.k * plane + first % plane;
  T* const to = out + Index{static_cast<int>(j) / chunk.slot} * z.k * chunk.slot +
                static_cast<int>(j) % chunk.slot;
  for (int k = static_cast<int>(blockIdx.y); k < z.k; k += static_cast<int>(gridDim.y)) {
    to[Index{k} * chunk.slot] = real ? from[Index{k} * plane] : T{};
  }
}

// Copies y of the chunk, [K][pixels of the chunk], to y [N,K,P,Q] and adds the bias.
template <class T>
__global__ void in_place_kernel(Geometry z, Chunk chunk, const float* sums, const T* b, T* y) {
  const Index j = global_thread();
  if (j >= chunk.count || chunk.begin + j >= z.pixels) return;
  const int plane = z.p * z.q;
  const int first = static_cast<int>(chunk.begin % plane) + static_cast<int>(j);
  T* const to = y + (chunk.begin / plane + first / plane) * z.k * plane + first % plane;
  for (int k = static_cast<int>(blockIdx.y); k < z.k; k += static_cast<int>(gridDim.y)) {
    const float bias = b == nullptr ? 0.0f : to_float(b[k]);
    to[Index{k} * plane] = from_float<T>(sums[Index{k} * chunk.slot + j] + bias);
  }
}

// Computes each pixel of dx as the sum of its elements of `columns`, in the order of the taps. The
// matrix `columns` [channels R S][pixels] covers gridDim.z images, from image n on. It has
// `channels` channels of each group, from channel c of the group on.
template <class T>
__global__ void col2im_kernel(Geometry z, Index n, int c, int channels, int group_channels,
                              int slot, const float* columns, T* dx) {
  const int pixel = static_cast<int>(global_thread());  // h w, below 2^31
  if (pixel >= z.h * z.w) return;
  const int row = pixel / z.w;
  const int column = pixel % z.w;
  const int image = static_cast<int>(blockIdx.z);
  const int taps = z.r * z.s;
  const int here = static_cast<int>(blockIdx.y);  // index of the channel within this product
  const int channel = here / channels * group_channels + c + here % channels;
  const float* const from = columns + Index{here} * taps * slot + Index{image} * z.p * z.q;
  float sum = 0;
  // Only every stride-th tap of an undilated kernel reads this pixel.
  const int up_most = row + z.pad_top;
  const int over_most = column + z.pad_left;
  const int r_first = z.dilation_h == 1 ? up_most % z.stride_h : 0;
  const int s_first = z.dilation_w == 1 ? over_most % z.stride_w : 0;
  const int r_step = z.dilation_h == 1 ? z.stride_h : 1;
  const int s_step = z.dilation_w == 1 ? z.stride_w : 1;
  for (int r = r_first; r < z.r; r += r_step) {
    const int up = up_most - r * z.dilation_h;
    if (up < 0 || (z.dilation_h != 1 && up % z.stride_h != 0)) continue;
    const int p = z.stride_h == 1 ? up : up / z.stride_h;
    if (p >= z.p) continue;
    for (int s = s_first; s < z.s; s += s_step) {
      const int over = over_most - s * z.dilation_w;
      if (over < 0 || (z.dilation_w != 1 && over % z.stride_w != 0)) continue;
      const int q = z.stride_w == 1 ? over : over / z.stride_w;
      if (q < z.q) sum += from[Index{r * z.s + s} * slot + p * z.q + q];
    }
  }
  dx[((n + image) * z.c + channel) * (Index{z.h} * z.w) + pixel] = from_float<T>(sum);
}

template <class T>
__global__ void add_slots_kernel(const float* sums, int slots, Index count, bool accumulate,
                                 T* dw) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    float sum = accumulate ? to_float(dw[i]) : 0.0f;
    for (int slot = 0; slot < slots; ++slot) sum += sums[slot * count + i];
    dw[i] = from_float<T>(sum);
  }
}

// ---- how a problem is cut ----------------------------------------------------------------------

struct Im2colCudaShape {
  explicit Im2colCudaShape(const Conv2dProblem& z)
      : groups(z.groups),
        channels(z.c_per_group()),
        kernels(z.k_per_group()),
        taps(z.r * z.s),
        depth(channels * taps),
        plane(z.p() * z.q()),
        pixels(z.n * plane),
        rows(z.c * taps),
        element(Index(size_of(z.dtype))) {}
  Index groups, channels, kernels;  // G, C/G, K/G
  Index taps, depth;                // R S, C/G R S
  Index plane, pixels;              // P Q, N P Q
  Index rows;                       // C R S: rows of columns of all groups
  Index element;                    // bytes
};

// Returns how many pixels a chunk has; all chunks are equal.
Index forward_chunk(const Im2colCudaShape& z) {
  const Index most =
      std::max(kPixelStep, kColumnBytes / (z.rows * z.element) / kPixelStep * kPixelStep);
  const Index chunks = std::max<Index>(1, ceil_div(z.pixels, most));
  return round_up(ceil_div(z.pixels, chunks), kPixelStep);
}

struct Im2colDataTiling {  // backward_data: a chunk is some images, or some channels of one
  explicit Im2colDataTiling(const Im2colCudaShape& z, Index n) {
    const Index plane_bytes = z.groups * z.taps * z.plane * Index(sizeof(float));
    const Index all = plane_bytes * z.channels;
    n = std::max<Index>(1, n);
    images =
        std::clamp<Index>(kColumnBytes / std::max<Index>(1, all), 1, std::min<Index>(n, 65535));
    images = ceil_div(n, ceil_div(n, images));
    channels = z.channels;
    while (channels > 1 &&
           (images * plane_bytes * channels > 2 * kColumnBytes || z.groups * channels > 65535)) {
      channels = ceil_div(channels, 2);
    }
  }
  Index images = 1, channels = 1;
};

struct SlotTiling {
  explicit SlotTiling(const Im2colCudaShape& z) {
    const Index dw = z.groups * z.kernels * z.depth * Index(sizeof(float));
    const Index most = forward_chunk(z);
    slots = std::clamp<Index>(most / kSlotPixels, 1, std::max<Index>(1, kSlotBytes / dw));
    slot = round_up(ceil_div(most, slots), kPixelStep);
  }
  Index chunk() const { return slots * slot; }
  Index slots = 1, slot = 1;
};

std::size_t bytes_of(Index elements, Index element) {
  return ScratchArena::round_up(static_cast<std::size_t>(elements * element));
}

LaunchShape over_pixels(Index pixels, Index others) {
  return {.grid = dim3(static_cast<unsigned>(ceil_div(pixels, kThreads)),
                       static_cast<unsigned>(std::min<Index>(others, 65535))),
          .block = dim3(kThreads)};
}

template <class T>
void make_columns(const Conv2dProblem& problem, const Chunk& chunk, const void* x, T* columns) {
  launch(im2col_kernel<T>, over_pixels(chunk.count, ceil_div(problem.c, kChannelsPerThread)),
         Geometry(problem), chunk, static_cast<const T*>(x), columns);
}

// ---- the three directions ----------------------------------------------------------------------

template <class T>
void forward_as(const Conv2dForwardArgs& args) {
  const Conv2dProblem& problem = args.problem;
  const Im2colCudaShape z(problem);
  const Index most = forward_chunk(z);
  auto* const columns = static_cast<T*>(args.workspace);  // [C R S][pixels]
  auto* const sums = reinterpret_cast<float*>(static_cast<std::byte*>(args.workspace) +
                                              bytes_of(z.rows * most, z.element));  // [K][pixels]
  for (Index begin = 0; begin < z.pixels; begin += most) {
    const Chunk chunk{begin, int(most), int(most)};
    make_columns(problem, chunk, args.x, columns);
    blas_gemm({.m = z.kernels,
               .n = most,
               .k = z.depth,
               .a = args.w,
               .b = columns,
               .c = sums,
               .lda = z.depth,
               .ldb = most,
               .ldc = most,
               .dtype = problem.dtype,
               .math = problem.math,
               .batch = z.groups,
               .stride_a = z.kernels * z.depth,
               .stride_b = z.depth * most,
               .stride_c = z.kernels * most});
    launch(in_place_kernel<T>, over_pixels(most, problem.k), Geometry(problem), chunk, sums,
           static_cast<const T*>(args.b), static_cast<T*>(args.y));
  }
}

template <class T>
void backward_data_as(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& problem = args.problem;
  const Im2colCudaShape z(problem);
  const Im2colDataTiling plan(z, problem.n);
  const auto* const w = static_cast<const T*>(args.w);
  const Index slot = round_up(plan.images * z.plane, kPixelStep);
  auto* const pixels = static_cast<T*>(args.workspace);  // [K][pixels]
  auto* const columns = reinterpret_cast<float*>(static_cast<std::byte*>(args.workspace) +
                                                 bytes_of(problem.k * slot, z.element));
  for (Index n = 0; n < problem.n; n += plan.images) {
    const Index images = std::min(plan.images, problem.n - n);
    const Chunk chunk{n * z.plane, int(slot), int(slot)};
    launch(side_by_side_kernel<T>, over_pixels(slot, problem.k), Geometry(problem), chunk,
           static_cast<const T*>(args.dy), pixels);
    for (Index c = 0; c < z.channels; c += plan.channels) {
      const Index channels = std::min(plan.channels, z.channels - c);
      blas_gemm({.m = channels * z.taps,
                 .n = slot,
                 .k = z.kernels,
                 .a = w + c * z.taps,
                 .b = pixels,
                 .c = columns,
                 .lda = z.depth,
                 .ldb = slot,
                 .ldc = slot,
                 .transpose_a = true,
                 .dtype = problem.dtype,
                 .math = problem.math,
                 .batch = z.groups,
                 .stride_a = z.kernels * z.depth,
                 .stride_b = z.kernels * slot,
                 .stride_c = channels * z.taps * slot});
      LaunchShape shape = over_pixels(problem.h * problem.w, z.groups * channels);
      shape.grid.z = static_cast<unsigned>(images);
      launch(col2im_kernel<T>, shape, Geometry(problem), n, int(c), int(channels), int(z.channels),
             int(slot), columns, static_cast<T*>(args.dx));
    }
  }
}

template <class T>
void backward_weight_as(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& problem = args.problem;
  const Im2colCudaShape z(problem);
  const SlotTiling plan(z);
  const Index count = z.groups * z.kernels * z.depth;
  auto* memory = static_cast<std::byte*>(args.workspace);
  auto* const columns = reinterpret_cast<T*>(memory);  // [slot][C R S][pixels of a slot]
  memory += bytes_of(z.rows * plan.chunk(), z.element);
  auto* const pixels = reinterpret_cast<T*>(memory);  // [slot][K][pixels of a slot]
  memory += bytes_of(problem.k * plan.chunk(), z.element);
  auto* const sums = reinterpret_cast<float*>(memory);  // [slot][K][C/G R S]
  for (Index begin = 0; begin < z.pixels; begin += plan.chunk()) {
    const Chunk chunk{begin, int(plan.chunk()), int(plan.slot)};
    make_columns(problem, chunk, args.x, columns);
    launch(side_by_side_kernel<T>, over_pixels(chunk.count, problem.k), Geometry(problem), chunk,
           static_cast<const T*>(args.dy), pixels);
    blas_gemm({.m = z.kernels,
               .n = z.depth,
               .k = plan.slot,
               .a = pixels,
               .b = columns,
               .c = sums,
               .lda = plan.slot,
               .ldb = plan.slot,
               .ldc = z.depth,
               .transpose_b = true,
               .dtype = problem.dtype,
               .beta = begin == 0 ? 0.0 : 1.0,
               .math = problem.math,
               .batch = plan.slots * z.groups,
               .stride_a = z.kernels * plan.slot,
               .stride_b = z.depth * plan.slot,
               .stride_c = z.kernels * z.depth});
  }
  const Index slots = z.pixels == 0 ? 0 : plan.slots;  // no image: dw = 0, or unchanged
  launch(add_slots_kernel<T>, grid_for(count), sums, int(slots), count, args.accumulate,
         static_cast<T*>(args.dw));
}

void forward(const Conv2dForwardArgs& args) {
  with_float_type(args.problem.dtype, [&](auto zero) { forward_as<decltype(zero)>(args); });
}
void backward_data(const Conv2dBackwardDataArgs& args) {
  with_float_type(args.problem.dtype, [&](auto zero) { backward_data_as<decltype(zero)>(args); });
}
void backward_weight(const Conv2dBackwardWeightArgs& args) {
  with_float_type(args.problem.dtype, [&](auto zero) { backward_weight_as<decltype(zero)>(args); });
}

// ---- algorithm ---------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  if (z.dtype != DType::f32 && z.dtype != DType::f16 && z.dtype != DType::bf16) {
    return Conv2dSupport::no(
        cat("expects elements of type f32, f16 or bf16, got ", name_of(z.dtype)));
  }
  if (z.h * z.w > INT_MAX / 2 || z.p() * z.q() > INT_MAX / 2 || z.c * z.r * z.s > INT_MAX) {
    return Conv2dSupport::no("expects planes of fewer than 2^30 pixels, got larger ones");
  }
  return {};
}

// Counts the products, and the passes before and after them, which move the elements one by one.
Conv2dCost cost(const Conv2dProblem& problem, Direction direction) {
  const Im2colCudaShape z(problem);
  const bool data = direction == Direction::backward_data;
  const bool weight = direction == Direction::backward_weight;
  const double element = number(z.element);
  const double columns = number(z.rows) * number(z.pixels);
  const double y = number(problem.k) * number(z.pixels);
  const double x = number(problem.x_shape().numel());
  const double dw = number(problem.w_shape().numel());
  const Im2colDataTiling plan(z, problem.n);
  const SlotTiling slots(z);
  const Index at_once = weight ? slots.chunk() : forward_chunk(z);
  const Index chunks = data ? ceil_div(problem.n, plan.images) : ceil_div(z.pixels, at_once);
  const Index products = chunks * (data ? ceil_div(z.channels, plan.channels) : 1);
  using blas_cost::Products;
  const Products product =
      weight ? Products{z.kernels, z.depth, slots.slot, slots.slots * z.groups, z.depth}
      : data ? Products{plan.channels * z.taps, round_up(plan.images * z.plane, kPixelStep),
                        z.kernels, z.groups, z.depth}
             : Products{z.kernels, at_once, z.depth, z.groups, z.depth};
  Conv2dCost cost = blas_cost::counts_of(product, blas_cost::operands_of(problem),
                                         cuda_device_facts().multiprocessors, number(products));
  cost.flops = problem.nominal_flops();
  const double product_bytes = weight ? element * (columns + y) + 4 * dw * number(slots.slots)
                               : data ? element * y + 4 * columns
                                      : element * columns + 4 * y;
  cost.bytes = product_bytes + (weight ? 0 : element * dw);
  // A pass writes what the product reads, or reads what the product writes. Its other side is x, y
  // or dw.
  cost.pass_bytes +=
      product_bytes + element * (weight ? x + y + dw : data ? y + x : x + y);
  cost.stored = columns + y + (data ? x : 0);
  // A thread of im2col or col2im handles the taps of a pixel one after another, and one of dw adds
  // the slots.
  cost.waits = number(products * z.taps * (data ? 1 : std::min(kChannelsPerThread, problem.c))) +
               (weight ? number(slots.slots) : 0);
  cost.launches += number(data ? chunks + products : 2 * chunks + (weight ? 1 : 0));
  return cost;
}

std::size_t workspace_bytes(const Conv2dProblem& problem, Direction direction) {
  const Im2colCudaShape z(problem);
  const Index f32 = sizeof(float);
  if (direction == Direction::forward) {
    const Index most = forward_chunk(z);
    return bytes_of(z.rows * most, z.element) + bytes_of(problem.k * most, f32);
  }
  if (direction == Direction::backward_data) {
    const Im2colDataTiling plan(z, problem.n);
    const Index slot = round_up(plan.images * z.plane, kPixelStep);
    return bytes_of(problem.k * slot, z.element) +
           bytes_of(z.groups * plan.channels * z.taps * slot, f32);
  }
  const SlotTiling plan(z);
  return bytes_of(z.rows * plan.chunk(), z.element) +
         bytes_of(problem.k * plan.chunk(), z.element) +
         bytes_of(plan.slots * z.groups * z.kernels * z.depth, f32);
}

const Conv2dAlgorithm kAlgorithm{
    .name = "im2col_gemm",
    .device = DeviceType::cuda,
    .idea = "a matrix product over columns of inputs of many images, by cuBLAS",
    .paper = "Chellapilla, Puri, Simard 2006: High Performance CNNs for Document Processing",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .error_growth = 8,
    .one_chain = true,
    .exact_on_integers = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
