// SPDX-License-Identifier: Apache-2.0
// block_sparse_cuda.cu: convolution with block-sparse weights on a GPU: a warp holds the sums of 16
// output channels and walks along the list of the weights that are there.
//
// Formula    y[n,k,p,q] = b[k] + sum over the (c,r,s) that a block of row k holds of w[k,c,r,s]
//            x[n, c, p stride_h - pad_top + r dilation_h, q stride_w - pad_left + s dilation_w], or
//            0
// Textbook   for n, blocks of 16 kernels, p, q: y[n,k..k+15,p,q] = b[k..k+15]
//              for (c,r,s) in list[block]: y[n,k..k+15,p,q] += w[k..k+15,c,r,s] * x[n,c,..]
// Plan       1 (once, prepare_weights) the list of each 16 output channels: which columns (c,r,s)
//              any of its rows keeps, marked as bits in shared memory, then counted and written in
//              order: an offset in x, a tap, and 16 values
//            2 a lane has the sums of 16 channels of one to four pixels. An entry is the same for
//              all lanes of a warp, so its 16 values are one broadcast load each four; the pixels
//              of the lanes lie side by side. 64 FMAs for nine loads. A bit of each pixel says
//              which taps find it inside the image
//            3 few tiles: the four warps of a block take every fourth entry each, and their sums
//              are added in the order of the warps
// Shapes     x [N,C,H,W], w blocks [blocks,rows,columns], b [K], y [N,K,P,Q], f32, row-major
// Supports   f32 with block-sparse weights, forward; every shape of blocks, stride, dilation and
//            padding; one group; kernels up to 64 taps
// Cost       FLOPs = 2 N K P Q times the columns that 16 output channels keep; bytes = the three
//            tensors. No tensor cores: bound by the multiplications of f32
// Numerics   one rounding per FMA, in one chain in the order of (c, r, s), four where tiles are
//            few. Same bits on each run; exact on integers below 2^24
// Backward   none yet: `auto` takes dense cards there
// Choices    pixels of a lane and warps that share a list: lowest estimated time
// Source     E. Elsen, M. Dukhan, T. Gale, K. Simonyan: Fast Sparse ConvNets, CVPR 2020, arXiv
//            1911.09723; T. Gale et al., SC 2020, arXiv 2006.10901 (a list for each warp)
// Read next  block_sparse_lesson_cpu.cpp, the lists alone; cpu/block_sparse_cpu.cpp
#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/cuda/launch.cuh"
#include "framework/machine/ceilings.h"
#include "framework/memory/memory.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/epilogue.cuh"

