// SPDX-License-Identifier: Apache-2.0
// few_channel_conv_forward_cuda.cu: one or two convolutions of few channels with bias, activation
// and 2x2 pooling in one kernel, a sample in the shared memory of a block.
//
// Formula    y[n,k,i,j] = max over a, b < 2 of f(b[k] + sum over c, r, s of
//            x[n,c,2i+a-pad_top+r,2j+b-pad_left+s] w[k,c,r,s]),  f = ReLU, tanh or nothing;
//            or no pooling at all
// Textbook   for n, k, i, j:
//              for a, b: v[a][b] = f(b[k] + sum of products)
//              y[n][k][i][j] = largest of v;  passes = the index of the largest
// Method     Schedule of direct: each layer is the loop nest of direct_lesson_cpu.cpp. The kernel
//            adds the next layer, whose input stays in shared memory.
//            A block takes samples, up to four at a time when there are many: weights stay in
//            shared memory. Data that the previous kernel does not write are loaded while it runs:
//            weights, or the bytes of images that are gathered here. Otherwise the second stage's
//            weights are loaded while the first one computes. A thread computes a tile of 2 x 4
//            outputs for two output channels in 16 registers: two adjacent pooling windows, so that
//            pooling needs no other thread. With more threads than tiles, the sum over the input
//            channels is cut and added through shared memory. The second stage reads the first
//            one's y from shared memory. Few samples: more blocks share a sample, each with its
//            part of the last stage's channels and rows.
// Shapes     x [N,C,H,W], w [K,C,R,R], b [K], y [N,K,P/2,Q/2], all f32 (sums too); passes u8 as y
// Supports   f32, and x and w rounded to a half type where they are multiplied; R = S = 3, 5 or 7,
//            stride 1, no dilation, no groups, padding below R, sizes whose tiles fit into the
//            shared memory of a block
// Cost       FLOPs = 2 N K P Q C R^2 (the first stage again for each part of a sample); bytes = x,
//            y, passes once; compute-bound from about one sample for each SM on; below that the
//            latency of one sample dominates
// Numerics   error growth about 1 (sums of C R^2 products, in at most C pieces); the same bits on
//            each run; exact on integers; NaN wins in the maximum
// Backward   few_channel_conv_backward_cuda.cu reads y and `passes`, four bits for each y
// Choices    two channels: 16 accumulators, and for the 80 products of a kernel row (R = 5) 2
//            vector loads of x and 4 of w, so that multiplication is the bound, not shared memory;
//            256 threads: two blocks on each SM. Both stages, and sums with and without pieces, run
//            the same instructions: a block runs them once or twice, so fetching them matters
// Source     Y. LeCun et al.: Gradient-Based Learning Applied to Document Recognition, 1998 (the
//            network); the fusion is our own
// Read next  direct_sample_cuda.cu (one convolution), few_channel_conv_backward_cuda.cu
#include "framework/cuda/carveout.cuh"
#include "layers/conv2d/shared/few_channel_conv_tiles.cuh"

namespace convscope {
namespace {

using namespace few_channel;

// Applies bias, activation and pooling to the tile (2 x 4 accumulators) of channel k.
template <class Factor>
struct Finish {
  const FewChannelStage* z;
  float* y;              // for the first sample; may be null
  std::uint8_t* passes;  // may be null
  float* next;           // first pixel of the tile of x of the next stage; may be null
  int next_pitch, next_plane;
  bool y_rounded;  // y is rounded like the next stage's x

  // Stores an output. k counts the channels of all samples.
  __device__ void store(int k, int row, int column, float value) const {
    const float factor = as_factor<Factor>(value);
    if (rounds<Factor>() && y_rounded) value = factor;
    if (y != nullptr) y[(k * z->out_h() + row) * z->out_w() + column] = value;
    if (next == nullptr) return;
    next[k * next_plane + row * next_pitch + column] = factor;
  }

