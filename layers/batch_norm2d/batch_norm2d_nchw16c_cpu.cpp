// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_nchw16c_cpu.cpp: batch norm on images stored as [N,C/16,H,W,16], 16 channels at a
// time. The elements of 16 channels seldom fit into a cache. So they are read from memory only
// twice: once for all sums, slice by slice, and once for the pass that writes. Read next
// batch_norm2d_cpu.cpp, which processes one channel at a time
#include <algorithm>
#include <cmath>

#include "framework/ops/reduce_simd.h"
#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/batch_norm2d/batch_norm2d_nchw16c.h"
#include "layers/batch_norm2d/batch_norm2d_nchw16c_simd.h"
#include "layers/dispatch/layout/block_slices.h"

namespace convscope {

constinit IsaTable<Nchw16cBatchNormKernels> nchw16c_batch_norm_kernels;

namespace {

constexpr int kLanes = BlockSlices::kLanes;

struct PerChannel {
  float at[kLanes] = {};  // 0 after the last channel
};

// (x - mean) factor + shift for the channels of a block.
struct BlockNorm {
  PerChannel mean, factor, shift;
  void set(int lane, const ChannelNorm<float>& norm) {
    mean.at[lane] = norm.mean;
    factor.at[lane] = norm.factor;
    shift.at[lane] = norm.shift;
  }
};

// Calls body(lane, channel) for the channels of a block.
template <class Body>
void for_channels(std::int64_t block, std::int64_t channels, const Body& body) {
  const std::int64_t first = block * kLanes;
  for (int lane = 0; lane < kLanes && first + lane < channels; ++lane) body(lane, first + lane);
}

double count_of(const BlockSlices& slices) {
  return static_cast<double>(std::max<std::int64_t>(1, slices.rows()));
}

// The sums of one slice, for each channel: the sum of x - shift, and the sum of squares around the
// mean of the slice.
struct SliceSums {
  double above[kLanes], squares[kLanes];
};

// Makes two passes over the slice; the second one finds it in the cache. The squares are taken
// around the mean rounded to float, and corrected in double.
void sum_slice(const BlockSlices& slices, std::int64_t block, std::int64_t slice, const float* x,
               const PerChannel& shift, SliceSums& out) {
  const auto count = static_cast<double>(slices.rows(slice));
  out = {};
  slices.for_runs(block, slice, [&](std::int64_t at, std::int64_t pixels) {
    reduce_kernels.get().sums_of_16(x + at, pixels, shift.at, out.above);
  });
  PerChannel around;
  double mean[kLanes];
  for (int c = 0; c < kLanes; ++c) {
    mean[c] = static_cast<double>(shift.at[c]) + out.above[c] / count;
    around.at[c] = static_cast<float>(mean[c]);
  }
  slices.for_runs(block, slice, [&](std::int64_t at, std::int64_t pixels) {
    nchw16c_batch_norm_kernels.get().square_sums(pixels, x + at, around.at, out.squares);
  });
  for (int c = 0; c < kLanes; ++c) {  // as in batch_norm2d_cpu.cpp
    if (std::isfinite(out.squares[c])) continue;
    out.squares[c] = 0;
    slices.for_runs(block, slice, [&](std::int64_t at, std::int64_t pixels) {
      for (std::int64_t i = 0; i < pixels; ++i) {
        const double d =
            static_cast<double>(x[at + i * kLanes + c]) - static_cast<double>(around.at[c]);
        out.squares[c] += d * d;
      }
    });
  }
  for (int c = 0; c < kLanes; ++c) {
    const double off = static_cast<double>(around.at[c]) - mean[c];
    out.squares[c] -= count * off * off;
  }
}

// The sum of squares around the overall mean is the sum over slices of the squares around the mean
// of the slice, plus the squared distances of these means (T. Chan, G. Golub, R. LeVeque, The
// American Statistician 37, 1983).
void statistics(const BlockSlices& slices, std::int64_t block, const float* x, double* mean,
                double* variance) {
  std::fill_n(mean, kLanes, 0.0);
  std::fill_n(variance, kLanes, 0.0);
  if (slices.rows() == 0) return;
  PerChannel shift;  // near the numbers: the first of each channel
  std::copy_n(x + slices.first(block), kLanes, shift.at);
  SliceSums parts[BlockSlices::kMax];
  slices.for_slices(
      [&](std::int64_t slice) { sum_slice(slices, block, slice, x, shift, parts[slice]); });
  const double count = count_of(slices);
  for (int c = 0; c < kLanes; ++c) {
    double above = 0, squares = 0;
    for (std::int64_t slice = 0; slice < slices.slices(); ++slice) above += parts[slice].above[c];
    above /= count;
    for (std::int64_t slice = 0; slice < slices.slices(); ++slice) {
      const auto rows = static_cast<double>(slices.rows(slice));
      const double apart = parts[slice].above[c] / rows - above;
      squares += parts[slice].squares[c] + rows * apart * apart;
    }
    mean[c] = static_cast<double>(shift.at[c]) + above;
    variance[c] = squares < 0 ? 0 : squares / count;  // NaN passes
  }
}

// Adds or copies `pixels` numbers of a channel.
void add_or_copy(bool add, std::int64_t pixels, const float* from, float* to) {
  if (from == to) return;
  for (std::int64_t i = 0; i < pixels * kLanes; ++i) to[i] = add ? to[i] + from[i] : from[i];
}

}  // namespace

void nchw16c_batch_norm_apply(const Tensor& x, const Tensor& mean, const Tensor& factor,
                              const Tensor& shift, const Tensor& y) {
  constexpr std::int64_t kPixels = 1024;  // 64 KiB in a chunk
  const float* const from = x.data<float>();
  float* const to = y.data<float>();
  const std::int64_t blocks = x.dim(1), plane = std::max<std::int64_t>(1, x.dim(2) * x.dim(3));
  const std::int64_t pieces = ceil_div(plane, kPixels);
  const auto apply = nchw16c_batch_norm_kernels.get().apply;
  parallel_for(x.dim(0) * blocks * pieces, std::max<std::int64_t>(1, kPixels / plane),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t piece = begin; piece < end; ++piece) {
                   const std::int64_t chunk = piece / pieces, pixel = piece % pieces * kPixels;
                   BlockNorm norm;
                   for_channels(chunk % blocks, factor.numel(), [&](int lane, std::int64_t c) {
                     norm.set(lane, {mean.data<double>()[c], factor.data<double>()[c],
                                     shift.data<double>()[c]});
                   });
                   const std::int64_t at = (chunk * plane + pixel) * kLanes;
                   apply(std::min(kPixels, plane - pixel), from + at, norm.mean.at, norm.factor.at,
                         norm.shift.at, nullptr, false, 0, to + at);
                 }
               });
}

