// SPDX-License-Identifier: Apache-2.0
// next_batch_cuda.cu: gathers the samples of a batch and converts bytes to f32.
//
// Each block gathers one sample, and each of its threads gathers four pixels at a time. The chain
// of loads (index, sample, pixels, levels) may overlap the last kernel of the previous step. Only
// the stores have to wait for that step, because they replace its images.
#include "experiments/trainer/next_batch.h"
#include "framework/cuda/launch.cuh"

namespace convscope {
namespace {

constexpr unsigned kMaxThreads = 256;
constexpr int kHeld = 4;  // groups of four pixels that a thread holds at once

__device__ float4 normalised(const NextBatch& a, uchar4 pixels, const float* level) {
  return make_float4(level[pixels.x], level[pixels.y], level[pixels.z], level[pixels.w]);
}

__device__ void note(const NextBatch& a) {
  if (a.outcome == nullptr || blockIdx.x != 0 || threadIdx.x != 0) return;
  const float loss = *a.loss;
  // A count in f32 is exact up to 2^24.
  a.outcome->loss = loss;
  a.outcome->correct =
      a.shared_correct != nullptr ? static_cast<std::int32_t>(*a.shared_correct) : *a.correct;
  if (a.halted != nullptr && !isfinite(loss)) *a.halted = 1;
  if (a.loss_scale == nullptr) return;
  if (*a.halted == 0) a.loss_scale->state.advance(a.loss_scale->overflow == 0);
  a.loss_scale->overflow = 0;
  a.outcome->scale = a.loss_scale->state;
}

// Each thread handles whole groups of four pixels, because `plane` is a multiple of 4.
__global__ void __launch_bounds__(kMaxThreads) gather_fours(const NextBatch a) {
  const std::int64_t size = a.channels * a.plane;
  const std::int32_t sample = a.order[a.start->position + a.offset + blockIdx.x];
  const auto* const from = reinterpret_cast<const uchar4*>(a.images + sample * size);
  auto* const to = reinterpret_cast<float4*>(a.x + blockIdx.x * size);
  const int fours = static_cast<int>(size / 4);
  const int plane = static_cast<int>(a.plane / 4);
  const std::int32_t label = a.image_labels[sample];
  bool waited = false;
  for (int first = static_cast<int>(threadIdx.x); first < fours || !waited;
       first += static_cast<int>(blockDim.x) * kHeld) {
    float4 held[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int at = first + i * static_cast<int>(blockDim.x);
      if (at < fours) held[i] = normalised(a, from[at], a.levels + at / plane * 256);
    }
    if (!waited) {
      wait_for_previous_kernel();
      let_next_kernel_start();
      waited = true;
      note(a);
      if (threadIdx.x == 0) a.labels[blockIdx.x] = label;
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int at = first + i * static_cast<int>(blockDim.x);
      if (at < fours) to[at] = held[i];
    }
  }
}

__global__ void __launch_bounds__(kMaxThreads) gather_ones(const NextBatch a) {
  const std::int64_t size = a.channels * a.plane;
  const std::int32_t sample = a.order[a.start->position + a.offset + blockIdx.x];
  const std::uint8_t* const from = a.images + sample * size;
  float* const to = a.x + blockIdx.x * size;
  wait_for_previous_kernel();
  let_next_kernel_start();
  note(a);
  if (threadIdx.x == 0) a.labels[blockIdx.x] = a.image_labels[sample];
  for (std::int64_t i = threadIdx.x; i < size; i += blockDim.x) {
    to[i] = a.levels[i / a.plane * 256 + from[i]];
  }
}

__global__ void note_alone(const NextBatch a) {
  wait_for_previous_kernel();
  let_next_kernel_start();
  note(a);
}

__global__ void share_facts(const ShareFacts a) {
  wait_for_previous_kernel();
  let_next_kernel_start();
  const bool has_images = a.loss != nullptr;
  const float loss = has_images ? a.weight * *a.loss : 0.0f;
  const float correct = has_images ? static_cast<float>(*a.correct) : 0.0f;
  a.facts[0] = a.is_first ? loss : a.facts[0] + loss;
  a.facts[1] = a.is_first ? correct : a.facts[1] + correct;
}

void share_facts_cuda(const ShareFacts& a) { launch(share_facts, {.overlaps_previous = true}, a); }

void next_batch_cuda(const NextBatch& a) {
  if (a.batch == 0) {
    if (a.outcome == nullptr) return;
    launch(note_alone, {.overlaps_previous = true}, a);
    return;
  }
  const bool fours = a.plane % 4 == 0;
  const std::int64_t work = fours ? a.channels * a.plane / 4 : a.channels * a.plane;
  const auto threads = static_cast<unsigned>(work < kMaxThreads ? ceil_div(work, 32) * 32
                                                                : std::int64_t{kMaxThreads});
  launch(fours ? gather_fours : gather_ones,
         {.grid = dim3(static_cast<unsigned>(a.batch)),
          .block = dim3(threads),
          .overlaps_previous = true},
         a);
}

}  // namespace
CONVSCOPE_KERNEL(next_batch_kernel, cuda, next_batch_cuda)
CONVSCOPE_KERNEL(share_facts_kernel, cuda, share_facts_cuda)
}  // namespace convscope
