// SPDX-License-Identifier: Apache-2.0
// linear_tail_half_cuda.cu: the last linear layers of a classifier with the loss, in one launch,
// for half-precision operands. It computes the products of linear_tail_cuda.cu on tensor cores.
//
// Formula    h = relu(x w^T + b), layer after layer; the last gives logits; p = softmax(logits);
//            g = (p - onehot) / N, then g' = (g w) where h > 0, layer by layer back
// Textbook   for n: for each layer: for o: h[o] = relu(b[o] + sum over i of x[i] w[o,i])
//              loss and g of the logits
//              for each layer, last first: for i: g'[i] = sum over o of g[o] w[o,i], where h > 0
// Method     A block has up to eight images, which are the columns of its products. A warp computes
//            tiles of 16 rows, which are outputs in the forward pass and inputs in the backward
//            pass. All weights are in shared memory in 16 bits, copied while the previous kernel
//            still runs. Both passes use these rows, and the backward pass reads them transposed.
//            There is one barrier between two layers. After the softmax the last warp computes the
//            logarithms and adds the losses of all blocks, while the other warps multiply.
// Shapes     x [N,I], w [O,I], b [O], h and g [N,O], f32, accumulated in f32; operands f16 or bf16
// Supports   up to four layers, 32 classes, I a multiple of 4; four or more images for each of 132
//            blocks; weights that fit in 16 bits into the shared memory of a block
// Cost       FLOPs = 4 N I O in total; each block computes eight images, even if it has fewer;
//            bytes = the weights once for each block, x, h, g once; bound by the latency of its
//            barriers, and by the copy of the weights where the previous kernel occupies the SM
// Numerics   the sums of 16 products are added one after the other, the even and the odd ones
//            separately. The tensor core rounds towards zero. The order depends only on the sizes
// Backward   dx assigned
// Choices    512 threads with 64 registers, so that a block of a neighbouring kernel fits on the
//            same SM. Each result has two accumulators, so a product waits only for the product
//            before the last one. Eight loads of 16 bytes are in flight, as many as fit into
//            registers
// Read next  linear_tail_cuda.cu (f32, and sizes that do not fit), tensor_cores/warp_tile.cuh
#include <algorithm>

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/carveout.cuh"
#include "framework/cuda/half.cuh"
#include "framework/cuda/map.cuh"
#include "framework/cuda/scratch.cuh"
#include "framework/cuda/tensor_cores/warp_tile.cuh"
#include "layers/linear/linear_loss.cuh"
#include "layers/linear/linear_tail_half.cuh"

namespace convscope {
namespace {

using warp_tile::pitch_of;

constexpr int kTailThreads = 512;
constexpr int kTailWarps = kTailThreads / 32;
constexpr int kBackThreads = kTailThreads - 32;  // without the warp that adds the losses
constexpr int kMaxImages = warp_tile::kColumns;
constexpr int kLeastImages = 4;  // fewer leave most columns of a tile empty

__device__ unsigned blocks_done = 0;

// The pointers and sizes of a layer. Members *_at are offsets in shared memory, in floats and
// multiples of 4.
struct HalfLayer {
  const float* w;
  const void* w_half;  // LinearTailLayer
  const float* b;           // may be null
  float* h;                 // [N,O], rounded; null: the last layer
  float* g;                 // [N,O]; null: no gradients
  float* g_half;         // [N,O], rounded; null: not needed
  int i, o;
  bool relu;
  int w_at;              // 16 bits [O rounded up][pitch_of(I)]
  int x_at;              // 16 bits [8][pitch_of(I)]: the operand of w
  int g_at;              // 16 bits [8][pitch_of(O)]: likewise in the backward pass
  int b_at, h_at;        // [O], [8][O]
  FastDivisor by_fours;  // I / 4
};
struct HalfRows {
  int layers, n, images;  // of a block
  HalfLayer layer[kMaxTailLayers];
  const float* x;
  float* dx;  // may be null
  const std::int32_t* labels;
  const double* loss_scale;
  LossSums sums;
  bool weights_are_there;  // LinearTailArgs
};

// Converts four neighbours to half precision.
template <class Half>
__device__ inline void store_four(Half* to, float4 four) {
  *reinterpret_cast<Pack<unsigned, 2>*>(to) = {pair_from_floats<Half>(four.x, four.y),
                                               pair_from_floats<Half>(four.z, four.w)};
}

// Copies w [O,I] into 16-bit rows. Each row is padded with zeros, and rows of zeros follow the last
// row, because products read whole steps of the K dimension.
template <class Half>
__device__ void copy_weights(const HalfLayer& z, Half* to) {
  constexpr int kHeld = 8;
  const int fours = z.by_fours.d;
  const int count = z.o * fours;
  const int pitch = pitch_of(z.i);
  const auto place = [&](int at) {
    const int row = z.by_fours.divide(at);
    return to + row * pitch + (at - row * fours) * 4;
  };
  const auto* const half_at = static_cast<const Half*>(z.w_half);
  for (int at = static_cast<int>(threadIdx.x); half_at != nullptr && at < count;
       at += kTailThreads) {
    async_copy<8>(place(at), half_at + at * 4);
  }
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x); half_at == nullptr && first < count;
       first += kHeld * kTailThreads) {
    float4 held[kHeld];
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int at = first + j * kTailThreads;
      if (at < count) held[j] = __ldcg(reinterpret_cast<const float4*>(z.w) + at);
    }
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int at = first + j * kTailThreads;
      if (at < count) store_four(place(at), held[j]);
    }
  }
  const float4 zeros = make_float4(0, 0, 0, 0);
  const int left = (pitch - z.i) / 4;  // of a row
  for (int row = static_cast<int>(threadIdx.x); row < z.o; row += kTailThreads) {
    for (int j = 0; j < left; ++j) store_four(to + row * pitch + z.i + j * 4, zeros);
  }
  const int end = round_up(z.o, warp_tile::kRows) * pitch;
  for (int at = z.o * pitch + 4 * static_cast<int>(threadIdx.x); at < end; at += 4 * kTailThreads) {
    store_four(to + at, zeros);
  }
}