void nchw16c_batch_norm_train(const BatchNormTrainArgs& args) {
  const float* const x = args.x.data<float>();
  const float* const residual = args.residual.defined() ? args.residual.data<float>() : nullptr;
  float* const y = args.y.data<float>();
  const BlockSlices slices(args.x.shape());
  const auto apply = nchw16c_batch_norm_kernels.get().apply;
  slices.for_blocks([&](std::int64_t block) {
    double mean[kLanes], variance[kLanes];
    statistics(slices, block, x, mean, variance);
    BlockNorm norm;
    for_channels(block, args.weight.numel(), [&](int lane, std::int64_t c) {
      const double inverse = 1 / std::sqrt(variance[lane] + args.eps);
      const double factor = inverse * static_cast<double>(args.weight.data<float>()[c]);
      const double bias = static_cast<double>(args.bias.data<float>()[c]);
      args.mean.data<double>()[c] = mean[lane];
      args.variance.data<double>()[c] = variance[lane];
      args.inverse_deviation.data<double>()[c] = inverse;
      norm.set(lane, {mean[lane], factor, bias});
    });
    slices.for_runs(block, [&](std::int64_t at, std::int64_t pixels) {
      apply(pixels, x + at, norm.mean.at, norm.factor.at, norm.shift.at,
            residual == nullptr ? nullptr : residual + at, args.relu, args.most, y + at);
    });
  });
}

void nchw16c_batch_norm_train_gradient(const BatchNormTrainGradientArgs& args) {
  constexpr std::int64_t kPixels = 64;  // 4 KiB: masked numbers are still in L1
  float* const dy = args.dy.data<float>();
  const float* const x = args.x.data<float>();
  const float* const y = args.y.defined() ? args.y.data<float>() : nullptr;
  float* const beside =
      args.residual_gradient.defined() ? args.residual_gradient.data<float>() : nullptr;
  float* const dx = args.dx.defined() ? args.dx.data<float>() : nullptr;
  const BlockSlices slices(args.x.shape());
  const double count = count_of(slices);
  const Nchw16cBatchNormKernels& kernels = nchw16c_batch_norm_kernels.get();
  slices.for_blocks([&](std::int64_t block) {
    PerChannel around;
    for_channels(block, args.weight.numel(), [&](int lane, std::int64_t c) {
      around.at[lane] = static_cast<float>(args.mean.data<double>()[c]);
    });
    double total[2 * kLanes];  // of g, and of g (x - around)
    slices.sum<2>(block, total, [&](std::int64_t run, std::int64_t length, double* sums) {
      for (std::int64_t first = 0; first < length; first += kPixels) {
        const std::int64_t at = run + first * kLanes, pixels = std::min(kPixels, length - first);
        if (y != nullptr) kernels.mask(pixels, dy + at, y + at, args.most, dy + at);
        if (beside != nullptr) {
          add_or_copy(args.residual_accumulate, pixels, dy + at, beside + at);
        }
        kernels.gradient_sums(pixels, dy + at, x + at, around.at, sums);
      }
    });
    PerChannel a, b, d;
    for_channels(block, args.weight.numel(), [&](int lane, std::int64_t c) {
      const double off = static_cast<double>(around.at[lane]) - args.mean.data<double>()[c];
      const double sum = total[lane], sum_x = total[kLanes + lane] + off * sum;
      const double i = args.inverse_deviation.data<double>()[c];
      const double factor = static_cast<double>(args.weight.data<float>()[c]) * i;
      args.sum_dy.data<double>()[c] = sum;
      args.sum_dy_x.data<double>()[c] = sum_x;
      a.at[lane] = static_cast<float>(factor);
      b.at[lane] = static_cast<float>(-factor * i * i * sum_x / count);
      d.at[lane] = static_cast<float>(-factor * sum / count);
    });
    if (dx == nullptr) return;
    slices.for_runs(block, [&](std::int64_t at, std::int64_t pixels) {
      kernels.gradient(pixels, dy + at, x + at, around.at, a.at, b.at, d.at, dx + at);
    });
  });
}

}  // namespace convscope
