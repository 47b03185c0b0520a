// SPDX-License-Identifier: Apache-2.0
// block_sparse_weights_cuda.cu: the gradient of block-sparse weights on the tensor cores. A warp
// holds the accumulators of 16 output channels and some entries of their list, and loops over the
// pixels.
//
// Formula    dw[k,c,r,s] = sum over n, p, q of dy[n,k,p,q] x[n, c, p stride_h - pad_top + r
//            dilation_h, q stride_w - pad_left + s dilation_w], only for stored (k,c,r,s)
// Textbook   for blocks of 16 kernels, (c,r,s) in list[block]:
//              for n, p, q: dw[k..k+15,c,r,s] += dy[n,k..k+15,p,q] * x[n,c,..]
// Method     The list of kept weights selects the columns of dw.
//            1. One launch (block_sparse_cuda.cu) makes lists as in the forward pass, but
//               without values.
//            2. The left operand of a tensor-core instruction is dy of sixteen output channels and
//               eight pixels. The right operand is x at these pixels for eight entries, which the
//               lanes load directly. A warp has two or four tiles of eight entries, which share the
//               left operand. A block has one to eight lists. Its warps share dy, which is copied
//               to shared memory in advance, 64 pixels at a time, and the offset and taps of each
//               pixel. Elements of x that several lists read come from L1.
//            3. The pixels are split into parts. A second kernel adds the results of all parts in
//               order and writes the stored blocks.
// Shapes     x [N,C,H,W], dy [N,K,P,Q], dw blocks [blocks,rows,columns], f32, row-major; parts
//            [parts][entries][16]
// Supports   as block_sparse_cuda.cu
// Cost       FLOPs = 2 N K P Q times the columns that 16 output channels keep, three times that for
//            f32 as f32; bytes = x once for the lists of a block, dy once for its entries, and the
//            results of the parts. A tensor-core product takes 3 instructions, 2 loads of x, each
//            from 8 lines of L1, 8 instructions for addresses and borders and 6 to split x into
//            high and low. 4 loads and 12 splits of dy serve two or four tiles
// Numerics   as the forward pass: after 64 pixels the tensor cores restart from zero and the result
//            is added in f32. A warp adds at most 160 such results where the parts fit into 64 MiB,
//            and the parts are added in chains of 8. Same bits on each run; exact on integers up to
//            2^11, sums below 2^24
// Backward   this file is backward_weight; dw assigned or added to
// Choices    The accumulators restart after 64 pixels, so 64 pixels are in shared memory. Rows of
//            dy are 68 floats apart, so that 8 rows and 4 pixels are in 32 banks. Tiles, lists of a
//            block and parts: lowest estimated time
// Source     as block_sparse_cuda.cu
// Read next  block_sparse_cuda.cu, the forward pass; cpu/block_sparse_weights.cpp
#include <algorithm>
#include <cmath>

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/map.cuh"
#include "layers/conv2d/block_sparse/cuda/block_sparse_lists.cuh"

