// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_half_cuda.cu: batch norm on fp16/bf16 or f32 in NHWC, in two passes over the
// images for each direction.
//
// Method    Each direction has three kernels:
//           forward   1 sums x - first and its square for each channel; `first` is the channel's
//                       first number, so an offset costs no digits (channel_sums.cuh). Not run if
//                       the producer of x has computed these sums (channel_moments.cuh)
//                     2 adds the partial sums; computes statistics, factors, running statistics
//                     3 computes (x - mean) factor + shift + residual and the activation
//           backward  1 computes sums of g and g (x - mean)
//                     2 computes the factors of dx and the gradients of weight and bias
//                     3 computes dx and the gradient of the residual
//           Kernel 2 is small. Kernel 3 rounds once.
//           The backward pass needs y only to see where the activation is 0. Without a residual it
//           does not read y: it repeats kernel 3 of the forward pass, rounding included.
// Operands  For f32 images kernel 3 also writes fp16 operands (half_operands.h). The scale
//           of the operands comes from a bound that is known before kernel 3 begins. In the forward
//           direction one block of kernel 2 computes this bound from weight and bias. In the
//           backward direction kernel 1 also finds the largest |g|, and kernel 2 derives the bound
//           of dx.
// Numerics  see batch_norm2d_half.h
// Read next framework/cuda/channel_sums.cuh; batch_norm2d_cuda.cu, the same for f32
#include "framework/cuda/channel_moments.cuh"
#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/batch_norm2d/batch_norm2d_half.h"
#include "layers/dispatch/layout/half_operands.h"

namespace convscope {
namespace {

struct Activation {
  bool relu;
  float most;
  __device__ float operator()(float v) const {
    if (!relu) return v;
    const float positive = v <= 0 ? 0.0f : v;  // NaN passes
    return positive >= most ? most : positive;
  }
  // Tells whether a gradient passes where the stored result is y.
  __device__ bool passes(float y) const { return !(y <= 0 || y >= most); }
};

// Loads the numbers of a piece's channels from an array [lanes].
template <int kLanes>
__device__ inline void load_lanes(const float* from, int piece, float (&v)[kLanes]) {
#pragma unroll
  for (int l = 0; l < kLanes; ++l) v[l] = from[piece * kLanes + l];
}

// ---- operands of products ----------------------------------------------------------------------

// Returns the bits of |v|; 0 if v is NaN or infinite. Integer order is the order of magnitudes.
__device__ inline unsigned finite_bits(float v) {
  const unsigned bits = __float_as_uint(v) & 0x7fffffffu;
  return bits < 0x7f800000u ? bits : 0u;
}
__device__ inline float scale_of(unsigned largest_bits) {
  return __uint_as_float(static_cast<unsigned>(half_scale_exponent(largest_bits) + 127) << 23);
}

// Returns the largest `own` of the block in thread 0. All threads must call this function.
__device__ inline unsigned block_maximum(unsigned own) {
  __shared__ unsigned warp_maxima[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) {
    const unsigned other = __shfl_xor_sync(kAllLanes, own, offset);
    own = other > own ? other : own;
  }
  if (threadIdx.x % 32 == 0) warp_maxima[threadIdx.x / 32] = own;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned w = 1; w < kThreads / 32; ++w) own = warp_maxima[w] > own ? warp_maxima[w] : own;
  }
  return own;
}

// Converts four numbers to fp16.
__device__ inline uint2 fp16_of(const float (&v)[4], float scale) {
  return make_uint2(pair_from_floats<Float16>(v[0] * scale, v[1] * scale),
                    pair_from_floats<Float16>(v[2] * scale, v[3] * scale));
}

// ---- forward -----------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads)
    moment_sums(const uint4* x, WalkOf<T> walk, float* part) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  float first[kLanesOf<T>] = {};
  if (!walk.is_idle()) floats_of_piece<T>(x[walk.piece()], first);
  float sums[2][kLanesOf<T>] = {};
  walk.run([&](std::int64_t at) { return x[at]; },
           [&](std::int64_t, const uint4& in) {
             float v[kLanesOf<T>];
             floats_of_piece<T>(in, v);
#pragma unroll
             for (int l = 0; l < kLanesOf<T>; ++l) {
               const float d = v[l] - first[l];
               sums[0][l] += d;
               sums[1][l] += d * d;
             }
           });
  walk.put_part(sums, part);
}

