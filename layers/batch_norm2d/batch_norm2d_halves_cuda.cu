// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_halves_cuda.cu: batch norm on halves with their channels last, in two passes over
// the images for each direction.
//
// Plan      forward   1 sums of x - first and of its square for each channel, `first` being its
//                       first number, so that an offset costs no digits (channel_sums.cuh)
//                     2 a small launch adds the parts: statistics, factors, and the running ones
//                     3 x factor + shift + residual, the curve, one rounding
//           backward  1 sums of g and g (x - mean)
//                     2 a small launch: the factors of dx, gradients of weight and bias
//                     3 dx and the gradient of the residual
//           Without a residual the curve's place is seen from x: the numbers of pass 3 of the
//           forward are made again, rounding included, and y need not be read.
// Numerics  see batch_norm2d_halves.h
// Read next framework/cuda/channel_sums.cuh; batch_norm2d_cuda.cu, the same for f32
#include "framework/cuda/channel_sums.cuh"
#include "layers/batch_norm2d/batch_norm2d_halves.h"

namespace convscope {
namespace {

struct Curve {
  bool relu;
  float most;
  __device__ float operator()(float v) const {
    if (!relu) return v;
    const float positive = v <= 0 ? 0.0f : v;  // NaN passes
    return positive >= most ? most : positive;
  }
  // Whether a gradient passes where the stored result is y.
  __device__ bool passes(float y) const { return !(y <= 0 || y >= most); }
};

// Eight channels' numbers of an array [lanes].
__device__ inline void load_lanes(const float* from, int piece, float (&v)[kPieceLanes]) {
#pragma unroll
  for (int l = 0; l < kPieceLanes; ++l) v[l] = from[piece * kPieceLanes + l];
}

// ---- forward -----------------------------------------------------------------------------------

template <class Half>
__global__ void __launch_bounds__(kThreads)
    moment_sums(const uint4* x, ChannelWalk walk, float* part) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  float first[kPieceLanes] = {};
  if (!walk.is_idle()) floats_of_piece<Half>(x[walk.piece()], first);
  float sums[2][kPieceLanes] = {};
  walk.run([&](std::int64_t at) { return x[at]; },
           [&](std::int64_t, const uint4& in) {
             float v[kPieceLanes];
             floats_of_piece<Half>(in, v);
#pragma unroll
             for (int l = 0; l < kPieceLanes; ++l) {
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
};

template <class Half>
__global__ void __launch_bounds__(kThreads)
    finish_moments(const Half* x, ChannelWalk walk, const float* part, Statistics z) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  double sums[2];
  walk.add_parts(part, sums);
  const int c = walk.channel();
  if (!walk.is_finisher() || c >= walk.lanes()) return;
  float factor = 0, shift = 0, middle = 0;
  if (c < z.channels) {
    const auto count = static_cast<double>(walk.pixels);
    const double off = sums[0] / count;
    const double mean = static_cast<double>(to_float(x[c])) + off;
    const double spread = sums[1] / count - off * off;
    const double variance = spread <= 0 ? 0.0 : spread;  // NaN passes
    const double inverse = 1 / ::sqrt(variance + z.eps);
    z.mean[c] = mean;
    z.inverse[c] = inverse;
    const double keep = 1 - z.momentum;
    z.running_mean[c] =
        static_cast<float>(keep * static_cast<double>(z.running_mean[c]) + z.momentum * mean);
    z.running_variance[c] = static_cast<float>(keep * static_cast<double>(z.running_variance[c]) +
                                               z.momentum * (variance * count / (count - 1)));
    const double f = inverse * static_cast<double>(z.weight[c]);
    factor = static_cast<float>(f);
    shift = static_cast<float>(static_cast<double>(z.bias[c]) - mean * f);
    middle = static_cast<float>(mean);
  }
  z.factors[c] = factor;
  z.factors[walk.lanes() + c] = shift;
  z.factors[2 * walk.lanes() + c] = middle;
}

// A lane behind the last channel has factor and shift 0.
template <class Half, bool kResidual>
__global__ void __launch_bounds__(kThreads)
    write_normalised(const uint4* x, ChannelWalk walk, const float* factors, const uint4* residual,
                     Curve curve, uint4* y) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (walk.is_idle()) return;
  float factor[kPieceLanes], shift[kPieceLanes];
  load_lanes(factors, walk.piece(), factor);
  load_lanes(factors + walk.lanes(), walk.piece(), shift);
  struct Loaded {
    uint4 x, beside;
  };
  walk.run(
      [&](std::int64_t at) {
        return Loaded{x[at], kResidual ? residual[at] : make_uint4(0, 0, 0, 0)};
      },
      [&](std::int64_t at, const Loaded& in) {
        float v[kPieceLanes], beside[kPieceLanes];
        floats_of_piece<Half>(in.x, v);
        if constexpr (kResidual) floats_of_piece<Half>(in.beside, beside);
#pragma unroll
        for (int l = 0; l < kPieceLanes; ++l) {
          float sum = ::fmaf(v[l], factor[l], shift[l]);
          if constexpr (kResidual) sum += beside[l];
          v[l] = curve(sum);
        }
        y[at] = piece_of_floats<Half>(v);
      });
}

__global__ void factors_of_channels(const double* factor, const double* shift, int channels,
                                    int lanes, float* factors) {
  const int c = static_cast<int>(global_thread());
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (c >= lanes) return;
  factors[c] = c < channels ? static_cast<float>(factor[c]) : 0.0f;
  factors[lanes + c] = c < channels ? static_cast<float>(shift[c]) : 0.0f;
}

// ---- backward ----------------------------------------------------------------------------------

// What g is made of. kPlain: no curve; kFromX: y is made again from x; kFromY: y is read.
enum class Mask { kPlain, kFromX, kFromY };

template <class Half>
struct GradientInput {
  const uint4* dy;
  const uint4* x;
  const uint4* y;
  const float* factors;  // [3][lanes]: factor, shift, mean
  Curve curve;
};

template <class Half, Mask kMask>
struct GradientPiece {
  float factor[kPieceLanes], shift[kPieceLanes], mean[kPieceLanes];

