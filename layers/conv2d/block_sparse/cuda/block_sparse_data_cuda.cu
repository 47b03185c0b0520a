// SPDX-License-Identifier: Apache-2.0
// block_sparse_data_cuda.cu: dx of convolution with block-sparse weights. A warp keeps 16 channels
// of some pixels of dy in registers, reads the list of these channels, and adds the tensor-core
// products to dx in shared memory.
//
// Formula    dx[n,c,h,w] = sum over the stored (k,c,r,s) and the p, q with p stride_h - pad_top +
//            r dilation_h = h, q stride_w - pad_left + s dilation_w = w of w[k,c,r,s] dy[n,k,p,q]
// Textbook   for n, p, q, blocks of 16 kernels, (c,r,s) in list[block]:
//              dx[n,c,p stride_h - pad_top + r dilation_h,..] += sum over i < 16 of
//                w[k+i,c,r,s] * dy[n,k+i,p,q], where that is inside the image
// Method     The products go to dx in shared memory, at places that the list names.
//            1. prepare_data, once: The list of each 16 output channels is cut into segments of up
//               to 32 channels of x (`Piece`). The entries of a segment are distributed over its
//               chunks of eight in turn, channel by channel: entry i goes into chunk i mod chunks.
//               So no chunk has a channel twice, and few positions of a chunk stay empty.
//            2. A block computes a range of pixels of dx (pixels are numbered over images, rows and
//               columns) for the channels of a segment, in shared memory. It reads all pixels of dy
//               that reach the range, 16 for each tile of a warp. A bit mask of each pixel marks
//               the taps whose target is inside. For each list a warp loads its tiles once, splits
//               them into high and low TF32 parts, and reads the chunks. A product of 16 pixels x
//               16 channels x 8 entries is two instructions with a K dimension of 8. The channel
//               and tap of an entry select where its results are added.
//            3. An entry shifts all pixels equally. So threads that add the same entry, or entries
//               of different channels, never write to the same address. A barrier precedes each
//               chunk that repeats a channel used since the last barrier. The chunks of a channel
//               are kept apart, so that few barriers are needed.
// Shapes     dy [N,K,P,Q], w blocks [blocks,rows,columns], dx [N,C,H,W], f32, row-major; in shared
//            memory [channels / 4][pixels][4]
// Supports   as block_sparse_cuda.cu
// Cost       FLOPs = 2 N K P Q times the columns that 16 output channels keep, three times that for
//            f32 as f32; pixels of dy that reach two ranges of dx are computed twice. Bytes = dx,
//            and dy once for each segment of channels. For 8 entries and 16 pixels a warp has 6
//            tensor-core instructions, 4 loads, 4 additions and 4 stores of results, 12
//            instructions for addresses and borders, and a share of the work for its tiles. Bound
//            equally by the tensor cores and by shared memory
// Numerics   f32: operands are high and low as in the forward pass, and small terms are added
//            first. Sums of 16 products start from zero, and each result is added to dx in f32,
//            once for each entry of a channel. Same bits on each run; exact on integers up to 2^11,
//            sums below 2^24
// Backward   this file is backward_data; dx assigned
// Choices    Four channels of a pixel are neighbours in shared memory, so 8 pixels and 4 channels
//            that differ modulo 4 are in 32 banks, for all taps. Channels are distributed in that
//            order, so most columns of a chunk differ modulo 4. Two blocks of 256 threads and 128
//            registers share an SM, so a block has half of its shared memory. Channels of a
//            segment, tiles of a warp and pixels of a range: lowest estimated time
// Source     as block_sparse_cuda.cu; R. McNaughton 1959: Scheduling with Deadlines and Loss
//            Functions, Management Science 6, doi 10.1287/mnsc.6.1.1 (distribution of entries)
// Read next  block_sparse_cuda.cu, the forward pass; cpu/block_sparse_cpu.cpp
#include <algorithm>
#include <cmath>

#include "framework/cuda/map.cuh"
#include "framework/cuda/shared_float.cuh"
#include "layers/conv2d/block_sparse/cuda/block_sparse_lists.cuh"