// Arrays of one number for each channel; factors [3][lanes].
struct Statistics {
  const float* weight;
  const float* bias;
  double* mean;
  double* inverse;
  float* running_mean;
  float* running_variance;
  float* factors;
  double eps, momentum;
  int channels;
  // head[0] is the scale of the fp16 copy of y, head[1] the bound of |y|; null if y has no such
  // copy. beside_head is the same for the residual, null without a residual. beside_bound says
  // whether beside_head contains a bound.
  float* head;
  const float* beside_head;
  bool beside_bound;
  float most;
};

// Writes the bound of |y|; called by one block. |x - mean| / deviation is at most sqrt(count),
// because the mean of the squares of x - mean is the squared deviation.
__device__ inline void write_bound(const Statistics& z, std::int64_t count) {
  const float spread = ::sqrtf(static_cast<float>(count));
  unsigned largest = 0;
  for (int c = static_cast<int>(threadIdx.x); c < z.channels; c += static_cast<int>(kThreads)) {
    const unsigned bits = finite_bits(::fabsf(z.weight[c]) * spread + ::fabsf(z.bias[c]));
    largest = bits > largest ? bits : largest;
  }
  largest = block_maximum(largest);
  if (threadIdx.x != 0) return;
  float bound = __uint_as_float(largest);
  // If the residual has no bound, its scaled magnitude is below 2^14.
  if (z.beside_head != nullptr) {
    bound += z.beside_bound ? z.beside_head[1] : 0x1p14f / z.beside_head[0];
  }
  bound = bound < z.most ? bound : z.most;
  constexpr float kLargest = 0x1.fffffep127f;
  bound = bound < kLargest ? bound : kLargest;
  z.head[0] = scale_of(__float_as_uint(bound));
  z.head[1] = bound;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    finish_moments(const T* x, WalkOf<T> walk, const float* part, int given, Statistics z) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (z.head != nullptr && blockIdx.x == 0) write_bound(z, walk.pixels);
  double sums[2];
  float first = 0;  // the sums are relative to it
  if (given > 0) {
    first = add_moment_parts(part, given, walk, sums);
  } else {
    walk.add_parts(part, sums);
    if (walk.channel() < walk.lanes()) first = to_float(x[walk.channel()]);
  }
  const int c = walk.channel();
  if (!walk.is_finisher() || c >= walk.lanes()) return;
  float factor = 0, shift = 0, middle = 0;
  if (c < z.channels) {
    const auto count = static_cast<double>(walk.pixels);
    const double off = sums[0] / count;
    const double mean = static_cast<double>(first) + off;
    const double spread = sums[1] / count - off * off;
    const double variance = spread <= 0 ? 0.0 : spread;  // NaN passes
    // If the sum of squares overflows, every y would be 0. NaN shows the error instead.
    const double inverse = variance < INFINITY ? 1 / ::sqrt(variance + z.eps) : NAN;
    z.mean[c] = mean;
    z.inverse[c] = inverse;
    const double keep = 1 - z.momentum;
    z.running_mean[c] =
        static_cast<float>(keep * static_cast<double>(z.running_mean[c]) + z.momentum * mean);
    z.running_variance[c] = static_cast<float>(keep * static_cast<double>(z.running_variance[c]) +
                                               z.momentum * (variance * unbiased_by(count)));
    const ChannelNorm<float> norm(mean, inverse * static_cast<double>(z.weight[c]),
                                  static_cast<double>(z.bias[c]));
    factor = norm.factor;
    shift = norm.shift;
    middle = norm.mean;
  }
  z.factors[c] = factor;
  z.factors[walk.lanes() + c] = shift;
  z.factors[2 * walk.lanes() + c] = middle;
}

// The destinations of a result: the tensor, the fp16 operands of a product, or both.
struct Results {
  uint4* y = nullptr;
  uint2* fp16 = nullptr;  // f32 only
  const float* scale = nullptr;
};