namespace convscope::block_sparse {
namespace {

constexpr int kWarps = 8;
constexpr int kThreadsOfBlock = 32 * kWarps;
constexpr int kStrip = kPeriod * kPixels;  // pixels in shared memory at once
constexpr int kPitch = kStrip + 4;         // floats from one row of dy to the next
constexpr int kChain = 8;                  // parts that are added in one chain

struct WeightSums {
  const float* x = nullptr;
  const float* dy = nullptr;
  Lists lists;
  float* parts = nullptr;
  std::int64_t part_floats = 0;
  int lists_count = 0, lists_at_once = 1;  // lists; lists of a block: 1, 2, 4 or 8
  int strips = 0;
  bool in_fours = false;  // a copy has four pixels of dy
  Geometry at;
};

// For a pixel of dy: its offset in x, and a mask of the taps that are inside x (Pixel in
// block_sparse_lists.cuh). All warps of a block read these values from shared memory.
template <class Taps>
struct Place {
  int from;
  Taps inside;
};

// Arrays in shared memory: dy of two strips, and the offsets and taps of the pixels of three
// strips. A strip is 64 pixels.
template <class Taps>
struct Shared {
  float* dy;            // [2][rows][kPitch]
  Place<Taps>* places;  // [3][kStrip]
  int rows;
  __device__ float* strip(int i) const { return dy + i % 2 * rows * kPitch; }
  __device__ Place<Taps>* places_of(int i) const { return places + i % 3 * kStrip; }
};
std::size_t shared_bytes(int lists, std::size_t place_bytes) {
  return sizeof(float) * static_cast<std::size_t>(2 * lists * kRows * kPitch) +
         3 * kStrip * place_bytes;
}

template <class Taps>
__device__ inline void note_places(const WeightSums& z, const Shared<Taps>& shared, int strip) {
  const auto i = static_cast<int>(threadIdx.x);
  if (i >= kStrip) return;
  const Pixel<Taps> pixel = pixel_at<Taps>(z.at, strip * kStrip + i);
  shared.places_of(strip)[i] = {pixel.from, pixel.inside};
}

// Copies rows first_row, first_row + 1, ... of dy. Writes 0 for rows and pixels that do not exist.
template <int kBytes, class Taps>
__device__ inline void copy_rows(const WeightSums& z, const Shared<Taps>& shared, int strip,
                                 int first_row) {
  constexpr int kFloats = kBytes / 4, kAcross = kStrip / kFloats;
  const auto thread = static_cast<int>(threadIdx.x);
  const int i = thread % kAcross * kFloats;
  const int area = z.at.p * z.at.q, pixel = strip * kStrip + i;
  const int image = z.at.by_area.divide(pixel);
  const bool is_there = image < z.at.images;
  const float* const from =
      z.dy + (is_there
                  ? static_cast<std::int64_t>(image) * z.at.channels * area + pixel - image * area
                  : 0);
  float* const to = shared.strip(strip) + i;
  for (int row = thread / kAcross; row < shared.rows; row += kThreadsOfBlock / kAcross) {
    const bool inside = is_there && first_row + row < z.at.channels;
    async_copy<kBytes>(to + row * kPitch,
                       from + (inside ? static_cast<std::int64_t>(first_row + row) * area : 0),
                       inside);
  }
}

// A lane's data of its entry in each tile.
template <int kTiles, class Taps>
struct Columns {
  const float* x[kTiles];
  Taps bit[kTiles];
};
template <int kTiles, class Taps>
__device__ inline Columns<kTiles, Taps> columns_of(const WeightSums& z, int first, int end) {
  Columns<kTiles, Taps> out;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    Entry entry{0, -1};
    if (first + j < end) {
      entry = z.lists.entries[static_cast<std::int64_t>(first + j) * kChunk +
                              static_cast<int>(threadIdx.x) % 32 / 4];
    }
    out.x[j] = address_at(z.x, entry.offset);
    out.bit[j] = bit_of<Taps>(entry.tap);
  }
  return out;
}

// For each of the lane's entries, loads x at two of the eight pixels. The pixels of lane l are
// l % 4 and l % 4 + 4.
template <int kTiles, class Taps>
__device__ inline void load_columns(const Columns<kTiles, Taps>& columns, const Place<Taps>* places,
                                    float (&out)[kTiles][2]) {
  const Place<Taps> one = places[threadIdx.x % 4], other = places[threadIdx.x % 4 + 4];
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    out[j][0] = (one.inside & columns.bit[j]) != 0 ? __ldg(address_at(columns.x[j], one.from)) : 0;
    out[j][1] =
        (other.inside & columns.bit[j]) != 0 ? __ldg(address_at(columns.x[j], other.from)) : 0;
  }
}

