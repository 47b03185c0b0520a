// SPDX-License-Identifier: Apache-2.0
// linear_tail_cuda.cu: the last linear layers of a classifier with the loss, in one launch that
// processes each image separately. linear_tail_weights_cuda.cu computes the gradients of the
// weights.
//
// Formula    h = relu(x w^T + b), layer after layer; the last gives logits; p = softmax(logits);
//            g = (p - onehot) / N, then g' = (g w) where h > 0, layer by layer back
// Textbook   for n: for each layer: for o: h[o] = relu(b[o] + sum over i of x[i] w[o,i])
//              loss and g of the logits
//              for each layer, last first: for i: g'[i] = sum over o of g[o] w[o,i], where h > 0
// Method     A block passes kS images through all layers and back. It copies the weights into
//            shared memory, in the type of the operands, while the previous kernel still runs,
//            because that kernel writes only x. If the weights of the first layer do not fit, they
//            are read twice from memory. Only h and g are written, for the second launch. With four
//            or more images, half-precision weights that fit are multiplied on tensor cores
//            (linear_tail_half_cuda.cu). Forward: a warp takes some rows of w, and each lane
//            takes four i at a time. The sums of the lanes are then exchanged; each exchange halves
//            the number of sums that a lane has. Backward: a thread takes four i and one part of
//            the outputs o. Each part of the first half adds the sums of a part of the second half
//            to its own. These results are added in shared memory, in order. In a layer with few
//            outputs a thread takes one i and all o. After the softmax the last warp computes the
//            logarithms and adds the losses of all blocks, while the other warps multiply.
// Shapes     x [N,I], w [O,I], b [O], h and g [N,O], f32, accumulated in f32; operands f32 or
//            rounded to half precision
// Supports   up to four layers, 32 classes, I a multiple of 4 up to 2048, O up to 1024, 128K
//            weights
// Cost       FLOPs = 4 N I O in all; bytes = the weights once for each block, x, h, g once; bound
//            by L2, and by the latency of a dozen barriers where images are few
// Numerics   each lane adds I / 32 numbers, then the lanes are added as a tree. For dx each thread
//            adds O / parts numbers, then two parts are added, then these pairs in order; with few
//            outputs all numbers are added in order. The order depends only on the sizes
// Backward   dx assigned
// Choices    512 threads, which load sixteen rows of four or eight weights at once. A block has as
//            few images as give each of 132 SMs one block, but at most 8, because registers suffice
//            for eight rows of accumulators. With one or two images a thread has 64 registers, so
//            that a block of a neighbouring kernel fits on the same SM and both can start early. A
//            second block of this kernel does not fit. In half precision two blocks would otherwise
//            share an SM while other SMs are idle
// Read next  linear_tail_weights_cuda.cu, linear_fused_cuda.cu (one layer in one launch),
//            linear_loss_cuda.cu, linear_tail_half_cuda.cu (half precision on tensor cores)
#include <algorithm>

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/carveout.cuh"
#include "framework/cuda/half.cuh"
#include "framework/cuda/map.cuh"
#include "framework/cuda/scratch.cuh"
#include "layers/linear/linear_loss.cuh"
#include "layers/linear/linear_tail.h"
#include "layers/linear/linear_tail_half.cuh"