// A lane after the last channel has mean, factor and shift 0.
template <class T, bool kResidual>
__global__ void __launch_bounds__(kThreads)
    write_normalised(const uint4* x, WalkOf<T> walk, const float* factors, const uint4* residual,
                     Activation activation, Results to) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (walk.is_idle()) return;
  float factor[kLanesOf<T>], shift[kLanesOf<T>], mean[kLanesOf<T>];
  load_lanes(factors, walk.piece(), factor);
  load_lanes(factors + walk.lanes(), walk.piece(), shift);
  load_lanes(factors + 2 * walk.lanes(), walk.piece(), mean);
  const bool as_fp16 = sizeof(T) == 4 && to.fp16 != nullptr;
  const float scale = as_fp16 ? *to.scale : 0.0f;
  struct Loaded {
    uint4 x, beside;
  };
  walk.run(
      [&](std::int64_t at) {
        return Loaded{x[at], kResidual ? residual[at] : make_uint4(0, 0, 0, 0)};
      },
      [&](std::int64_t at, const Loaded& in) {
        float v[kLanesOf<T>], beside[kLanesOf<T>];
        floats_of_piece<T>(in.x, v);
        if constexpr (kResidual) floats_of_piece<T>(in.beside, beside);
#pragma unroll
        for (int l = 0; l < kLanesOf<T>; ++l) {
          float sum = ::fmaf(v[l] - mean[l], factor[l], shift[l]);
          if constexpr (kResidual) sum += beside[l];
          v[l] = activation(sum);
        }
        if constexpr (sizeof(T) == 4) {
          if (as_fp16) to.fp16[at] = fp16_of(v, scale);
          if (to.y == nullptr) return;
        }
        to.y[at] = piece_of_floats<T>(v);
      });
}

__global__ void factors_of_channels(const double* mean, const double* factor, const double* shift,
                                    int channels, int lanes, float* factors) {
  const int c = static_cast<int>(global_thread());
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (c >= lanes) return;
  ChannelNorm<float> norm(0, 0, 0);
  if (c < channels) norm = {mean[c], factor[c], shift[c]};
  factors[c] = norm.factor;
  factors[lanes + c] = norm.shift;
  factors[2 * lanes + c] = norm.mean;
}

// ---- backward ----------------------------------------------------------------------------------

// Says how the kernel finds where the activation is 0, and g with it. kPlain: there is no
// activation; kFromX: y is computed again from x; kFromY: y is read.
enum class Mask { kPlain, kFromX, kFromY };

template <class T>
struct GradientInput {
  const uint4* dy;
  const uint4* x;
  const uint4* y;
  const float* factors;  // [3][lanes]: factor, shift, mean
  Activation activation;
};

template <class T, Mask kMask>
struct GradientPiece {
  float factor[kLanesOf<T>], shift[kLanesOf<T>], mean[kLanesOf<T>];

  __device__ GradientPiece(const GradientInput<T>& z, const WalkOf<T>& walk) {
    load_lanes(z.factors + 2 * walk.lanes(), walk.piece(), mean);
    if constexpr (kMask != Mask::kFromX) return;
    load_lanes(z.factors, walk.piece(), factor);
    load_lanes(z.factors + walk.lanes(), walk.piece(), shift);
  }
  struct Loaded {
    uint4 dy, x, y;
  };
  __device__ static Loaded load(const GradientInput<T>& z, std::int64_t at) {
    return {z.dy[at], z.x[at], kMask == Mask::kFromY ? z.y[at] : make_uint4(0, 0, 0, 0)};
  }
  // Computes g, and x - mean.
  __device__ void operator()(const GradientInput<T>& z, const Loaded& in, float (&g)[kLanesOf<T>],
                             float (&x)[kLanesOf<T>]) const {
    floats_of_piece<T>(in.dy, g);
    floats_of_piece<T>(in.x, x);
    float y[kLanesOf<T>];
    if constexpr (kMask == Mask::kFromY) floats_of_piece<T>(in.y, y);
#pragma unroll
    for (int l = 0; l < kLanesOf<T>; ++l) {
      if constexpr (kMask == Mask::kFromX) {
        y[l] = to_float(from_float<T>(z.activation(::fmaf(x[l] - mean[l], factor[l], shift[l]))));
      }
      if constexpr (kMask != Mask::kPlain) g[l] = z.activation.passes(y[l]) ? g[l] : 0.0f;
      x[l] -= mean[l];
    }
  }
};

// The maxima from which the bound of dx is computed, as bits.
struct Largest {
  unsigned* gradients = nullptr;  // [blocks of kernel 1]: the largest |g|; null: not needed
  int blocks = 0;
  unsigned* bound = nullptr;  // [1]
};

__device__ inline void put_largest(const Largest& z, unsigned block_maximum_bits) {
  if (threadIdx.x != 0) return;
  const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
  z.gradients[block] = block_maximum_bits;
  if (block == 0) *z.bound = 0;  // the next launch raises it
}