namespace convscope {
namespace {

constexpr int kRows = 16;      // output channels of a list
constexpr int kWarps = 4;      // of a block
constexpr int kMostTaps = 64;  // bits of a pixel's mask
constexpr int kListThreads = 256;
constexpr int kMostColumns = 32 * 8192;  // as bits in shared memory

int narrow(std::int64_t value) { return static_cast<int>(value); }

// ---- lists -------------------------------------------------------------------------------------

struct Entry {
  int offset;  // in x, from tap (0, 0) of channel 0
  int tap;
};

struct Lists {
  int* begin = nullptr;      // [lists + 1]
  Entry* entries = nullptr;  // [most entries]
  float* values = nullptr;   // [most entries][16]
};

// An upper bound: each block brings its columns to each list that it touches.
std::int64_t most_entries(const Conv2dProblem& z) {
  const WeightFormat& format = z.weight_format;
  const std::int64_t columns = z.c * z.r * z.s, lists = ceil_div(z.k, std::int64_t{kRows});
  const std::int64_t touched = (format.block_rows + kRows - 2) / kRows + 1;
  return std::min(lists * columns, format.blocks * format.block_columns * touched);
}

struct ListLayout {
  ListLayout(const Conv2dProblem& z, void* memory)
      : arena(memory, std::numeric_limits<std::size_t>::max() / 2) {
    const auto most = static_cast<std::size_t>(std::max<std::int64_t>(1, most_entries(z)));
    lists.begin = take<int>(static_cast<std::size_t>(ceil_div(z.k, std::int64_t{kRows})) + 1);
    lists.entries = take<Entry>(most);
    lists.values = take<float>(most * kRows);
  }
  template <class T>
  T* take(std::size_t count) {
    bytes += ScratchArena::round_up(count * sizeof(T));
    return arena.take<T>(count);
  }
  ScratchArena arena;
  std::size_t bytes = 0;
  Lists lists;
};

struct MakeLists {
  BlockSparseView w;
  Lists to;
  int rows = 0, columns = 0;           // of the matrix
  int taps_w = 1, taps = 1;            // of a channel
  int plane = 0, down = 0, right = 0;  // of x: from one channel, row tap, column tap to the next
};

// Marks the columns that rows [list * 16, ...) keep; all threads of a block.
__device__ inline void mark_columns(const MakeLists& z, int list, unsigned* marks) {
  const int words = ceil_div(z.columns, 32);
  for (int i = static_cast<int>(threadIdx.x); i < words; i += kListThreads) marks[i] = 0;
  __syncthreads();
  const auto block_rows = static_cast<int>(z.w.block_rows);
  const auto block_columns = static_cast<int>(z.w.block_columns);
  const int last_row = min(z.rows, (list + 1) * kRows) - 1;
  for (int row = list * kRows / block_rows; row <= last_row / block_rows; ++row) {
    const int end = z.w.row_begin[row + 1];
    for (int i = z.w.row_begin[row] + static_cast<int>(threadIdx.x); i < end; i += kListThreads) {
      for (int c = 0; c < block_columns; ++c) {
        const int column = z.w.columns[i] * block_columns + c;
        atomicOr(&marks[column / 32], 1u << (column % 32));
      }
    }
  }
  __syncthreads();
}

// Block (x: list): to.begin[list + 1] = its length.
__global__ __launch_bounds__(kListThreads) void count_columns_kernel(
    const __grid_constant__ MakeLists z) {
  auto* const marks = dynamic_shared<unsigned>();
  __shared__ int scratch[32];
  const auto list = static_cast<int>(blockIdx.x);
  mark_columns(z, list, marks);
  int count = 0;
  for (int i = static_cast<int>(threadIdx.x); i < ceil_div(z.columns, 32); i += kListThreads) {
    count += __popc(marks[i]);
  }
  count = block_sum(count, scratch);
  if (threadIdx.x == 0) z.to.begin[list + 1] = count;
}

// One thread: lengths become beginnings.
__global__ void sum_lengths_kernel(int* begin, int lists) {
  begin[0] = 0;
  for (int i = 0; i < lists; ++i) begin[i + 1] += begin[i];
}

// Block (x: list): entries in ascending order of their columns, and their values.
__global__ __launch_bounds__(kListThreads) void write_lists_kernel(
    const __grid_constant__ MakeLists z) {
  auto* const marks = dynamic_shared<unsigned>();
  const int words = ceil_div(z.columns, 32);
  int* const before = reinterpret_cast<int*>(marks + words);  // entries in front of each word
  const auto list = static_cast<int>(blockIdx.x);
  const auto thread = static_cast<int>(threadIdx.x);
  mark_columns(z, list, marks);
  if (thread == 0) {
    int sum = z.to.begin[list];
    for (int i = 0; i < words; ++i) {
      before[i] = sum;
      sum += __popc(marks[i]);
    }
  }
  __syncthreads();
  for (int i = thread; i < z.columns; i += kListThreads) {
    const unsigned bit = 1u << (i % 32);
    if ((marks[i / 32] & bit) == 0) continue;
    const int at = before[i / 32] + __popc(marks[i / 32] & (bit - 1));
    const int tap = i % z.taps;
    z.to.entries[at] = {i / z.taps * z.plane + tap / z.taps_w * z.down + tap % z.taps_w * z.right,
                        tap};
    for (int r = 0; r < kRows; ++r) z.to.values[static_cast<std::int64_t>(at) * kRows + r] = 0;
  }
  __syncthreads();
  const auto block_rows = static_cast<int>(z.w.block_rows);
  const auto block_columns = static_cast<int>(z.w.block_columns);
  const auto* const values = static_cast<const float*>(z.w.values);
  const int first_row = list * kRows, last_row = min(z.rows, first_row + kRows) - 1;
  for (int row = first_row / block_rows; row <= last_row / block_rows; ++row) {
    const int end = z.w.row_begin[row + 1];
    for (int i = z.w.row_begin[row] + thread; i < end; i += kListThreads) {
      for (int r = max(0, first_row - row * block_rows);
           r < block_rows && row * block_rows + r <= last_row; ++r) {
        for (int c = 0; c < block_columns; ++c) {
          const int column = z.w.columns[i] * block_columns + c;
          const int at =
              before[column / 32] + __popc(marks[column / 32] & ((1u << (column % 32)) - 1));
          z.to.values[static_cast<std::int64_t>(at) * kRows + row * block_rows + r - first_row] =
              values[(static_cast<std::int64_t>(i) * block_rows + r) * block_columns + c];
        }
      }
    }
  }
}

std::size_t prepared_bytes(const Conv2dProblem& z, Direction) {
  return ListLayout(z, nullptr).bytes;
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  const int lists = narrow(ceil_div(z.k, std::int64_t{kRows}));
  const MakeLists make{.w = args.views.w_blocks,
                       .to = ListLayout(z, args.prepared).lists,
                       .rows = narrow(z.k),
                       .columns = narrow(z.c * z.r * z.s),
                       .taps_w = narrow(z.s),
                       .taps = narrow(z.r * z.s),
                       .plane = narrow(z.h * z.w),
                       .down = narrow(z.dilation_h * z.w),
                       .right = narrow(z.dilation_w)};
  const auto words = static_cast<std::size_t>(ceil_div(make.columns, 32));
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(lists)),
                    .block = dim3(kListThreads),
                    .shared_bytes = words * 4};
  launch(count_columns_kernel, shape, make);
  launch(sum_lengths_kernel, {}, make.to.begin, lists);
  shape.shared_bytes = words * 8;
  launch(write_lists_kernel, shape, make);
}