namespace convscope::block_sparse {
namespace {

constexpr int kBytes = sizeof(float);
constexpr int kInFour = 4;        // neighbouring channels of a pixel in shared memory
constexpr int kNoTap = 64;        // tap of an entry that only fills up a chunk
constexpr int kFence = 1 << 8;    // flag in the taps: a barrier precedes the chunk
constexpr int kApart = 3;         // largest distance between chunks of a channel
constexpr int kMaxThreads = 256;  // of a block

// ---- the pieces of the lists -------------------------------------------------------------------

struct Piece {
  int begin, end;  // range of chunks
};
struct Pieces16 {
  Piece* pieces = nullptr;   // [lists][segments of a list]
  Entry* entries = nullptr;  // [chunks][8]; offset: bytes in the accumulators of a block
  float* values = nullptr;   // [chunks][8][4][4]: [entry][k % 4][k / 4]
  int* places = nullptr;     // positions of the entries, in ascending order of columns
};

struct MakePieces {
  MakeLists make;
  Pieces16 to;
  int across = 4, per_list = 1;  // channels of a segment; segments of a list
};

// How a lane distributes the entries of its channel when a segment of a list is written. Entry i of
// the segment goes into chunk i % chunks, column i / chunks. There are at least as many chunks as
// any channel has entries.
struct Deal {
  int first;   // index in the segment of the channel's first entry
  int count;   // entries of the channel
  int chunks;  // chunks of the segment
  int apart;   // chunks i and i + apart are stored as neighbours, to separate those of one channel
  __device__ int chunk_of(int entry) const {
    const int i = entry % chunks, group = i % apart;
    return group * (chunks / apart) + min(group, chunks % apart) + i / apart;
  }
};

// Returns how the entries of a segment are distributed. All lanes of a warp must call it.
__device__ inline Deal deal_of(int count) {
  int behind = count, most = count;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(kAllLanes, behind, static_cast<unsigned>(distance));
    if (lane >= distance) behind += other;
    most = max(most, __shfl_xor_sync(kAllLanes, most, distance));
  }
  const int all = __shfl_sync(kAllLanes, behind, 31);
  const int chunks = max(ceil_div(all, kChunk), most);
  return {behind - count, count, chunks, min(most, kApart)};
}

// Returns a bit for each chunk that needs a barrier before it, because the chunk repeats a channel
// used since the last barrier.
__device__ inline unsigned long long fences_of(const Deal& deal) {
  if (deal.chunks > 64) return ~0ull;
  unsigned long long mine = 0, out = 1, since = ~0ull;
  for (int i = 0; i < deal.count; ++i) mine |= 1ull << deal.chunk_of(deal.first + i);
  for (int chunk = 1; chunk < deal.chunks; ++chunk) {
    const unsigned long long before = since & ((1ull << chunk) - 1);
    const bool meets = (mine >> chunk & 1) != 0 && (mine & before) != 0;
    if (__ballot_sync(kAllLanes, meets) == 0) continue;
    out |= 1ull << chunk;
    since = ~0ull << chunk;
  }
  return out;
}

// Grid: x = list.
__global__ __launch_bounds__(kListThreads) void write_pieces_kernel(
    const __grid_constant__ MakePieces pass) {
  const MakeLists& z = pass.make;
  auto* const marks = dynamic_shared<unsigned>();
  __shared__ int scratch[32];
  const int words = ceil_div(z.columns, 32);
  int* const before = reinterpret_cast<int*>(marks + words);
  const auto list = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int first_chunk = first_chunk_of(z, list, scratch);
  mark_columns(z, list, marks, words);
  const int all = count_marks(marks, words, before);
  const auto rank = [&](int column) {
    return column < z.columns ? entries_before(marks, before, column) : all;
  };
  int* const places = pass.to.places + static_cast<std::int64_t>(first_chunk) * kChunk;
  for (int piece = thread / 32; piece < pass.per_list; piece += kListThreads / 32) {
    // Lanes take the channels in the order of their index modulo four, which selects the bank.
    const int quarter = pass.across / kInFour;
    const int inside = lane % quarter * kInFour + lane / quarter;
    const int channel = piece * pass.across + inside;
    const bool is_there = lane < pass.across && channel * z.taps < z.columns;
    int column = is_there ? channel * z.taps : 0;
    const int first = rank(column);
    const Deal deal = deal_of(is_there ? rank(column + z.taps) - first : 0);
    const int number = list * pass.per_list + piece;
    const int begin = first_chunk + number * (1 + z.taps) +
                      rank(min(piece * pass.across * z.taps, z.columns)) / kChunk;
    if (lane == 0) pass.to.pieces[number] = {begin, begin + deal.chunks};
    const unsigned long long fences = fences_of(deal);
    const auto fence = [&](int chunk) {
      return deal.chunks > 64 || (fences >> chunk & 1) != 0 ? kFence : 0;
    };
    Entry* const entries = pass.to.entries + static_cast<std::int64_t>(begin) * kChunk;
    float* const values = pass.to.values + static_cast<std::int64_t>(begin) * kChunk * kRows;
    for (int i = lane; i < deal.chunks * kChunk; i += 32) {
      entries[i] = {0, kNoTap + fence(i / kChunk)};
    }
    for (int i = lane; i < deal.chunks * kChunk * kRows; i += 32) values[i] = 0;
    __syncwarp();
    for (int i = 0; i < deal.count; ++i, ++column) {
      while ((marks[column / 32] & 1u << (column % 32)) == 0) ++column;
      const int tap = column - channel * z.taps;
      const int entry = deal.first + i, chunk = deal.chunk_of(entry);
      const int at = chunk * kChunk + entry / deal.chunks;
      entries[at] = {inside / kInFour * z.plane + inside % kInFour * kBytes +
                         tap / z.taps_w * z.down + tap % z.taps_w * z.right,
                     tap + fence(chunk)};
      places[first + i] = begin * kChunk + at;
    }
  }
  __syncthreads();
  for_each_value(z, list, [&](int column, int row, float value) {
    pass.to
        .values[static_cast<std::int64_t>(places[rank(column)]) * kRows + row % 4 * 4 + row / 4] =
        value;
  });
}

// ---- dx ----------------------------------------------------------------------------------------

struct SparseData {
  const float* dy = nullptr;
  Pieces16 lists;
  float* dx = nullptr;
  int range = 0, pixels = 0;          // pixels of dx: of a block; of all images
  int across = 1, per_list = 1;        // channels of a segment; segments of a list
  int lists_count = 0, channels = 0;  // C
  Geometry at;
  FastDivisor by_w, by_plane;  // of x
};

// A range of pixels of dy that contains all pixels that can reach pixels [first, last] of dx.
struct Range {
  int begin, end;
};
__device__ inline Range reaching(const SparseData& z, int first, int last) {
  const Geometry& at = z.at;
  const auto split = [&](int pixel, int& h, int& w) {
    const int image = z.by_plane.divide(pixel), inside = pixel - image * at.h * at.w;
    h = z.by_w.divide(inside);
    w = inside - h * at.w;
    return image;
  };
  int h, w;
  const int reach_h = (at.taps_h - 1) * at.apart_h, reach_w = (at.taps_w - 1) * at.apart_w;
  const int first_image = split(first, h, w);
  const int low = max(0, ceil_div(max(0, h + at.pad_h - reach_h), at.stride_h));
  int from = 0;  // first column; above 0 only if row `low` reaches row h with its last taps
  if (low * at.stride_h - at.pad_h + reach_h == h) {
    from = ceil_div(max(0, w + at.pad_w - reach_w), at.stride_w);
  }
  const int begin =
      (first_image * at.p + min(low, at.p)) * at.q + (low < at.p ? min(from, at.q) : 0);
  const int last_image = split(last, h, w);
  const int high = min(at.p - 1, (h + at.pad_h) / at.stride_h);
  int to = at.q;
  if (high * at.stride_h - at.pad_h == h) to = min(at.q, (w + at.pad_w) / at.stride_w + 1);
  return {begin, (last_image * at.p + high) * at.q + to};
}

// A pixel of dy. `from` is the offset of its channels in dy, `to` the accumulator to which tap (0,
// 0) is added, `inside` the taps whose target is inside the image and the range.
template <class Taps>
struct Source {
  int from;
  SharedAddress to;
  Taps inside;
};
template <class Taps>
__device__ inline Source<Taps> source_at(const SparseData& z, int pixel, int end, int first,
                                         int last, SharedAddress sums) {
  if (pixel >= end) return {0, sums, 0};  // reads pixel 0 and adds nothing
  const Geometry& at = z.at;
  const int area = at.p * at.q;
  const int image = at.by_area.divide(pixel), inside = pixel - image * area;
  const int row = at.by_q.divide(inside);
  const int h = row * at.stride_h - at.pad_h;
  const int w = (inside - row * at.q) * at.stride_w - at.pad_w;
  const int image_offset = image * at.h * at.w - first;
  Source<Taps> out{image * at.channels * area + inside,
                   sums + kInFour * kBytes * (image_offset + h * at.w + w), 0};
  for (int r = 0; r < at.taps_h; ++r) {
    const int to_h = h + r * at.apart_h;
    if (to_h < 0 || to_h >= at.h) continue;
    for (int s = 0; s < at.taps_w; ++s) {
      const int to_w = w + s * at.apart_w;
      const int to = image_offset + to_h * at.w + to_w;
      const bool ends = to_w >= 0 && to_w < at.w && to >= 0 && to <= last - first;
      out.inside |= static_cast<Taps>(ends) << (r * at.taps_w + s);
    }
  }
  return out;
}

// The left operands of a warp: 16 pixels and 16 channels of dy in each tile.
template <int kTiles>
struct Operands {
  float high[kTiles][2][4], low[kTiles][2][4];
};
template <int kTiles, class Taps>
__device__ inline void load_operands(const float* dy, int area, int rows,
                                     const Source<Taps> (&pixels)[kTiles][2],
                                     Operands<kTiles>& out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int k = 0; k < kRows / 4; ++k) {
    const int row = k * 4 + lane % 4;
    const bool is_there = row < rows;
    const float* const from = dy + static_cast<std::int64_t>(is_there ? row : 0) * area;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float v = is_there ? __ldg(address_at(from, pixels[j][i].from)) : 0;
        const HighLow parts = high_low(v);
        out.high[j][k / 2][k % 2 * 2 + i] = parts.high;
        out.low[j][k / 2][k % 2 * 2 + i] = parts.low;
      }
    }
  }
}

