// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_cuda.cu: batch norm in two launches for each direction.
//
// Method    The N planes of a channel are cut into splits, and each block processes one split. The
//           first launch stores two sums of each split in scratch memory. In the second launch
//           every block adds the sums of all splits of its channel in the same order. So each block
//           knows the statistics without another launch, and writes its split. Tensors smaller than
//           L2 are read from memory once.
// Numerics  The channel's first element (forward) or the mean (backward) is subtracted from each
//           element, and the differences are added in double. So the error of the variance is at
//           most 2^-53 (mean - first)^2. Two runs give the same bits, because the division of a
//           channel into splits depends only on the sizes.
// Choices   there are about 1056 blocks, 8 for each SM of an H100 or H200. A split has at least
//           4096 elements, which are 16 for each thread.
// Read next batch_norm2d_cpu.cpp: one channel after the other; batch_norm2d.h: the formulas
#include <algorithm>
#include <cmath>

#include "framework/cuda/map.cuh"
#include "framework/cuda/scratch.cuh"
#include "layers/batch_norm2d/batch_norm2d.h"
#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/batch_norm2d/batch_norm2d_fused.h"

namespace convscope {
namespace {

struct ChannelSplits {
  std::int64_t channels, plane, count;  // count: elements of a channel
  std::int64_t split_size;
  int splits;

  explicit ChannelSplits(const Shape& x)
      : channels(x[1]), plane(x[2] * x[3]), count(x[0] * x[2] * x[3]) {
    const std::int64_t wanted = std::max<std::int64_t>(
        1, std::min({ceil_div(1056, channels), ceil_div(count, 4096), std::int64_t{256}}));
    split_size = std::max<std::int64_t>(ceil_div(ceil_div(count, wanted), 4) * 4, 4);
    splits = static_cast<int>(std::max<std::int64_t>(1, ceil_div(count, split_size)));
  }
  LaunchShape shape() const {
    return {.grid = dim3(static_cast<unsigned>(channels), static_cast<unsigned>(splits)),
            .block = dim3(kThreads)};
  }
  // Returns the offset of element e of channel c.
  __device__ std::int64_t offset(std::int64_t c, std::int64_t e) const {
    const bool small = count < (std::int64_t{1} << 32);
    const std::int64_t n =
        small ? static_cast<std::uint32_t>(e) / static_cast<std::uint32_t>(plane) : e / plane;
    return (n * channels + c) * plane + (e - n * plane);
  }
  // Calls use(offset, load(offset)) for every kWidth elements of this block's split. Several
  // elements are loaded before the first one is used, because the compiler must assume that a store
  // changes later loads.
  template <int kWidth, class Load, class Use>
  __device__ void run(const Load& load, const Use& use) const {
    constexpr int kBatch = 4;
    constexpr std::int64_t kStep = kThreads * kWidth;
    const std::int64_t c = blockIdx.x;
    const std::int64_t begin = blockIdx.y * split_size;
    const std::int64_t end = begin + split_size < count ? begin + split_size : count;
    for (std::int64_t first = begin + threadIdx.x * kWidth; first < end; first += kStep * kBatch) {
      decltype(load(std::int64_t{0})) values[kBatch];
      std::int64_t offsets[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        const std::int64_t e = first + u * kStep;
        if (e >= end) break;
        offsets[u] = offset(c, e);
        values[u] = load(offsets[u]);
      }
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        if (first + u * kStep >= end) break;
        use(offsets[u], values[u]);
      }
    }
  }
};

template <int kWidth, class T>
__device__ Pack<T, kWidth> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(p);
}
template <int kWidth, class T>
__device__ void store_pack(T* p, const Pack<T, kWidth>& pack) {
  *reinterpret_cast<Pack<T, kWidth>*>(p) = pack;
}

struct TwoSums {
  double a, b;
};
// Returns the sums over the block's threads, in every thread.
__device__ TwoSums add_threads(double a, double b) {
  __shared__ double scratch[32];
  const double all_a = block_sum(a, scratch);
  return {all_a, block_sum(b, scratch)};
}
// Returns the sums over the splits of this block's channel: part[channel][split].
__device__ TwoSums add_splits(const TwoSums* part, int splits) {
  double a = 0;
  double b = 0;
  const TwoSums* const own = part + static_cast<std::int64_t>(blockIdx.x) * splits;
  for (int s = static_cast<int>(threadIdx.x); s < splits; s += kThreads) {
    a += own[s].a;
    b += own[s].b;
  }
  return add_threads(a, b);
}
__device__ void put_split(TwoSums* part, int splits, double a, double b) {
  const TwoSums total = add_threads(a, b);
  if (threadIdx.x == 0) part[static_cast<std::int64_t>(blockIdx.x) * splits + blockIdx.y] = total;
}