// Adds the products of one strip to total. On entry, `x` holds the pixels of the strip's first
// step; on return, those of the next strip's first step.
template <int kTiles, bool kTf32, class Taps>
__device__ inline void add_strip(const Columns<kTiles, Taps>& columns, const float* rows,
                                 const Place<Taps>* places, const Place<Taps>* next,
                                 float (&x)[kTiles][2], float (&total)[kTiles][4]) {
  float high[kTiles][4] = {}, low[kTiles][4] = {};
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  const float* const row = rows + lane / 4 * kPitch + lane % 4;
#pragma unroll 2
  for (int step = 0; step < kPeriod; ++step) {
    float ahead[kTiles][2];
    load_columns(columns, step + 1 < kPeriod ? places + (step + 1) * kPixels : next, ahead);
    const float* const at = row + step * kPixels;
    const float4 dy = make_float4(at[0], at[8 * kPitch], at[4], at[8 * kPitch + 4]);
    add_products<kTiles, kTf32>(dy, x, high, low);
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

// Grid: x = part of the pixels; y = group of lists; z = part of the entries of these lists.
template <int kTiles, bool kTf32, class Taps>
__global__ __launch_bounds__(kThreadsOfBlock,
                             2) void sparse_weights_kernel(const __grid_constant__ WeightSums z) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  Shared<Taps> shared{dynamic_shared<float>(), nullptr, z.lists_at_once * kRows};
  shared.places = reinterpret_cast<Place<Taps>*>(shared.dy + 2 * shared.rows * kPitch);
  const int first_list = static_cast<int>(blockIdx.y) * z.lists_at_once;
  const int block_list = warp % z.lists_at_once, list = first_list + block_list;
  const int at_once = kWarps / z.lists_at_once * kTiles;  // chunks of a list that a block computes
                                                          // at once
  const auto part = static_cast<std::int64_t>(blockIdx.x);
  const auto begin = static_cast<int>(part * z.strips / gridDim.x);
  const auto end = static_cast<int>((part + 1) * z.strips / gridDim.x);
  let_next_kernel_start();
  wait_for_previous_kernel();
  int longest = 0;
  for (int i = first_list; i < min(first_list + z.lists_at_once, z.lists_count); ++i) {
    longest = max(longest, z.lists.end[i] - z.lists.begin[i]);
  }
  const int chunks_begin = list < z.lists_count ? z.lists.begin[list] : 0;
  const int chunks_end = list < z.lists_count ? z.lists.end[list] : 0;
  for (int turn = static_cast<int>(blockIdx.z); turn * at_once < longest;
       turn += static_cast<int>(gridDim.z)) {
    const int first = chunks_begin + turn * at_once + warp / z.lists_at_once * kTiles;
    const bool has_entries = first < chunks_end;
    const Columns<kTiles, Taps> columns = columns_of<kTiles, Taps>(z, first, chunks_end);
    const auto copy = [&](int strip) {
      z.in_fours ? copy_rows<16>(z, shared, strip, first_list * kRows)
                 : copy_rows<4>(z, shared, strip, first_list * kRows);
      async_copy_commit();
    };
    __syncthreads();
    note_places(z, shared, begin);
    note_places(z, shared, begin + 1);
    copy(begin);
    async_copy_wait<0>();
    __syncthreads();
    float x[kTiles][2], total[kTiles][4] = {};
    load_columns(columns, shared.places_of(begin), x);
    for (int strip = begin; strip < end; ++strip) {
      if (strip > begin) {
        async_copy_wait<0>();
        __syncthreads();
      }
      if (strip + 1 < end) copy(strip + 1);
      note_places(z, shared, strip + 2);
      if (!has_entries) continue;
      add_strip<kTiles, kTf32>(columns, shared.strip(strip) + block_list * kRows * kPitch,
                               shared.places_of(strip), shared.places_of(strip + 1), x, total);
    }
    if (!has_entries) continue;
    float* const to = z.parts + part * z.part_floats +
                      static_cast<std::int64_t>(first) * kChunk * kRows + lane / 4;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      if (first + j >= chunks_end) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        to[(j * kChunk + lane % 4 * 2 + i % 2) * kRows + i / 2 * 8] = total[j][i];
      }
    }
  }
}

// ---- dw ----------------------------------------------------------------------------------------

struct WriteBlocks {
  MakeLists make;  // includes the lists, which locate columns
  const float* parts = nullptr;
  std::int64_t part_floats = 0;
  int parts_count = 1;
  float* dw = nullptr;
  bool accumulate = false;
};

// Grid: x = block row; y = share of the elements of its blocks.
__global__ void write_blocks_kernel(const __grid_constant__ WriteBlocks z) {
  const BlockSparseView& w = z.make.w;
  const auto height = static_cast<int>(w.block_rows), width = static_cast<int>(w.block_columns);
  const auto row = static_cast<int>(blockIdx.x);
  const int words = ceil_div(z.make.columns, 32);
  const std::int64_t size = static_cast<std::int64_t>(height) * width;
  let_next_kernel_start();
  wait_for_previous_kernel();
  const std::int64_t end = w.row_begin[row + 1] * size;
  for (std::int64_t i = w.row_begin[row] * size + blockIdx.y * kThreads + threadIdx.x; i < end;
       i += std::int64_t{gridDim.y} * kThreads) {
    const std::int64_t block = i / size;
    const auto inside = static_cast<int>(i - block * size);
    const int k = row * height + inside / width, list = k / kRows;
    const int column = w.columns[block] * width + inside % width;
    const std::int64_t list_offset = static_cast<std::int64_t>(list) * words;
    const std::int64_t entry =
        static_cast<std::int64_t>(z.make.to.begin[list]) * kChunk +
        entries_before(z.make.to.marks + list_offset, z.make.to.before + list_offset, column);
    const float* from = z.parts + entry * kRows + k % kRows;
    float sum = 0;
    for (int part = 0; part < z.parts_count; part += kChain) {
      float chain_sum = 0;
#pragma unroll
      for (int j = 0; j < kChain; ++j) {
        if (part + j >= z.parts_count) break;
        chain_sum += from[(part + j) * z.part_floats];
      }
      sum += chain_sum;
    }
    z.dw[i] = z.accumulate ? z.dw[i] + sum : sum;
  }
}