// A lane's operands of one chunk: two entries of the result, and its elements of the right operand.
struct Chunk {
  Entry one, other;
  float4 w;
};
__device__ inline Chunk chunk_at(const Pieces16& lists, int chunk) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Entry* const entries = lists.entries + static_cast<std::int64_t>(chunk) * kChunk;
  const int4 two = *reinterpret_cast<const int4*>(entries + lane % 4 * 2);
  return {
      {two.x, two.y},
      {two.z, two.w},
      reinterpret_cast<const float4*>(lists.values)[static_cast<std::int64_t>(chunk) * 32 + lane]};
}

// Adds the 16-term sum of each entry of a chunk and each pixel to dx in shared memory.
template <int kTiles, bool kTf32, class Taps>
__device__ inline void add_chunk(const Chunk& chunk, const Operands<kTiles>& dy,
                                 const Source<Taps> (&pixels)[kTiles][2]) {
  const auto bit_of_entry = [](const Entry& entry) -> Taps {
    const int tap = entry.tap & (kFence - 1);
    return tap == kNoTap ? 0 : Taps{1} << tap;
  };
  const Taps bits[2] = {bit_of_entry(chunk.one), bit_of_entry(chunk.other)};
  const int offsets[2] = {chunk.one.offset, chunk.other.offset};
  const HighLow w[4] = {high_low(chunk.w.x), high_low(chunk.w.y), high_low(chunk.w.z),
                        high_low(chunk.w.w)};
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    float before[4], sum[4] = {};
    SharedAddress at[4];
    bool ends[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      ends[i] = (pixels[j][i / 2].inside & bits[i % 2]) != 0;
      at[i] = pixels[j][i / 2].to + offsets[i % 2];
      if (ends[i]) before[i] = load_shared(at[i]);
    }
    // Small terms first: the tensor core rounds each sum towards zero.
#pragma unroll
    for (int half = 0; half < 2 && !kTf32; ++half) {
      mma_tf32(sum, dy.low[j][half], w[half * 2].high, w[half * 2 + 1].high);
      mma_tf32(sum, dy.high[j][half], w[half * 2].low, w[half * 2 + 1].low);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      mma_tf32(sum, dy.high[j][half], w[half * 2].high, w[half * 2 + 1].high);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (ends[i]) store_shared(at[i], before[i] + sum[i]);
    }
  }
}

