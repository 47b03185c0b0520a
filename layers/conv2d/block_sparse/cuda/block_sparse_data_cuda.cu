// SPDX-License-Identifier: Apache-2.0
// block_sparse_data_cuda.cu: dx of convolution with block-sparse weights: a thread keeps 16
// channels of some pixels of dy in registers, walks along the list of these channels, and adds each
// entry's products to dx, which lies in shared memory.
//
// Formula    dx[n,c,h,w] = sum over the stored (k,c,r,s) and the p, q with p stride_h - pad_top +
//            r dilation_h = h, q stride_w - pad_left + s dilation_w = w of w[k,c,r,s] dy[n,k,p,q]
// Textbook   for n, p, q, blocks of 16 kernels, (c,r,s) in list[block]:
//              dx[n,c,p stride_h - pad_top + r dilation_h,..] += sum over i < 16 of
//                w[k+i,c,r,s] * dy[n,k+i,p,q], where that is inside the image
// Plan       1 (once, prepare_data) the list of each 16 output channels, cut into pieces of up to
//              32 channels of x. A piece has layers: a layer has one entry of each channel at most.
//              A warp makes a piece: a lane has a channel, and a ballot says who still has an entry
//            2 a block has a range of pixels of dx, flat over images, rows and columns, and the
//              channels of a piece: these sums lie in shared memory. It takes all pixels of dy that
//              reach the range, four for each thread; a bit of each says which taps end inside.
//              For each list the thread loads 16 channels of its pixels and walks along the piece:
//              16 FMAs for each entry and pixel, then one addition in shared memory
//            3 the pixels that an entry reaches are different ones for different pixels of dy, and
//              the channels of a layer are different ones, so threads meet nowhere within a layer:
//              one barrier in front of each layer orders all sums
// Shapes     dy [N,K,P,Q], w blocks [blocks,rows,columns], dx [N,C,H,W], f32, row-major
// Supports   as block_sparse_cuda.cu
// Cost       FLOPs = 2 N K P Q times the columns that 16 output channels keep, and those of pixels
//            that reach two ranges again; bytes = dx, dy once for each piece of channels. For an
//            entry and 4 pixels a thread has 64 FMAs, 4 additions, 4 loads and 4 stores of sums, 8
//            instructions for their places and borders, and 5 loads of the entry that a warp
//            shares: bound by the FMAs, of which it makes two thirds of the peak at best. On tensor
//            cores the sums of four entries would meet in the same banks of shared memory, which
//            costs as much as is won
// Numerics   f32, and so as tf32, too: chains of 16 products, then one addition for each entry of
//            the channel in one chain. Same bits on each run; exact on integers
// Backward   this is backward_data; dx assigned
// Choices    4 pixels: 64 registers of dy. 256 threads have 1024 pixels and 128 registers each, so
//            two blocks share a processor and half of its shared memory is a block's. Channels of a
//            piece and pixels of a range: lowest estimated time
// Source     as block_sparse_cuda.cu
// Read next  block_sparse_cuda.cu, the forward pass; cpu/block_sparse_cpu.cpp
#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/cuda/map.cuh"
#include "layers/conv2d/block_sparse/cuda/block_sparse_directions.h"
#include "layers/conv2d/block_sparse/cuda/block_sparse_pixels.cuh"