template <class T, Mask kMask>
__global__ void __launch_bounds__(kThreads)
    gradient_sums(GradientInput<T> z, WalkOf<T> walk, float* part, Largest largest) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  float sums[2][kLanesOf<T>] = {};
  unsigned most = 0;
  if (!walk.is_idle()) {
    const GradientPiece<T, kMask> piece(z, walk);
    walk.run([&](std::int64_t at) { return piece.load(z, at); },
             [&](std::int64_t, const auto& in) {
               float g[kLanesOf<T>], x[kLanesOf<T>];
               piece(z, in, g, x);
#pragma unroll
               for (int l = 0; l < kLanesOf<T>; ++l) {
                 sums[0][l] += g[l];
                 sums[1][l] += g[l] * x[l];
                 if constexpr (sizeof(T) == 4) {
                   const unsigned bits = finite_bits(g[l]);
                   most = bits > most ? bits : most;
                 }
               }
             });
  }
  walk.put_part(sums, part);
  if constexpr (sizeof(T) == 4) {
    if (largest.gradients != nullptr) put_largest(largest, block_maximum(most));
  }
}

struct Finish {
  const float* weight;
  const double* mean;
  const double* inverse;
  float* dw;
  float* db;
  bool dw_accumulate, db_accumulate;
  float* factors;  // [3][lanes]: a, b, d of dx
  int channels;
  Largest largest;
};

// |dx| is at most |a g| + |b (x - mean)| + |d|, and |x - mean| at most sqrt(count) deviations.
__device__ inline void raise_bound(const Finish& z, float largest_g, double a, double b, double d,
                                   double deviation, double count) {
  const double bound = ::fabs(a) * static_cast<double>(largest_g) +
                       ::fabs(b) * deviation * ::sqrt(count) + ::fabs(d);
  const unsigned bits = finite_bits(static_cast<float>(bound));
  atomicMax(z.largest.bound, bits);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    finish_gradient(WalkOf<T> walk, const float* part, Finish z) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  __shared__ float largest_g;
  if (z.largest.gradients != nullptr) {
    unsigned own = 0;
    for (int i = static_cast<int>(threadIdx.x); i < z.largest.blocks; i += kThreads) {
      const unsigned bits = z.largest.gradients[i];
      own = bits > own ? bits : own;
    }
    own = block_maximum(own);
    if (threadIdx.x == 0) largest_g = __uint_as_float(own);
  }
  double sums[2];
  walk.add_parts(part, sums);  // contains barriers
  const int c = walk.channel();
  if (!walk.is_finisher() || c >= walk.lanes()) return;
  float a = 0, b = 0, d = 0;
  if (c < z.channels) {
    const double i = z.inverse[c];
    // The sums used the mean rounded to f32.
    const double off = static_cast<double>(static_cast<float>(z.mean[c])) - z.mean[c];
    const double sum_dy_x = sums[1] + off * sums[0];
    const double f = static_cast<double>(z.weight[c]) * i;
    const auto count = static_cast<double>(walk.pixels);
    a = static_cast<float>(f);
    b = static_cast<float>(-f * i * i * sum_dy_x / count);
    d = static_cast<float>(-f * sums[0] / count);
    if (z.largest.gradients != nullptr) raise_bound(z, largest_g, a, b, d, 1 / i, count);
    if (z.dw != nullptr) {
      const auto dw = static_cast<float>(sum_dy_x * i);
      z.dw[c] = z.dw_accumulate ? z.dw[c] + dw : dw;
    }
    if (z.db != nullptr) {
      const auto db = static_cast<float>(sums[0]);
      z.db[c] = z.db_accumulate ? z.db[c] + db : db;
    }
  }
  z.factors[c] = a;
  z.factors[walk.lanes() + c] = b;
  z.factors[2 * walk.lanes() + c] = d;
}

struct GradientResults {
  uint4* dx = nullptr;
  uint2* fp16 = nullptr;          // f32 only
  const unsigned* bound = nullptr;  // of |dx|, as bits
  float* scale_to = nullptr;
};