struct Moments {
  double mean, variance;
};
// Computes the moments from the sums of x - first and of its square.
__device__ Moments moments_of(const TwoSums& sums, double first, double count) {
  const double off = sums.a / count;
  const double variance = sums.b / count - off * off;
  return {first + off, variance > 0 ? variance : 0.0};
}

// ---- forward ----

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    moment_sums(const T* x, ChannelSplits at, TwoSums* part) {
  const auto first = static_cast<double>(x[blockIdx.x * at.plane]);
  double sum = 0;
  double squares = 0;
  const auto load = [&](std::int64_t i) { return load_pack<kWidth>(x + i); };
  at.run<kWidth>(load, [&](std::int64_t, const Pack<T, kWidth>& p) {
#pragma unroll
    for (int l = 0; l < kWidth; ++l) {
      const double d = static_cast<double>(p.v[l]) - first;
      sum += d;
      squares += d * d;
    }
  });
  put_split(part, at.splits, sum, squares);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    finish_moments(const T* x, ChannelSplits at, const TwoSums* part, double* mean,
                   double* variance) {
  const TwoSums sums = add_splits(part, at.splits);
  if (threadIdx.x != 0) return;
  const auto first = static_cast<double>(x[blockIdx.x * at.plane]);
  const Moments m = moments_of(sums, first, static_cast<double>(at.count));
  mean[blockIdx.x] = m.mean;
  variance[blockIdx.x] = m.variance;
}

// Computes y = activation((x - mean) factor + shift + residual).
template <int kWidth, class T>
__device__ void write_normalised(const ChannelSplits& at, const T* x, const ChannelNorm<T>& norm,
                                 const T* residual, bool relu, T* y) {
  struct Loaded {
    Pack<T, kWidth> x, beside;
  };
  const auto load = [&](std::int64_t i) {
    Loaded out{load_pack<kWidth>(x + i), {}};
    if (residual != nullptr) out.beside = load_pack<kWidth>(residual + i);
    return out;
  };
  at.run<kWidth>(load, [&](std::int64_t i, const Loaded& in) {
    Pack<T, kWidth> out;
#pragma unroll
    for (int l = 0; l < kWidth; ++l) {
      T v = (in.x.v[l] - norm.mean) * norm.factor + norm.shift;
      if (residual != nullptr) v += in.beside.v[l];
      out.v[l] = relu && v <= T{0} ? T{0} : v;  // NaN passes
    }
    store_pack<kWidth>(y + i, out);
  });
}

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    apply_factors(const T* x, ChannelSplits at, const double* mean, const double* factor,
                  const double* shift, T* y) {
  const std::int64_t c = blockIdx.x;
  write_normalised<kWidth, T>(at, x, {mean[c], factor[c], shift[c]}, nullptr, false, y);
}

template <class T>
struct TrainOutput {
  const T* weight;
  const T* bias;
  const T* residual;
  T* y;
  double* mean;
  double* variance;
  double* inverse;
  double eps;
  bool relu;
};

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    apply_moments(const T* x, ChannelSplits at, const TwoSums* part, TrainOutput<T> out) {
  const std::int64_t c = blockIdx.x;
  const auto first = static_cast<double>(x[c * at.plane]);
  const Moments m = moments_of(add_splits(part, at.splits), first, static_cast<double>(at.count));
  const double inverse = 1 / ::sqrt(m.variance + out.eps);
  if (blockIdx.y == 0 && threadIdx.x == 0) {
    out.mean[c] = m.mean;
    out.variance[c] = m.variance;
    out.inverse[c] = inverse;
  }
  const ChannelNorm<T> norm(m.mean, inverse * static_cast<double>(out.weight[c]),
                            static_cast<double>(out.bias[c]));
  write_normalised<kWidth, T>(at, x, norm, out.residual, out.relu, out.y);
}

// ---- backward ----

// The arguments of gradient_sums(), which computes sums of g and of g (x - mean). If y is null, g
// is dy. Otherwise g is dy where y > 0 and 0 elsewhere; it overwrites dy and is stored in `beside`,
// the gradient of the residual. With beside_accumulate, g is added to `beside`.
template <class T>
struct GradientInput {
  T* dy;
  const T* x;
  const T* y;
  const double* mean;
  T* beside;
  bool beside_accumulate;
};

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    gradient_sums(GradientInput<T> in, ChannelSplits at, TwoSums* part) {
  const double mean = in.mean[blockIdx.x];
  double sum = 0;
  double sum_x = 0;
  struct Loaded {
    Pack<T, kWidth> dy, x, y, beside;
  };
  const bool adds = in.beside != nullptr && in.beside_accumulate;
  const auto load = [&](std::int64_t i) {
    Loaded out{load_pack<kWidth>(in.dy + i), load_pack<kWidth>(in.x + i), {}, {}};
    if (in.y != nullptr) out.y = load_pack<kWidth>(in.y + i);
    if (adds) out.beside = load_pack<kWidth>(in.beside + i);
    return out;
  };
  at.run<kWidth>(load, [&](std::int64_t i, const Loaded& from) {
    auto g = from.dy;
    if (in.y != nullptr) {
#pragma unroll
      for (int l = 0; l < kWidth; ++l) g.v[l] = from.y.v[l] <= T{0} ? T{0} : g.v[l];
      store_pack<kWidth>(in.dy + i, g);
    }
    if (in.beside != nullptr) {
      auto b = g;
#pragma unroll
      for (int l = 0; l < kWidth; ++l) {
        if (adds) b.v[l] = from.beside.v[l] + g.v[l];
      }
      store_pack<kWidth>(in.beside + i, b);
    }
#pragma unroll
    for (int l = 0; l < kWidth; ++l) {
      const auto value = static_cast<double>(g.v[l]);
      sum += value;
      sum_x += value * (static_cast<double>(from.x.v[l]) - mean);
    }
  });
  put_split(part, at.splits, sum, sum_x);
}

__global__ void __launch_bounds__(kThreads)
    finish_gradient_sums(ChannelSplits at, const TwoSums* part, double* sum_dy, double* sum_dy_x) {
  const TwoSums sums = add_splits(part, at.splits);
  if (threadIdx.x != 0) return;
  sum_dy[blockIdx.x] = sums.a;
  sum_dy_x[blockIdx.x] = sums.b;
}

// Computes dx = a dy + (b (x - mean) + d); dx may be dy.
template <int kWidth, class T>
__device__ void write_gradient(const ChannelSplits& at, const T* dy, const T* x, T mean, T a, T b,
                               T d, T* dx) {
  struct Loaded {
    Pack<T, kWidth> dy, x;
  };
  const auto load = [&](std::int64_t i) {
    return Loaded{load_pack<kWidth>(dy + i), load_pack<kWidth>(x + i)};
  };
  at.run<kWidth>(load, [&](std::int64_t i, const Loaded& in) {
    Pack<T, kWidth> out;
#pragma unroll
    for (int l = 0; l < kWidth; ++l) out.v[l] = a * in.dy.v[l] + (b * (in.x.v[l] - mean) + d);
    store_pack<kWidth>(dx + i, out);
  });
}

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    apply_gradient_factors(const T* dy, const T* x, ChannelSplits at, const double* mean,
                           const double* a, const double* b, const double* d, T* dx) {
  const std::int64_t c = blockIdx.x;
  write_gradient<kWidth, T>(at, dy, x, static_cast<T>(mean[c]), static_cast<T>(a[c]),
                            static_cast<T>(b[c]), static_cast<T>(d[c]), dx);
}

template <class T>
struct TrainGradientOutput {
  const T* weight;
  const double* mean;
  const double* inverse;
  double* sum_dy;
  double* sum_dy_x;
  T* dx;
};

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    apply_gradient_sums(const T* dy, const T* x, ChannelSplits at, const TwoSums* part,
                        TrainGradientOutput<T> out) {
  const std::int64_t c = blockIdx.x;
  const TwoSums sums = add_splits(part, at.splits);
  if (blockIdx.y == 0 && threadIdx.x == 0) {
    out.sum_dy[c] = sums.a;
    out.sum_dy_x[c] = sums.b;
  }
  const double i = out.inverse[c];
  const double f = static_cast<double>(out.weight[c]) * i;
  const auto count = static_cast<double>(at.count);
  write_gradient<kWidth, T>(at, dy, x, static_cast<T>(out.mean[c]), static_cast<T>(f),
                            static_cast<T>(-f * i * i * sums.b / count),
                            static_cast<T>(-f * sums.a / count), out.dx);
}

// ---- launches ----

template <class T>
const T* elements(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

// Tells whether all tensors of x's shape can be read 16 bytes at a time without crossing planes.
template <class T, class... Tensors>
bool packs(const ChannelSplits& at, const Tensors&... tensors) {
  return at.plane % kPackWidth<T> == 0 &&
         (... && (!tensors.defined() || is_aligned(tensors.raw_data(), 16)));
}

TwoSums* parts_of(const ChannelSplits& at) {
  return cuda_scratch_of<TwoSums>(static_cast<std::size_t>(at.channels * at.splits));
}

template <class T>
void queue_moment_sums(const Tensor& x, const ChannelSplits& at, TwoSums* part) {
  const bool packed = packs<T>(at, x);
  launch(packed ? moment_sums<kPackWidth<T>, T> : moment_sums<1, T>, at.shape(), x.data<T>(), at,
         part);
}

template <class T>
void statistics_typed(const Tensor& x, const Tensor& mean, const Tensor& variance) {
  const ChannelSplits at(x.shape());
  TwoSums* const part = parts_of(at);
  queue_moment_sums<T>(x, at, part);
  launch(finish_moments<T>,
         {.grid = dim3(static_cast<unsigned>(at.channels)), .block = dim3(kThreads)}, x.data<T>(),
         at, part, mean.data<double>(), variance.data<double>());
}

void statistics_cuda(const Tensor& x, const Tensor& mean, const Tensor& variance) {
  if (x.numel() == 0) {
    mean.zero();
    variance.zero();
    return;
  }
  if (x.dtype() == DType::f64) return statistics_typed<double>(x, mean, variance);
  statistics_typed<float>(x, mean, variance);
}

template <class T>
void apply_typed(const Tensor& x, const Tensor& mean, const Tensor& factor, const Tensor& shift,
                 const Tensor& y) {
  const ChannelSplits at(x.shape());
  const bool packed = packs<T>(at, x, y);
  launch(packed ? apply_factors<kPackWidth<T>, T> : apply_factors<1, T>, at.shape(), x.data<T>(),
         at, mean.data<double>(), factor.data<double>(), shift.data<double>(), y.data<T>());
}

void apply_cuda(const Tensor& x, const Tensor& mean, const Tensor& factor, const Tensor& shift,
                const Tensor& y) {
  if (x.numel() == 0) return;
  if (x.dtype() == DType::f64) return apply_typed<double>(x, mean, factor, shift, y);
  apply_typed<float>(x, mean, factor, shift, y);
}

template <class T>
void train_typed(const BatchNormTrainArgs& args) {
  const ChannelSplits at(args.x.shape());
  TwoSums* const part = parts_of(at);
  queue_moment_sums<T>(args.x, at, part);
  const TrainOutput<T> out{.weight = args.weight.data<T>(),
                           .bias = args.bias.data<T>(),
                           .residual = elements<T>(args.residual),
                           .y = args.y.data<T>(),
                           .mean = args.mean.data<double>(),
                           .variance = args.variance.data<double>(),
                           .inverse = args.inverse_deviation.data<double>(),
                           .eps = args.eps,
                           .relu = args.relu};
  const bool packed = packs<T>(at, args.x, args.residual, args.y);
  launch(packed ? apply_moments<kPackWidth<T>, T> : apply_moments<1, T>, at.shape(),
         args.x.data<T>(), at, part, out);
}

void train_cuda(const BatchNormTrainArgs& args) {
  if (args.x.numel() == 0) {
    args.mean.zero();
    args.variance.zero();
    args.inverse_deviation.fill(1 / std::sqrt(args.eps));
    return;
  }
  if (args.x.dtype() == DType::f64) return train_typed<double>(args);
  train_typed<float>(args);
}

template <class T>
void queue_gradient_sums(const GradientInput<T>& in, bool packed, const ChannelSplits& at,
                         TwoSums* part) {
  launch(packed ? gradient_sums<kPackWidth<T>, T> : gradient_sums<1, T>, at.shape(), in, at, part);
}
void queue_finish_sums(const ChannelSplits& at, const TwoSums* part, const Tensor& sum_dy,
                       const Tensor& sum_dy_x) {
  launch(finish_gradient_sums,
         {.grid = dim3(static_cast<unsigned>(at.channels)), .block = dim3(kThreads)}, at, part,
         sum_dy.data<double>(), sum_dy_x.data<double>());
}

template <class T>
void sums_typed(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& sum_dy,
                const Tensor& sum_dy_x) {
  const ChannelSplits at(x.shape());
  TwoSums* const part = parts_of(at);
  const GradientInput<T> in{.dy = dy.data<T>(),
                            .x = x.data<T>(),
                            .y = nullptr,
                            .mean = mean.data<double>(),
                            .beside = nullptr,
                            .beside_accumulate = false};
  queue_gradient_sums(in, packs<T>(at, dy, x), at, part);
  queue_finish_sums(at, part, sum_dy, sum_dy_x);
}

void sums_cuda(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& sum_dy,
               const Tensor& sum_dy_x) {
  if (x.numel() == 0) {
    sum_dy.zero();
    sum_dy_x.zero();
    return;
  }
  if (x.dtype() == DType::f64) return sums_typed<double>(dy, x, mean, sum_dy, sum_dy_x);
  sums_typed<float>(dy, x, mean, sum_dy, sum_dy_x);
}

template <class T>
void gradient_typed(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& a,
                    const Tensor& b, const Tensor& d, const Tensor& dx) {
  const ChannelSplits at(x.shape());
  const bool packed = packs<T>(at, dy, x, dx);
  launch(packed ? apply_gradient_factors<kPackWidth<T>, T> : apply_gradient_factors<1, T>,
         at.shape(), dy.data<T>(), x.data<T>(), at, mean.data<double>(), a.data<double>(),
         b.data<double>(), d.data<double>(), dx.data<T>());
}

void gradient_cuda(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& a,
                   const Tensor& b, const Tensor& d, const Tensor& dx) {
  if (x.numel() == 0) return;
  if (x.dtype() == DType::f64) return gradient_typed<double>(dy, x, mean, a, b, d, dx);
  gradient_typed<float>(dy, x, mean, a, b, d, dx);
}

template <class T>
void train_gradient_typed(const BatchNormTrainGradientArgs& args) {
  const ChannelSplits at(args.x.shape());
  TwoSums* const part = parts_of(at);
  const bool packed = packs<T>(at, args.dy, args.x, args.y, args.residual_gradient, args.dx);
  const GradientInput<T> in{.dy = args.dy.data<T>(),
                            .x = args.x.data<T>(),
                            .y = elements<T>(args.y),
                            .mean = args.mean.data<double>(),
                            .beside = const_cast<T*>(elements<T>(args.residual_gradient)),
                            .beside_accumulate = args.residual_accumulate};
  queue_gradient_sums(in, packed, at, part);
  if (!args.dx.defined()) return queue_finish_sums(at, part, args.sum_dy, args.sum_dy_x);
  const TrainGradientOutput<T> out{.weight = args.weight.data<T>(),
                                   .mean = args.mean.data<double>(),
                                   .inverse = args.inverse_deviation.data<double>(),
                                   .sum_dy = args.sum_dy.data<double>(),
                                   .sum_dy_x = args.sum_dy_x.data<double>(),
                                   .dx = args.dx.data<T>()};
  launch(packed ? apply_gradient_sums<kPackWidth<T>, T> : apply_gradient_sums<1, T>, at.shape(),
         args.dy.data<T>(), args.x.data<T>(), at, part, out);
}

void train_gradient_cuda(const BatchNormTrainGradientArgs& args) {
  if (args.x.numel() == 0) {
    args.sum_dy.zero();
    args.sum_dy_x.zero();
    return;
  }
  if (args.x.dtype() == DType::f64) return train_gradient_typed<double>(args);
  train_gradient_typed<float>(args);
}

}  // namespace
CONVSCOPE_KERNEL(batch_norm_statistics_kernel, cuda, statistics_cuda)
CONVSCOPE_KERNEL(batch_norm_apply_kernel, cuda, apply_cuda)
CONVSCOPE_KERNEL(batch_norm_sums_kernel, cuda, sums_cuda)
CONVSCOPE_KERNEL(batch_norm_gradient_kernel, cuda, gradient_cuda)
CONVSCOPE_KERNEL(batch_norm_train_kernel, cuda, train_cuda)
CONVSCOPE_KERNEL(batch_norm_train_gradient_kernel, cuda, train_gradient_cuda)
}  // namespace convscope
