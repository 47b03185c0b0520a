// SPDX-License-Identifier: Apache-2.0
// block_sparse_cuda.cu: convolution with block-sparse weights on the tensor cores. A warp holds the
// accumulators of 16 output channels and reads the list of their kept weights.
//
// Formula    y[n,k,p,q] = b[k] + sum over the (c,r,s) that a block of row k holds of w[k,c,r,s]
//            x[n, c, p stride_h - pad_top + r dilation_h, q stride_w - pad_left + s dilation_w], or
//            0
// Textbook   for n, blocks of 16 kernels, p, q: y[n,k..k+15,p,q] = b[k..k+15]
//              for (c,r,s) in list[block]: y[n,k..k+15,p,q] += w[k..k+15,c,r,s] * x[n,c,..]
// Method     The list of kept weights is the reduction of a matrix product.
//            1. prepare_weights makes a list for each 16 output channels (block_sparse_lists.cuh).
//               Each entry has an offset in x, a tap, and 16 values.
//            2. The left operand of a tensor-core instruction is sixteen output channels by eight
//               entries. The right operand is eight entries by eight pixels, which the lanes load
//               directly from x. Entries may be anywhere in x, so the only zeros multiplied are
//               those inside the blocks. A warp has one to four tiles of eight pixels, which share
//               the left operand. A bit mask of each pixel marks the taps inside the image.
//            3. When there are few tiles, each of the four warps of a block takes every fourth
//               chunk of entries, and the four results are added in the order of the warps.
// Shapes     x [N,C,H,W], w blocks [blocks,rows,columns], b [K], y [N,K,P,Q], f32, row-major
// Supports   f32 (as f32 or tf32) with block-sparse weights; every shape of blocks, stride,
//            dilation and padding; one group; kernels up to 64 taps; sm_80 and newer
// Cost       FLOPs = 2 N K P Q times the columns that 16 output channels keep, three times that for
//            f32 as f32; bytes = the three tensors. Bound by the loads of x from L1
// Numerics   f32: an operand is high + low, two TF32 with 21 bits together. low high + high low and
//            high high have separate accumulators. Tensor cores round sums towards zero, so
//            accumulators restart from zero after 64 entries and the result is added in f32. tf32:
//            only the high parts. Same bits on each run; exact on integers up to 2^11, sums below
//            2^24. The low part of an infinity is NaN, so infinities yield NaN
// Backward   dx: block_sparse_data_cuda.cu, assigned; dw of the stored blocks:
//            block_sparse_weights_cuda.cu, assigned or added to
// Choices    pixels of a warp and warps that share a list: lowest estimated time
// Source     E. Elsen, M. Dukhan, T. Gale, K. Simonyan: Fast Sparse ConvNets, CVPR 2020, arXiv
//            1911.09723; T. Gale et al., SC 2020, arXiv 2006.10901 (a list for each warp); Z. Chen
//            et al. 2021: Efficient Tensor Core-Based GPU Kernels for Structured Sparsity, SC 2021,
//            doi 10.1145/3458817.3476182 (short columns as one side of a tensor-core product)
// Read next  block_sparse_lesson_cpu.cpp, the lists only; cpu/block_sparse_cpu.cpp, the version for
//            CPUs
#include <algorithm>
#include <cmath>

#include "framework/cuda/map.cuh"
#include "layers/conv2d/block_sparse/cuda/block_sparse_lists.cuh"
#include "layers/conv2d/epilogue.cuh"