// ---- forward -----------------------------------------------------------------------------------

struct SparseForward {
  const float* x = nullptr;
  Lists lists;
  const float* b = nullptr;
  const float* residual = nullptr;
  float* y = nullptr;
  bool relu = false;
  int images = 0, image_size = 0, channels = 0, lists_count = 0;
  int h = 0, w = 0, p = 0, q = 0, taps_h = 1, taps_w = 1;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, apart_h = 1, apart_w = 1;
  FastDivisor by_q, by_area;
};

// A lane has kPixels pixels, 32 apart. kShared: the warps of a block share one list and one tile;
// otherwise each has a list of its own and the same tile.
template <int kPixels, bool kShared>
__global__ __launch_bounds__(32 * kWarps) void sparse_forward_kernel(
    const __grid_constant__ SparseForward z) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int list =
      kShared ? static_cast<int>(blockIdx.y) : static_cast<int>(blockIdx.y) * kWarps + warp;
  const int area = z.p * z.q, pixels = z.images * area;
  int from[kPixels], to[kPixels];
  unsigned long long inside[kPixels];
#pragma unroll
  for (int j = 0; j < kPixels; ++j) {
    const int pixel = (static_cast<int>(blockIdx.x) * kPixels + j) * 32 + lane;
    const int image = z.by_area.divide(pixel);
    const int at = pixel - image * area;
    const int row = z.by_q.divide(at);
    const int h = row * z.stride_h - z.pad_h, w = (at - row * z.q) * z.stride_w - z.pad_w;
    from[j] = image * z.image_size + h * z.w + w;
    to[j] = pixel < pixels ? image * z.channels * area + at : -1;
    inside[j] = 0;
    for (int r = 0; r < z.taps_h; ++r) {
      if (static_cast<unsigned>(h + r * z.apart_h) >= static_cast<unsigned>(z.h)) continue;
      for (int s = 0; s < z.taps_w; ++s) {
        if (static_cast<unsigned>(w + s * z.apart_w) >= static_cast<unsigned>(z.w)) continue;
        inside[j] |= 1ull << (r * z.taps_w + s);
      }
    }
    if (to[j] < 0) inside[j] = 0;
  }
  let_next_kernel_start();
  wait_for_previous_kernel();
  float sums[kPixels][kRows] = {};
  const bool has_list = list < z.lists_count;
  const int end = has_list ? z.lists.begin[list + 1] : 0;
  const int first = has_list ? z.lists.begin[list] : 0;
  constexpr int kStep = kShared ? kWarps : 1;
