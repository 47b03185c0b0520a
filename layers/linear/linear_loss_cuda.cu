// SPDX-License-Identifier: Apache-2.0
// linear_loss_cuda.cu: the last linear layer of a classifier with softmax, cross-entropy, its
// gradient and the number of correct predictions, in one launch.
//
// Method    A warp computes one image; w is in shared memory. With O classes the lanes form 32 / O
//           groups of O lanes. A group takes one part of the image's row of x, and each of its
//           lanes multiplies this part by the weights of one class. The results of the groups are
//           added. Then lane o has the logit of class o, and shuffles find the maximum, the sum and
//           the predicted class. Each block stores its sum of losses and its number of correct
//           predictions in scratch memory. The last block to finish adds these in the order of the
//           blocks, not of their arrival, so each run has the same bits.
// Supports  at most 32 classes, if a row of x and w fit into 96 KiB of shared memory. In half
//           precision x and w are rounded in shared memory; dlogits stay f32
// Numerics  as softmax_cross_entropy.h, but sums of exp are in f32, over at most 32 classes
#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/cuda/scratch.cuh"
#include "layers/linear/linear_loss.cuh"

namespace convscope {
namespace {

constexpr int kImages = 8;  // of a block, one for each warp

__device__ unsigned blocks_done = 0;

struct LossKernelArgs {
  const float* x;
  const float* w;
  const float* b;
  const std::int32_t* labels;
  float* dlogits;
  const double* loss_scale;
  float* loss;
  std::int32_t* correct;
  BlockSums* sums;
  int n, i, o, parts;
  DType operand_type;
};

__global__ void __launch_bounds__(kImages * 32) loss_rows(const LossKernelArgs args) {
  __shared__ double losses[kImages];
  __shared__ int hits[kImages];
  auto* const shared = dynamic_shared<float>();  // w [O][ld], then x [kImages][I]
  const int ld = args.i | 1;  // odd, so that lanes which read one column use different banks
  float* const w = shared;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  float* const x = shared + args.o * ld + warp * args.i;
  const int n = static_cast<int>(blockIdx.x) * kImages + warp;
  const bool here = n < args.n;
  wait_for_previous_kernel();
  let_next_kernel_start();
  // All loads are issued at once.
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
  if (args.operand_type != DType::f32) {  // each thread rounds the elements that it has copied
    for (int row = warp; row < args.o; row += kImages) {
      for (int k = lane; k < args.i; k += 32) {
        w[row * ld + k] = rounded_to(args.operand_type, w[row * ld + k]);
      }
    }
    for (int k = lane; k < args.i; k += 32) x[k] = rounded_to(args.operand_type, x[k]);
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
  const Softmax image = image_softmax(logit, is_class, lane, label, args.o);
  if (here && is_class && args.dlogits != nullptr) {
    const float scale = args.loss_scale != nullptr ? static_cast<float>(*args.loss_scale) : 1.0f;
    args.dlogits[static_cast<std::int64_t>(n) * args.o + lane] =
        image.slope / static_cast<float>(args.n) * scale;
  }
  if (lane == 0) {
    losses[warp] = image.loss();
    hits[warp] = image.hit;
  }
  __syncthreads();
  if (warp != 0) return;
  const LossSums sums{args.sums, args.n, args.loss, args.correct};
  unsigned ticket = 0;
  if (lane == 0) ticket = leave_losses<kImages>(losses, hits, sums, &blocks_done);
  add_losses_of_blocks(sums, &blocks_done, ticket);
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
                          .loss_scale = args.loss_scale,
                          .loss = args.loss.data<float>(),
                          .correct = args.correct.data<std::int32_t>(),
                          .sums = cuda_scratch_of<BlockSums>(blocks),
                          .n = n,
                          .i = static_cast<int>(args.x.dim(1)),
                          .o = o,
                          .parts = 32 / o,
                          .operand_type = args.operand_type};
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
