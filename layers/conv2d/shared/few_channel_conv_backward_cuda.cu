// SPDX-License-Identifier: Apache-2.0
// few_channel_conv_backward_cuda.cu: the gradients of one or two pooled convolutions of few
// channels: dw, db and dx of a sample from shared memory, then one kernel that adds the sums of the
// samples.
//
// Formula    g = dy of the pooling's winners, times f'(y), before the pooling: [N,K,P,Q];
//            dw[k,c,r,s] = sum over n, p, q of g[n,k,p,q] x[n,c,p-pad_top+r,q-pad_left+s];
//            db[k] = sum of g[n,k,..];  dx[n,c,h,w] = sum over k, r, s of
//            g[n,k,h+pad_top-r,w+pad_left-s] w[k,c,r,s]
// Textbook   for n:
//              un-pool dy into g
//              dw2 += x2 (x) g;  dx2 = g (*) flipped w2
//              un-pool dx2 into g1;  dw1 += x1 (x) g1
// Method     Schedule of direct: the loop nests of the gradients in direct_lesson_cpu.cpp.
//            A block takes samples, several at a time when there are many, and keeps partial dw in
//            registers over all of them: a thread has R accumulators for a few k, one c and one
//            kernel row, over some of the pixels. g is dense in shared memory, with zeros around
//            its columns for dx, which is a convolution with the flipped kernel: tiles of 2 x 4
//            pixels, several channels, the sum over k cut into pieces. Kernel rows that multiply
//            only zeros are skipped. The pieces are added when g of the previous stage is computed,
//            so dx2 stays in the block. In the end threads that share a sum of dw add through
//            shared memory, four sums in one access, and the block writes them; a second kernel
//            adds the blocks in order. Few samples: more blocks share a sample, each with its part
//            of the last stage's input channels, which are the first stage's output channels: no
//            work is done twice.
// Shapes     x [N,C,H,W], w [K,C,R,R], y and dy [N,K,P/2,Q/2], passes u8 as y; dw, db as w, b; f32
// Supports   as few_channel_conv_forward_cuda.cu; dx only of a single stage; sizes whose dw
//            accumulators fit into the registers of a block
// Cost       FLOPs = 2 N K P Q C R^2 for dw, about 1.5 times that for dx; bytes = x, y, passes, dy
//            once, 4 (weights) min(N, 264) for the partial sums, twice; compute-bound
// Numerics   error growth about 1; the order of the sums depends on the sizes only: same bits on
//            each run; exact on integers
// Backward   dw and db assigned or added to, dx assigned
// Choices    dense g: the winners are a quarter of it, but gathering them costs one shared load for
//            each product, four times the cost of a multiplication, so nothing would be gained
//            4 k for dw: 4 R accumulators; 6 vector loads for 80 products (R = 5)
//            channels of dx: 3 or 2 in one thread, whichever divides
// Source     the two-stage reduction: M. Harris: Optimizing Parallel Reduction in CUDA, 2007; the
//            rest is our own
// Read next  few_channel_conv_forward_cuda.cu, direct_sample_cuda.cu
#include "framework/cuda/carveout.cuh"
#include "layers/conv2d/shared/few_channel_conv_tiles.cuh"