#pragma unroll 2
  for (int i = first + (kShared ? warp : 0); i < end; i += kStep) {
    const Entry entry = z.lists.entries[i];
    const auto* const values =
        reinterpret_cast<const float4*>(z.lists.values + static_cast<std::int64_t>(i) * kRows);
    float x[kPixels];
#pragma unroll
    for (int j = 0; j < kPixels; ++j) {
      x[j] = (inside[j] >> entry.tap & 1) != 0 ? z.x[from[j] + entry.offset] : 0;
    }
#pragma unroll
    for (int four = 0; four < kRows / 4; ++four) {
      const float4 w = values[four];
#pragma unroll
      for (int j = 0; j < kPixels; ++j) {
        sums[j][4 * four] = __fmaf_rn(w.x, x[j], sums[j][4 * four]);
        sums[j][4 * four + 1] = __fmaf_rn(w.y, x[j], sums[j][4 * four + 1]);
        sums[j][4 * four + 2] = __fmaf_rn(w.z, x[j], sums[j][4 * four + 2]);
        sums[j][4 * four + 3] = __fmaf_rn(w.w, x[j], sums[j][4 * four + 3]);
      }
    }
  }
  if constexpr (kShared) {
    __shared__ float parts[kWarps - 1][kPixels * kRows][32];
    if (warp > 0) {
#pragma unroll
      for (int i = 0; i < kPixels * kRows; ++i)
        parts[warp - 1][i][lane] = sums[i / kRows][i % kRows];
    }
    __syncthreads();
    if (warp > 0) return;
#pragma unroll
    for (int i = 0; i < kPixels * kRows; ++i) {
      for (int other = 0; other < kWarps - 1; ++other) {
        sums[i / kRows][i % kRows] += parts[other][i][lane];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int k = list * kRows + i;
    if (k >= z.channels) break;
    const float bias = z.b == nullptr ? 0 : z.b[k];
#pragma unroll
    for (int j = 0; j < kPixels; ++j) {
      if (to[j] < 0) continue;
      const std::int64_t at = to[j] + static_cast<std::int64_t>(k) * area;
      z.y[at] = finished(sums[j][i] + bias, z.residual, at, z.relu);
    }
  }
}

struct SparseTile {
  int pixels;
  bool shared;
  void (*kernel)(const SparseForward);
};
constexpr SparseTile kTiles[] = {
    {4, false, sparse_forward_kernel<4, false>}, {2, false, sparse_forward_kernel<2, false>},
    {4, true, sparse_forward_kernel<4, true>},   {2, true, sparse_forward_kernel<2, true>},
    {1, true, sparse_forward_kernel<1, true>},
};

// Columns that the list of 16 output channels keeps, when the blocks lie at random.
double expected_entries(const Conv2dProblem& z) {
  const WeightFormat& format = z.weight_format;
  const auto columns = static_cast<double>(z.c * z.r * z.s);
  const double density = static_cast<double>(format.stored_elements()) /
                         (static_cast<double>(z.k) * std::max(columns, 1.0));
  const double rows =
      std::max(1.0, static_cast<double>(kRows) / static_cast<double>(format.block_rows));
  return columns * (1 - std::pow(1 - std::min(density, 1.0), rows));
}

// Microseconds of a tile: what it takes beside others, on the multiplications, and alone, on the
// latency of an entry.
double estimated_us(const Conv2dProblem& z, const SparseTile& tile) {
  const double lists = static_cast<double>(ceil_div(z.k, std::int64_t{kRows}));
  const double warps =
      lists * std::ceil(static_cast<double>(z.n * z.p() * z.q()) / (32.0 * tile.pixels));
  const double entries = expected_entries(z);
  const double shares = tile.shared ? kWarps : 1;
  const double processors = cuda_device_facts().multiprocessors;
  constexpr double kClock = 1700;  // cycles of a microsecond
  // 16 FMAs for each pixel, four warps in a cycle, and the loads beside them.
  const double work =
      warps * (entries * (16.0 * tile.pixels + 14) + 300 * shares) / 4 / processors / kClock;
  const double alone = (entries / shares * (16.0 * tile.pixels + 60) + 1500) / kClock;
  return 2 + std::max(work, alone);
}

const SparseTile& best_tile(const Conv2dProblem& z) {
  return *std::ranges::min_element(kTiles, {},
                                   [&](const SparseTile& tile) { return estimated_us(z, tile); });
}

void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  const SparseTile& tile = best_tile(z);
  const int lists = narrow(ceil_div(z.k, std::int64_t{kRows}));
  const SparseForward pass{.x = static_cast<const float*>(args.x),
                           .lists = ListLayout(z, const_cast<void*>(args.prepared)).lists,
                           .b = static_cast<const float*>(args.b),
                           .residual = static_cast<const float*>(args.epilogue.residual),
                           .y = static_cast<float*>(args.y),
                           .relu = args.epilogue.relu,
                           .images = narrow(z.n),
                           .image_size = narrow(z.c * z.h * z.w),
                           .channels = narrow(z.k),
                           .lists_count = lists,
                           .h = narrow(z.h),
                           .w = narrow(z.w),
                           .p = narrow(z.p()),
                           .q = narrow(z.q()),
                           .taps_h = narrow(z.r),
                           .taps_w = narrow(z.s),
                           .stride_h = narrow(z.stride_h),
                           .stride_w = narrow(z.stride_w),
                           .pad_h = narrow(z.pad_top),
                           .pad_w = narrow(z.pad_left),
                           .apart_h = narrow(z.dilation_h),
                           .apart_w = narrow(z.dilation_w),
                           .by_q = FastDivisor(narrow(z.q())),
                           .by_area = FastDivisor(narrow(z.p() * z.q()))};
  const std::int64_t tiles = ceil_div(z.n * z.p() * z.q(), std::int64_t{32 * tile.pixels});
  launch(tile.kernel,
         {.grid = dim3(static_cast<unsigned>(tiles),
                       static_cast<unsigned>(tile.shared ? lists : ceil_div(lists, kWarps))),
          .block = dim3(32 * kWarps),
          .overlaps_previous = true},
         pass);
}