namespace convscope {
namespace {

constexpr int kTailThreads = 512;
constexpr int kTailWarps = kTailThreads / 32;
constexpr int kBackThreads = kTailThreads - 32;  // without the warp that adds the losses
constexpr int kBlocksWanted = 132;
constexpr int kFewOutputs = 16;

__device__ unsigned blocks_done = 0;

// The pointers and sizes of a layer. Members *_at are offsets in shared memory, in floats and
// multiples of 4.
struct TailLayer {
  const float* w;
  const void* w_half;  // LinearTailLayer
  const float* b;           // may be null
  float* h;                 // [N,O], in the operands' type; null in the last layer
  float* g;                 // [N,O]; null: no gradients
  float* g_half;         // [N,O], in the operands' type; null: not needed
  int i, o;
  bool relu;
  int w_at;                    // -1: read in place
  int b_at;                    // [O]
  int h_at;                    // [images][O]
  int factor_at;               // the h that the next layer multiplies; may equal h_at
  int g_at;                    // [images][O], in the operands' type
  FastDivisor by_i, by_fours;  // I, I / 4
  int parts, part;             // the backward pass cuts O into `parts` parts of `part` outputs
};
struct TailRows {
  int layers, n;
  TailLayer layer[kMaxTailLayers];
  const float* x;
  float* dx;  // may be null
  int x_at, parts_at;
  const std::int32_t* labels;
  const double* loss_scale;
  LossSums sums;
  bool weights_are_there, x_is_rounded;  // LinearTailArgs
};

struct Four {
  float v[4];
};
// Loads four neighbouring elements in the operands' type. Elements stored as f32 are rounded here.
template <class Factor>
__device__ inline Four load_four(const float* from) {
  const float4 p = *reinterpret_cast<const float4*>(from);
  Four out{{p.x, p.y, p.z, p.w}};
  if constexpr (!std::is_same_v<Factor, float>) {
#pragma unroll
    for (float& v : out.v) v = rounded<Factor>(v);
  }
  return out;
}
template <class Factor, class Half>
requires(!std::is_same_v<Half, float>) __device__ inline Four load_four(const Half* from) {
  const auto p = *reinterpret_cast<const Pack<unsigned, 2>*>(from);
  const float2 low = floats_from_pair<Half>(p.v[0]);
  const float2 high = floats_from_pair<Half>(p.v[1]);
  return {{low.x, low.y, high.x, high.y}};
}

// Sums kCount values over the lanes. Lane l receives the total of value l / (32 / kCount).
template <int kCount, int kOffset = 16>
__device__ inline float fold(const float (&v)[kCount], int lane) {
  if constexpr (kCount == 1) {
    float sum = v[0];
#pragma unroll
    for (int offset = kOffset; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, offset);
    }
    return sum;
  } else {
    constexpr int kHalf = kCount / 2;
    const bool upper = (lane & kOffset) != 0;
    float sums[kHalf];
#pragma unroll
    for (int j = 0; j < kHalf; ++j) {
      const float own = upper ? v[j + kHalf] : v[j];
      const float others = upper ? v[j] : v[j + kHalf];
      sums[j] = own + __shfl_xor_sync(kAllLanes, others, kOffset);
    }
    return fold<kHalf, kOffset / 2>(sums, lane);
  }
}

// Calls store(image, o, sum over i of x[image][i] w[o][i]) for all images and all o.
template <int kS, class Factor, int kUnroll, class Stored, class Store>
__device__ void multiply_rows(const Stored* w, const float* x, int inputs, int outputs,
                              const Store& store) {
  constexpr int kR = kS == 1 ? 8 : 4;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int first = warp * kR; first < outputs; first += kTailWarps * kR) {
    float sums[kR * kS] = {};
#pragma unroll kUnroll
    for (int i = lane * 4; i < inputs; i += 128) {
      Four a[kR];
#pragma unroll
      for (int r = 0; r < kR; ++r) {
        const int o = first + r < outputs ? first + r : outputs - 1;
        a[r] = load_four<Factor>(w + o * inputs + i);
      }
#pragma unroll
      for (int s = 0; s < kS; ++s) {
        const Four b = load_four<float>(x + s * inputs + i);
#pragma unroll
        for (int r = 0; r < kR; ++r) {
#pragma unroll
          for (int l = 0; l < 4; ++l) sums[r * kS + s] += a[r].v[l] * b.v[l];
        }
      }
    }
    const float sum = fold(sums, lane);
    constexpr int kLanes = 32 / (kR * kS);  // that have the same sum
    const int which = lane / kLanes;
    const int o = first + which / kS;
    if (lane % kLanes == 0 && o < outputs) store(which % kS, o, sum);
  }
}

