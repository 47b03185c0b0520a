// SPDX-License-Identifier: Apache-2.0
// linear_loss_cuda.cu: the last layer of a classifier, softmax, cross-entropy and its gradient, and
// the count of right answers, in one launch.
//
// Plan      A warp has an image; w lies in shared memory. With O classes the lanes are 32 / O parts
//           of O lanes: a lane multiplies its part of the row with its class, then the parts are
//           added.
//           After that lane o has the logit of class o, and maximum, sum and winner are shuffles.
//           The blocks leave their sums of losses and right answers in scratch memory; the block
//           that comes last adds them, in the order of the blocks, not of their coming: the same
//           bits on each run.
// Supports  at most 32 classes, and a row and w that fit into 96 KiB of shared memory
//           In half precision x and w are rounded in shared memory; dlogits stay f32
// Numerics  as softmax_cross_entropy.h: sums of exp in f32 here, over at most 32 classes
#include <limits>

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/cuda/scratch.cuh"
#include "layers/linear/linear_loss.cuh"

namespace convscope {
namespace {

constexpr int kImages = 8;  // of a block, one for each warp

struct BlockSums {
  double loss;
  int correct;
};

// Blocks that have left their sums; back at 0 when a launch ends.
__device__ unsigned blocks_done = 0;

struct LossKernelArgs {
  const float* x;
  const float* w;
  const float* b;
  const std::int32_t* labels;
  float* dlogits;
  float* loss;
  std::int32_t* correct;
  BlockSums* sums;
  int n, i, o, parts;
  DType factors;
};

// The order of argmax: NaN before all, then the larger, then the first.
__device__ bool comes_before(float a, int at_a, float b, int at_b) {
  const bool nan_a = a != a;
  const bool nan_b = b != b;
  if (nan_a != nan_b) return nan_a;
  if (nan_a || a == b) return at_a < at_b;
  return a > b;
}

__global__ void __launch_bounds__(kImages * 32) loss_rows(const LossKernelArgs args) {
  __shared__ double losses[kImages];
  __shared__ int hits[kImages];
  __shared__ bool is_last;
  auto* const shared = dynamic_shared<float>();  // w [O][ld], then x [kImages][I]
  const int ld = args.i | 1;  // odd: the lanes of a part read one column, from other banks each
  float* const w = shared;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  float* const x = shared + args.o * ld + warp * args.i;
  const int n = static_cast<int>(blockIdx.x) * kImages + warp;
  const bool here = n < args.n;
  wait_for_previous_kernel();
  let_next_kernel_start();
  // Everything that is read is asked for at once.
  for (int row = warp; row < args.o; row += kImages) {
    for (int k = lane; k < args.i; k += 32) {
      async_copy<4>(w + row * ld + k, args.w + row * args.i + k);
    }
  }
  const float* const row_of_x = args.x + static_cast<std::int64_t>(n) * args.i;
  for (int k = lane; k < args.i; k += 32) async_copy<4>(x + k, here ? row_of_x + k : args.x, here);
  async_copy_commit();
  const int label = here ? args.labels[n] : -1;
  const bool is_class = lane < args.o;
  const float bias = is_class && args.b != nullptr ? args.b[lane] : 0.0f;
  async_copy_wait<0>();
  if (args.factors != DType::f32) {  // each thread what it has copied
    for (int row = warp; row < args.o; row += kImages) {
      for (int k = lane; k < args.i; k += 32) {
        w[row * ld + k] = rounded_to(args.factors, w[row * ld + k]);
      }
    }
    for (int k = lane; k < args.i; k += 32) x[k] = rounded_to(args.factors, x[k]);
  }
  __syncthreads();

  const int part = lane / args.o;
  const int o = lane - part * args.o;
  float sum = 0;
  if (part < args.parts) {
    const int begin = part * args.i / args.parts;
    const int end = (part + 1) * args.i / args.parts;
#pragma unroll 4
    for (int k = begin; k < end; ++k) sum += x[k] * w[o * ld + k];
  }
  float logit = sum;
  for (int p = 1; p < args.parts; ++p) {
    logit += __shfl_sync(kAllLanes, sum, (lane + p * args.o) % 32);
  }
  logit += bias;
  if (!is_class) logit = -std::numeric_limits<float>::infinity();

  float most = logit;
  int winner = lane;
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, most, offset);
    const int at = __shfl_xor_sync(kAllLanes, winner, offset);
    if (comes_before(other, at, most, winner)) {
      most = other;
      winner = at;
    }
  }
  const float e = is_class ? ::expf(logit - most) : 0.0f;
  const float total = warp_sum(e);
  const bool valid = label >= 0 && label < args.o;
  const float logit_of_label = __shfl_sync(kAllLanes, logit, valid ? label : 0);
  if (here && is_class && args.dlogits != nullptr) {
    const float p = e / total - (lane == label ? 1.0f : 0.0f);
    args.dlogits[static_cast<std::int64_t>(n) * args.o + lane] =
        valid ? p / static_cast<float>(args.n) : 0.0f;
  }
  if (lane == 0) {
    losses[warp] = valid ? ::log(static_cast<double>(total)) -
                               (static_cast<double>(logit_of_label) - static_cast<double>(most))
                         : 0.0;
    hits[warp] = valid && winner == label ? 1 : 0;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    BlockSums sums{0, 0};
    for (int i = 0; i < kImages; ++i) {
      sums.loss += losses[i];
      sums.correct += hits[i];
    }
    args.sums[blockIdx.x] = sums;
    __threadfence();
    is_last = atomicAdd(&blocks_done, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last || warp != 0) return;
  __threadfence();
  double loss = 0;
  int correct = 0;
  for (unsigned i = static_cast<unsigned>(lane); i < gridDim.x; i += 32) {
    const volatile BlockSums* const from = args.sums + i;
    loss += from->loss;
    correct += from->correct;
  }
  loss = warp_sum(loss);
  correct = warp_sum(correct);
  if (lane != 0) return;
  *args.loss = static_cast<float>(loss / static_cast<double>(args.n));
  *args.correct = correct;
  blocks_done = 0;
}

std::size_t shared_bytes(const Shape& x, const Shape& w) {
  const std::int64_t ld = x[1] | 1;
  return static_cast<std::size_t>(w[0] * ld + kImages * x[1]) * sizeof(float);
}

bool supports(const Shape& x, const Shape& w) {
  return w[0] >= 1 && w[0] <= 32 && x[0] >= 1 && x[0] <= (1 << 20) && x[1] <= 4096 &&
         shared_bytes(x, w) <= 96 * 1024;
}

void run(const LinearLossArgs& args) {
  const auto n = static_cast<int>(args.x.dim(0));
  const auto blocks = static_cast<unsigned>(ceil_div(n, kImages));
  const auto o = static_cast<int>(args.w.dim(0));
  const LossKernelArgs to{.x = args.x.data<float>(),
                          .w = args.w.data<float>(),
                          .b = args.b.defined() ? args.b.data<float>() : nullptr,
                          .labels = args.labels.data<std::int32_t>(),
                          .dlogits = args.dlogits.defined() ? args.dlogits.data<float>() : nullptr,
                          .loss = args.loss.data<float>(),
                          .correct = args.correct.data<std::int32_t>(),
                          .sums = cuda_scratch_of<BlockSums>(blocks),
                          .n = n,
                          .i = static_cast<int>(args.x.dim(1)),
                          .o = o,
                          .parts = 32 / o,
                          .factors = args.factors};
  launch(loss_rows,
         {.grid = dim3(blocks),
          .block = dim3(kImages * 32),
          .shared_bytes = shared_bytes(args.x.shape(), args.w.shape()),
          .overlaps_previous = true},
         to);
}

}  // namespace

LinearLoss linear_loss_on_cuda() {
  return {.supports = supports, .workspace_bytes = nullptr, .run = run};
}

}  // namespace convscope
