// SPDX-License-Identifier: Apache-2.0
// few_channel_conv.cpp: one or two consecutive convolutions of few channels on a GPU, each followed
// by bias, ReLU or tanh and 2x2 pooling. There is one kernel for each direction. This file has the
// sizes, the layout of tiles in shared memory, and the kernels.
#include "layers/conv2d/shared/few_channel_conv.h"

#include <algorithm>
#include <cstddef>

namespace convscope {

constinit KernelSlot<void(const FewChannelForward&)> few_channel_forward_kernel{
    "few_channel_chain"};
constinit KernelSlot<void(const FewChannelBackward&)> few_channel_backward_kernel{
    "few_channel_chain"};

Conv2dProblem few_channel_problem(const FewChannelStage& z, std::int64_t batch,
                                  DType operand_type) {
  return {.n = batch,
          .c = z.c,
          .h = z.h,
          .w = z.w,
          .k = z.k,
          .r = z.r,
          .s = z.r,
          .pad_top = z.pad_top,
          .pad_bottom = z.p + z.r - 1 - z.h - z.pad_top,
          .pad_left = z.pad_left,
          .pad_right = z.q + z.r - 1 - z.w - z.pad_left,
          .dtype = operand_type};
}

using namespace few_channel;

namespace {

// Shared memory that a block may use on every training GPU since 2020.
constexpr int kMaxSharedBytes = 160 * 1024;
// Limit for a block when an SM of 227 KB should hold two blocks.
constexpr int kTwoBlocksFloats = 112 * 1024 / 4;

// Returns how many channels of dx a thread computes. In the first stage's dw, a thread computes as
// many output channels.
int channels_for(int slice, int r) {
  // Kernels of 7x7 leave no registers for three.
  return slice % 3 == 0 && r < 7 ? 3 : slice == 1 ? 1 : 2;
}

// Returns a plan whose blocks take as many samples at a time as possible: two blocks fit on an SM,
// and a block takes no more samples than kMaxBlocks blocks need to cover the batch.
template <class Plan, class Make>
Plan with_most_samples(std::int64_t batch, int parts, Make&& make) {
  int samples = 1;
  while (parts == 1 && samples < kMaxSamples && samples * kMaxBlocks < batch) ++samples;
  for (;; --samples) {
    Plan plan = make(samples);
    if (samples == 1 || plan.floats <= kTwoBlocksFloats) return plan;
  }
}

FewChannelForwardPlan forward_plan(const FewChannelForward& a, int wanted_parts, int samples) {
  FewChannelForwardPlan plan;
  plan.a = a;
  plan.samples = samples;
  const FewChannelStage& end = a.stage[a.stages - 1];
  plan.slice = least(end.k, round_up(ceil_div(end.k, wanted_parts), kForwardChannels));
  const int channel_parts = ceil_div(end.k, plan.slice);
  const int rows = forward_tile_rows(end);
  plan.tile_rows = ceil_div(rows, most(1, least(rows, wanted_parts / channel_parts)));
  plan.row_parts = ceil_div(rows, plan.tile_rows);
  plan.parts = channel_parts * plan.row_parts;
  int split = 0;
  for (int i = 0; i < a.stages; ++i) {
    const FewChannelStage& z = a.stage[i];
    plan.tile[i] = x_tile(z);
    plan.x_at[i] = plan.floats;
    plan.floats += samples * z.c * plan.tile[i].plane();
    plan.w_at[i] = plan.floats;
    plan.floats += round_up(z.k * weight_k(z), 4);
    plan.b_at[i] = plan.floats;
    plan.floats += round_up(z.k, 4);
    const bool is_last = i == a.stages - 1;
    plan.deal[i] = forward_deal(z, is_last ? plan.slice : z.k,
                                is_last ? plan.tile_rows : forward_tile_rows(z), samples);
    const Deal& deal = plan.deal[i];
    plan.by[i] = DealDivisors(deal);
    plan.by_k_tiles[i] = FastDivisor(deal.groups * kForwardChannels * deal.tiles);
    plan.by_weights[i] = FastDivisor(z.c * z.r * z.r);
    if (deal.splits > 1) split = most(split, deal.items() * deal.splits * kForwardChannels * 8);
  }
  plan.by_w = FastDivisor(a.stage[0].w);
  plan.by_image = FastDivisor(a.stage[0].h * a.stage[0].w);
  plan.split_at = plan.floats;
  plan.floats += split;
  return plan;
}

// Plans the backward pass. The channels of the last stage are divided into `parts` equal parts.
FewChannelBackwardPlan backward_plan(const FewChannelBackward& a, int parts, int samples) {
  FewChannelBackwardPlan plan;
  plan.a = a;
  plan.samples = samples;
  const int last = a.stages - 1;
  const FewChannelStage& end = a.stage[last];
  plan.parts = parts;
  plan.slice = end.c / parts;
  plan.chunks = static_cast<int>(
      std::min<std::int64_t>(few_channel_chunks(a.batch), ceil_div(a.batch, samples)));
  plan.convolves_back = a.stages == 2 || a.dx != nullptr;
  plan.channels = channels_for(plan.slice, end.r);
  int at = 0;
  for (int i = 0; i < a.stages; ++i) {
    const FewChannelStage& z = a.stage[i];
    plan.x_tile[i] = x_tile(z);
    plan.x_at[i] = at;
    at += samples * (i == last ? plan.slice : z.c) * plan.x_tile[i].plane();
    plan.dy_tile[i] = dy_tile(z, i == last && plan.convolves_back);
    plan.dy_at[i] = at;
    at += samples * (i == last ? z.k : plan.slice) * plan.dy_tile[i].plane();
    plan.dw_at[i] = plan.piece;
    plan.piece += z.weights();
    plan.db_at[i] = plan.piece;
    plan.piece += z.k;
    plan.by_w[i] = FastDivisor(z.w);
    plan.by_image[i] = FastDivisor(z.h * z.w);
    const int channels = i == last ? plan.slice : z.c;
    plan.weight[i] = i == last ? weight_deal(z, z.k, kWeightChannels, channels)
                               : weight_deal(z, plan.slice, plan.channels, channels);
    plan.by_weight[i] = {.items = FastDivisor(plan.weight[i].groups * channels * z.r),
                         .channels = FastDivisor(channels),
                         .fours = FastDivisor(plan.weight[i].tiles_w)};
  }
  plan.by_y_threads = FastDivisor(kBlockThreads / end.k);
  plan.by_x_threads = FastDivisor(kBlockThreads / plan.slice);
  int split = 0;
  if (plan.convolves_back) {
    plan.w_at = at;
    at += end.k * weight_k(end, plan.slice);
    plan.passes_at = at;
    if (a.stages == 2) at += round_up(samples * plan.slice * end.h * end.w, 16) / 4;
    plan.data = data_deal(end, plan.slice, plan.channels, samples);
    const Deal& data = plan.data;
    plan.by_tiles_w = FastDivisor(data.tiles_w);
    plan.by_sample_items = FastDivisor(data.tiles_w * data.groups);
    plan.by_cut_items = FastDivisor(data.tiles_w * data.groups * data.samples);
    plan.by_row_items = FastDivisor(data.tiles_w * data.groups * data.samples * data.splits);
    plan.by_weights = FastDivisor(plan.slice * end.r * end.r);
    split = most(split, data.items() * data.splits * plan.channels * 8);
  }
  plan.by_out_w = FastDivisor(end.out_w());
  plan.split_at = at;
  // In the end all shared memory is reused for the sums of the threads: dw and db of the stages.
  const int sums = row_pitch(kWeightChannels * end.r) + 1 +
                   (a.stages == 2 ? row_pitch(plan.channels * end.r) + 1 : 0);
  plan.floats = most(at + split, kBlockThreads * sums);
  return plan;
}

}  // namespace

FewChannelForwardPlan few_channel_plan(const FewChannelForward& a, int parts) {
  return with_most_samples<FewChannelForwardPlan>(
      a.batch, parts, [&](int samples) { return forward_plan(a, parts, samples); });
}
FewChannelBackwardPlan few_channel_plan(const FewChannelBackward& a, int parts) {
  return with_most_samples<FewChannelBackwardPlan>(
      a.batch, parts, [&](int samples) { return backward_plan(a, parts, samples); });
}

PieceSums few_channel_sums(const FewChannelBackwardPlan& plan) {
  const FewChannelBackward& a = plan.a;
  PieceSums out;
  out.pieces = a.sums;
  out.floats = plan.piece;
  out.count = plan.chunks;
  for (int i = 0; i < 2; ++i) {
    const bool real = i < a.stages;
    out.target[2 * i] = {real ? a.dw[i] : nullptr, real ? plan.dw_at[i] : plan.piece,
                         a.accumulate[i]};
    out.target[2 * i + 1] = {real ? a.db[i] : nullptr, real ? plan.db_at[i] : plan.piece,
                             a.accumulate[i]};
  }
  return out;
}

int few_channel_forward_parts(std::int64_t batch, const FewChannelStage& last, int blocks_each) {
  constexpr std::int64_t kMultiprocessors = kMaxBlocks / 2;
  const std::int64_t blocks = blocks_each * kMultiprocessors;
  const std::int64_t wanted = batch >= blocks ? 1 : blocks / batch;
  const int possible = ceil_div(last.k, kForwardChannels) * forward_tile_rows(last);
  return wanted < possible ? static_cast<int>(wanted) : possible;
}

// Returns the number of blocks that share a sample: as many as run at the same time, and enough for
// all sums of dw. Returns 0 where no number suffices.
int few_channel_backward_parts(const FewChannelStage* stage, int stages, std::int64_t batch) {
  const FewChannelStage& z = stage[stages - 1];
  const std::int64_t wanted =
      std::max<std::int64_t>(1, kMaxBlocks / std::max<std::int64_t>(1, batch));
  int best = 0;
  for (int parts = 1; parts <= z.c; ++parts) {
    if (z.c % parts != 0) continue;
    const int slice = z.c / parts;
    bool fits = ceil_div(z.k, kWeightChannels) * slice * z.r <= kBlockThreads;
    if (stages == 2) {
      fits = fits && ceil_div(slice, channels_for(slice, z.r)) * stage[0].c * z.r <= kBlockThreads;
    }
    // With 7x7 kernels a thread takes two channels, so with an odd slice one thread has an idle
    // channel.
    const bool even = z.r < 7 || slice % 2 == 0 || slice == 1;
    const std::int64_t most_parts = z.r < 7 ? wanted : wanted + 1;
    if (fits && (best == 0 || (even && parts <= most_parts))) best = parts;
  }
  return best;
}

const char* few_channel_refusal(const FewChannelStage* stage, int stages, bool wants_dx) {
  FewChannelForward forward;
  FewChannelBackward backward;
  forward.stages = backward.stages = stages;
  float some = 0;
  backward.dx = wants_dx ? &some : nullptr;
  for (int i = 0; i < stages; ++i) {
    const FewChannelStage& z = stage[i];
    forward.stage[i] = backward.stage[i] = z;
    if (z.r != stage[0].r || (z.r != 3 && z.r != 5 && z.r != 7)) {
      return "expects kernels of 3x3, 5x5 or 7x7, the same in both stages";
    }
    if (z.pad_top >= z.r || z.pad_left >= z.r) return "expects padding below the kernel's size";
    if (z.out_h() < 1 || z.out_w() < 1) return "expects at least one pixel after the pooling";
    if (z.k > kBlockThreads || z.c > kBlockThreads || z.h > 1024 || z.w > 1024) {
      return "expects few channels and small images";
    }
  }
  if (stages == 2 && wants_dx) return "computes no gradient of the images of two stages";
  if (few_channel_backward_parts(stage, stages, 1 << 20) == 0) {
    return "expects accumulators of the weights' gradients that fit into the registers of a block";
  }
  const auto bytes = [](int floats) { return floats * static_cast<int>(sizeof(float)); };
  forward.batch = backward.batch = 1 << 20;
  for (const int parts : {1, stage[stages - 1].k}) {
    if (bytes(few_channel_plan(forward, parts).floats) > kMaxSharedBytes) {
      return "expects a sample that fits into the shared memory of a block";
    }
  }
  const int last_c = stage[stages - 1].c;
  for (int parts = few_channel_backward_parts(stage, stages, 1 << 20); parts <= last_c; ++parts) {
    if (last_c % parts == 0 && bytes(few_channel_plan(backward, parts).floats) > kMaxSharedBytes) {
      return "expects the gradients of a sample to fit into the shared memory of a block";
    }
  }
  return "";
}

}  // namespace convscope