template <int kS>
__device__ inline void store_sums(const Four (&sums)[kS], float* to, int pitch) {
#pragma unroll
  for (int s = 0; s < kS; ++s) {
    *reinterpret_cast<float4*>(to + s * pitch) =
        make_float4(sums[s].v[0], sums[s].v[1], sums[s].v[2], sums[s].v[3]);
  }
}
template <int kS>
__device__ inline void add_sums(const float* from, int pitch, Four (&sums)[kS]) {
#pragma unroll
  for (int s = 0; s < kS; ++s) {
    const float4 p = *reinterpret_cast<const float4*>(from + s * pitch);
    sums[s].v[0] += p.x;
    sums[s].v[1] += p.y;
    sums[s].v[2] += p.z;
    sums[s].v[3] += p.w;
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

// Calls store(image, i, sum over o of g[image][o] w[o][i]) for all images and all i, by
// kBackThreads threads. Ends with a barrier of these threads.
template <int kS, class Factor, class Stored, class Store>
__device__ void multiply_columns(const TailLayer& z, const Stored* w, const float* g,
                                 float* scratch, const Store& store) {
  const int inputs = z.i, outputs = z.o;
  if (outputs <= kFewOutputs || inputs > 4 * kBackThreads) {
    for (int at = static_cast<int>(threadIdx.x); at < kS * inputs; at += kBackThreads) {
      const int image = kS == 1 ? 0 : z.by_i.divide(at);
      const int i = at - image * inputs;
      float sum = 0;
#pragma unroll 4
      for (int o = 0; o < outputs; ++o) {
        const float factor = to_float(w[o * inputs + i]);  // rounded, unless Stored is float
        const bool rounds = std::is_same_v<Stored, float>;
        sum += g[image * outputs + o] * (rounds ? rounded<Factor>(factor) : factor);
      }
      store(image, i, sum);
    }
    back_sync();
    return;
  }
  const int columns = inputs / 4;
  const int parts = z.parts;
  const int kept = (parts + 1) / 2;  // parts that are stored; each adds one other part first
  const int part = z.by_fours.divide(static_cast<int>(threadIdx.x));
  const int i = (static_cast<int>(threadIdx.x) - part * columns) * 4;
  Four sums[kS] = {};
  if (part < parts) {
    const int begin = part * z.part;
    const int end = begin + z.part < outputs ? begin + z.part : outputs;
#pragma unroll 8
    for (int o = begin; o < end; ++o) {
      const Four a = load_four<Factor>(w + o * inputs + i);
#pragma unroll
      for (int s = 0; s < kS; ++s) {
        const float slope = g[s * outputs + o];
#pragma unroll
        for (int l = 0; l < 4; ++l) sums[s].v[l] += slope * a.v[l];
      }
    }
    if (part >= kept) store_sums(sums, scratch + (part - kept) * kS * inputs + i, inputs);
  }
  back_sync();
  if (part < kept) {
    float* const own = scratch + part * kS * inputs + i;
    if (part + kept < parts) add_sums(own, inputs, sums);
    store_sums(sums, own, inputs);
  }
  back_sync();
  for (int at = static_cast<int>(threadIdx.x); at < kS * inputs; at += kBackThreads) {
    float sum = 0;
#pragma unroll 4
    for (int p = 0; p < kept; ++p) sum += scratch[p * kS * inputs + at];
    const int image = kS == 1 ? 0 : z.by_i.divide(at);
    store(image, at - image * inputs, sum);
  }
  back_sync();
}

// Copies `count` floats, a multiple of 4, with all threads. The floats from index `inside` on are
// not read, and their copies are 0.
__device__ inline void copy_floats(float* to, const float* from, int count, int inside) {
  for (int at = static_cast<int>(threadIdx.x) * 4; at < count; at += kTailThreads * 4) {
    async_copy<16>(to + at, at < inside ? from + at : from, at < inside);
  }
}
// Copies `count` floats as 16-bit elements, so that this copy and each product move half the bytes.
template <class Half>
__device__ inline void copy_to_half(Half* to, const float* from, int count) {
  constexpr int kHeld = 8;
  constexpr int kStep = kTailThreads * 4;
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x) * 4; first < count; first += kHeld * kStep) {
    float4 held[kHeld];
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int at = first + j * kStep;
      if (at < count) held[j] = __ldcg(reinterpret_cast<const float4*>(from + at));
    }
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int at = first + j * kStep;
      if (at >= count) continue;
      *reinterpret_cast<Pack<unsigned, 2>*>(to + at) = {
          pair_from_floats<Half>(held[j].x, held[j].y),
          pair_from_floats<Half>(held[j].z, held[j].w)};
    }
  }
}
// Copies `count` elements that are 16-bit already; `count` is a multiple of 4. The copy is
// asynchronous and does not pass through registers.
template <class Half>
__device__ inline void copy_half(Half* to, const Half* from, int count) {
  for (int at = static_cast<int>(threadIdx.x) * 8; at < count; at += kTailThreads * 8) {
    if (at + 8 <= count) {
      async_copy<16>(to + at, from + at);
    } else {
      async_copy<8>(to + at, from + at);
    }
  }
}
// Rounds in each thread the elements that it has copied.
template <class Factor>
__device__ inline void round_copies(float* to, int count) {
  for (int at = static_cast<int>(threadIdx.x) * 4; at < count; at += kTailThreads * 4) {
    const Four four = load_four<Factor>(to + at);
    *reinterpret_cast<float4*>(to + at) = make_float4(four.v[0], four.v[1], four.v[2], four.v[3]);
  }
}