namespace convscope {
namespace {

using namespace few_channel;

// Writes the window of one pooled output into the dense tile of the gradient before pooling and
// activation: `g` where the bit of `passes` is set, else 0.
__device__ inline void spread(const FewChannelStage& z, unsigned passes, float g, float* to,
                              int pitch) {
  if (!z.pools()) {
    *to = g;
    return;
  }
  to[0] = (passes & 1u) != 0 ? g : 0.0f;
  to[1] = (passes & 2u) != 0 ? g : 0.0f;
  to[pitch] = (passes & 4u) != 0 ? g : 0.0f;
  to[pitch + 1] = (passes & 8u) != 0 ? g : 0.0f;
}

// Returns the gradient that one pooled output passes to each of its pixels.
__device__ inline float pixel_gradient(const FewChannelStage& z, float dy, float y) {
  if (z.activation == FewChannelActivation::tanh) return dy * activation_slope(z.activation, y);
  return z.pools() || activation_slope(z.activation, y) != 0.0f ? dy : 0.0f;
}

// This thread's plane, and its index among the plane's threads. The threads of the block are
// distributed over planes, by_threads.d threads for each plane.
struct PlaneShare {
  int plane, first, step;
};
__device__ inline PlaneShare share_of_plane(const FastDivisor& by_threads) {
  const int plane = by_threads.divide(static_cast<int>(threadIdx.x));
  return {plane, static_cast<int>(threadIdx.x) - plane * by_threads.d, by_threads.d};
}

// Returns how many neighbouring threads add up one of `jobs` sums with `parts` terms each: a power
// of two.
__device__ inline int sharers_of(int jobs, int parts) {
  int sharers = 1;
  while (sharers < 32 && sharers < parts && 2 * sharers * jobs <= kBlockThreads) sharers *= 2;
  return sharers;
}

// Sums the values of each plane's threads into to[plane]. `scratch` has one value for each thread.
__device__ void write_plane_sums(const float* scratch, int step, int planes, float* to) {
  const int sharers = sharers_of(planes, step);
  const int share = static_cast<int>(threadIdx.x) % sharers;
  // All lanes of a warp run the same number of rounds, because they exchange values.
#pragma unroll 1
  for (int begin = 0; begin < planes; begin += kBlockThreads / sharers) {
    const int i = begin + static_cast<int>(threadIdx.x) / sharers;
    float sum = 0;
    if (i < planes) {
#pragma unroll 4
      for (int j = share; j < step; j += sharers) sum += scratch[i * step + j];
    }
    for (int offset = sharers / 2; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, offset);
    }
    if (i < planes && share == 0) to[i] = sum;
  }
}

// One thread's accumulators of dw: kChannels x R of them for one c and r, over some of the pixels.
// The block has output channels [k_begin, k_end) and input channels [c_begin, c_begin + c_count).
template <int R, int kChannels>
struct WeightSums {
  static constexpr int kSums = kChannels * R;
  static constexpr int kFours = ceil_div(kSums, 4);
  static constexpr int kRow = row_pitch(kSums);  // of a thread in scratch memory
  const Deal& deal;
  const WeightDivisors& by;
  int k_begin, k_end, c_begin;
  int item, cut;
  int k, c, r;              // first output channel, input channel and kernel row of this thread
  int planes[kChannels];    // distance from the first one's plane of dy to the others
  float acc[kChannels][R];  //

  __device__ WeightSums(const Deal& deal, const WeightDivisors& by, int k_begin, int k_end,
                        int c_begin, int dy_plane)
      : deal(deal), by(by), k_begin(k_begin), k_end(k_end), c_begin(c_begin) {
    cut = by.items.divide(static_cast<int>(threadIdx.x));
    item = static_cast<int>(threadIdx.x) - cut * by.items.d;
    r = item % R;
    const int rest = item / R;
    const int group = by.channels.divide(rest);
    c = c_begin + rest - group * by.channels.d;
    k = k_begin + group * kChannels;
    // A group beyond the end computes its last channel again.
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
      planes[j] = (least(k + j, k_end - 1) - k) * dy_plane;
#pragma unroll
      for (int s = 0; s < R; ++s) acc[j][s] = 0;
    }
  }

  // Adds a sample. x, dy: tiles of the block's channels in shared memory; dy points to its first
  // pixel.
  __device__ void add(const XTile& tile, const float* x, const float* dy, int dy_plane,
                      int dy_pitch) {
    if (cut >= deal.splits) return;
    weight_tile<R, kChannels>(x + (c - c_begin) * tile.plane() + r * tile.pitch, tile.pitch,
                              dy + (k - k_begin) * dy_plane, dy_pitch, planes, by.fours, deal.tiles,
                              cut, deal.splits, acc);
  }