// Multiplies a tile of A by a tile of B in `steps` steps of the K dimension, and calls store(row,
// image, sum) for the results of this lane. A begins at `a` and advances by a_step 16-bit elements
// in each step.
template <class Half, bool kTransposed, class Store>
__device__ inline void multiply_tile(const Half* a, int a_pitch, int a_step, const Half* b,
                                     int b_pitch, int steps, const Store& store) {
  float even[4] = {}, odd[4] = {};
#pragma unroll 2
  for (int step = 0; step + 1 < steps; step += 2) {
    warp_tile::multiply<Half, kTransposed>(even, a, a_pitch, b, b_pitch);
    warp_tile::multiply<Half, kTransposed>(odd, a + a_step, a_pitch, b + warp_tile::kDepth,
                                           b_pitch);
    a += 2 * a_step;
    b += 2 * warp_tile::kDepth;
  }
  if (steps % 2 != 0) warp_tile::multiply<Half, kTransposed>(even, a, a_pitch, b, b_pitch);
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    store(lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2, even[i] + odd[i]);
  }
}

// A barrier of the kBackThreads of the backward pass.
__device__ inline void back_sync() {
#if defined(CONVSCOPE_CUDA_EMULATED)
  emulation::named_barrier(1, kBackThreads);
#else
  asm volatile("bar.sync 1, %0;" ::"n"(kBackThreads) : "memory");
#endif
}