// ---- which tile --------------------------------------------------------------------------------

struct WeightTile {
  int tiles;  // tiles of a warp, of 8 entries
  int lists;  // lists of a block
};
constexpr WeightTile kTiles[] = {{4, 1}, {4, 2}, {4, 4}, {4, 8}, {2, 1}, {2, 2}, {2, 4}, {2, 8}};
constexpr int kMaxParts = 1024;
constexpr double kMaxPartBytes = 64 << 20;
constexpr int kLongestChain = 160;  // framework/simd/sum_chain.h

struct BlockSparseWeightTiling {
  WeightTile tile = kTiles[0];
  int parts = 1, turns = 1;
};

using WeightKernel = void (*)(const WeightSums);
template <bool kTf32, class Taps>
WeightKernel kernel_of(const WeightTile& tile) {
  return tile.tiles == 4 ? sparse_weights_kernel<4, kTf32, Taps>
                         : sparse_weights_kernel<2, kTf32, Taps>;
}
bool has_few_taps(const Conv2dProblem& z) { return z.r * z.s <= 32; }
WeightKernel kernel_of(const Conv2dProblem& z, const WeightTile& tile) {
  const bool tf32 = z.math == MathMode::tf32;
  if (has_few_taps(z))
    return tf32 ? kernel_of<true, unsigned>(tile) : kernel_of<false, unsigned>(tile);
  return tf32 ? kernel_of<true, unsigned long long>(tile)
              : kernel_of<false, unsigned long long>(tile);
}
std::size_t shared_bytes(const Conv2dProblem& z, const WeightTile& tile) {
  return shared_bytes(
      tile.lists, has_few_taps(z) ? sizeof(Place<unsigned>) : sizeof(Place<unsigned long long>));
}

std::int64_t strips_of(const Conv2dProblem& z) {
  return ceil_div(z.n * z.p() * z.q(), std::int64_t{kStrip});
}

Cost counts_of(const Conv2dProblem& z, const WeightTile& tile, int parts) {
  constexpr const char* kNames[2][2] = {{"f32", "f32 4 tiles"}, {"tf32", "tf32 4 tiles"}};
  const double entries = expected_entries(z);
  const double chunks = std::max(1.0, std::ceil(entries / kChunk));
  const double lists = number(ceil_div(z.k, std::int64_t{kRows}));
  const double warps = std::ceil(chunks / tile.tiles);  // of a list
  const double blocks =
      parts * std::ceil(lists / tile.lists) * std::ceil(warps * tile.lists / kWarps);
  const double strips = std::ceil(number(strips_of(z)) / parts);
  const double tiles = parts * strips * lists * warps * tile.tiles;  // of 8 entries, in all strips
  const double rows = static_cast<double>(tile.lists) * kRows;       // of dy
  const double part_bytes = number(most_chunks(z)) * kChunk * kRows * sizeof(float);
  const double dw_bytes = sizeof(float) * number(z.weight_format.stored_elements());
  Cost out = sparse_counts(z, entries);
  out.issued = tiles * products_of(z) * 2 * kRows * kChunk * kStrip;
  out.cached = sizeof(float) * kStrip * (blocks * strips * rows + tiles * kChunk);
  out.schedule = kNames[z.math == MathMode::tf32 ? 1 : 0][tile.tiles == 4 ? 1 : 0];
  out.blocks = blocks;
  out.resident = 2;
  out.chain = strips * kPeriod;
  // Rows of a strip are copied in fours where their length allows it.
  out.copies = strips * std::ceil(rows * kStrip / (z.p() * z.q() % 4 == 0 ? 4 : 1) /
                                  kThreadsOfBlock);
  out.waits = strips;                                // barriers
  out.listed_warps = tiles * kChunk * kStrip / 32;   // loads of x
  out.pass_bytes = 2 * parts * part_bytes + 2 * dw_bytes;  // parts; blocks to lists, dw
  out.launches = 3;
  return out;
}