  // Writes the accumulators to scratch [thread][kRow]; put() and write() access four at a time.
  __device__ void put(float* scratch) const {
    float* const to = scratch + static_cast<int>(threadIdx.x) * kRow;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      float four[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = 4 * i + j;
        four[j] = at < kSums ? acc[at / R][at % R] : 0.0f;
      }
      store_four(four, to + 4 * i);
    }
  }
  // Adds up the accumulators that put() wrote for each item, and writes the totals to dw of the
  // block, to = [K][channels][R][R]. A thread adds four totals; if there are few totals with many
  // terms, neighbouring threads share the terms.
  __device__ void write(int channels, const float* scratch, float* to) const {
    const int items = by.items.d;
    const int jobs = items * kFours;
    const int sharers = sharers_of(jobs, deal.splits);
    const int share = static_cast<int>(threadIdx.x) % sharers;
    // All lanes of a warp run the same number of rounds, because they exchange values.
#pragma unroll 1
    for (int begin = 0; begin < jobs; begin += kBlockThreads / sharers) {
      const int job = begin + static_cast<int>(threadIdx.x) / sharers;
      const int own = job / kFours;
      const int first = (job - own * kFours) * 4;
      float sums[4] = {};
      if (job < jobs) {
#pragma unroll 4
        for (int part = share; part < deal.splits; part += sharers) {
          float four[4];
          load_four(scratch + (part * items + own) * kRow + first, four);
#pragma unroll
          for (int j = 0; j < 4; ++j) sums[j] += four[j];
        }
      }
      for (int offset = sharers / 2; offset > 0; offset /= 2) {
#pragma unroll
        for (float& sum : sums) sum += __shfl_xor_sync(kAllLanes, sum, offset);
      }
      if (job >= jobs || share != 0) continue;
      const int pair = own / R;  // of output and input channels
      const int group = by.channels.divide(pair);
      const int channel = c_begin + pair - group * by.channels.d;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int which = first + j;
        const int kernel = k_begin + group * kChannels + which / R;
        if (which >= kSums || kernel >= k_end) continue;
        to[((kernel * channels + channel) * R + own % R) * R + which % R] = sums[j];
      }
    }
  }
};

// Copies bytes into shared memory, with several loads of a thread in flight.
__device__ inline void load_bytes(const std::uint8_t* from, int count, std::uint8_t* to) {
  constexpr int kHeld = 4;
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x); first < count; first += kHeld * kBlockThreads) {
    std::uint8_t held[kHeld];
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int i = first + j * kBlockThreads;
      held[j] = i < count ? from[i] : std::uint8_t{0};
    }
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int i = first + j * kBlockThreads;
      if (i < count) to[i] = held[j];
    }
  }
}

// Computes pieces of dx of the block's channels: [cut][channel][tile][8] in `split`.
template <int R, int kChannels>
__device__ void convolve_back(const FewChannelBackwardPlan& plan, const FewChannelStage& z,
                              const DyTile& tile, const Deal& deal, const float* dy, const float* w,
                              int c_count, int samples, float* split) {
  const int pitch = weight_k(z, c_count);
  // Tiles of one row are neighbours, so that the threads of a warp mostly need the same kernel
  // rows.
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < deal.items() * deal.splits; i += kBlockThreads) {
    const int tile_row = plan.by_row_items.divide(i);
    int rest = i - tile_row * plan.by_row_items.d;
    const int cut = plan.by_cut_items.divide(rest);
    rest -= cut * plan.by_cut_items.d;
    const int sample = plan.by_sample_items.divide(rest);
    rest -= sample * plan.by_sample_items.d;
    const int group = plan.by_tiles_w.divide(rest);
    const int tile_column = rest - group * deal.tiles_w;
    if (sample >= samples) continue;
    const int c = group * kChannels;
    const int k_begin = cut * z.k / deal.splits;
    const int k_end = (cut + 1) * z.k / deal.splits;
    // The row of dy that the first row of the flipped kernel reads for the tile's first pixel.
    const int row = tile_row * kTileRows - tile.frame;
    // A group beyond the end computes its first channel again.
    const int other = c + kChannels <= c_count ? weight_c(z) : 0;
    float sums[kChannels][kTileRows][kTileColumns] = {};
    convolve_tile<R, kChannels, true>(dy + (sample * z.k + k_begin) * tile.plane() +
                                          row * tile.pitch + tile_column * kTileColumns,
                                      tile.pitch, tile.plane(), k_end - k_begin,
                                      w + k_begin * pitch + c * weight_c(z), pitch, other, -row,
                                      tile.rows - row, sums);
    float* const to =
        split + (((cut * deal.samples + sample) * deal.groups + group) * kChannels * deal.tiles +
                 tile_row * deal.tiles_w + tile_column) *
                    8;
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
      store_four(sums[j][0], to + j * deal.tiles * 8);
      store_four(sums[j][1], to + j * deal.tiles * 8 + 4);
    }
  }
}