template <class Half>
__global__ void __launch_bounds__(kTailThreads, 2) half_tail_kernel(const HalfRows a) {
  __shared__ float totals[kMaxImages];  // of the exponentials
  __shared__ double losses[kMaxImages];
  __shared__ int hits[kMaxImages];
  auto* const shared = dynamic_shared<float>();
  const auto half_at = [&](int at) { return reinterpret_cast<Half*>(shared + at); };
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * a.images;
  const int here = a.n - first < a.images ? static_cast<int>(a.n - first) : a.images;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const HalfLayer& begin = a.layer[0];
  const HalfLayer& last = a.layer[a.layers - 1];
  const bool backward = last.g != nullptr;
  // The previous kernel computes x. If the weights are there already, all data except x are loaded
  // while that kernel runs.
  if (!a.weights_are_there) wait_for_previous_kernel();
#pragma unroll 1
  for (int k = 0; k < a.layers; ++k) {
    const HalfLayer& z = a.layer[k];
    // Sets missing images, and the ends of existing images, to zero.
    const int x_end = z.x_at + kMaxImages * pitch_of(z.i) / 2;
    const int g_end = z.g_at + kMaxImages * pitch_of(z.o) / 2;
    for (int at = z.x_at + static_cast<int>(threadIdx.x); at < x_end; at += kTailThreads) {
      shared[at] = 0;
    }
    for (int at = z.g_at + static_cast<int>(threadIdx.x); at < g_end; at += kTailThreads) {
      shared[at] = 0;
    }
    for (int o = static_cast<int>(threadIdx.x); o < z.o; o += kTailThreads) {
      if (z.b != nullptr) {
        async_copy<4>(shared + z.b_at + o, z.b + o);
      } else {
        shared[z.b_at + o] = 0;
      }
    }
    copy_weights(z, half_at(z.w_at));
  }
  async_copy_commit();
  async_copy_wait<0>();
  __syncthreads();
  if (a.weights_are_there) wait_for_previous_kernel();
  let_next_kernel_start();
  // Each of the last warps computes the loss of one image, so the first warps continue sooner.
  const int own = warp - (kTailWarps - a.images);
  const int label = own >= 0 && own < here ? a.labels[first + own] : -1;
  const float scale =
      own >= 0 && a.loss_scale != nullptr ? static_cast<float>(*a.loss_scale) : 1.0f;
  {
    const int fours = begin.by_fours.d;
    const auto* const from = reinterpret_cast<const float4*>(a.x + first * begin.i);
    for (int at = static_cast<int>(threadIdx.x); at < here * fours; at += kTailThreads) {
      const int image = begin.by_fours.divide(at);
      store_four(half_at(begin.x_at) + image * pitch_of(begin.i) + (at - image * fours) * 4,
                 __ldcg(from + at));
    }
  }
  __syncthreads();

#pragma unroll 1
  for (int k = 0; k < a.layers; ++k) {
    const HalfLayer& z = a.layer[k];
    const int pitch = pitch_of(z.i);
    const bool is_last = k == a.layers - 1;
    Half* const next = is_last ? nullptr : half_at(a.layer[k + 1].x_at);
    const int next_pitch = pitch_of(z.o);
    for (int tile = warp * warp_tile::kRows; tile < z.o; tile += kTailWarps * warp_tile::kRows) {
      const auto store = [&](int row, int image, float sum) {
        const int o = tile + row;
        if (o >= z.o || image >= here) return;
        sum += shared[z.b_at + o];
        if (z.relu && sum <= 0.0f) sum = 0.0f;  // NaN passes
        shared[z.h_at + image * z.o + o] = sum;
        const Half factor = from_float<Half>(sum);
        if (next != nullptr) next[image * next_pitch + o] = factor;
        if (z.h != nullptr) z.h[(first + image) * z.o + o] = to_float(factor);
      };
      multiply_tile<Half, false>(half_at(z.w_at) + tile * pitch, pitch, warp_tile::kDepth,
                                 half_at(z.x_at), pitch, ceil_div(z.i, warp_tile::kDepth), store);
    }
    __syncthreads();
  }

  if (own >= 0) {
    const bool is_class = lane < last.o;
    const float logit = is_class && own < here ? shared[last.h_at + own * last.o + lane] : 0.0f;
    const Softmax softmax = image_softmax(logit, is_class, lane, label, last.o);
    if (lane == 0) {
      totals[own] = softmax.valid ? softmax.total : 1.0f;
      losses[own] = softmax.loss_without_logarithm();
      hits[own] = softmax.hit;
    }
    if (backward && is_class && own < here) {
      const float slope = softmax.slope / static_cast<float>(a.n) * scale;
      const Half factor = from_float<Half>(slope);
      const std::int64_t at = (first + own) * last.o + lane;
      half_at(last.g_at)[own * pitch_of(last.o) + lane] = factor;
      last.g[at] = slope;
      if (last.g_half != nullptr) last.g_half[at] = to_float(factor);
    }
  } else if (static_cast<int>(threadIdx.x) <
             kMaxImages - a.images) {  // of images that no block has
    totals[a.images + static_cast<int>(threadIdx.x)] = 1.0f;
    losses[a.images + static_cast<int>(threadIdx.x)] = 0;
    hits[a.images + static_cast<int>(threadIdx.x)] = 0;
  }
  __syncthreads();
  // This warp works alone until the end of the kernel; no other warp waits for it.
  if (warp == kTailWarps - 1) {
    if (lane < kMaxImages) losses[lane] += ::log(static_cast<double>(totals[lane]));
    __syncwarp();
    unsigned ticket = 0;
    if (lane == 0) ticket = leave_losses<kMaxImages>(losses, hits, a.sums, &blocks_done);
    add_losses_of_blocks(a.sums, &blocks_done, ticket);
    return;
  }
#pragma unroll 1
  for (int k = a.layers - 1; backward && k >= 0; --k) {
    if (k == 0 && a.dx == nullptr) break;
    const HalfLayer& z = a.layer[k];
    const int pitch = pitch_of(z.i);
    const HalfLayer& before = a.layer[k > 0 ? k - 1 : 0];
    Half* const next = half_at(before.g_at);
    float* const g = k > 0 ? before.g : a.dx;
    for (int tile = warp * warp_tile::kRows; tile < z.i;
         tile += (kTailWarps - 1) * warp_tile::kRows) {
      const auto store = [&](int row, int image, float sum) {
        const int i = tile + row;
        if (i >= z.i || image >= here) return;
        const std::int64_t at = (first + image) * z.i + i;
        if (k > 0) {
          if (before.relu && shared[before.h_at + image * z.i + i] <= 0.0f) sum = 0.0f;
          const Half factor = from_float<Half>(sum);
          next[image * pitch + i] = factor;
          if (before.g_half != nullptr) before.g_half[at] = to_float(factor);
        }
        g[at] = sum;
      };
      multiply_tile<Half, true>(half_at(z.w_at) + tile, pitch, warp_tile::kDepth * pitch,
                                half_at(z.g_at), pitch_of(z.o), ceil_div(z.o, warp_tile::kDepth),
                                store);
    }
    back_sync();
  }
}