// Stores g in f32 for the gradient of the bias, and a rounded copy for the gradient of the weight.
template <bool kHalf>
__device__ inline void store_gradient(const TailLayer& z, std::int64_t at, float g, float factor) {
  z.g[at] = g;
  if (kHalf && z.g_half != nullptr) z.g_half[at] = factor;
}

// kHeld: the weights of all layers are in shared memory.
template <int kS, class Factor, bool kHeld>
__global__ void __launch_bounds__(kTailThreads, kHeld&& kS <= 2 ? 2 : 1)
    tail_rows(const TailRows a) {
  constexpr bool kHalf = !std::is_same_v<Factor, float>;
  __shared__ float totals[kS];  // of the exponentials
  __shared__ double losses[kS];
  __shared__ int hits[kS];
  auto* const shared = dynamic_shared<float>();
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kS;
  const int here = a.n - first < kS ? static_cast<int>(a.n - first) : kS;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int inputs = a.layer[0].i;
  float* const x = shared + a.x_at;
  // The previous kernel computes x. If the weights are there already, all data except x are loaded
  // while that kernel runs.
  if (!a.weights_are_there) wait_for_previous_kernel();
  for (int k = 0; k < a.layers; ++k) {
    const TailLayer& z = a.layer[k];
    for (int o = static_cast<int>(threadIdx.x); z.b != nullptr && o < z.o; o += kTailThreads) {
      async_copy<4>(shared + z.b_at + o, z.b + o);
    }
    if (z.w_at < 0) continue;
    if constexpr (kHalf) {
      auto* const to = reinterpret_cast<Factor*>(shared + z.w_at);
      if (z.w_half != nullptr) {
        copy_half(to, static_cast<const Factor*>(z.w_half), z.o * z.i);
      } else {
        copy_to_half(to, z.w, z.o * z.i);
      }
    } else {
      copy_floats(shared + z.w_at, z.w, z.o * z.i, z.o * z.i);
    }
  }
  async_copy_commit();
  if (a.weights_are_there) wait_for_previous_kernel();
  let_next_kernel_start();
  copy_floats(x, a.x + first * inputs, kS * inputs, here * inputs);
  async_copy_commit();
  // Each of the last warps computes the loss of one image, so the first warps continue sooner.
  const int own = warp - (kTailWarps - kS);
  const int label = own >= 0 && own < here ? a.labels[first + own] : -1;
  async_copy_wait<0>();
  if (kHalf && !a.x_is_rounded) round_copies<Factor>(x, kS * inputs);
  __syncthreads();

#pragma unroll 1
  for (int k = 0; k < a.layers; ++k) {
    const TailLayer& z = a.layer[k];
    const auto store = [&](int image, int o, float sum) {
      if (z.b != nullptr) sum += shared[z.b_at + o];
      if (z.relu && sum <= 0.0f) sum = 0.0f;  // NaN passes
      const int at = image * z.o + o;
      shared[z.h_at + at] = sum;
      if constexpr (kHalf) shared[z.factor_at + at] = sum = rounded<Factor>(sum);
      if (z.h != nullptr && image < here) z.h[first * z.o + at] = sum;
    };
    const float* const from = k == 0 ? x : shared + a.layer[k - 1].factor_at;
    if (!kHeld && z.w_at < 0) {
      multiply_rows<kS, Factor, 2>(z.w, from, z.i, z.o, store);
    } else {
      const auto* const w = reinterpret_cast<const Factor*>(shared + z.w_at);
      multiply_rows<kS, Factor, kHeld && kS <= 2 ? 1 : 2>(w, from, z.i, z.o, store);
    }
    __syncthreads();
  }

  const TailLayer& last = a.layer[a.layers - 1];
  const bool backward = last.g != nullptr;
  if (own >= 0) {
    const bool is_class = lane < last.o;
    const float logit = is_class ? shared[last.h_at + own * last.o + lane] : 0.0f;
    const Softmax softmax = image_softmax(logit, is_class, lane, label, last.o);
    if (lane == 0) {
      totals[own] = softmax.valid ? softmax.total : 1.0f;
      losses[own] = softmax.loss_without_logarithm();
      hits[own] = softmax.hit;
    }
    if (backward && is_class) {
      const float scale = a.loss_scale != nullptr ? static_cast<float>(*a.loss_scale) : 1.0f;
      const float slope = softmax.slope / static_cast<float>(a.n) * scale;
      const float factor = kHalf ? rounded<Factor>(slope) : slope;
      shared[last.g_at + own * last.o + lane] = factor;
      if (own < here) store_gradient<kHalf>(last, (first + own) * last.o + lane, slope, factor);
    }
  }
  __syncthreads();
  // This warp works alone until the end of the kernel; no other warp waits for it.
  if (warp == kTailWarps - 1) {
    if (lane < kS) losses[lane] += ::log(static_cast<double>(totals[lane]));
    __syncwarp();
    unsigned ticket = 0;
    if (lane == 0) ticket = leave_losses<kS>(losses, hits, a.sums, &blocks_done);
    add_losses_of_blocks(a.sums, &blocks_done, ticket);
    return;
  }
  if (backward) {
#pragma unroll 1
    for (int k = a.layers - 1; k >= 0; --k) {
      const TailLayer& z = a.layer[k];
      if (k == 0 && a.dx == nullptr) break;
      const auto store = [&](int image, int i, float sum) {
        const int at = image * z.i + i;
        if (k == 0) {
          if (image < here) a.dx[first * z.i + at] = sum;
          return;
        }
        const TailLayer& before = a.layer[k - 1];
        if (before.relu && shared[before.h_at + at] <= 0.0f) sum = 0.0f;
        const float factor = kHalf ? rounded<Factor>(sum) : sum;
        shared[before.g_at + at] = factor;
        if (image < here) store_gradient<kHalf>(before, first * z.i + at, sum, factor);
      };
      float* const scratch = shared + a.parts_at;
      if (!kHeld && z.w_at < 0) {
        multiply_columns<kS, Factor>(z, z.w, shared + z.g_at, scratch, store);
      } else {
        const auto* const w = reinterpret_cast<const Factor*>(shared + z.w_at);
        multiply_columns<kS, Factor>(z, w, shared + z.g_at, scratch, store);
      }
    }
  }
}