namespace convscope::block_sparse {
namespace {

// Grid: x = list.
__global__ __launch_bounds__(kListThreads) void write_lists_kernel(
    const __grid_constant__ MakeLists z) {
  auto* const marks = dynamic_shared<unsigned>();
  __shared__ int scratch[32];
  const int words = ceil_div(z.columns, 32);
  int* const before = reinterpret_cast<int*>(marks + words);
  const auto list = static_cast<int>(blockIdx.x);
  const auto thread = static_cast<int>(threadIdx.x);
  const int first = first_chunk_of(z, list, scratch);
  mark_columns(z, list, marks, words);
  const int count = count_marks(marks, words, before);
  const int chunks = ceil_div(count, kChunk);
  if (thread == 0) {
    z.to.begin[list] = first;
    z.to.end[list] = first + chunks;
  }
  Entry* const entries = z.to.entries + static_cast<std::int64_t>(first) * kChunk;
  for (int i = count + thread; i < chunks * kChunk; i += kListThreads) entries[i] = {0, -1};
  for (int i = thread; i < z.columns; i += kListThreads) {
    if ((marks[i / 32] & 1u << (i % 32)) == 0) continue;
    const int tap = i % z.taps;
    entries[entries_before(marks, before, i)] = {
        i / z.taps * z.plane + tap / z.taps_w * z.down + tap % z.taps_w * z.right, tap};
  }
  if (z.to.marks != nullptr) {
    const std::int64_t words_before = static_cast<std::int64_t>(list) * words;
    for (int i = thread; i < words; i += kListThreads) {
      z.to.marks[words_before + i] = marks[i];
      z.to.before[words_before + i] = before[i];
    }
  }
  if (z.to.values == nullptr) return;
  float* const values = z.to.values + static_cast<std::int64_t>(first) * kChunk * kRows;
  for (int i = thread; i < chunks * kChunk * kRows; i += kListThreads) values[i] = 0;
  __syncthreads();
  for_each_value(z, list, [&](int column, int row, float value) {
    values[value_place(entries_before(marks, before, column), row)] = value;
  });
}

}  // namespace

void make_lists(const Conv2dProblem& z, const BlockSparseView& w, const Lists& lists) {
  MakeLists make = lists_of(z, w);
  make.to = lists;
  make.plane = narrow(z.h * z.w);
  make.down = narrow(z.dilation_h * z.w);
  make.right = narrow(z.dilation_w);
  launch(write_lists_kernel, shape_of(make), make);
}

}  // namespace convscope::block_sparse

namespace convscope {
namespace {

using namespace block_sparse;

constexpr int kWarps = 4;  // of a block of threads

// The prepared weights of the forward pass.
struct ListLayout {
  ListLayout(const Conv2dProblem& z, const void* memory) {
    Pieces pieces(const_cast<void*>(memory));
    lists = take_lists(pieces, z);
    lists.values = pieces.take<float>(most_chunks(z) * kChunk * kRows);
    bytes = pieces.bytes;
  }
  Lists lists;
  std::size_t bytes = 0;
};

std::size_t prepared_bytes(const Conv2dProblem& z, Direction direction) {
  return direction == Direction::backward_data ? data_prepared_bytes(z)
                                               : ListLayout(z, nullptr).bytes;
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  if (args.direction == Direction::backward_data) return prepare_data(args);
  make_lists(args.problem, args.views.w_blocks, ListLayout(args.problem, args.prepared).lists);
}

// ---- forward -----------------------------------------------------------------------------------

struct SparseForward {
  const float* x = nullptr;
  Lists lists;
  const float* b = nullptr;
  const float* residual = nullptr;
  float* y = nullptr;
  bool relu = false;
  // whether y is stored in pairs: both pixels are in one image and y is aligned
  bool in_pairs = false;
  int lists_count = 0;
  Geometry at;
};

// A lane's operands of one chunk: two entries, and its elements of the left operand.
struct Chunk {
  Entry one, other;
  float4 w;
};
__device__ inline Chunk load_chunk(const Lists& lists, int chunk, int end) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (chunk >= end) return {{0, -1}, {0, -1}, {0, 0, 0, 0}};
  const Entry* const entries = lists.entries + static_cast<std::int64_t>(chunk) * kChunk;
  const auto* const values = reinterpret_cast<const float4*>(lists.values);
  return {entries[lane % 4], entries[lane % 4 + 4],
          values[static_cast<std::int64_t>(chunk) * 32 + lane]};
}

template <int kTiles, class Taps>
__device__ inline void load_pixels(const float* x, const Pixel<Taps> (&pixels)[kTiles],
                                   const Chunk& at, float (&out)[kTiles][2]) {
  const Taps bit = bit_of<Taps>(at.one.tap), other_bit = bit_of<Taps>(at.other.tap);
  // Pointers into x at the channel and tap of each entry, to which a pixel's offset is added.
  const float* const x0 = address_at(x, at.one.offset);
  const float* const x1 = address_at(x, at.other.offset);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    out[j][0] = (pixels[j].inside & bit) != 0 ? __ldg(address_at(x0, pixels[j].from)) : 0;
    out[j][1] = (pixels[j].inside & other_bit) != 0 ? __ldg(address_at(x1, pixels[j].from)) : 0;
  }
}