  __device__ void operator()(int sample, int channel, int tile_row, int tile_column, float bias,
                             const float (&sums)[kTileRows][kTileColumns]) const {
    const int k = sample * z->k + channel;
    float v[kTileRows][kTileColumns];
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) {
#pragma unroll
      for (int j = 0; j < kTileColumns; ++j)
        v[i][j] = activation_of(z->activation, sums[i][j] + bias);
    }
    if (!z->pools()) {
#pragma unroll
      for (int i = 0; i < kTileRows; ++i) {
        const int row = tile_row * kTileRows + i;
#pragma unroll
        for (int j = 0; j < kTileColumns; ++j) {
          const int column = tile_column * kTileColumns + j;
          if (row < z->p && column < z->q) store(k, row, column, v[i][j]);
        }
      }
      return;
    }
#pragma unroll
    for (int window = 0; window < 2; ++window) {
      const int column = tile_column * 2 + window;
      unsigned bits = 1;
      float value = v[0][2 * window];
#pragma unroll
      for (int i = 1; i < 4; ++i) {
        const float other = v[i / 2][2 * window + i % 2];
        if (other > value || other != other) {  // among equals the first one; NaN wins
          value = other;
          bits = 1u << i;
        }
      }
      if (activation_slope(z->activation, value) == 0.0f) bits = 0;
      if (column >= z->out_w()) continue;
      store(k, tile_row, column, value);
      if (passes != nullptr) {
        passes[(k * z->out_h() + tile_row) * z->out_w() + column] = static_cast<std::uint8_t>(bits);
      }
    }
  }
};

// A block's share of a stage.
struct Share {
  int k_begin, k_end;  // output channels
  int first_row;       // first of its rows of tiles
  int samples;
};

// Computes the block's share of the outputs from tiles, w and b in shared memory. There is a
// barrier inside only if the sums are split, and none at the end.
template <int R, class Factor>
__device__ void compute_stage(const FewChannelStage& z, const XTile& tile, const Deal& deal,
                              const DealDivisors& by, const FastDivisor& by_k_tiles, const float* x,
                              const float* w, const float* b, const Share& share, float* split,
                              const Finish<Factor>& finish) {
  const int items = deal.items();
  const int x_step = z.c * tile.plane();
  const int rows = forward_tile_rows(z);
  const int rounds = deal.splits > 1 ? 2 : 1;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    const bool adds = round == 1;  // this round adds the pieces
    if (adds) __syncthreads();
    const int count = adds ? share.samples * by_k_tiles.d : items * deal.splits;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlockThreads) {
      float sums[kForwardChannels][kTileRows][kTileColumns] = {};
      int sample, k, at, tile_row, tile_column, channels;
      if (adds) {
        sample = by_k_tiles.divide(i);
        const int channel = by.tiles.divide(i - sample * by_k_tiles.d);
        at = i - sample * by_k_tiles.d - channel * deal.tiles;
        k = share.k_begin + channel;
        channels = 1;
        const float* const from = split + i * 8;
#pragma unroll 2
        for (int cut = 0; cut < deal.splits; ++cut) {
          float piece[8];
          load_row(from + cut * deal.samples * by_k_tiles.d * 8, piece);
#pragma unroll
          for (int j = 0; j < 8; ++j) sums[0][j / 4][j % 4] += piece[j];
        }
        tile_row = by.tiles_w.divide(at);
        tile_column = at - tile_row * deal.tiles_w;
        tile_row += share.first_row;
        if (k >= share.k_end || tile_row >= rows) continue;
      } else {
        const int cut = by.items.divide(i);
        int rest = i - cut * items;
        sample = by.each.divide(rest);
        rest -= sample * deal.each();
        const int group = by.tiles.divide(rest);
        at = rest - group * deal.tiles;
        tile_row = by.tiles_w.divide(at);
        tile_column = at - tile_row * deal.tiles_w;
        tile_row += share.first_row;
        k = share.k_begin + group * kForwardChannels;
        if (k >= share.k_end || tile_row >= rows || sample >= share.samples) continue;
        channels = least(kForwardChannels, share.k_end - k);
        const int c_begin = cut * z.c / deal.splits;
        const int c_end = (cut + 1) * z.c / deal.splits;
        // A group beyond the end computes its first channel twice.
        const int other = channels > 1 ? weight_k(z) : 0;
        convolve_tile<R, kForwardChannels, false>(
            x + sample * x_step + c_begin * tile.plane() + tile_row * kTileRows * tile.pitch +
                tile_column * kTileColumns,
            tile.pitch, tile.plane(), c_end - c_begin, w + k * weight_k(z) + c_begin * weight_c(z),
            weight_c(z), other, 0, 0, sums);
        if (deal.splits > 1) {
          float* const to = split + (((cut * deal.samples + sample) * deal.groups + group) *
                                         kForwardChannels * deal.tiles +
                                     at) *
                                        8;
#pragma unroll
          for (int j = 0; j < kForwardChannels; ++j) {
            store_four(sums[j][0], to + j * deal.tiles * 8);
            store_four(sums[j][1], to + j * deal.tiles * 8 + 4);
          }
          continue;
        }
      }
#pragma unroll 1
      for (int j = 0; j < channels; ++j) {
        finish(sample, k + j, tile_row, tile_column, b[k + j], sums[0]);
#pragma unroll
        for (int l = 0; l < 8; ++l) sums[0][l / 4][l % 4] = sums[1][l / 4][l % 4];
      }
    }
  }
}