// ---- launches ----

float* floats(const Tensor& t) { return t.defined() ? t.data<float>() : nullptr; }

template <int kS, class Factor>
void queue_rows(TailRows a, bool gradients) {
  constexpr bool kHalf = !std::is_same_v<Factor, float>;
  int at = 0;
  const auto take = [&](int count) {
    const int begin = at;
    at += round_up(count, 4);
    return begin;
  };
  a.x_at = take(kS * a.layer[0].i);
  int parts = 0;  // floats of one image's partial sums (over parts of O), in the largest layer
  for (int k = 0; k < a.layers; ++k) {
    TailLayer& z = a.layer[k];
    z.h_at = take(kS * z.o);
    z.factor_at = kHalf ? take(kS * z.o) : z.h_at;
    z.g_at = take(kS * z.o);
    z.b_at = take(z.o);
    parts = std::max(parts, (z.parts + 1) / 2 * z.i);
  }
  a.parts_at = gradients ? take(kS * parts) : at;
  // One KiB is left for static shared memory. The first layer is the largest and takes memory last.
  const int most = (cuda_device_facts().shared_bytes_per_block - 1024) / 4;
  bool held = true;
  for (int j = 1; j <= a.layers; ++j) {
    TailLayer& z = a.layer[j % a.layers];
    const int floats = kHalf ? ceil_div(z.o * z.i, 2) : z.o * z.i;
    const bool fits = at + floats <= most;
    z.w_at = fits ? take(floats) : -1;
    held = held && fits;
  }
  const int count = ceil_div(a.n, kS);
  const auto blocks = static_cast<unsigned>(count);
  // The block takes more than half of an SM's shared memory. Otherwise two blocks would share an SM
  // while other SMs have none.
  if (count <= cuda_device_facts().multiprocessors) at = std::max(at, (most + 1024 / 4) / 2);
  a.sums.blocks = cuda_scratch_of<BlockSums>(blocks);
  auto* kernel = tail_rows<kS, Factor, false>;
  if constexpr (!kHalf || kS <= 2) {  // with more images the tensor core kernel runs
    if (held) kernel = tail_rows<kS, Factor, true>;
  }
  launch_beside_others(kernel,
                       {.grid = dim3(blocks),
                        .block = dim3(kTailThreads),
                        .shared_bytes = static_cast<std::size_t>(at) * sizeof(float),
                        .overlaps_previous = true},
                       a);
}