  __device__ GradientPiece(const GradientInput<Half>& z, const ChannelWalk& walk) {
    load_lanes(z.factors + 2 * walk.lanes(), walk.piece(), mean);
    if constexpr (kMask != Mask::kFromX) return;
    load_lanes(z.factors, walk.piece(), factor);
    load_lanes(z.factors + walk.lanes(), walk.piece(), shift);
  }
  struct Loaded {
    uint4 dy, x, y;
  };
  __device__ static Loaded load(const GradientInput<Half>& z, std::int64_t at) {
    return {z.dy[at], z.x[at], kMask == Mask::kFromY ? z.y[at] : make_uint4(0, 0, 0, 0)};
  }
  // g, and x - mean.
  __device__ void operator()(const GradientInput<Half>& z, const Loaded& in,
                             float (&g)[kPieceLanes], float (&x)[kPieceLanes]) const {
    floats_of_piece<Half>(in.dy, g);
    floats_of_piece<Half>(in.x, x);
    float y[kPieceLanes];
    if constexpr (kMask == Mask::kFromY) floats_of_piece<Half>(in.y, y);
#pragma unroll
    for (int l = 0; l < kPieceLanes; ++l) {
      if constexpr (kMask == Mask::kFromX) {
        y[l] = to_float(from_float<Half>(z.curve(::fmaf(x[l], factor[l], shift[l]))));
      }
      if constexpr (kMask != Mask::kPlain) g[l] = z.curve.passes(y[l]) ? g[l] : 0.0f;
      x[l] -= mean[l];
    }
  }
};

template <class Half, Mask kMask>
__global__ void __launch_bounds__(kThreads)
    gradient_sums(GradientInput<Half> z, ChannelWalk walk, float* part) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  float sums[2][kPieceLanes] = {};
  if (!walk.is_idle()) {
    const GradientPiece<Half, kMask> piece(z, walk);
    walk.run([&](std::int64_t at) { return piece.load(z, at); },
             [&](std::int64_t, const auto& in) {
               float g[kPieceLanes], x[kPieceLanes];
               piece(z, in, g, x);
#pragma unroll
               for (int l = 0; l < kPieceLanes; ++l) {
                 sums[0][l] += g[l];
                 sums[1][l] += g[l] * x[l];
               }
             });
  }
  walk.put_part(sums, part);
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
};

__global__ void __launch_bounds__(kThreads)
    finish_gradient(ChannelWalk walk, const float* part, Finish z) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  double sums[2];
  walk.add_parts(part, sums);
  const int c = walk.channel();
  if (!walk.is_finisher() || c >= walk.lanes()) return;
  float a = 0, b = 0, d = 0;
  if (c < z.channels) {
    const double i = z.inverse[c];
    // The sums took the mean as f32 gives it.
    const double off = static_cast<double>(static_cast<float>(z.mean[c])) - z.mean[c];
    const double sum_dy_x = sums[1] + off * sums[0];
    const double f = static_cast<double>(z.weight[c]) * i;
    const auto count = static_cast<double>(walk.pixels);
    a = static_cast<float>(f);
    b = static_cast<float>(-f * i * i * sum_dy_x / count);
    d = static_cast<float>(-f * sums[0] / count);
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

// beside: the gradient of the residual; it and dx may be null.
template <class Half, Mask kMask>
__global__ void __launch_bounds__(kThreads, 2)
    write_gradient(GradientInput<Half> z, ChannelWalk walk, const float* of_dx, uint4* beside,
                   bool accumulate, uint4* dx) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (walk.is_idle()) return;
  const GradientPiece<Half, kMask> piece(z, walk);
  float a[kPieceLanes], b[kPieceLanes], d[kPieceLanes];
  load_lanes(of_dx, walk.piece(), a);
  load_lanes(of_dx + walk.lanes(), walk.piece(), b);
  load_lanes(of_dx + 2 * walk.lanes(), walk.piece(), d);
  using Piece = GradientPiece<Half, kMask>;
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
        float g[kPieceLanes], x[kPieceLanes];
        piece(z, from.in, g, x);
        if (beside != nullptr) {
          float sum[kPieceLanes];
          floats_of_piece<Half>(from.before, sum);
#pragma unroll
          for (int l = 0; l < kPieceLanes; ++l) sum[l] = adds ? sum[l] + g[l] : g[l];
          beside[at] = piece_of_floats<Half>(sum);
        }
        if (dx == nullptr) return;
#pragma unroll
        for (int l = 0; l < kPieceLanes; ++l) g[l] = a[l] * g[l] + (b[l] * x[l] + d[l]);
        dx[at] = piece_of_floats<Half>(g);
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

LaunchShape for_lanes(const ChannelWalk& walk) {
  LaunchShape shape = grid_for(walk.lanes());
  shape.overlaps_previous = true;
  return shape;
}

template <class Half>
void apply(const ChannelWalk& walk, const Tensor& x, const float* factors, const Tensor& residual,
           const Curve& curve, const Tensor& y) {
  launch(residual.defined() ? write_normalised<Half, true> : write_normalised<Half, false>,
         walk.shape(), pieces(x), walk, factors, pieces(residual), curve, pieces_to(y));
}

void train_cuda(const BatchNormHalvesArgs& args) {
  const ChannelWalk walk(args.x.shape());
  const std::size_t parts = walk.part_floats(2);
  auto* const part = cuda_scratch_of<float>(parts);
  auto* const factors = args.factors.data<float>();
  with_half_type(args.x.dtype(), [&](auto zero) {
    using Half = decltype(zero);
    launch(moment_sums<Half>, walk.shape(), pieces(args.x), walk, part);
    const Statistics statistics{.weight = args.weight.data<float>(),
                                .bias = args.bias.data<float>(),
                                .mean = args.mean.data<double>(),
                                .inverse = args.inverse_deviation.data<double>(),
                                .running_mean = args.running_mean.data<float>(),
                                .running_variance = args.running_variance.data<float>(),
                                .factors = factors,
                                .eps = args.eps,
                                .momentum = args.momentum,
                                .channels = static_cast<int>(args.weight.numel())};
    launch(finish_moments<Half>, walk.finish_shape(), args.x.data<Half>(), walk, part, statistics);
    apply<Half>(walk, args.x, factors, args.residual, {args.relu, args.most}, args.y);
  });
}

void apply_cuda(const BatchNormHalvesApplyArgs& args) {
  const ChannelWalk walk(args.x.shape());
  auto* const factors = cuda_scratch_of<float>(2 * static_cast<std::size_t>(walk.lanes()));
  launch(factors_of_channels, for_lanes(walk), args.factor.data<double>(),
         args.shift.data<double>(), static_cast<int>(args.factor.numel()), walk.lanes(), factors);
  with_half_type(args.x.dtype(), [&](auto zero) {
    apply<decltype(zero)>(walk, args.x, factors, args.residual, {args.relu, args.most}, args.y);
  });
}

template <class Half, Mask kMask>
void gradient_typed(const BatchNormHalvesGradientArgs& args) {
  const ChannelWalk walk(args.x.shape());
  const std::size_t parts = walk.part_floats(2);
  const auto lanes = static_cast<std::size_t>(walk.lanes());
  auto* const part = cuda_scratch_of<float>(parts + 3 * lanes);
  float* const of_dx = part + parts;
  const GradientInput<Half> in{.dy = pieces(args.dy),
                               .x = pieces(args.x),
                               .y = pieces(args.y),
                               .factors = args.factors.data<float>(),
                               .curve = {args.relu, args.most}};
  launch(gradient_sums<Half, kMask>, walk.shape(), in, walk, part);
  launch(finish_gradient, walk.finish_shape(), walk, part,
         Finish{.weight = args.weight.data<float>(),
                .mean = args.mean.data<double>(),
                .inverse = args.inverse_deviation.data<double>(),
                .dw = floats(args.dw),
                .db = floats(args.db),
                .dw_accumulate = args.dw_accumulate,
                .db_accumulate = args.db_accumulate,
                .factors = of_dx,
                .channels = static_cast<int>(args.weight.numel())});
  if (!args.dx.defined() && !args.residual_gradient.defined()) return;
  launch(write_gradient<Half, kMask>, walk.shape(), in, walk, of_dx,
         pieces_to(args.residual_gradient), args.residual_accumulate, pieces_to(args.dx));
}

void gradient_cuda(const BatchNormHalvesGradientArgs& args) {
  with_half_type(args.x.dtype(), [&](auto zero) {
    using Half = decltype(zero);
    if (!args.relu) return gradient_typed<Half, Mask::kPlain>(args);
    if (args.y.defined()) return gradient_typed<Half, Mask::kFromY>(args);
    gradient_typed<Half, Mask::kFromX>(args);
  });
}

}  // namespace
CONVSCOPE_KERNEL(batch_norm_halves_kernel, cuda, train_cuda)
CONVSCOPE_KERNEL(batch_norm_halves_gradient_kernel, cuda, gradient_cuda)
CONVSCOPE_KERNEL(batch_norm_halves_apply_kernel, cuda, apply_cuda)
}  // namespace convscope