// Accumulates 16 rows and 8 kTiles pixels over the chunks first, first + step, ... before end.
// Loads are issued before the products that need them: pixels one chunk earlier, entries and
// weights two chunks earlier.
template <int kTiles, bool kTf32, class Taps>
__device__ inline void walk_list(const SparseForward& z, const Pixel<Taps> (&pixels)[kTiles],
                                 int first, int end, int step, float (&total)[kTiles][4]) {
  Chunk now = load_chunk(z.lists, first, end), next = load_chunk(z.lists, first + step, end);
  float x[kTiles][2];
  load_pixels(z.x, pixels, now, x);
  for (int chunk = first; chunk < end;) {
    float high[kTiles][4] = {}, low[kTiles][4] = {};
    const int stop = min(end, chunk + kPeriod * step);
#pragma unroll 2
    for (; chunk < stop; chunk += step) {
      float ahead[kTiles][2];
      load_pixels(z.x, pixels, next, ahead);
      const float4 w = now.w;
      now = next;
      next = load_chunk(z.lists, chunk + 2 * step, end);
      add_products<kTiles, kTf32>(w, x, high, low);
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        x[j][0] = ahead[j][0];
        x[j][1] = ahead[j][1];
      }
    }
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) total[j][i] += high[j][i] + low[j][i];
    }
  }
}

// Grid: x = tile of pixels; y = list with kShared, else four lists, one for each warp.
template <int kTiles, bool kShared, bool kTf32, class Taps>
__global__ __launch_bounds__(32 * kWarps) void sparse_forward_kernel(
    const __grid_constant__ SparseForward z) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int list =
      kShared ? static_cast<int>(blockIdx.y) : static_cast<int>(blockIdx.y) * kWarps + warp;
  const int first_pixel = static_cast<int>(blockIdx.x) * kTiles * kPixels;
  // Each lane computes the offset and taps of one pixel, then fetches those of the pixels that it
  // needs.
  const Pixel<Taps> mine = pixel_at<Taps>(z.at, first_pixel + lane % (kTiles * kPixels));
  Pixel<Taps> pixels[kTiles];
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    pixels[j].from = __shfl_sync(kAllLanes, mine.from, j * kPixels + lane / 4);
    pixels[j].inside = __shfl_sync(kAllLanes, mine.inside, j * kPixels + lane / 4);
  }
  let_next_kernel_start();
  wait_for_previous_kernel();
  float sums[kTiles][4] = {};
  if (list < z.lists_count) {
    walk_list<kTiles, kTf32>(z, pixels, z.lists.begin[list] + (kShared ? warp : 0),
                             z.lists.end[list], kShared ? kWarps : 1, sums);
  }
  if constexpr (kShared) {
    __shared__ float parts[kWarps - 1][kTiles * 4][32];
    if (warp > 0) {
#pragma unroll
      for (int i = 0; i < kTiles * 4; ++i) parts[warp - 1][i][lane] = sums[i / 4][i % 4];
    }
    __syncthreads();
    if (warp > 0) return;
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) {
      for (int other = 0; other < kWarps - 1; ++other) {
        sums[i / 4][i % 4] += parts[other][i][lane];
      }
    }
  }
  const int first_k = list * kRows + lane / 4;
  float bias[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int k = first_k + half * 8;
    bias[half] = z.b != nullptr && k < z.at.channels ? z.b[k] : 0;
  }
  const int area = z.at.p * z.at.q;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const int to = __shfl_sync(kAllLanes, mine.to, j * kPixels + lane % 4 * 2);
    const int beside = __shfl_sync(kAllLanes, mine.to, j * kPixels + lane % 4 * 2 + 1);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = first_k + half * 8;
      if (k >= z.at.channels) continue;
      const float one = sums[j][half * 2] + bias[half];
      const float other = sums[j][half * 2 + 1] + bias[half];
      const std::int64_t at = to + k * area;
      if (z.in_pairs && beside >= 0) {
        *reinterpret_cast<float2*>(z.y + at) = make_float2(
            finished(one, z.residual, at, z.relu), finished(other, z.residual, at + 1, z.relu));
        continue;
      }
      if (to >= 0) z.y[at] = finished(one, z.residual, at, z.relu);
      const std::int64_t next = beside + k * area;
      if (beside >= 0) z.y[next] = finished(other, z.residual, next, z.relu);
    }
  }
}