// Grid: x = range of pixels of dx; y = segment of a list.
template <int kTiles, bool kTf32, class Taps>
__global__ __launch_bounds__(kMaxThreads,
                             2) void sparse_data_kernel(const __grid_constant__ SparseData z) {
  float* const sums = dynamic_shared<float>();  // [channels of a segment / 4][range][4]
  const auto threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, warp = thread / 32;
  const auto piece = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.x) * z.range;
  const int last = min(first + z.range, z.pixels) - 1;
  const Range range = reaching(z, first, last);
  for (int i = thread; i < z.across * z.range; i += threads) sums[i] = 0;
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int area = z.at.p * z.at.q;
  constexpr int kOfWarp = 16 * kTiles;
  for (int begin = range.begin; begin < range.end; begin += threads / 32 * kOfWarp) {
    const int warp_begin = begin + warp * kOfWarp;
    Source<Taps> pixels[kTiles][2];
#pragma unroll
    for (int j = 0; j < kTiles * 2; ++j) {
      pixels[j / 2][j % 2] = source_at<Taps>(z, warp_begin + j * 8 + lane / 4, range.end, first,
                                             last, shared_address(sums));
    }
    for (int list = 0; list < z.lists_count; ++list) {
      const Piece at = z.lists.pieces[list * z.per_list + piece];
      if (at.begin == at.end) continue;
      Operands<kTiles> dy;
      load_operands(z.dy + static_cast<std::int64_t>(list) * kRows * area, area,
                   z.at.channels - list * kRows, pixels, dy);
      Chunk next = chunk_at(z.lists, at.begin);
      for (int chunk = at.begin; chunk < at.end; ++chunk) {
        const Chunk now = next;
        if ((now.one.tap & kFence) != 0) __syncthreads();
        next = chunk_at(z.lists, min(chunk + 1, at.end - 1));
        if (warp_begin < range.end) add_chunk<kTiles, kTf32>(now, dy, pixels);
      }
    }
  }
  __syncthreads();
  const int first_channel = piece * z.across;
  const int here = min(z.across, z.channels - first_channel), plane = z.at.h * z.at.w;
  for (int i = first + thread; i <= last; i += threads) {
    const int image = z.by_plane.divide(i);
    float* to = z.dx + (static_cast<std::int64_t>(image) * z.channels + first_channel) * plane +
                (i - image * plane);
    for (int c = 0; c < here; c += kInFour) {
      const float4 four = reinterpret_cast<const float4*>(sums)[c / kInFour * z.range + i - first];
      const float values[kInFour] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int j = 0; j < kInFour; ++j, to += plane) {
        if (c + j < here) *to = values[j];
      }
    }
  }
}