// ---- card --------------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  if (z.weight_format.is_dense())
    return Conv2dSupport::no("expects block-sparse weights, got dense ones");
  if (z.dtype != DType::f32 || z.math != MathMode::f32 || z.types) {
    return Conv2dSupport::no(cat("expects f32 as f32, got ", name_of(z.dtype)));
  }
  if (z.groups != 1) return Conv2dSupport::no(cat("expects one group, got ", z.groups));
  if (z.r * z.s > kMostTaps) {
    return Conv2dSupport::no(cat("expects a kernel of at most ", kMostTaps,
                                 " taps, because each pixel keeps a bit for each tap, got ", z.r,
                                 "x", z.s));
  }
  const std::int64_t columns = z.c * z.r * z.s;
  const auto shared = static_cast<std::int64_t>(cuda_device_facts().shared_bytes_per_block);
  if (columns > kMostColumns || ceil_div(columns, std::int64_t{32}) * 8 > shared - 1024) {
    return Conv2dSupport::no(cat("expects at most ",
                                 std::min<std::int64_t>(kMostColumns, (shared - 1024) * 4),
                                 " weights of an output channel, got ", columns));
  }
  constexpr std::int64_t kMost = 0x7fff0000;
  const std::int64_t around = z.h * z.w + (z.pad_top + 1) * z.w * 2;
  if (z.n * z.c * z.h * z.w + around > kMost || z.n * z.k * z.p() * z.q() > kMost ||
      most_entries(z) > kMost || z.k > 16 * 65535) {
    return Conv2dSupport::no(
        "expects fewer than 2^31 elements in a tensor, because places have 32 bits");
  }
  return {};
}

Conv2dCost cost(const Conv2dProblem& z, Direction) {
  double us = std::numeric_limits<double>::infinity();
  for (const SparseTile& tile : kTiles) us = std::min(us, estimated_us(z, tile));
  const auto pixels = static_cast<double>(z.n * z.k * z.p() * z.q());
  const double flops = std::max(1.0, 2 * pixels * expected_entries(z));
  return {.flops = flops,
          .bytes = z.nominal_bytes(),
          .peak_share = std::clamp(flops / (kUnmeasuredGpu.f32_flops * us * 1e-6), 1e-4, 1.0)};
}

const Conv2dAlgorithm kCard{
    .name = "block_sparse",
    .device = DeviceType::cuda,
    .idea = "a warp holds the sums of 16 output channels and walks along the list of their weights",
    .paper = "Elsen et al. 2020: Fast Sparse ConvNets, arXiv 1911.09723",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = [](const Conv2dProblem&, Direction) -> std::size_t { return 0; },
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 8,
    .one_chain = true,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_sparse_weights = true,
    .forward = forward,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kCard)