struct SparseTile {
  int tiles;  // of 8 pixels
  bool shared;
};
constexpr SparseTile kTiles[] = {{4, false}, {2, false}, {4, true}, {2, true}, {1, true}};

using SparseKernel = void (*)(const SparseForward);
template <bool kTf32, class Taps>
SparseKernel kernel_of(const SparseTile& tile) {
  if (!tile.shared) {
    return tile.tiles == 4 ? sparse_forward_kernel<4, false, kTf32, Taps>
                           : sparse_forward_kernel<2, false, kTf32, Taps>;
  }
  return tile.tiles == 4   ? sparse_forward_kernel<4, true, kTf32, Taps>
         : tile.tiles == 2 ? sparse_forward_kernel<2, true, kTf32, Taps>
                           : sparse_forward_kernel<1, true, kTf32, Taps>;
}
SparseKernel kernel_of(const Conv2dProblem& z, const SparseTile& tile) {
  const bool tf32 = z.math == MathMode::tf32;
  if (z.r * z.s <= 32) {
    return tf32 ? kernel_of<true, unsigned>(tile) : kernel_of<false, unsigned>(tile);
  }
  return tf32 ? kernel_of<true, unsigned long long>(tile)
              : kernel_of<false, unsigned long long>(tile);
}

Cost counts_of(const Conv2dProblem& z, const SparseTile& tile) {
  constexpr const char* kNames[2][2] = {{"f32", "f32 shared"}, {"tf32", "tf32 shared"}};
  const double lists = number(ceil_div(z.k, std::int64_t{kRows}));
  const double pixel_tiles =
      std::ceil(number(z.n * z.p() * z.q()) / (static_cast<double>(kPixels) * tile.tiles));
  const double entries = expected_entries(z), chunks = std::ceil(entries / kChunk);
  const double of_warps = lists * pixel_tiles * chunks;  // chunks of all lists and pixels
  Cost out = sparse_counts(z, entries);
  out.issued = of_warps * products_of(z) * 2 * kRows * kChunk * kPixels * tile.tiles;
  // Elements of x, entries and weights.
  const int floats = kPixels * tile.tiles + kRows;
  out.cached = of_warps * kChunk * (4.0 * floats + sizeof(Entry));
  out.schedule = kNames[z.math == MathMode::tf32 ? 1 : 0][tile.shared ? 1 : 0];
  out.blocks = pixel_tiles * (tile.shared ? lists : std::ceil(lists / kWarps));
  out.resident = 4;  // with 128 registers of a thread
  out.chain = std::ceil(chunks / (tile.shared ? kWarps : 1));
  out.waits = tile.shared ? kWarps - 1 : 0;  // sums of the other warps
  out.listed_warps = of_warps * (2 * tile.tiles + 3);  // loads
  out.stored = lists * kRows * pixel_tiles * kPixels * tile.tiles;
  out.prepared_bytes = sizeof(float) * number(z.weight_format.stored_elements()) +
                       static_cast<double>(ListLayout(z, nullptr).bytes);
  out.prepare_launches = 1;
  return out;
}