// Loads biases of [k_begin, k_end), or zeros. Its copies are still in flight when it returns.
__device__ inline void load_biases(const float* b, int k_begin, int k_end, float* to) {
  const int k = k_begin + static_cast<int>(threadIdx.x);
  if (k >= k_end) return;
  if (b != nullptr) {
    async_copy<4>(to + k, b + k);
  } else {
    to[k] = 0.0f;
  }
}

template <int R, class Factor>
__global__ void __launch_bounds__(kBlockThreads, 2)
    few_channel_forward(const FewChannelForwardPlan plan) {
  float* const shared = dynamic_shared<float>();
  const FewChannelForward& a = plan.a;
  const int part = static_cast<int>(blockIdx.x) % plan.parts;
  const int channel_part = part / plan.row_parts;
  const int last = a.stages - 1;
  const FewChannelStage& first = a.stage[0];
  const FewChannelStage& end = a.stage[last];
  const int k_begin = channel_part * plan.slice;
  const int k_end = least(k_begin + plan.slice, end.k);
  const int first_row = (part - channel_part * plan.row_parts) * plan.tile_rows;
  for (int i = 0; i < a.stages; ++i) {  // the borders stay
    fill_zeros(shared + plan.x_at[i], plan.samples * a.stage[i].c * plan.tile[i].plane());
  }
  const bool gathers = a.gather.images != nullptr;
  const int x_step = first.c * first.h * first.w;
  const int tile_step = first.c * plan.tile[0].plane();
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) / plan.parts * plan.samples;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) / plan.parts * plan.samples;
  const bool notes = gathers && blockIdx.x == 0 && threadIdx.x == 0;
  __shared__ LastStep last_step;
  bool waited = false;
  // Each stage's parameters are a separate group of copies. Those of the second stage arrive while
  // the first stage computes.
  const auto load_parameters = [&] {
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
      if (i < a.stages) {
        const int from = i == last ? k_begin : 0;
        const int to = i == last ? k_end : first.k;
        load_weights<R>(a.stage[i], plan.by_weights[i], a.w[i], from, to, 0, shared + plan.w_at[i]);
        load_biases(a.b[i], from, to, shared + plan.b_at[i]);
      }
      async_copy_commit();
    }
  };
  const auto round_parameters = [&](int i) {
    const int from = i == last ? k_begin : 0;
    const int to = i == last ? k_end : first.k;
    const int pitch = weight_k(a.stage[i]);
    round_operands<Factor>(shared + plan.w_at[i] + from * pitch, (to - from) * pitch);
  };
  constexpr bool kRounds = rounds<Factor>();
  const bool rounds_parameters = kRounds && !a.w_is_rounded;
  const bool loads_early = !gathers && a.only_x_is_new;
  if (loads_early) {
    load_parameters();
    if (rounds_parameters) {
      async_copy_wait<0>();
      __syncthreads();
      for (int i = 0; i < a.stages; ++i) round_parameters(i);
    }
  }
