// SPDX-License-Identifier: Apache-2.0
// fft_cuda.cu: convolution by Fourier transforms of tiles. R S taps become one product of two
// complex matrices for each frequency, [images, C] x [C, K].
//
// Formula    Y_f[n,k] = sum over c of X_f[n,c] conj(W_f[k,c]) for each frequency f of the
//            transforms X, W, Y of tiles of x, of w and of y
// Textbook   for each tile: X = FFT2(x_tile), for each kernel: W = FFT2(w, then zeros)
//            for each f: Y_f = X_f * W_f^H           # [N tiles, C] [C, K]
//            y_tile = FFT2^-1(Y), the first L - R + 1 rows and columns; + b
// Method     Two passes over memory and one product. The first launch computes spectra of x and of
//            w (of w before the call: prepare_weights). One batched complex product of cuBLAS
//            covers all frequencies. The last pass transforms the spectra of y back to pixels. One
//            kernel (fft_passes.cuh) does padding, transforms of rows and columns and the change of
//            order. An image of up to L + pad pixels is one tile, because only padding wraps
//            around. Dilated kernels have zeros between their taps.
// Shapes     x [N,C,H,W], w [K,C,R,S], y [N,K,P,Q], f32 row-major, any alignment; spectra [L (L/2 +
//            1)][N tiles][C] of complex f32, L = 16, 32 or 64; f32 accumulators
// Supports   f32; groups 1, or depthwise (fft_depthwise_cuda.cu, also fp16/bf16); kernels of 2 to
//            33 dilated taps in each axis; stride 1; every padding. A problem in tf32 is computed
//            in f32
// Cost       FLOPs = 8 F N tiles K C with F = L (L/2 + 1): about 4 for each point of a tile, K and
//            C; direct sums have 2 R S for each pixel. Bytes = the spectra written and read;
//            workspace = the spectra of a chunk of images; memory-bound up to about 100 channels
// Numerics   errors of a transform grow like log L, those of the sums like sqrt(C). The relative L2
//            error is like that of direct sums, but spread over the tile: small results near large
//            results lose digits. Same bits on each run on one GPU. A NaN spreads over its tile and
//            one neighbouring plane.
// Backward   DX_f = DY_f W_f, assigned; DW_f = sum over tiles of DY_f^H X_f, assigned or added to
// Choices    The cost model chooses L by transforms and products. A pair of planes has 64 x
//            68 complex numbers (34 KiB). Two pairs in a block make stores of 32 bytes, and three
//            blocks fit on an SM. kSpectraBytes 256 MiB limits the spectra of x and y that are
//            stored at a time
// Source     M. Mathieu, M. Henaff, Y. LeCun 2014, arXiv 1312.5851; N. Vasilache et al.: fbfft,
//            2015, arXiv 1412.7580 (custom small transforms, as here); two real planes at once:
//            Numerical Recipes, 12.3
// Read next  fft_passes.cuh, the transforms; fft_depthwise_cuda.cu; winograd_cuda.cu, faster
//            for 3x3
#include <algorithm>
#include <climits>

#include "framework/cuda/blas.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/memory/memory.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/fft/cuda/fft_passes.cuh"
#include "layers/conv2d/shared/cuda/blas_cost.h"
#include "layers/conv2d/shared/kept_plans.h"

namespace convscope {
namespace {

using fft::Index;
using fft::kLargestKernel;
using fft::kLengths;
using fft::Span;

constexpr Index kSpectraBytes = Index{256} << 20;

struct FftCudaTiling;
int chosen_length(const Conv2dProblem& z, Direction direction);

struct FftCudaTiling {
  FftCudaTiling(const Conv2dProblem& problem, Direction direction)
      : FftCudaTiling(problem, direction, chosen_length(problem, direction)) {}
  // Cuts an image into tiles for transforms of `transform` points. length is 0 if these are too
  // short.
  FftCudaTiling(const Conv2dProblem& problem, Direction direction, int transform)
      : z(problem),
        for_dw(direction == Direction::backward_weight),
        forward(direction != Direction::backward_data),
        depth(forward ? z.c : z.k),
        channels(forward ? z.k : z.c),
        down(Span::rows(z, forward)),
        across(Span::columns(z, forward)) {
    const Index rows = down.outputs(transform), columns = across.outputs(transform);
    if (rows > 0 && columns > 0) {
      length = transform;
      tile_rows = rows;
      tile_columns = columns;
    }
    images = std::clamp<Index>(kSpectraBytes / std::max<Index>(1, spectrum_bytes(1)), 1,
                               std::max<Index>(1, z.n));
    images = ceil_div(std::max<Index>(1, z.n), ceil_div(std::max<Index>(1, z.n), images));
  }