const SparseTile& best_tile(const Conv2dProblem& z) {
  static KeptPlans<const SparseTile*> kept;
  return **kept.get(z, Direction::forward, [&] {
    Cheapest<const SparseTile*> best({"conv2d", "block_sparse", Direction::forward},
                                     DeviceType::cuda, z.dtype);
    for (const SparseTile& tile : kTiles) best.offer(&tile, counts_of(z, tile));
    return best.found();
  });
}

void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  const SparseTile& tile = best_tile(z);
  const int lists = narrow(ceil_div(z.k, std::int64_t{kRows}));
  const SparseForward pass{.x = static_cast<const float*>(args.x),
                           .lists = ListLayout(z, args.prepared).lists,
                           .b = static_cast<const float*>(args.b),
                           .residual = static_cast<const float*>(args.epilogue.residual),
                           .y = static_cast<float*>(args.y),
                           .relu = args.epilogue.relu,
                           .in_pairs = z.p() * z.q() % 2 == 0 && is_aligned(args.y, 8),
                           .lists_count = lists,
                           .at = geometry_of(z)};
  const std::int64_t tiles = ceil_div(z.n * z.p() * z.q(), std::int64_t{kPixels} * tile.tiles);
  launch(kernel_of(z, tile),
         {.grid = dim3(static_cast<unsigned>(tiles),
                       static_cast<unsigned>(tile.shared ? lists : ceil_div(lists, kWarps))),
          .block = dim3(32 * kWarps),
          .overlaps_previous = true},
         pass);
}

// ---- algorithm
// --------------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  if (z.weight_format.is_dense())
    return Conv2dSupport::no("expects block-sparse weights, got dense ones");
  if (z.dtype != DType::f32 || z.types) {
    return Conv2dSupport::no(cat("expects f32, got ", name_of(z.dtype)));
  }
  if (cuda_device_facts().major < 8) {
    return Conv2dSupport::no(cat("expects a GPU of compute capability 8.0 or higher, for its ",
                                 "tensor cores, got ", cuda_device_facts().major, ".",
                                 cuda_device_facts().minor));
  }
  if (z.groups != 1) return Conv2dSupport::no(cat("expects one group, got ", z.groups));
  if (z.r * z.s > kMaxTaps) {
    return Conv2dSupport::no(cat("expects a kernel of at most ", kMaxTaps,
                                 " taps, because each pixel keeps a bit for each tap, got ", z.r,
                                 "x", z.s));
  }
  const std::int64_t columns = z.c * z.r * z.s;
  const auto shared = static_cast<std::int64_t>(cuda_device_facts().shared_bytes_per_block);
  if (columns > kMaxColumns || ceil_div(columns, std::int64_t{32}) * 8 > shared - 1024) {
    return Conv2dSupport::no(cat("expects at most ",
                                 std::min<std::int64_t>(kMaxColumns, (shared - 1024) * 4),
                                 " weights of an output channel, got ", columns));
  }
  constexpr std::int64_t kMax = 0x7fff0000;
  const std::int64_t around = z.h * z.w + (z.pad_top + 1) * z.w * 2;
  if (z.n * z.c * z.h * z.w + around > kMax || z.n * z.k * z.p() * z.q() > kMax ||
      most_chunks(z) * kChunk * kRows > kMax || z.k > 16 * 65535) {
    return Conv2dSupport::no(
        "expects fewer than 2^31 elements in a tensor, because places have 32 bits");
  }
  return {};
}

Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  return direction == Direction::backward_data     ? data_cost(z)
         : direction == Direction::backward_weight ? weights_cost(z)
                                                   : counts_of(z, best_tile(z));
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  return direction == Direction::backward_weight ? weights_workspace_bytes(z) : 0;
}

const Conv2dAlgorithm kAlgorithm{
    .name = "block_sparse",
    .device = DeviceType::cuda,
    .idea =
        "eight weights of the list of 16 output channels are one tensor-core operand",
    .paper = "Elsen et al. 2020: Fast Sparse ConvNets, arXiv 1911.09723",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 32,  // 20 (split), 8 roundings of 2 towards zero, f32 additions
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_sparse_weights = true,
    .forward = forward,
    .backward_data = data_from_pieces,
    .backward_weight = weights_from_lists,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