// ---- which tile --------------------------------------------------------------------------------

struct DataTile {
  int across = 8;     // channels of a segment
  int tiles = 2;      // tiles of a warp, of 16 pixels
  int threads = 256;  // of a block of threads
  int range = 1;      // pixels of dx that a block computes
  int pixels() const { return threads / 2 * tiles; }  // pixels of dy that a block reads at once
};

using DataKernel = void (*)(const SparseData);
template <int kTiles, class Taps>
DataKernel kernel_of(const Conv2dProblem& z) {
  return z.math == MathMode::tf32 ? sparse_data_kernel<kTiles, true, Taps>
                                  : sparse_data_kernel<kTiles, false, Taps>;
}
bool has_few_taps(const Conv2dProblem& z) { return z.r * z.s <= 32; }
DataKernel kernel_of(const Conv2dProblem& z, const DataTile& tile) {
  if (!has_few_taps(z)) return kernel_of<2, unsigned long long>(z);
  return tile.tiles == 4 ? kernel_of<4, unsigned>(z) : kernel_of<2, unsigned>(z);
}

// Returns the expected number of pixels of dy that reach `range` pixels of dx.
double reaching(const Conv2dProblem& z, double range) {
  const double rows =
      static_cast<double>((z.r - 1) * z.dilation_h) / static_cast<double>(z.stride_h);
  const double columns =
      static_cast<double>((z.s - 1) * z.dilation_w) / static_cast<double>(z.stride_w);
  const double all = static_cast<double>(z.n * z.p() * z.q());
  const double share = static_cast<double>(z.p() * z.q()) / static_cast<double>(z.h * z.w);
  return std::min(all, range * share + rows * static_cast<double>(z.q()) + columns + 1);
}