float* floats(const Tensor& t) { return t.defined() ? t.data<float>() : nullptr; }

}  // namespace

bool queue_half_tail(const LinearTailArgs& args) {
  if (args.operand_type == DType::f32) return false;
  HalfRows a{};
  a.layers = args.layers;
  a.n = static_cast<int>(args.x.dim(0));
  a.images = tail_images_of_block(a.n);
  if (a.images < kLeastImages) return false;
  int at = 0;
  const auto take = [&](int count) {
    const int begin = at;
    at += round_up(count, 4);
    return begin;
  };
  for (int k = 0; k < args.layers; ++k) {
    const LinearTailLayer& from = args.layer[k];
    HalfLayer& to = a.layer[k];
    to.w = floats(from.w);
    to.w_half = from.w_half;
    to.b = floats(from.b);
    to.h = floats(from.h);
    to.g = floats(from.g);
    to.g_half = floats(from.g_half);
    to.i = static_cast<int>(from.w.dim(1));
    to.o = static_cast<int>(from.w.dim(0));
    to.relu = from.relu;
    to.by_fours = FastDivisor(to.i / 4);
    to.w_at = take(round_up(to.o, warp_tile::kRows) * pitch_of(to.i) / 2);
    to.x_at = take(kMaxImages * pitch_of(to.i) / 2);
    to.g_at = take(kMaxImages * pitch_of(to.o) / 2);
    to.b_at = take(to.o);
    to.h_at = take(kMaxImages * to.o);
  }
  const CudaDeviceFacts& facts = cuda_device_facts();
  // The kernel declares less than a kilobyte of static shared memory.
  const int most = (facts.shared_bytes_per_block - 1024) / 4;
  if (at > most) return false;
  const int count = ceil_div(a.n, a.images);
  // The block takes more than half of an SM's shared memory. Otherwise two blocks would share an SM
  // while other SMs have none.
  if (count <= facts.multiprocessors) at = std::max(at, (most + 1024 / 4) / 2);
  a.x = floats(args.x);
  a.dx = floats(args.dx);
  a.labels = args.labels.data<std::int32_t>();
  a.loss_scale = args.loss_scale;
  a.weights_are_there = args.weights_are_there;
  const auto blocks = static_cast<unsigned>(count);
  a.sums = {.blocks = cuda_scratch_of<BlockSums>(blocks),
            .images = a.n,
            .loss = args.loss.data<float>(),
            .correct = args.correct.data<std::int32_t>()};
  const LaunchShape shape{.grid = dim3(blocks),
                          .block = dim3(kTailThreads),
                          .shared_bytes = static_cast<std::size_t>(at) * sizeof(float),
                          .overlaps_previous = true};
  if (args.operand_type == DType::bf16) {
    launch_beside_others(half_tail_kernel<BFloat16>, shape, a);
  } else {
    launch_beside_others(half_tail_kernel<Float16>, shape, a);
  }
  return true;
}

}  // namespace convscope