#pragma unroll 1
  for (std::int64_t n = begin; n < a.batch; n += step) {
    const int samples = a.batch - n < plan.samples ? static_cast<int>(a.batch - n) : plan.samples;
    __syncthreads();
    if (gathers) {  // no kernel changes the bytes
      for (int s = 0; s < samples; ++s) {
        gather_image<Factor>(a.gather, first, plan.tile[0], plan.by_w, plan.by_image, n + s,
                             shared + plan.x_at[0] + s * tile_step);
      }
    }
    if (!waited) {
      wait_for_previous_kernel();
      let_next_kernel_start();
      if (notes) read_last_step(a.gather, &last_step);
    }
    if (!gathers) {
      // The channels of several samples are treated as more channels.
      load_images(first, plan.tile[0], plan.by_w, plan.by_image, a.x + n * x_step, 0,
                  samples * first.c, shared + plan.x_at[0]);
    }
    const bool loads = !waited && !loads_early;
    if (loads) load_parameters();
    for (int s = 0; s < samples && gathers && part == 0; ++s) {
      write_gathered(a.gather, first, plan.tile[0], plan.by_w, plan.by_image, n + s,
                     shared + plan.x_at[0] + s * tile_step);
    }
    if (loads) {
      async_copy_wait<1>();
    } else {
      finish_copies();
    }
    __syncthreads();
    if (kRounds && ((loads && rounds_parameters) || !gathers)) {
      if (loads && rounds_parameters) round_parameters(0);
      if (!gathers) round_operands<Factor>(shared + plan.x_at[0], samples * tile_step);
      __syncthreads();
    }
    waited = true;
#pragma unroll 1
    for (int i = 0; i < a.stages; ++i) {
      const FewChannelStage& z = a.stage[i];
      const bool is_last = i == last;
      const bool writes = is_last || part == 0;  // only one of the parts writes
      const XTile& tile = plan.tile[last];       // for the next stage
      const std::int64_t at = n * z.outputs();
      const Finish<Factor> finish{
          .z = &z,
          .y = writes && a.y[i] != nullptr ? a.y[i] + at : nullptr,
          .passes = writes && a.passes[i] != nullptr ? a.passes[i] + at : nullptr,
          .next = is_last ? nullptr
                          : shared + plan.x_at[last] + end.pad_top * tile.pitch + end.pad_left,
          .next_pitch = tile.pitch,
          .next_plane = tile.plane(),
          .y_rounded = a.keeps_y_rounded[i]};
      const Share share =
          is_last ? Share{k_begin, k_end, first_row, samples} : Share{0, first.k, 0, samples};
      if (i > 0) {
        async_copy_wait<0>();
        __syncthreads();
        if (kRounds && loads && rounds_parameters) {
          round_parameters(1);
          __syncthreads();
        }
      }
      compute_stage<R, Factor>(z, plan.tile[i], plan.deal[i], plan.by[i], plan.by_k_tiles[i],
                               shared + plan.x_at[i], shared + plan.w_at[i], shared + plan.b_at[i],
                               share, shared + plan.split_at, finish);
    }
  }
  if (notes) note_last_step(a.gather, &last_step);
}

template <int R>
void launch_rounding(const LaunchShape& shape, const FewChannelForwardPlan& plan) {
  with_float_type(plan.a.operand_type, [&](auto zero) {
    launch_beside_others(few_channel_forward<R, decltype(zero)>, shape, plan);
  });
}

void run(const FewChannelForward& a, int parts) {
  const FewChannelForwardPlan plan = few_channel_plan(a, parts);
  const std::int64_t blocks = ceil_div(a.batch, plan.samples) * plan.parts;
  const std::int64_t most_blocks = plan.parts * most(1, kMaxBlocks / plan.parts);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks)),
      .block = dim3(kBlockThreads),
      .shared_bytes = static_cast<std::size_t>(plan.floats) * sizeof(float),
      .overlaps_previous = true};
  switch (a.stage[0].r) {
    case 3:
      return launch_rounding<3>(shape, plan);
    case 5:
      return launch_rounding<5>(shape, plan);
    default:
      return launch_rounding<7>(shape, plan);
  }
}

void forward(const FewChannelForward& a) {
  // With so few samples the stages run in separate kernels, because the first stage by itself can
  // use several blocks for each sample.
  const std::int64_t alone = kMaxBlocks / 8;
  if (a.stages == 2 && a.batch < alone && a.y[0] != nullptr) {
    for (int i = 0; i < 2; ++i) {
      FewChannelForward one;
      one.batch = a.batch;
      one.x = i == 0 ? a.x : a.y[0];
      one.stage[0] = a.stage[i];
      one.w[0] = a.w[i];
      one.b[0] = a.b[i];
      one.y[0] = a.y[i];
      one.passes[0] = a.passes[i];
      one.operand_type = a.operand_type;
      one.w_is_rounded = a.w_is_rounded;
      one.keeps_y_rounded[0] = a.keeps_y_rounded[i];
      one.only_x_is_new = a.only_x_is_new;
      if (i == 0) one.gather = a.gather;
      run(one, few_channel_forward_parts(a.batch, a.stage[i], 1));
    }
    return;
  }
  // With two blocks for each SM, a sample is divided into more parts, and each part computes the
  // first stage again. The alternative, one block for each SM, would not spread evenly next to the
  // blocks of the previous kernel.
  const int blocks_each = a.stages == 2 && a.batch >= alone ? 2 : 1;
  run(a, few_channel_forward_parts(a.batch, a.stage[a.stages - 1], blocks_each));
}

}  // namespace

CONVSCOPE_KERNEL(few_channel_forward_kernel, cuda, forward)

}  // namespace convscope