void rows_cuda(const LinearTailArgs& args) {
  if (queue_half_tail(args)) return;
  TailRows a{};
  a.layers = args.layers;
  a.n = static_cast<int>(args.x.dim(0));
  for (int k = 0; k < args.layers; ++k) {
    const LinearTailLayer& from = args.layer[k];
    TailLayer& to = a.layer[k];
    to.w = floats(from.w);
    to.w_half = from.w_half;
    to.b = floats(from.b);
    to.h = floats(from.h);
    to.g = floats(from.g);
    to.g_half = floats(from.g_half);
    to.i = static_cast<int>(from.w.dim(1));
    to.o = static_cast<int>(from.w.dim(0));
    to.relu = from.relu;
    to.by_i = FastDivisor(to.i);
    to.by_fours = FastDivisor(to.i / 4);
    const int most_parts = std::max(1, std::min(kBackThreads / (to.i / 4), to.o));
    to.part = ceil_div(to.o, most_parts);
    to.parts = ceil_div(to.o, to.part);
  }
  a.x = floats(args.x);
  a.dx = floats(args.dx);
  a.labels = args.labels.data<std::int32_t>();
  a.loss_scale = args.loss_scale;
  a.weights_are_there = args.weights_are_there;
  a.x_is_rounded = args.x_is_rounded;
  a.sums = {.blocks = nullptr,
            .images = a.n,
            .loss = args.loss.data<float>(),
            .correct = args.correct.data<std::int32_t>()};
  const bool gradients = args.layer[args.layers - 1].g.defined();
  with_float_type(args.operand_type, [&](auto zero) {
    using Factor = decltype(zero);
    switch (tail_images_of_block(a.n)) {
      case 1:
        return queue_rows<1, Factor>(a, gradients);
      case 2:
        return queue_rows<2, Factor>(a, gradients);
      case 4:
        return queue_rows<4, Factor>(a, gradients);
      default:
        return queue_rows<8, Factor>(a, gradients);
    }
  });
}

}  // namespace

int tail_images_of_block(std::int64_t n) {
  for (const int images : {1, 2, 4}) {
    if (ceil_div(n, images) <= kBlocksWanted) return images;
  }
  return 8;
}

CONVSCOPE_KERNEL(linear_tail_rows_kernel, cuda, rows_cuda)
}  // namespace convscope