// Reads dx[c_begin + c][h][w] from its pieces.
struct DxReader {
  const float* split;
  const DyTile& tile;
  const Deal& deal;
  int sample_step, step;  // distance of samples and of pieces in floats
  __device__ float operator()(int sample, int c, int h, int w) const {
    const int column = w + tile.shift;
    const float* const from =
        split + sample * sample_step +
        (c * deal.tiles + h / kTileRows * deal.tiles_w + column / kTileColumns) * 8 +
        h % kTileRows * 4 + column % kTileColumns;
    float sum = 0;
#pragma unroll 4
    for (int cut = 0; cut < deal.splits; ++cut) sum += from[cut * step];
    return sum;
  }
};

template <int R, int kChannels, class Factor>
__global__ void __launch_bounds__(kBlockThreads, 2)
    few_channel_backward(const FewChannelBackwardPlan plan) {
  float* const shared = dynamic_shared<float>();
  const FewChannelBackward& a = plan.a;
  const int part = static_cast<int>(blockIdx.x) % plan.parts;
  const int chunk = static_cast<int>(blockIdx.x) / plan.parts;
  const int last = a.stages - 1;
  const FewChannelStage& z = a.stage[last];
  const FewChannelStage& first = a.stage[0];
  const int c_count = plan.slice;
  const int c_begin = part * c_count;
  const int c_end = c_begin + c_count;
  const XTile& x_shape = plan.x_tile[last];
  const DyTile& dy_shape = plan.dy_tile[last];
  const DyTile& g_shape = plan.dy_tile[0];  // for two stages
  float* const split = shared + plan.split_at;
  float* const x = shared + plan.x_at[last];
  float* const dy = shared + plan.dy_at[last];
  float* const g = shared + plan.dy_at[0];  // for two stages
  float* const first_x = shared + plan.x_at[0];
  const int x_step = c_count * x_shape.plane();
  const int g_step = c_count * g_shape.plane();
  const int dy_step = z.k * dy_shape.plane();
  const int first_x_step = first.c * plan.x_tile[0].plane();
  fill_zeros(shared, plan.convolves_back ? plan.w_at : plan.split_at);  // borders
  if (!a.only_dy_is_new) wait_for_previous_kernel();
  if (plan.convolves_back) {
    load_weights<R>(z, plan.by_weights, a.w[last], 0, z.k, c_begin, shared + plan.w_at);
  }
  const bool wants_dw = a.dw[last] != nullptr;
  const PlaneShare y_share = share_of_plane(plan.by_y_threads);
  const PlaneShare x_share = share_of_plane(plan.by_x_threads);
  WeightSums<R, kWeightChannels> dw(plan.weight[last], plan.by_weight[last], 0, z.k, c_begin,
                                    dy_shape.plane());
  WeightSums<R, kChannels> dw_first(plan.weight[0], plan.by_weight[0], c_begin, c_end, 0,
                                    g_shape.plane());
  float db = 0;
  float db_first = 0;
  const int out_w = z.out_w();
  const int out = z.out_h() * out_w;
  const int factor = z.pools() ? 2 : 1;
  const int pixels = z.h * z.w;  // x of the last stage
  const int first_factor = first.pools() ? 2 : 1;
  auto* const first_passes = reinterpret_cast<std::uint8_t*>(shared + plan.passes_at);
  const float* const x_from = a.stages == 2 ? a.y[0] : a.x;  // x of the last stage
  // True if the gradient of the first stage needs its y, for the slope of the activation. The slope
  // must be taken at y before y is rounded to operand_type.
  const bool slope_of_x = first.activation == FewChannelActivation::tanh || !first.pools();
  [[maybe_unused]] bool weights_wait = plan.convolves_back;  // to be rounded
  bool waited = false;

#pragma unroll 1
  for (std::int64_t n = static_cast<std::int64_t>(chunk) * plan.samples; n < a.batch;
       n += static_cast<std::int64_t>(plan.chunks) * plan.samples) {
    const int samples = a.batch - n < plan.samples ? static_cast<int>(a.batch - n) : plan.samples;
    __syncthreads();
    for (int sample = 0; sample < samples; ++sample) {
      const std::int64_t at = n + sample;
      if (wants_dw || a.stages == 2) {
        load_images(z, x_shape, plan.by_w[last], plan.by_image[last], x_from + at * z.c * pixels,
                    c_begin, c_end, x + sample * x_step);
      }
      if (a.stages == 2) {
        const int image = first.c * first.h * first.w;
        load_images(first, plan.x_tile[0], plan.by_w[0], plan.by_image[0], a.x + at * image, 0,
                    first.c, first_x + sample * first_x_step);
        if (first.pools()) {
          load_bytes(a.passes[0] + (at * z.c + c_begin) * pixels, c_count * pixels,
                     first_passes + sample * c_count * pixels);
        }
      }
    }
    if (rounds<Factor>() && !a.all_is_rounded) {
      finish_copies();
      __syncthreads();
      round_operands<Factor>(x, samples * x_step);
      if (a.stages == 2) round_operands<Factor>(first_x, samples * first_x_step);
      if (weights_wait) {
        round_operands<Factor>(shared + plan.w_at, z.k * weight_k(z, c_count));
      }
      weights_wait = false;
    }
    if (!waited) {
      wait_for_previous_kernel();
      let_next_kernel_start();
      waited = true;
    }
    for (int sample = 0; sample < samples && y_share.plane < z.k; ++sample) {
      const std::int64_t at = n + sample;
      const std::int64_t from = at * z.outputs() + y_share.plane * out;
      for (int i = y_share.first; i < out; i += y_share.step) {
        const unsigned passes = z.pools() ? a.passes[last][from + i] : 1u;
        const bool reads_y = z.activation == FewChannelActivation::tanh ||
                             (!z.pools() && z.activation == FewChannelActivation::relu);
        const float d = pixel_gradient(z, a.dy[from + i], reads_y ? a.y[last][from + i] : 0.0f);
        const int row = plan.by_out_w.divide(i);
        const int column = i - row * out_w;
        spread(z, passes, as_factor<Factor>(d),
               dy + sample * dy_step + y_share.plane * dy_shape.plane() +
                   row * factor * dy_shape.pitch + dy_shape.left + column * factor,
               dy_shape.pitch);
        db += d * static_cast<float>(__popc(passes));
      }
    }
    finish_copies();
    __syncthreads();
    if (wants_dw) {
      for (int sample = 0; sample < samples; ++sample) {
        dw.add(x_shape, x + sample * x_step, dy + sample * dy_step + dy_shape.left,
               dy_shape.plane(), dy_shape.pitch);
      }
    }
    if (!plan.convolves_back) continue;
    convolve_back<R, kChannels>(plan, z, dy_shape, plan.data, dy, shared + plan.w_at, c_count,
                                samples, split);
    __syncthreads();
    if (x_share.plane < c_count) {
      const int sample_step = plan.data.groups * kChannels * plan.data.tiles * 8;
      const DxReader dx{split, dy_shape, plan.data, sample_step, sample_step * plan.data.samples};
      const int c = c_begin + x_share.plane;
      for (int i = x_share.first; i < samples * pixels; i += x_share.step) {
        const int sample = plan.by_image[last].divide(i);
        const int pixel = i - sample * pixels;
        const int row = plan.by_w[last].divide(pixel);
        const int column = pixel - row * z.w;
        const float d = dx(sample, x_share.plane, row, column);
        if (a.stages == 1) {
          a.dx[((n + sample) * z.c + c) * pixels + pixel] = d;
          continue;
        }
        const unsigned passes =
            first.pools() ? first_passes[(sample * c_count + x_share.plane) * pixels + pixel] : 1u;
        float y = 0;
        if (slope_of_x) {
          y = rounds<Factor>() ? x_from[((n + sample) * z.c + c) * pixels + pixel]
                               : x[sample * x_step + x_share.plane * x_shape.plane() +
                                   (row + z.pad_top) * x_shape.pitch + column + z.pad_left];
        }
        const float gradient = pixel_gradient(first, d, y);
        spread(first, passes, as_factor<Factor>(gradient),
               g + sample * g_step + x_share.plane * g_shape.plane() +
                   row * first_factor * g_shape.pitch + column * first_factor,
               g_shape.pitch);
        db_first += gradient * static_cast<float>(__popc(passes));
      }
    }
    if (a.stages == 1) continue;
    __syncthreads();
    for (int sample = 0; sample < samples; ++sample) {
      dw_first.add(plan.x_tile[0], first_x + sample * first_x_step, g + sample * g_step,
                   g_shape.plane(), g_shape.pitch);
    }
  }

  if (!wants_dw) return;
  // The tiles are no longer needed: the sums of all threads take their memory.
  float* const dw_first_sums = shared + dw.kRow * kBlockThreads;
  float* const db_sums = dw_first_sums + (a.stages == 2 ? dw_first.kRow * kBlockThreads : 0);
  __syncthreads();
  dw.put(shared);
  db_sums[threadIdx.x] = db;
  if (a.stages == 2) {
    dw_first.put(dw_first_sums);
    db_sums[kBlockThreads + threadIdx.x] = db_first;
  }
  __syncthreads();
  float* const sums = a.sums + chunk * plan.piece;
  dw.write(z.c, shared, sums + plan.dw_at[last]);
  if (part == 0) write_plane_sums(db_sums, y_share.step, z.k, sums + plan.db_at[last]);
  if (a.stages == 1) return;
  dw_first.write(first.c, dw_first_sums, sums + plan.dw_at[0]);
  write_plane_sums(db_sums + kBlockThreads, x_share.step, c_count, sums + plan.db_at[0] + c_begin);
}