// `beside` is the gradient of the residual. Both `beside` and the outputs of dx may be null.
template <class T, Mask kMask>
__global__ void __launch_bounds__(kThreads, 2)
    write_gradient(GradientInput<T> z, WalkOf<T> walk, const float* dx_coefficients, uint4* beside,
                   bool accumulate, GradientResults dx) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (walk.is_idle()) return;
  const bool as_fp16 = sizeof(T) == 4 && dx.fp16 != nullptr;
  const float scale = as_fp16 ? scale_of(*dx.bound) : 0.0f;
  if (as_fp16 && threadIdx.x + blockIdx.x + blockIdx.y == 0) *dx.scale_to = scale;
  const GradientPiece<T, kMask> piece(z, walk);
  float a[kLanesOf<T>], b[kLanesOf<T>], d[kLanesOf<T>];
  load_lanes(dx_coefficients, walk.piece(), a);
  load_lanes(dx_coefficients + walk.lanes(), walk.piece(), b);
  load_lanes(dx_coefficients + 2 * walk.lanes(), walk.piece(), d);
  using Piece = GradientPiece<T, kMask>;
  struct Loaded {
    typename Piece::Loaded in;
    uint4 before;
  };
  const bool adds = beside != nullptr && accumulate;
  walk.run(
      [&](std::int64_t at) {
        return Loaded{Piece::load(z, at), adds ? beside[at] : make_uint4(0, 0, 0, 0)};
      },
      [&](std::int64_t at, const Loaded& from) {
        float g[kLanesOf<T>], x[kLanesOf<T>];
        piece(z, from.in, g, x);
        if (beside != nullptr) {
          float sum[kLanesOf<T>];
          floats_of_piece<T>(from.before, sum);
#pragma unroll
          for (int l = 0; l < kLanesOf<T>; ++l) sum[l] = adds ? sum[l] + g[l] : g[l];
          beside[at] = piece_of_floats<T>(sum);
        }
        if (dx.dx == nullptr && !as_fp16) return;
#pragma unroll
        for (int l = 0; l < kLanesOf<T>; ++l) g[l] = a[l] * g[l] + (b[l] * x[l] + d[l]);
        if constexpr (sizeof(T) == 4) {
          if (as_fp16) dx.fp16[at] = fp16_of(g, scale);
          if (dx.dx == nullptr) return;
        }
        dx.dx[at] = piece_of_floats<T>(g);
      });
}

// ---- launches ----------------------------------------------------------------------------------

const uint4* pieces(const Tensor& tensor) {
  return tensor.defined() ? static_cast<const uint4*>(tensor.raw_data()) : nullptr;
}
uint4* pieces_to(const Tensor& tensor) {
  return tensor.defined() ? static_cast<uint4*>(tensor.raw_data()) : nullptr;
}
float* floats(const Tensor& tensor) { return tensor.defined() ? tensor.data<float>() : nullptr; }
// Returns the fp16 numbers of a block of operands.
uint2* fp16_in(const Tensor& block) {
  if (!block.defined()) return nullptr;
  return static_cast<uint2*>(const_cast<void*>(half_operands_in(block.raw_data()).fp16));
}
float* head_of(const Tensor& block) {
  return block.defined() ? static_cast<float*>(block.raw_data()) : nullptr;
}

LaunchShape for_lanes(int lanes) {
  LaunchShape shape = grid_for(lanes);
  shape.overlaps_previous = true;
  return shape;
}

template <class T>
void apply(const WalkOf<T>& walk, const Tensor& x, const float* factors, const Tensor& residual,
           const Activation& activation, const Results& to) {
  launch(residual.defined() ? write_normalised<T, true> : write_normalised<T, false>, walk.shape(),
         pieces(x), walk, factors, pieces(residual), activation, to);
}

template <class T>
void train_typed(const BatchNormHalfArgs& args) {
  const WalkOf<T> walk(args.x.shape());
  const bool given = args.x_moments.defined();
  float* part = floats(args.x_moments);
  if (!given) {
    part = cuda_scratch_of<float>(walk.part_floats(2));
    launch(moment_sums<T>, walk.shape(), pieces(args.x), walk, part);
  }
  auto* const factors = args.factors.data<float>();
  const Statistics statistics{.weight = args.weight.data<float>(),
                              .bias = args.bias.data<float>(),
                              .mean = args.mean.data<double>(),
                              .inverse = args.inverse_deviation.data<double>(),
                              .running_mean = args.running_mean.data<float>(),
                              .running_variance = args.running_variance.data<float>(),
                              .factors = factors,
                              .eps = args.eps,
                              .momentum = args.momentum,
                              .channels = static_cast<int>(args.weight.numel()),
                              .head = head_of(args.y_half),
                              .beside_head = head_of(args.residual_half),
                              .beside_bound = args.residual_has_bound,
                              .most = args.relu ? args.most : INFINITY};
  launch(finish_moments<T>, walk.finish_shape(), args.x.data<T>(), walk, part,
         given ? static_cast<int>(args.x_moments.dim(0)) : 0, statistics);
  apply<T>(walk, args.x, factors, args.residual, {args.relu, args.most},
           {.y = pieces_to(args.y),
            .fp16 = args.bound_alone ? nullptr : fp16_in(args.y_half),
            .scale = head_of(args.y_half)});
}