namespace convscope::block_sparse {
namespace {

constexpr int kMostAcross = 32;    // channels of a piece: lanes of a warp
constexpr int kLayer = 1 << 8;     // added to the tap of the first entry of a layer
constexpr int kMostThreads = 256;  // of a block

// ---- the pieces of the lists -------------------------------------------------------------------

struct Piece {
  int begin, end;  // entries
};
struct Pieces16 {
  Piece* pieces = nullptr;   // [lists][pieces of a list]
  Entry* entries = nullptr;  // offset: in the sums of a block
  float* values = nullptr;   // [entries][16]
  int* places = nullptr;     // [entries]: where the entries in ascending order of columns stand
};

struct MakeLayers {
  MakeLists make;
  Pieces16 to;
  int across = 1, of_list = 1;  // channels of a piece; pieces
};

// Block (x: list).
__global__ __launch_bounds__(kListThreads) void write_layers_kernel(
    const __grid_constant__ MakeLayers layers) {
  const MakeLists& z = layers.make;
  auto* const marks = dynamic_shared<unsigned>();
  __shared__ int scratch[32];
  const int words = ceil_div(z.columns, 32);
  int* const before = reinterpret_cast<int*>(marks + words);
  const auto list = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int first = first_chunk_of(z, list, scratch) * kChunk;
  mark_columns(z, list, marks, words);
  const int count = count_marks(marks, words, before);
  const auto rank = [&](int column) {
    return column < z.columns ? entries_before(marks, before, column) : count;
  };
  Entry* const entries = layers.to.entries + first;
  int* const places = layers.to.places + first;
  float* const values = layers.to.values + static_cast<std::int64_t>(first) * kRows;
  for (int i = thread; i < count * kRows; i += kListThreads) values[i] = 0;
  for (int piece = thread / 32; piece < layers.of_list; piece += kListThreads / 32) {
    const int first_channel = piece * layers.across, channel = first_channel + lane;
    const bool is_there = lane < layers.across && channel * z.taps < z.columns;
    int column = is_there ? channel * z.taps : 0;
    int next = rank(column);  // the lane's next entry in ascending order
    const int behind = is_there ? rank(column + z.taps) : next;
    int at = rank(min(first_channel * z.taps, z.columns));
    if (lane == 0) {
      layers.to.pieces[list * layers.of_list + piece] = {
          first + at, first + rank(min((first_channel + layers.across) * z.taps, z.columns))};
    }
    while (true) {
      const unsigned who = __ballot_sync(kAllLanes, next < behind);
      if (who == 0) break;
      if (next < behind) {
        while ((marks[column / 32] & 1u << (column % 32)) == 0) ++column;
        const int in_front = __popc(who & ((1u << lane) - 1));
        const int tap = column - channel * z.taps;
        entries[at + in_front] = {
            lane * z.plane + tap / z.taps_w * z.down + tap % z.taps_w * z.right,
            tap + (in_front == 0 ? kLayer : 0)};
        places[next++] = at + in_front;
        ++column;
      }
      at += __popc(who);
    }
  }
  __syncthreads();
  for_each_value(z, list, [&](int column, int row, float value) {
    values[places[rank(column)] * kRows + row] = value;
  });
}

// ---- dx ----------------------------------------------------------------------------------------

struct SparseData {
  const float* dy = nullptr;
  Pieces16 lists;
  float* dx = nullptr;
  int range = 0, pixels = 0;          // pixels of dx: of a block, and all
  int across = 1, of_list = 1;        // channels of a piece; pieces
  int lists_count = 0, channels = 0;  // C
  Geometry at;
  FastDivisor by_w, by_plane;  // of x
};

// Pixels of dy that reach pixels [first, last] of dx, among them a few that do not.
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
  int from = 0;  // the first column: only the row whose last taps end in row h can leave some out
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

// A pixel of dy: where its 16 channels begin, where tap (0, 0) of it ends among the block's sums,
// and which taps end inside image and range.
template <class Taps>
struct Source {
  int from, to;
  Taps inside;
};
template <class Taps>
__device__ inline Source<Taps> source_at(const SparseData& z, int pixel, int end, int first,
                                         int last) {
  if (pixel >= end) return {-1, 0, 0};
  const Geometry& at = z.at;
  const int area = at.p * at.q;
  const int image = at.by_area.divide(pixel), inside = pixel - image * area;
  const int row = at.by_q.divide(inside);
  const int h = row * at.stride_h - at.pad_h;
  const int w = (inside - row * at.q) * at.stride_w - at.pad_w;
  Source<Taps> out{image * at.channels * area + inside, image * at.h * at.w + h * at.w + w - first,
                   0};
  for (int r = 0; r < at.taps_h; ++r) {
    const int to_h = h + r * at.apart_h;
    if (to_h < 0 || to_h >= at.h) continue;
    for (int s = 0; s < at.taps_w; ++s) {
      const int to_w = w + s * at.apart_w;
      const int to = image * at.h * at.w + to_h * at.w + to_w;
      const bool ends = to_w >= 0 && to_w < at.w && to >= first && to <= last;
      out.inside |= static_cast<Taps>(ends) << (r * at.taps_w + s);
    }
  }
  return out;
}

// Adds a piece of a list: sums[channel, pixel] += 16 products of each entry.
template <int kOfThread, class Taps>
__device__ inline void add_piece(const SparseData& z, const Piece& piece, bool has_pixels,
                                 const Source<Taps> (&pixels)[kOfThread],
                                 const float (&dy)[kRows][kOfThread], float* sums) {
  const auto* values = reinterpret_cast<const float4*>(z.lists.values) +
                       static_cast<std::int64_t>(piece.begin) * (kRows / 4);
  float* to[kOfThread];
#pragma unroll
  for (int j = 0; j < kOfThread; ++j) to[j] = sums + pixels[j].to;
  for (int i = piece.begin; i < piece.end; ++i, values += kRows / 4) {
    const Entry entry = z.lists.entries[i];
    if ((entry.tap & kLayer) != 0) __syncthreads();
    if (!has_pixels) continue;
    const Taps bit = Taps{1} << (entry.tap & (kLayer - 1));
    float before[kOfThread], sum[kOfThread];
#pragma unroll
    for (int j = 0; j < kOfThread; ++j) {
      before[j] = (pixels[j].inside & bit) != 0 ? to[j][entry.offset] : 0;
    }
#pragma unroll
    for (int k = 0; k < kRows / 4; ++k) {
      const float4 w = __ldg(values + k);
#pragma unroll
      for (int j = 0; j < kOfThread; ++j) {
        sum[j] = k == 0 ? w.x * dy[0][j] : __fmaf_rn(w.x, dy[k * 4][j], sum[j]);
        sum[j] = __fmaf_rn(w.y, dy[k * 4 + 1][j], sum[j]);
        sum[j] = __fmaf_rn(w.z, dy[k * 4 + 2][j], sum[j]);
        sum[j] = __fmaf_rn(w.w, dy[k * 4 + 3][j], sum[j]);
      }
    }
#pragma unroll
    for (int j = 0; j < kOfThread; ++j) {
      if ((pixels[j].inside & bit) != 0) to[j][entry.offset] = before[j] + sum[j];
    }
  }
}

// Block (x: range of pixels of dx, y: piece of the lists).
template <int kOfThread, class Taps>
__global__ __launch_bounds__(kMostThreads,
                             2) void sparse_data_kernel(const __grid_constant__ SparseData z) {
  float* const sums = dynamic_shared<float>();  // [channels of a piece][range]
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
  for (int begin = range.begin; begin < range.end; begin += threads * kOfThread) {
    const int of_warp = begin + warp * 32 * kOfThread;
    Source<Taps> pixels[kOfThread];
#pragma unroll
    for (int j = 0; j < kOfThread; ++j) {
      pixels[j] = source_at<Taps>(z, of_warp + j * 32 + lane, range.end, first, last);
    }
    for (int list = 0; list < z.lists_count; ++list) {
      const Piece at = z.lists.pieces[list * z.of_list + piece];
      if (at.begin == at.end) continue;
      float dy[kRows][kOfThread];
#pragma unroll
      for (int j = 0; j < kOfThread; ++j) {
        const float* const from =
            z.dy + pixels[j].from + static_cast<std::int64_t>(list) * kRows * area;
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
          const bool is_there = pixels[j].from >= 0 && list * kRows + k < z.at.channels;
          dy[k][j] = is_there ? __ldg(from + static_cast<std::int64_t>(k) * area) : 0;
        }
      }
      add_piece(z, at, of_warp < range.end, pixels, dy, sums);
    }
  }
  __syncthreads();
  const int first_channel = piece * z.across;
  const int here = min(z.across, z.channels - first_channel), plane = z.at.h * z.at.w;
  for (int i = first + thread; i <= last; i += threads) {
    const int image = z.by_plane.divide(i);
    float* const to = z.dx +
                      (static_cast<std::int64_t>(image) * z.channels + first_channel) * plane +
                      (i - image * plane);
    for (int c = 0; c < here; ++c) {
      to[static_cast<std::int64_t>(c) * plane] = sums[c * z.range + i - first];
    }
  }
}

// ---- which tile --------------------------------------------------------------------------------

struct DataTile {
  int across = 8;     // channels of a piece
  int threads = 256;  // of a block
  int range = 1;      // pixels of dx of a block
  double us = std::numeric_limits<double>::infinity();
};

bool has_few_taps(const Conv2dProblem& z) { return z.r * z.s <= 32; }
int pixels_of_thread(const Conv2dProblem& z) { return has_few_taps(z) ? 4 : 2; }

// Pixels of dy that reach so many of dx.
double reaching(const Conv2dProblem& z, double range) {
  const double rows =
      static_cast<double>((z.r - 1) * z.dilation_h) / static_cast<double>(z.stride_h);
  const double columns =
      static_cast<double>((z.s - 1) * z.dilation_w) / static_cast<double>(z.stride_w);
  const double all = static_cast<double>(z.n * z.p() * z.q());
  const double share = static_cast<double>(z.p() * z.q()) / static_cast<double>(z.h * z.w);
  return std::min(all, range * share + rows * static_cast<double>(z.q()) + columns + 1);
}

// Microseconds. Cycles of a quarter of a processor: counted, not yet fitted.
double estimated_us(const Conv2dProblem& z, const DataTile& tile) {
  constexpr double kClock = 1700;  // cycles of a microsecond
  const double processors = cuda_device_facts().multiprocessors;
  const double lists = static_cast<double>(ceil_div(z.k, std::int64_t{kRows}));
  const double taps = static_cast<double>(z.r * z.s);
  const double share = static_cast<double>(tile.across) /
                       static_cast<double>(std::max(z.c, std::int64_t{tile.across}));
  const double entries = expected_entries(z) * share;  // of a piece
  const double of_channel = std::max(entries / tile.across, 1e-3);
  const double layers = std::min({taps, entries, of_channel + 2 * std::sqrt(of_channel) + 0.5});
  const double blocks = static_cast<double>(ceil_div(z.n * z.h * z.w, std::int64_t{tile.range}) *
                                            ceil_div(z.c, std::int64_t{tile.across}));
  const double of_thread = pixels_of_thread(z);
  const double pixels = reaching(z, tile.range);
  const double warps = std::ceil(pixels / (32 * of_thread));
  const double passes = std::ceil(pixels / (tile.threads * of_thread));
  const double of_list = entries * (22 * of_thread + 12) + 45 * of_thread + 40;  // of a warp
  const double busy = warps / 4 * lists * of_list + tile.across * tile.range / 40.0 + 1500;
  const double alone = passes * lists * (900 + layers * 60 + entries * 90) + 3000;
  const double together = kMostThreads / static_cast<double>(tile.threads) * 2;
  return std::max(std::ceil(blocks / processors) * busy,
                  std::ceil(blocks / (together * processors)) * alone) /
             kClock +
         3;
}

DataTile best_tile(const Conv2dProblem& z) {
  const std::int64_t all = z.n * z.h * z.w;
  const double share = static_cast<double>(z.p() * z.q()) / static_cast<double>(z.h * z.w);
  DataTile best;
  for (const int across : {8, 16, 32}) {
    if (across > 8 && across / 2 >= z.c) continue;
    for (const int threads : {128, 256}) {
      const double room = (cuda_device_facts().shared_bytes_per_block / 2.0 - 1024) * threads /
                          kMostThreads / 4 / across;
      const double pixels = threads * pixels_of_thread(z);
      const double around = reaching(z, 0);
      // As many as one pass takes, twice as many, or as shared memory has room for.
      for (const double passes : {0.5, 1.0, 2.0, 1e9}) {
        const double wanted = (passes * pixels - around) / share;
        const double range = std::min({wanted, room, static_cast<double>(all)});
        if (range < 32 && range < static_cast<double>(all)) continue;
        DataTile tile{across, threads, static_cast<int>(range), 0};
        tile.us = estimated_us(z, tile);
        if (tile.us < best.us) best = tile;
      }
    }
  }
  return best;
}

struct DataLayout {
  DataLayout(const Conv2dProblem& z, const DataTile& tile, const void* memory) {
    Pieces pieces(const_cast<void*>(memory));
    const std::int64_t most = most_chunks(z) * kChunk;
    lists.pieces = pieces.take<Piece>(ceil_div(z.k, std::int64_t{kRows}) *
                                      ceil_div(z.c, std::int64_t{tile.across}));
    lists.entries = pieces.take<Entry>(most);
    lists.values = pieces.take<float>(most * kRows);
    lists.places = pieces.take<int>(most);
    bytes = pieces.bytes;
  }
  Pieces16 lists;
  std::size_t bytes = 0;
};

}  // namespace

