// SPDX-License-Identifier: Apache-2.0
// reduce_cuda.cu: sums and maxima over axes.
//
// Method    A group consists of adjacent axes that are all kept or all summed; groups alternate. If
//           the innermost group is summed ("rows"), a block computes one output and its threads run
//           along the rows. If the innermost group is kept ("columns"), a warp has 32 adjacent
//           columns and the warps of a block share the rows. Where there would be too few blocks,
//           the summed elements of an output are cut into pieces. The sums of the pieces go to a
//           workspace, and a second kernel adds them in order.
// Numerics  Sums are computed in double, in an order that depends only on the sizes.
// Choices   kPiece = 8192 elements: 16 per thread (512 threads), four loads of 16 bytes. The sum
//           over a block takes as long as these loads, so smaller pieces would not pay. There are
//           at most about 1024 pieces in total.
#include <algorithm>

#include "framework/cuda/launch.cuh"
#include "framework/cuda/map.cuh"
#include "framework/cuda/reduce.cuh"
#include "framework/cuda/scratch.cuh"
#include "framework/host_device.h"
#include "framework/ops/reduce.h"

namespace convscope {
namespace {

constexpr std::int64_t kPiece = 1 << 13;

// Several groups of axes, treated as a single index.
struct Part {
  int count = 0;
  std::int64_t size[Shape::kMaxRank] = {};
  std::int64_t stride[Shape::kMaxRank] = {};
  std::int64_t total = 1;

  void add(std::int64_t n, std::int64_t step) {
    size[count] = n;
    stride[count++] = step;
    total *= n;
  }
  CONVSCOPE_HOST_DEVICE std::int64_t offset(std::int64_t index) const {
    std::int64_t out = 0;
    for (int i = count - 1; i > 0; --i) {
      const std::int64_t left = index / size[i];
      out += (index - left * size[i]) * stride[i];
      index = left;
    }
    return count > 0 ? out + index * stride[0] : 0;
  }
};

// The shape of x as [kept groups][summed groups][innermost group]. The innermost group is kept or
// summed.
struct Geometry {
  Part kept, summed;
  std::int64_t inner = 1;  // size of the innermost group; its stride is 1
  bool inner_summed = true;

  Geometry(const Shape& shape, unsigned mask) {
    std::int64_t size[Shape::kMaxRank] = {};
    std::int64_t stride[Shape::kMaxRank] = {};
    bool is_summed[Shape::kMaxRank] = {};
    int count = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape[axis] == 1) continue;
      const bool goes = (mask >> axis & 1u) != 0;
      if (count > 0 && is_summed[count - 1] == goes) {
        size[count - 1] *= shape[axis];
      } else {
        size[count] = shape[axis];
        is_summed[count++] = goes;
      }
      stride[count - 1] = shape.stride(axis);
    }
    if (count > 0) {
      inner = size[count - 1];
      inner_summed = is_summed[count - 1];
    }
    for (int i = 0; i + 1 < count; ++i) (is_summed[i] ? summed : kept).add(size[i], stride[i]);
  }
};

// Divides with 32 bits where possible, because a 32-bit division takes a third of the time.
__device__ std::int64_t divided(std::int64_t a, std::int64_t b) {
  if (a >= (std::int64_t{1} << 32) || b >= (std::int64_t{1} << 32)) return a / b;
  return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
}

template <class T>
__device__ void put(T* y, std::int64_t at, double sum, bool accumulate) {
  y[at] = static_cast<T>(accumulate ? static_cast<double>(y[at]) + sum : sum);
}

// Sums elements [begin, end) of output k with the whole block; thread 0 gets the result. kWidth
// neighbours of a row are first added in the element type T.
template <int kWidth, class T>
__device__ double sum_of_rows(const T* x, const Geometry& g, std::int64_t k, std::int64_t begin,
                              std::int64_t end, double* scratch) {
  using P = Pack<T, kWidth>;
  const T* const from = x + g.kept.offset(k);
  double total = 0;
  if (g.summed.total == 1) {
#pragma unroll 4
    for (std::int64_t i = begin + threadIdx.x * kWidth; i < end; i += blockDim.x * kWidth) {
      const P p = *reinterpret_cast<const P*>(from + i);
#pragma unroll
      for (int l = 0; l < kWidth; ++l) total += static_cast<double>(p.v[l]);
    }
  } else {
#pragma unroll 4
    for (std::int64_t i = begin + threadIdx.x * kWidth; i < end; i += blockDim.x * kWidth) {
      const std::int64_t row = divided(i, g.inner);
      const P p = *reinterpret_cast<const P*>(from + g.summed.offset(row) + (i - row * g.inner));
#pragma unroll
      for (int l = 0; l < kWidth; ++l) total += static_cast<double>(p.v[l]);
    }
  }
  return block_sum(total, scratch);
}