  Index tiles() const {
    return ceil_div(down.virtual_out(), tile_rows) * ceil_div(across.virtual_out(), tile_columns);
  }
  Index points() const { return fft::frequencies(length); }
  // Returns the distance between two frequencies in complex numbers. It is a multiple of four,
  // because a block stores four numbers at a time.
  static Index stride_of(Index planes) { return ceil_div(planes, 4) * 4; }
  Index in_stride() const { return stride_of(images * tiles() * depth); }
  Index out_stride() const { return stride_of(images * tiles() * channels); }
  Index weight_stride() const { return stride_of(z.k * z.c); }
  // Returns the bytes of all spectra, including those of w or dw.
  std::size_t bytes() const { return piece(in_stride()) + piece(out_stride()) + prepared_bytes(); }
  std::size_t prepared_bytes() const { return piece(weight_stride()); }
  std::size_t piece(Index stride) const {
    return ScratchArena::round_up(static_cast<std::size_t>(points() * stride) * sizeof(float2));
  }

  // read() returns the tiles whose spectra a product reads; made() returns the tiles that it
  // computes.
  fft::PlaneSet read(Index n) const {
    return {down.read(tile_rows), across.read(tile_columns), int(depth), n * tiles() * depth};
  }
  fft::PlaneSet made(Index n) const {
    return {down.made(tile_rows), across.made(tile_columns), int(channels), n * tiles() * channels};
  }
  fft::PlaneSet kernels() const { return fft::kernel_planes(z, z.k * z.c); }
  int shift(Index taps) const { return forward ? 0 : int(taps - 1); }

  const Conv2dProblem& z;
  bool for_dw, forward;
  Index depth, channels;
  Span down, across;
  int length = 0;                         // 0: no transform is long enough
  Index tile_rows = 1, tile_columns = 1;  // outputs of a tile, without stride
  Index images = 1;                       // images that are processed at a time