Cost counts_of(const Conv2dProblem& z, const DataTile& tile) {
  constexpr const char* kNames[2][2] = {{"f32", "f32 4 tiles"}, {"tf32", "tf32 4 tiles"}};
  const double lists = number(ceil_div(z.k, std::int64_t{kRows}));
  const double segments = number(ceil_div(z.c, std::int64_t{tile.across}));
  const double here = std::min(number(z.c), static_cast<double>(tile.across));
  const double list_entries = expected_entries(z);
  const double entries = list_entries / number(z.c) * here;  // of a segment of a list
  // A segment has a chunk for each entry of its fullest channel. Entries are at random, so the
  // fullest of up to 32 channels has about two standard deviations more than the mean.
  const double mean = entries / here;
  const double most = std::min(number(z.r * z.s), mean + 2 * std::sqrt(mean));
  const double chunks = std::ceil(std::max(entries / kChunk, most));
  const double blocks =
      std::ceil(number(z.n * z.h * z.w) / static_cast<double>(tile.range)) * segments;
  const double pixels = reaching(z, tile.range);
  const double tiles = std::ceil(pixels / (16 * tile.tiles)) * tile.tiles;  // of a block
  const double passes = std::ceil(pixels / tile.pixels());
  const double products = blocks * tiles * lists * chunks;  // of 16 pixels and 8 entries
  // An addition to shared memory is a load and a store. With strides two pixels share a bank.
  const double additions = 4.0 * 2 * (z.stride_w > 1 ? 2 : 1);
  Cost out = sparse_counts(z, list_entries);
  out.issued = products * products_of(z) * 2 * 16 * kRows * kChunk;
  // Pixels of dy, and the chunks, which the tiles of a warp share.
  out.cached = blocks * lists *
               (tiles * 16 * kRows * sizeof(float) +
                tiles / tile.tiles * chunks * kChunk *
                    (kRows * sizeof(float) + static_cast<double>(sizeof(Entry))));
  out.schedule = kNames[z.math == MathMode::tf32 ? 1 : 0][tile.tiles == 4 ? 1 : 0];
  out.blocks = blocks;
  out.resident = 2.0 * kMaxThreads / tile.threads;
  out.chain = passes * lists * chunks;
  out.waits = passes * lists;  // loads of dy
  out.listed_warps = products * additions + blocks * lists * tiles * 8;  // 8 loads of dy
  out.stored = blocks * tile.across * tile.range;
  return out;
}

DataTile search_tile(const Conv2dProblem& z) {
  const auto all = static_cast<double>(z.n * z.h * z.w);
  const double share = static_cast<double>(z.p() * z.q()) / static_cast<double>(z.h * z.w);
  Cheapest<DataTile> best({"conv2d", "block_sparse", Direction::backward_data}, DeviceType::cuda,
                          z.dtype);
  for (const int across : {8, 16, 32}) {
    if (across > 8 && across / 2 >= z.c) continue;
    for (const int tiles : {2, 4}) {
      if (tiles > 2 && !has_few_taps(z)) continue;
      for (const int threads : {128, 256}) {
        DataTile tile{across, tiles, threads, 0};
        const double room = (cuda_device_facts().shared_bytes_per_block / 2.0 - 1024) * threads /
                            kMaxThreads / kBytes / across;
        // Tries different ranges of dx. A block needs about `passes` passes over the pixels of dy
        // that reach the range; the range is limited by shared memory.
        for (const double passes : {0.5, 1.0, 2.0, 3.0, 1e9}) {
          const double wanted = (passes * tile.pixels() - reaching(z, 0)) / share;
          tile.range = static_cast<int>(std::min({wanted, room, all}));
          if (tile.range < std::min(32.0, all)) continue;
          best.offer(tile, counts_of(z, tile));
        }
      }
    }
  }
  return best.found();
}