// The block with index (k, piece) sums one piece of output k. If the output has one piece, the
// block writes y. Otherwise, it writes the sum to part[k][piece].
template <int kWidth, class T>
__global__ void row_kernel(const T* x, Geometry g, std::int64_t piece_size, int pieces,
                           double* part, T* y, bool accumulate) {
  __shared__ double scratch[32];
  const std::int64_t k = blockIdx.x;
  const int piece = static_cast<int>(blockIdx.y);
  const std::int64_t all = g.summed.total * g.inner;
  const std::int64_t begin = piece * piece_size;
  const std::int64_t end = begin + piece_size < all ? begin + piece_size : all;
  const double total = sum_of_rows<kWidth>(x, g, k, begin, end, scratch);
  if (threadIdx.x != 0) return;
  if (pieces > 1) {
    part[k * pieces + piece] = total;
  } else {
    put(y, k, total, accumulate);
  }
}

// One warp computes one output. Used for many outputs with few elements each.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    short_row_kernel(const T* x, Geometry g, T* y, bool accumulate) {
  using P = Pack<T, kWidth>;
  const std::int64_t lane = threadIdx.x % 32;
  const std::int64_t k = global_thread() / 32;
  const bool here = k < g.kept.total;
  const std::int64_t all = here ? g.summed.total * g.inner : 0;
  const T* const from = here ? x + g.kept.offset(k) : x;
  double total = 0;
#pragma unroll 4
  for (std::int64_t i = lane * kWidth; i < all; i += 32 * kWidth) {
    const std::int64_t row = g.summed.total == 1 ? 0 : divided(i, g.inner);
    const P p = *reinterpret_cast<const P*>(from + g.summed.offset(row) + (i - row * g.inner));
#pragma unroll
    for (int l = 0; l < kWidth; ++l) total += static_cast<double>(p.v[l]);
  }
  total = warp_sum(total);
  if (here && lane == 0) put(y, k, total, accumulate);
}

// A thread sums kWidth adjacent columns over all rows. Used for many columns.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    wide_column_kernel(const T* x, Geometry g, std::int64_t packs, T* y, bool accumulate) {
  using P = Pack<T, kWidth>;
  const std::int64_t packs_of_row = g.inner / kWidth;
  for (std::int64_t pack = global_thread(); pack < packs; pack += global_threads()) {
    const std::int64_t k = divided(pack, packs_of_row);
    const T* const from = x + g.kept.offset(k) + (pack - k * packs_of_row) * kWidth;
    double total[kWidth] = {};
#pragma unroll 4
    for (std::int64_t row = 0; row < g.summed.total; ++row) {
      const P p = *reinterpret_cast<const P*>(from + g.summed.offset(row));
#pragma unroll
      for (int l = 0; l < kWidth; ++l) total[l] += static_cast<double>(p.v[l]);
    }
#pragma unroll
    for (int l = 0; l < kWidth; ++l) put(y, pack * kWidth + l, total[l], accumulate);
  }
}

constexpr unsigned kColumnWarps = 16;

// A block adds rows [begin, end) of one piece of the rows, for 32 adjacent columns and index k of
// the kept axes.
template <class T>
__global__ void column_kernel(const T* x, Geometry g, std::int64_t tiles,
                              std::int64_t rows_of_piece, int pieces, double* part, T* y,
                              bool accumulate) {
  __shared__ double sums[kColumnWarps][33];
  const std::int64_t k = blockIdx.x / tiles;
  const std::int64_t column = (blockIdx.x - k * tiles) * 32 + threadIdx.x;
  const int piece = static_cast<int>(blockIdx.y);
  const std::int64_t begin = piece * rows_of_piece;
  const std::int64_t all = g.summed.total;
  const std::int64_t end = begin + rows_of_piece < all ? begin + rows_of_piece : all;
  double total = 0;
  if (column < g.inner) {
    const T* const from = x + g.kept.offset(k) + column;
#pragma unroll 4
    for (std::int64_t row = begin + threadIdx.y; row < end; row += kColumnWarps) {
      total += static_cast<double>(from[g.summed.offset(row)]);
    }
  }
  sums[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || column >= g.inner) return;
  for (unsigned warp = 1; warp < kColumnWarps; ++warp) total += sums[warp][threadIdx.x];
  const std::int64_t at = k * g.inner + column;
  if (pieces > 1) {
    part[at * pieces + piece] = total;
  } else {
    put(y, at, total, accumulate);
  }
}