double data_us(const Conv2dProblem& z) { return best_tile(z).us; }

std::size_t data_prepared_bytes(const Conv2dProblem& z) {
  return DataLayout(z, best_tile(z), nullptr).bytes;
}

void prepare_data(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  const DataTile tile = best_tile(z);
  MakeLayers layers{.make = lists_of(z, args.views.w_blocks),
                    .to = DataLayout(z, tile, args.prepared).lists,
                    .across = tile.across,
                    .of_list = narrow(ceil_div(z.c, std::int64_t{tile.across}))};
  layers.make.plane = tile.range;
  layers.make.down = narrow(z.dilation_h * z.w);
  layers.make.right = narrow(z.dilation_w);
  launch(write_layers_kernel, shape_of(layers.make), layers);
}

void data_from_layers(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  const DataTile tile = best_tile(z);
  const SparseData data{.dy = static_cast<const float*>(args.dy),
                        .lists = DataLayout(z, tile, args.prepared).lists,
                        .dx = static_cast<float*>(args.dx),
                        .range = tile.range,
                        .pixels = narrow(z.n * z.h * z.w),
                        .across = tile.across,
                        .of_list = narrow(ceil_div(z.c, std::int64_t{tile.across})),
                        .lists_count = narrow(ceil_div(z.k, std::int64_t{kRows})),
                        .channels = narrow(z.c),
                        .at = geometry_of(z),
                        .by_w = FastDivisor(narrow(z.w)),
                        .by_plane = FastDivisor(narrow(z.h * z.w))};
  launch(
      has_few_taps(z) ? sparse_data_kernel<4, unsigned> : sparse_data_kernel<2, unsigned long long>,
      {.grid = dim3(static_cast<unsigned>(ceil_div(data.pixels, tile.range)),
                    static_cast<unsigned>(data.of_list)),
       .block = dim3(static_cast<unsigned>(tile.threads)),
       .shared_bytes = sizeof(float) * static_cast<std::size_t>(tile.across * tile.range),
       .overlaps_previous = true},
      data);
}

}  // namespace convscope::block_sparse