BlockSparseWeightTiling search_plan(const Conv2dProblem& z) {
  const std::int64_t strips = strips_of(z);
  const double bytes = 64.0 * kChunk * static_cast<double>(most_chunks(z));
  const auto most = static_cast<std::int64_t>(
      std::clamp(kMaxPartBytes / bytes, 1.0,
                 static_cast<double>(std::min<std::int64_t>(strips, kMaxParts))));
  const std::int64_t least = std::min(most, ceil_div(strips, std::int64_t{kLongestChain}));
  const auto room = static_cast<std::size_t>(cuda_device_facts().shared_bytes_per_block);
  Cheapest<BlockSparseWeightTiling> search({"conv2d", "block_sparse", Direction::backward_weight},
                                           DeviceType::cuda, z.dtype);
  for (const WeightTile& tile : kTiles) {
    if (shared_bytes(z, tile) > room) continue;
    for (std::int64_t parts = least; parts <= most; parts += 1 + parts / 8) {
      search.offer({tile, narrow(parts)}, counts_of(z, tile, narrow(parts)));
    }
  }
  BlockSparseWeightTiling best = search.found();
  // `turns` is the size of the grid along z. It is large enough that nearly all lists need one
  // iteration of the kernel's loop; longer lists take several.
  const double entries = expected_entries(z);
  const int at_once = kWarps / best.tile.lists * best.tile.tiles * kChunk;
  best.turns =
      std::max(1, static_cast<int>(std::ceil((entries + 3 * std::sqrt(entries)) / at_once)));
  return best;
}

BlockSparseWeightTiling plan_of(const Conv2dProblem& z) {
  static KeptPlans<BlockSparseWeightTiling> kept;
  return *kept.get(z, Direction::backward_weight, [&] { return search_plan(z); });
}

struct WeightLayout {
  WeightLayout(const Conv2dProblem& z, const BlockSparseWeightTiling& plan, void* memory) {
    Pieces pieces(memory);
    const std::int64_t words =
        ceil_div(z.k, std::int64_t{kRows}) * ceil_div(z.c * z.r * z.s, std::int64_t{32});
    lists = take_lists(pieces, z);
    lists.marks = pieces.take<unsigned>(words);
    lists.before = pieces.take<int>(words);
    part_floats = most_chunks(z) * kChunk * kRows;
    parts = pieces.take<float>(plan.parts * part_floats);
    bytes = pieces.bytes;
  }
  Lists lists;
  float* parts = nullptr;
  std::int64_t part_floats = 0;
  std::size_t bytes = 0;
};

}  // namespace

Cost weights_cost(const Conv2dProblem& z) {
  const BlockSparseWeightTiling plan = plan_of(z);
  return counts_of(z, plan.tile, plan.parts);
}

std::size_t weights_workspace_bytes(const Conv2dProblem& z) {
  return WeightLayout(z, plan_of(z), nullptr).bytes;
}

void weights_from_lists(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const BlockSparseWeightTiling plan = plan_of(z);
  const WeightLayout at(z, plan, args.workspace);
  make_lists(z, args.views.w_blocks, at.lists);
  const int lists = narrow(ceil_div(z.k, std::int64_t{kRows}));
  const WeightSums sums{.x = static_cast<const float*>(args.x),
                        .dy = static_cast<const float*>(args.dy),
                        .lists = at.lists,
                        .parts = at.parts,
                        .part_floats = at.part_floats,
                        .lists_count = lists,
                        .lists_at_once = plan.tile.lists,
                        .strips = narrow(strips_of(z)),
                        .in_fours = z.p() * z.q() % 4 == 0 && is_aligned(args.dy, 16),
                        .at = geometry_of(z)};
  launch(kernel_of(z, plan.tile),
         {.grid = dim3(static_cast<unsigned>(plan.parts),
                       static_cast<unsigned>(ceil_div(lists, plan.tile.lists)),
                       static_cast<unsigned>(plan.turns)),
          .block = dim3(kThreadsOfBlock),
          .shared_bytes = shared_bytes(z, plan.tile),
          .overlaps_previous = true},
         sums);
  WriteBlocks write{.make = lists_of(z, args.views.w_blocks),
                    .parts = at.parts,
                    .part_floats = at.part_floats,
                    .parts_count = plan.parts,
                    .dw = static_cast<float*>(args.dw),
                    .accumulate = args.accumulate};
  write.make.to = at.lists;
  const WeightFormat& format = z.weight_format;
  const std::int64_t rows = z.k / format.block_rows;
  launch(write_blocks_kernel,
         {.grid = dim3(static_cast<unsigned>(rows),
                       static_cast<unsigned>(std::clamp<std::int64_t>(
                           ceil_div(format.stored_elements(), rows * kThreads), 1, 64))),
          .block = dim3(kThreads),
          .overlaps_previous = true},
         write);
}

}  // namespace convscope::block_sparse