// Sets y to the sums over the pieces. One warp computes one output.
template <class T>
__global__ void piece_kernel(const double* part, int pieces, std::int64_t outputs, T* y,
                             bool accumulate) {
  const unsigned lane = threadIdx.x % 32;
  const std::int64_t k = global_thread() / 32;
  double total = 0;
  if (k < outputs) {
    for (int i = static_cast<int>(lane); i < pieces; i += 32) total += part[k * pieces + i];
  }
  total = warp_sum(total);
  if (k < outputs && lane == 0) put(y, k, total, accumulate);
}

template <class T>
struct CopyOrAdd {
  bool accumulate;
  __device__ T operator()(const T* x) const { return accumulate ? x[1] + x[0] : x[0]; }
};

unsigned narrow(std::int64_t blocks) { return static_cast<unsigned>(blocks); }

double* parts_for(std::int64_t outputs, int pieces) {
  if (pieces == 1) return nullptr;
  return cuda_scratch_of<double>(static_cast<std::size_t>(outputs * pieces));
}

template <class T>
void sum_typed(const Tensor& x, unsigned mask, const Tensor& out, bool accumulate) {
  const Geometry g(x.shape(), mask);
  const T* const from = x.data<T>();
  T* const y = out.data<T>();
  const std::int64_t outputs = out.numel();
  const std::int64_t all = x.numel() / outputs;  // per output
  if (all == 1) {
    return map<2, T>(CopyOrAdd<T>{accumulate}, {{from, accumulate ? y : from}}, y, outputs);
  }
  // Cuts outputs into pieces only where there would be fewer than about 500 blocks otherwise.
  const std::int64_t wanted = std::min(ceil_div(all, kPiece), ceil_div(1024, outputs));
  if (g.inner_summed) {
    constexpr int kWidth = kPackWidth<T>;
    const bool packed = is_aligned(from, 16) && g.inner % kWidth == 0;
    if ((all <= 256 && outputs >= 64) || (all <= 8192 && outputs >= 4096)) {
      return launch(
          packed ? short_row_kernel<kWidth, T> : short_row_kernel<1, T>,
          {.grid = dim3(narrow(ceil_div(outputs * 32, kThreads))), .block = dim3(kThreads)}, from,
          g, y, accumulate);
    }
    const std::int64_t piece_size = ceil_div(ceil_div(all, wanted), 1024) * 1024;
    const auto pieces = static_cast<int>(ceil_div(all, piece_size));
    const unsigned threads = std::min<std::int64_t>(piece_size, all) >= 4096 ? 512 : 128;
    double* const part = parts_for(outputs, pieces);
    launch(packed ? row_kernel<kWidth, T> : row_kernel<1, T>,
           {.grid = dim3(narrow(outputs), static_cast<unsigned>(pieces)), .block = dim3(threads)},
           from, g, piece_size, pieces, part, y, accumulate);
    if (pieces == 1) return;
    return launch(piece_kernel<T>,
                  {.grid = dim3(narrow(ceil_div(outputs * 32, kThreads))), .block = dim3(kThreads)},
                  part, pieces, outputs, y, accumulate);
  }
  constexpr int kWide = kPackWidth<T>;
  if (outputs >= 100000) {
    const bool packed = g.inner % kWide == 0 && is_aligned(from, 16);
    const std::int64_t packs = packed ? outputs / kWide : outputs;
    return launch(packed ? wide_column_kernel<kWide, T> : wide_column_kernel<1, T>,
                  grid_of_packs(packs), from, g, packs, y, accumulate);
  }
  const std::int64_t tiles = ceil_div(g.inner, 32);
  const std::int64_t rows = g.summed.total;
  const std::int64_t most = ceil_div(1024, tiles * g.kept.total);
  const std::int64_t rows_of_piece =
      ceil_div(rows, std::max<std::int64_t>(1, std::min(ceil_div(rows, 256), most)));
  const auto pieces = static_cast<int>(ceil_div(rows, rows_of_piece));
  double* const part = parts_for(outputs, pieces);
  launch(column_kernel<T>,
         {.grid = dim3(narrow(tiles * g.kept.total), static_cast<unsigned>(pieces)),
          .block = dim3(32, kColumnWarps)},
         from, g, tiles, rows_of_piece, pieces, part, y, accumulate);
  if (pieces == 1) return;
  launch(piece_kernel<T>,
         {.grid = dim3(narrow(ceil_div(outputs * 32, kThreads))), .block = dim3(kThreads)}, part,
         pieces, outputs, y, accumulate);
}