void train_cuda(const BatchNormHalfArgs& args) {
  with_stored_type(args.x.dtype(), [&](auto zero) { train_typed<decltype(zero)>(args); });
}

template <class T>
void apply_typed(const BatchNormHalfApplyArgs& args) {
  const WalkOf<T> walk(args.x.shape());
  auto* const factors = cuda_scratch_of<float>(3 * static_cast<std::size_t>(walk.lanes()));
  launch(factors_of_channels, for_lanes(walk.lanes()), args.mean.data<double>(),
         args.factor.data<double>(), args.shift.data<double>(),
         static_cast<int>(args.factor.numel()), walk.lanes(), factors);
  apply<T>(walk, args.x, factors, args.residual, {args.relu, args.most}, {.y = pieces_to(args.y)});
}

void apply_cuda(const BatchNormHalfApplyArgs& args) {
  with_stored_type(args.x.dtype(), [&](auto zero) { apply_typed<decltype(zero)>(args); });
}

template <class T, Mask kMask>
void gradient_typed(const BatchNormHalfGradientArgs& args) {
  const WalkOf<T> walk(args.x.shape());
  const std::size_t parts = walk.part_floats(2);
  const auto lanes = static_cast<std::size_t>(walk.lanes());
  const int blocks = walk.grid_width() * walk.splits;
  auto* const part =
      cuda_scratch_of<float>(parts + 3 * lanes + static_cast<std::size_t>(blocks) + 1);
  float* const dx_coefficients = part + parts;
  auto* const maxima = reinterpret_cast<unsigned*>(dx_coefficients + 3 * lanes);
  Largest largest;
  if (args.dx_half.defined()) {
    largest = {.gradients = maxima, .blocks = blocks, .bound = maxima + blocks};
  }
  const GradientInput<T> in{.dy = pieces(args.dy),
                            .x = pieces(args.x),
                            .y = pieces(args.y),
                            .factors = args.factors.data<float>(),
                            .activation = {args.relu, args.most}};
  launch(gradient_sums<T, kMask>, walk.shape(), in, walk, part, largest);
  launch(finish_gradient<T>, walk.finish_shape(), walk, part,
         Finish{.weight = args.weight.data<float>(),
                .mean = args.mean.data<double>(),
                .inverse = args.inverse_deviation.data<double>(),
                .dw = floats(args.dw),
                .db = floats(args.db),
                .dw_accumulate = args.dw_accumulate,
                .db_accumulate = args.db_accumulate,
                .factors = dx_coefficients,
                .channels = static_cast<int>(args.weight.numel()),
                .largest = largest});
  const bool writes_dx = args.dx.defined() || args.dx_half.defined();
  if (!writes_dx && !args.residual_gradient.defined()) return;
  launch(write_gradient<T, kMask>, walk.shape(), in, walk, dx_coefficients,
         pieces_to(args.residual_gradient), args.residual_accumulate,
         GradientResults{.dx = pieces_to(args.dx),
                         .fp16 = fp16_in(args.dx_half),
                         .bound = largest.bound,
                         .scale_to = head_of(args.dx_half)});
}

void gradient_cuda(const BatchNormHalfGradientArgs& args) {
  with_stored_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if (!args.relu) return gradient_typed<T, Mask::kPlain>(args);
    if (args.y.defined()) return gradient_typed<T, Mask::kFromY>(args);
    gradient_typed<T, Mask::kFromX>(args);
  });
}

}  // namespace
CONVSCOPE_KERNEL(batch_norm_half_kernel, cuda, train_cuda)
CONVSCOPE_KERNEL(batch_norm_half_gradient_kernel, cuda, gradient_cuda)
CONVSCOPE_KERNEL(batch_norm_half_apply_kernel, cuda, apply_cuda)
}  // namespace convscope