// 32 sums for each block, with pieces distributed over 32 warps.
constexpr int kAddThreads = 1024;
__global__ void __launch_bounds__(kAddThreads) add_chunks(const PieceSums a) {
  constexpr int kRows = kAddThreads / 32;
  __shared__ float rows[kRows][32];
  let_next_kernel_start();  // a following kernel may be independent of these sums
  wait_for_previous_kernel();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 32 + lane;
  float sum = 0;
  if (i < a.floats) {
#pragma unroll 8
    for (int p = row; p < a.count; p += kRows) sum += a.pieces[p * a.floats + i];
  }
  rows[row][lane] = sum;
  __syncthreads();
  if (row != 0 || i >= a.floats) return;
  for (int j = 1; j < kRows; ++j) sum += rows[j][lane];
  PieceSums::Target target = a.target[0];
#pragma unroll
  for (int j = 1; j < PieceSums::kMaxTargets; ++j) {
    if (i >= a.target[j].begin) target = a.target[j];
  }
  if (target.to == nullptr) return;
  float* const to = target.to + (i - target.begin);
  *to = target.accumulate ? *to + sum : sum;
}

template <int R, int kChannels>
void launch_rounding(const LaunchShape& shape, const FewChannelBackwardPlan& plan) {
  with_float_type(plan.a.operand_type, [&](auto zero) {
    launch_beside_others(few_channel_backward<R, kChannels, decltype(zero)>, shape, plan);
  });
}