 private:
  Index spectrum_bytes(Index n) const {
    return points() * n * tiles() * (depth + channels) * Index(sizeof(float2));
  }
};

// Counts the products, which read two sets of spectra and write the third, and the transforms
// before and after them. Each length has its own kernels.
Cost counts_of(const FftCudaTiling& plan) {
  const Conv2dProblem& z = plan.z;
  const double f = number(plan.points()), tiles = number(z.n * plan.tiles());
  const double chunks = number(ceil_div(z.n, plan.images));
  const double planes = 8 * f * tiles * number(z.c + z.k);  // bytes of spectra
  const double kernels = 8 * f * number(z.k * z.c);
  const Index rows = plan.images * plan.tiles();
  using blas_cost::Products;  // a complex product has four times the K dimension of a real one
  const Products products = plan.for_dw
                                ? Products{z.k, z.c, 4 * rows, plan.points()}
                                : Products{rows, plan.channels, 4 * plan.depth, plan.points()};
  constexpr const char* kNames[3][2] = {{"16", "16 vector"}, {"32", "32 vector"},
                                        {"64", "64 vector"}};
  Cost cost = blas_cost::counts_of(products, blas_cost::Operands::f32,
                                   cuda_device_facts().multiprocessors, chunks);
  cost.flops = 8 * f * tiles * number(z.k * z.c);
  cost.bytes = planes + kernels;
  cost.schedule = kNames[plan.length / 32][products.m == 1 || products.n == 1 ? 1 : 0];
  cost.pass_bytes += z.nominal_bytes() + planes;
  if (plan.for_dw) {  // one launch transforms x and dy, and one all kernels
    cost.pass_bytes += kernels;
    cost.launches += chunks + 1;
  } else {  // the launch that transforms the first images also transforms w
    cost.launches += 2 * chunks;
    cost.prepared_bytes = kernels + 4 * number(z.w_shape().numel());
  }
  return cost;
}

// Returns 0 if no transform is long enough.
int chosen_length(const Conv2dProblem& z, Direction direction) {
  static KeptPlans<int> kept;
  return *kept.get(z, direction, [&] {
    Cheapest<int> best({"conv2d", "fft", direction}, DeviceType::cuda, z.dtype);
    for (const int length : kLengths) {
      const FftCudaTiling plan(z, direction, length);
      if (plan.length > 0) best.offer(length, counts_of(plan));
    }
    return best.found();
  });
}

void to_spectra(int length, const fft::ToSpectra& set, const fft::ToSpectra& other = {}) {
  fft::with_length(length, [&](auto constant) {
    constexpr int kLength = constant;
    LaunchShape shape = fft::blocks_of<kLength>(set.planes.planes);
    const fft::TwoToSpectra sets{{set, other}, static_cast<int>(shape.grid.x)};
    shape.grid.x += fft::blocks_of<kLength>(other.planes.planes).grid.x;
    launch(fft::spectrum_kernel<kLength>, shape, sets);
  });
}

void to_pixels(const FftCudaTiling& plan, const fft::PlaneSet& planes, const float2* spectra,
               Index stride, int shift_rows, int shift_columns, const fft::Finish<float>& finish,
               float* y) {
  fft::with_length(plan.length, [&](auto constant) {
    constexpr int kLength = constant;
    launch(fft::pixels_kernel<kLength>, fft::blocks_of<kLength>(planes.planes), planes, spectra,
           stride, shift_rows, shift_columns, finish, y);
  });
}

float* complex(float2* numbers) { return reinterpret_cast<float*>(numbers); }

// The spectra in the workspace.
struct Spectra {
  Spectra(const FftCudaTiling& plan, void* workspace)
      : in(static_cast<float2*>(workspace)),
        out(in + plan.piece(plan.in_stride()) / sizeof(float2)),
        weights(out + plan.piece(plan.out_stride()) / sizeof(float2)) {}
  float2 *in, *out;
  float2* weights;  // of w or dw; unused when w is prepared before the call
};

fft::ToSpectra spectra_of_weights(const FftCudaTiling& plan, const void* w, void* to) {
  return {plan.kernels(), static_cast<const float*>(w), static_cast<float2*>(to),
          plan.weight_stride()};
}

std::size_t prepared_bytes(const Conv2dProblem& z, Direction direction) {
  if (fft::is_depthwise(z)) return fft::depthwise_prepared_bytes(z, direction);
  return FftCudaTiling(z, direction).prepared_bytes();
}

// Computes the spectra of w, which many calls then read.
void prepare_weights(const Conv2dPrepareArgs& args) {
  if (fft::is_depthwise(args.problem)) return fft::depthwise_prepare(args);
  const FftCudaTiling plan(args.problem, args.direction);
  to_spectra(plan.length, spectra_of_weights(plan, args.w, args.prepared));
}
// For a single call, the launch that transforms the images also transforms w.
bool prepares_for_one_call(const Conv2dProblem& z, Direction) { return fft::is_depthwise(z); }

// Computes y from x, or dx from dy. If `prepared` is null, the function transforms w.
void convolve(const FftCudaTiling& plan, void* workspace, const void* from, const void* w,
              const void* prepared, fft::Finish<float> finish, void* to) {
  const Conv2dProblem& z = plan.z;
  const Spectra spectra(plan, workspace);
  const auto* const weights =
      prepared != nullptr ? static_cast<const float2*>(prepared) : spectra.weights;
  const Index in_image = plan.depth * plan.down.in * plan.across.in;
  const Index out_image = plan.channels * plan.down.out * plan.across.out;
  for (Index n = 0; n < z.n; n += plan.images) {
    const Index images = std::min(plan.images, z.n - n);
    const fft::ToSpectra image{plan.read(images), static_cast<const float*>(from) + n * in_image,
                               spectra.in, plan.in_stride()};
    const bool first = n == 0 && prepared == nullptr;
    to_spectra(plan.length, image,
               first ? spectra_of_weights(plan, w, spectra.weights) : fft::ToSpectra{});
    blas_gemm(BlasComplexGemm{.m = images * plan.tiles(),
                              .n = plan.channels,
                              .k = plan.depth,
                              .a = complex(spectra.in),
                              .b = reinterpret_cast<const float*>(weights),
                              .c = complex(spectra.out),
                              .lda = plan.depth,
                              .ldb = z.c,
                              .ldc = plan.channels,
                              .transpose_b = plan.forward,
                              .conjugate_b = plan.forward,
                              .batch = plan.points(),
                              .stride_a = plan.in_stride(),
                              .stride_b = plan.weight_stride(),
                              .stride_c = plan.out_stride()});
    to_pixels(plan, plan.made(images), spectra.out, plan.out_stride(), plan.shift(plan.down.taps),
              plan.shift(plan.across.taps), finish, static_cast<float*>(to) + n * out_image);
    if (finish.residual != nullptr) finish.residual += plan.images * out_image;
  }
}

void forward(const Conv2dForwardArgs& args) {
  if (fft::is_depthwise(args.problem)) return fft::depthwise_forward(args);
  convolve(FftCudaTiling(args.problem, Direction::forward), args.workspace, args.x, args.w,
           args.prepared,
           {static_cast<const float*>(args.b), static_cast<const float*>(args.epilogue.residual),
            args.epilogue.relu, false},
           args.y);
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  if (fft::is_depthwise(args.problem)) return fft::depthwise_backward_data(args);
  convolve(FftCudaTiling(args.problem, Direction::backward_data), args.workspace, args.dy, args.w,
           args.prepared, {nullptr, nullptr, false, false}, args.dx);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  if (fft::is_depthwise(z)) return fft::depthwise_backward_weight(args);
  const FftCudaTiling plan(z, Direction::backward_weight);
  const Spectra spectra(plan, args.workspace);
  for (Index n = 0; n < z.n; n += plan.images) {
    const Index images = std::min(plan.images, z.n - n);
    to_spectra(plan.length,
               {plan.read(images), static_cast<const float*>(args.x) + n * z.c * z.h * z.w,
                spectra.in, plan.in_stride()},
               {plan.made(images), static_cast<const float*>(args.dy) + n * z.k * z.p() * z.q(),
                spectra.out, plan.out_stride()});
    blas_gemm(BlasComplexGemm{.m = z.k,
                              .n = z.c,
                              .k = images * plan.tiles(),
                              .a = complex(spectra.out),
                              .b = complex(spectra.in),
                              .c = complex(spectra.weights),
                              .lda = z.k,
                              .ldb = z.c,
                              .ldc = z.c,
                              .transpose_a = true,
                              .conjugate_a = true,
                              .beta = n == 0 ? 0.0 : 1.0,
                              .batch = plan.points(),
                              .stride_a = plan.out_stride(),
                              .stride_b = plan.in_stride(),
                              .stride_c = plan.weight_stride()});
  }
  to_pixels(plan, plan.kernels(), spectra.weights, plan.weight_stride(), 0, 0,
            {nullptr, nullptr, false, args.accumulate}, static_cast<float*>(args.dw));
}

// ---- algorithm
// --------------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  const auto no = [](const auto&... words) { return Conv2dSupport::no(cat(words...)); };
  const bool depthwise = fft::is_depthwise(z);
  if (z.dtype != DType::f32 && !(depthwise && is_half(z.dtype))) {
    return no("expects elements of type f32 (of depthwise problems also f16 and bf16), got ",
              name_of(z.dtype));
  }
  if (z.groups != 1 && !depthwise) {
    return no("expects groups 1, or a group and a kernel for each channel, got ", z.groups,
              " groups of ", z.c, " channels and ", z.k, " kernels");
  }
  if (z.stride_h != 1 || z.stride_w != 1) {
    return no("expects stride 1, because all pixels of a tile are made, got ", z.stride_h, "x",
              z.stride_w);
  }
  const Index rows = (z.r - 1) * z.dilation_h + 1;
  const Index columns = (z.s - 1) * z.dilation_w + 1;
  if (rows * columns == 1) return no("expects a kernel of more than one tap, got 1x1");
  if (rows > kLargestKernel || columns > kLargestKernel) {
    return no("expects a kernel of at most ", kLargestKernel, "x", kLargestKernel,
              " with its dilation, because tiles are 64x64, got ", rows, "x", columns);
  }
  if (z.h * z.w > INT_MAX / 2 || z.p() * z.q() > INT_MAX / 2 ||
      (z.k * z.c > INT_MAX / 64 && !depthwise)) {
    return no("expects planes of fewer than 2^30 pixels and 2^25 kernels' planes, got more");
  }
  return {};
}

Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  if (fft::is_depthwise(z)) return fft::depthwise_cost(z, direction);
  return counts_of(FftCudaTiling(z, direction));
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  if (fft::is_depthwise(z)) return fft::depthwise_workspace_bytes(z, direction);
  return FftCudaTiling(z, direction).bytes();
}

const Conv2dAlgorithm kAlgorithm{
    .name = "fft",
    .device = DeviceType::cuda,
    .idea = "Fourier transforms of tiles: one complex product instead of R x S taps",
    .paper =
        "Mathieu, Henaff, LeCun 2014: Fast Training of Convolutional Networks through FFTs, "
        "arXiv 1312.5851",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .prepares_for_one_call = prepares_for_one_call,
    .error_growth = 8,
    .one_chain = true,
    .exact_on_integers = false,
    .fuses_epilogue = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