DataTile best_tile(const Conv2dProblem& z) {
  static KeptPlans<DataTile> kept;
  return *kept.get(z, Direction::backward_data, [&] { return search_tile(z); });
}

struct DataLayout {
  DataLayout(const Conv2dProblem& z, const DataTile& tile, const void* memory) {
    Pieces pieces(const_cast<void*>(memory));
    const std::int64_t count =
        ceil_div(z.k, std::int64_t{kRows}) * ceil_div(z.c, std::int64_t{tile.across});
    // A segment has as many chunks as its entries fill, but at least one for each entry of its
    // fullest channel, which has at most R S entries.
    const std::int64_t most = (most_chunks(z) + count * (1 + z.r * z.s)) * kChunk;
    lists.pieces = pieces.take<Piece>(count);
    lists.entries = pieces.take<Entry>(most);
    lists.values = pieces.take<float>(most * kRows);
    lists.places = pieces.take<int>(most_chunks(z) * kChunk);
    bytes = pieces.bytes;
  }
  Pieces16 lists;
  std::size_t bytes = 0;
};

}  // namespace

Cost data_cost(const Conv2dProblem& z) {
  const DataTile tile = best_tile(z);
  Cost out = counts_of(z, tile);
  out.prepared_bytes = sizeof(float) * number(z.weight_format.stored_elements()) +
                       static_cast<double>(DataLayout(z, tile, nullptr).bytes);
  out.prepare_launches = 1;
  return out;
}

std::size_t data_prepared_bytes(const Conv2dProblem& z) {
  return DataLayout(z, best_tile(z), nullptr).bytes;
}

void prepare_data(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  const DataTile tile = best_tile(z);
  MakePieces pass{.make = lists_of(z, args.views.w_blocks),
                  .to = DataLayout(z, tile, args.prepared).lists,
                  .across = tile.across,
                  .per_list = narrow(ceil_div(z.c, std::int64_t{tile.across}))};
  pass.make.right = kInFour * kBytes * narrow(z.dilation_w);
  pass.make.down = kInFour * kBytes * narrow(z.dilation_h * z.w);
  pass.make.plane = kInFour * kBytes * tile.range;  // step from four channels to the next four
  launch(write_pieces_kernel, shape_of(pass.make), pass);
}

void data_from_pieces(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  const DataTile tile = best_tile(z);
  const SparseData data{.dy = static_cast<const float*>(args.dy),
                        .lists = DataLayout(z, tile, args.prepared).lists,
                        .dx = static_cast<float*>(args.dx),
                        .range = tile.range,
                        .pixels = narrow(z.n * z.h * z.w),
                        .across = tile.across,
                        .per_list = narrow(ceil_div(z.c, std::int64_t{tile.across})),
                        .lists_count = narrow(ceil_div(z.k, std::int64_t{kRows})),
                        .channels = narrow(z.c),
                        .at = geometry_of(z),
                        .by_w = FastDivisor(narrow(z.w)),
                        .by_plane = FastDivisor(narrow(z.h * z.w))};
  launch(kernel_of(z, tile),
         {.grid = dim3(static_cast<unsigned>(ceil_div(data.pixels, tile.range)),
                       static_cast<unsigned>(data.per_list)),
          .block = dim3(static_cast<unsigned>(tile.threads)),
          .shared_bytes = sizeof(float) * static_cast<std::size_t>(tile.across * tile.range),
          .overlaps_previous = true},
         data);
}

}  // namespace convscope::block_sparse