template <int R>
void launch_channels(const LaunchShape& shape, const FewChannelBackwardPlan& plan) {
  switch (plan.channels) {
    case 1:
      return launch_rounding<R, 1>(shape, plan);
    case 2:
      return launch_rounding<R, 2>(shape, plan);
    default:
      if constexpr (R < 7) launch_rounding<R, 3>(shape, plan);
  }
}

void backward(const FewChannelBackward& a) {
  const FewChannelStage& z = a.stage[a.stages - 1];
  const int parts = few_channel_backward_parts(a.stage, a.stages, a.batch);
  const FewChannelBackwardPlan plan = few_channel_plan(a, parts);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(plan.chunks * parts)),
                          .block = dim3(kBlockThreads),
                          .shared_bytes = static_cast<std::size_t>(plan.floats) * sizeof(float),
                          .overlaps_previous = true};
  switch (z.r) {
    case 3:
      launch_channels<3>(shape, plan);
      break;
    case 5:
      launch_channels<5>(shape, plan);
      break;
    default:
      launch_channels<7>(shape, plan);
  }
  if (a.dw[a.stages - 1] == nullptr || !a.adds_pieces) return;
  launch_beside_others(add_chunks,
                       LaunchShape{.grid = dim3(static_cast<unsigned>(ceil_div(plan.piece, 32))),
                                   .block = dim3(kAddThreads),
                                   .overlaps_previous = true},
                       few_channel_sums(plan));
}

}  // namespace

CONVSCOPE_KERNEL(few_channel_backward_kernel, cuda, backward)

}  // namespace convscope