void sum_cuda(const Tensor& x, unsigned mask, const Tensor& y) { sum_on_cuda(x, mask, y, false); }

// ---- maxima: one block per output ----

template <class T>
struct Place {
  T value;
  std::int64_t at;  // -1: none yet
  __device__ bool comes_before(const Place& other) const {
    if (at < 0 || other.at < 0) return at >= 0;
    const bool nan = value != value;
    const bool other_nan = other.value != other.value;
    if (nan != other_nan) return nan;
    if (nan || value == other.value) return at < other.at;
    return value > other.value;
  }
};

template <class T>
__device__ Place<T> warp_first(Place<T> best) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const T value = __shfl_xor_sync(kAllLanes, best.value, offset);
    const auto at = __shfl_xor_sync(kAllLanes, static_cast<long long>(best.at), offset);
    const Place<T> other{value, static_cast<std::int64_t>(at)};
    if (other.comes_before(best)) best = other;
  }
  return best;
}

template <class T>
__global__ void max_kernel_of_output(const T* x, Part kept, Part gone, T* y, std::int32_t* places) {
  __shared__ T values[32];
  __shared__ long long ats[32];
  const std::int64_t k = blockIdx.x;
  const std::int64_t base = kept.offset(k);
  Place<T> best{T{0}, -1};
  for (std::int64_t i = threadIdx.x; i < gone.total; i += blockDim.x) {
    const std::int64_t at = base + gone.offset(i);
    const Place<T> other{x[at], at};
    if (other.comes_before(best)) best = other;
  }
  best = warp_first(best);
  const unsigned warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) {
    values[warp] = best.value;
    ats[warp] = best.at;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned i = 1; i < blockDim.x / 32; ++i) {
    const Place<T> other{values[i], static_cast<std::int64_t>(ats[i])};
    if (other.comes_before(best)) best = other;
  }
  y[k] = best.value;
  places[k] = static_cast<std::int32_t>(best.at);
}

template <class T>
void max_typed(const Tensor& x, unsigned mask, const Tensor& y, const Tensor& places) {
  Part kept, gone;
  for (int axis = 0; axis < x.rank(); ++axis) {
    ((mask >> axis & 1u) != 0 ? gone : kept).add(x.shape()[axis], x.shape().stride(axis));
  }
  const unsigned threads = gone.total > 1024 ? 512 : gone.total > 64 ? 128 : 32;
  launch(max_kernel_of_output<T>, {.grid = dim3(narrow(y.numel())), .block = dim3(threads)},
         x.data<T>(), kept, gone, y.data<T>(), places.data<std::int32_t>());
}

void max_cuda(const Tensor& x, unsigned mask, const Tensor& y, const Tensor& places) {
  if (x.dtype() == DType::f64) return max_typed<double>(x, mask, y, places);
  max_typed<float>(x, mask, y, places);
}

template <class T>
__global__ void scatter(const T* dy, const std::int32_t* places, T* dx, std::int64_t count) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) dx[places[i]] = dy[i];
}

void max_gradient_cuda(const Tensor& dy, const Tensor& places, const Tensor& dx) {
  dx.zero();
  const auto* const place = places.data<std::int32_t>();
  const std::int64_t count = dy.numel();
  if (dy.dtype() == DType::f64) {
    return launch(scatter<double>, grid_for(count), dy.data<double>(), place, dx.data<double>(),
                  count);
  }
  launch(scatter<float>, grid_for(count), dy.data<float>(), place, dx.data<float>(), count);
}

}  // namespace

void sum_on_cuda(const Tensor& x, unsigned mask, const Tensor& y, bool accumulate) {
  if (y.numel() == 0) return;
  if (x.numel() == 0) {
    if (!accumulate) y.zero();
    return;
  }
  if (x.dtype() == DType::f64) return sum_typed<double>(x, mask, y, accumulate);
  sum_typed<float>(x, mask, y, accumulate);
}

CONVSCOPE_KERNEL(sum_kernel, cuda, sum_cuda)
CONVSCOPE_KERNEL(max_kernel, cuda, max_cuda)
CONVSCOPE_KERNEL(max_gradient_kernel, cuda, max_gradient_cuda)
}  // namespace convscope
