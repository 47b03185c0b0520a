// SPDX-License-Identifier: Apache-2.0
// linear_fused_cuda.cu: small linear layers in one launch for each direction.
//
// Formula    y = relu(x w^T + b);  g = dy where y > 0;  dx = g w,  dw = g^T x,
//            db = sum over n of g
// Textbook   for n, o: y[n,o] = relu(b[o] + sum over i of x[n,i] w[o,i])
// Method     y, dx and dw are products C[m,n] = sum over k of A[m,k] B[n,k]. A block computes one
//            tile of C. If the tile is small, the warps of the block divide k, so that even a tile
//            of 8x8 has 256 threads and the longest chain of additions is K / 8. A chunk of A and B
//            has the same order in shared memory as in memory: contiguous in k ("rows") or in m
//            ("columns"). A lane takes four k at a time. The sums of the warps are added in shared
//            memory, in order. The gradient of the bias is one more column of dw, whose x is 1.
//            Thread blocks of dw and of dx are in one launch. The images of a large batch are cut
//            into splits with separate blocks: the block that finishes a tile of dw last adds the
//            sums of the splits in their order. In half precision a block rounds its chunks in
//            shared memory. Threads that round g for dw first add the unrounded g up for db.
// Shapes     x [N,I], w [O,I], b [O], y, dy [N,O], f32, accumulated in f32; operands f32 or rounded
//            to half precision
// Supports   any sizes; layers of more than kLargestForward or kLargestBackward multiplications use
//            cuBLAS, whose tiles read each number less often, with separate passes for bias, ReLU,
//            mask and half-precision copies of the operands
// Cost       FLOPs = 2 N I O forward, 4 N I O backward; bound by latency: load, multiply, add up
// Numerics   up to 512 numbers are added in order, then the sums of warps, then those of splits.
//            The order depends only on the sizes, so two runs give the same bits
// Choices    the kernel uses the largest tile for which there are at least kEnoughBlocks blocks.
//            For example, LeNet's first layer at 64 images has 8 x 15 tiles of 8x8. A split has 256
//            images, because multiplying these takes as long as loading and adding up
// Read next  linear_loss_cuda.cu: the last layer with the loss; framework/ops/gemm/matmul_cuda.cu
#include <algorithm>

#include "framework/cuda/map.cuh"
#include "framework/cuda/reduce.cuh"
#include "framework/cuda/scratch.cuh"
#include "framework/ops/elementwise.h"
#include "framework/ops/gemm/matmul.h"
#include "framework/tensor_kernels.h"
#include "layers/linear/linear_fused.h"
#include "layers/linear/linear_loss.cuh"
#include "layers/linear/linear_product.cuh"

namespace convscope {
namespace {

using namespace linear_tiles;

template <bool kPacked, class Tiles>
__global__ void __launch_bounds__(kThreads) forward_tiles(const Product y) {
  auto* const shared = dynamic_shared<float>();
  wait_for_previous_kernel();
  let_next_kernel_start();
  Tiles::template run<kPacked>(y, static_cast<int>(blockIdx.x), shared);
}

// The blocks of dw come first, then those of dx.
template <bool kPacked, class Weight, class Input>
__global__ void __launch_bounds__(kThreads) backward_tiles(const Product dw, const Product dx) {
  auto* const shared = dynamic_shared<float>();
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int block = static_cast<int>(blockIdx.x);
  const int dw_blocks = dw.tiles_m * dw.tiles_n * dw.splits;
  if (block < dw_blocks) {
    Weight::template run<kPacked>(dw, block, shared);
  } else {
    Input::template run<kPacked>(dx, block - dw_blocks, shared);
  }
}

// ---- launches ----

constexpr std::int64_t kLargestForward = std::int64_t{3} << 25;
constexpr std::int64_t kLargestBackward = 45'000'000;

struct LinearShape {
  std::int64_t n, i, o;
};
LinearShape sizes_of(const Tensor& x, const Tensor& w) { return {x.dim(0), x.dim(1), w.dim(0)}; }

bool is_small(const LinearShape& s, std::int64_t most) {
  constexpr std::int64_t kMax = 1 << 24;  // index arithmetic in 32 bits
  return s.n < kMax && s.i < kMax && s.o < kMax && s.n * s.i * s.o <= most;
}

const float* floats(const Tensor& t) { return t.defined() ? t.data<float>() : nullptr; }

template <bool kPacked, class Tiles>
void queue_forward(Product y) {
  tile<Tiles>(y);
  launch(forward_tiles<kPacked, Tiles>,
         {.grid = dim3(static_cast<unsigned>(y.blocks())),
          .block = dim3(kThreads),
          .shared_bytes = Tiles::floats(false) * sizeof(float),
          .overlaps_previous = true},
         y);
}

// cuBLAS reads half-precision copies of the operands, which are contiguous in the workspace; f32
// operands are read in place.
constexpr std::size_t kCopyAlignment = 256;
class Operands {
 public:
  Operands(DType type, void* workspace) : type_(type), at_(static_cast<std::byte*>(workspace)) {}
  Tensor of(const Tensor& from) {
    if (!is_half(type_)) return from;
    const Tensor out = Tensor::borrow(at_, from.shape(), type_, from.device());
    at_ += bytes(from.shape());
    convert_kernel.get(from.device())(from, out);
    return out;
  }
  static std::size_t bytes(const Shape& shape) {
    return round_up(static_cast<std::size_t>(shape.numel()) * 2, kCopyAlignment);
  }

 private:
  DType type_;
  std::byte* at_;
};

void forward_by_blas(const LinearForwardArgs& args) {
  const Device device = args.x.device();
  Operands operands(args.operand_type, args.workspace);
  if (args.b.defined()) fill_rows_kernel.get(device)(args.b, args.y);
  matmul_kernel.get(device)({.a = operands.of(args.x),
                             .b = operands.of(args.w),
                             .c = args.y,
                             .transpose_b = Transpose::yes,
                             .accumulate = args.b.defined()});
  if (args.relu) unary_kernel.get(device)(UnaryOp::relu, args.y, args.y);
}

bool forward_in_tiles(const LinearShape& s) { return s.i > 0 && is_small(s, kLargestForward); }

std::size_t forward_workspace(const Shape& x, const Shape& w, DType operand_type) {
  if (!is_half(operand_type) || forward_in_tiles({x[0], x[1], w[0]})) return 0;
  return Operands::bytes(x) + Operands::bytes(w);
}

void forward_cuda(const LinearForwardArgs& args) {
  const LinearShape s = sizes_of(args.x, args.w);
  if (s.n == 0 || s.o == 0) return;
  if (!forward_in_tiles(s)) return forward_by_blas(args);
  const Product y{.a = {.data = args.x.data<float>(),
                        .ld = narrow(s.i),
                        .extent = narrow(s.n),
                        .type = args.operand_type},
                  .b = {.data = args.w.data<float>(),
                        .ld = narrow(s.i),
                        .extent = narrow(s.o),
                        .type = args.operand_type},
                  .c = {.data = args.y.data<float>(),
                        .ld = narrow(s.o),
                        .rows = narrow(s.n),
                        .columns = narrow(s.o),
                        .relu = args.relu,
                        .bias = floats(args.b)},
                  .k = narrow(s.i)};
  const bool packed = s.i % 4 == 0 && is_aligned(y.a.data, 16) && is_aligned(y.b.data, 16);
  using Small = ForwardTile<1, 2, 1, 1, 512>;   //  8x8, eight groups
  using Middle = ForwardTile<2, 4, 1, 1, 416>;  // 16x16, eight groups
  using Large = ForwardTile<4, 4, 1, 1, 416>;   // 32x16, eight groups
  if (!packed) return queue_forward<false, Middle>(y);
  if (tiles_of(y, 32, 16) >= kEnoughBlocks) return queue_forward<true, Large>(y);
  if (tiles_of(y, 16, 16) >= kEnoughBlocks) return queue_forward<true, Middle>(y);
  queue_forward<true, Small>(y);
}

template <bool kPacked, class Weight, class Input>
void queue_backward(Product dw, Product dx) {
  if (dw.k > 0) {
    const std::int64_t tiles = tiles_of(dw, Weight::kRows, Weight::kColumns);
    tile<Weight>(dw, splits_of(dw.k, tiles));
    const std::size_t floats =
        static_cast<std::size_t>(dw.blocks()) * Weight::kRows * Weight::kColumns;
    if (dw.splits > 1 && floats * sizeof(float) <= kScratchBytes) {
      dw.part = cuda_scratch_of<float>(floats);
    } else {
      tile<Weight>(dw);
    }
  }
  if (dx.k > 0) tile<Input>(dx);
  const bool mask = dw.a.mask != nullptr || dx.a.mask != nullptr;
  const int most = std::max(Weight::floats(mask), Input::floats(mask));
  launch(backward_tiles<kPacked, Weight, Input>,
         {.grid = dim3(static_cast<unsigned>(dw.blocks() + dx.blocks())),
          .block = dim3(kThreads),
          .shared_bytes = static_cast<std::size_t>(most) * sizeof(float),
          .overlaps_previous = true},
         dw, dx);
}

void backward_by_blas(const LinearBackwardArgs& args) {
  const Device device = args.x.device();
  if (args.y.defined()) gradient_kernel.get(device)(GradientOp::relu, args.y, args.dy, args.dy);
  if (args.db.defined()) sum_on_cuda(args.dy, 1u, args.db, args.accumulate_db);
  Operands operands(args.operand_type, args.workspace);
  const Tensor dy = operands.of(args.dy);
  if (args.dw.defined()) {
    matmul_kernel.get(device)({.a = dy,
                               .b = operands.of(args.x),
                               .c = args.dw,
                               .transpose_a = Transpose::yes,
                               .accumulate = args.accumulate_dw});
  }
  if (args.dx.defined()) {
    matmul_kernel.get(device)(
        {.a = dy, .b = operands.of(args.w), .c = args.dx, .accumulate = args.accumulate_dx});
  }
}

bool backward_in_tiles(const LinearShape& s) {
  return s.n > 0 && s.o > 0 && s.i > 0 && is_small(s, kLargestBackward);
}

std::size_t backward_workspace(const Shape& x, const Shape& w, DType operand_type) {
  if (!is_half(operand_type) || backward_in_tiles({x[0], x[1], w[0]})) return 0;
  return Operands::bytes({x[0], w[0]}) + Operands::bytes(x) + Operands::bytes(w);
}

void backward_cuda(const LinearBackwardArgs& args) {
  const LinearShape s = sizes_of(args.x, args.w);
  if (!backward_in_tiles(s)) return backward_by_blas(args);
  if (!args.dw.defined() && args.db.defined()) {  // a bias without its weight: rare
    LinearBackwardArgs rest = args;
    rest.y = rest.db = Tensor();
    const Device device = args.x.device();
    if (args.y.defined()) gradient_kernel.get(device)(GradientOp::relu, args.y, args.dy, args.dy);
    sum_on_cuda(args.dy, 1u, args.db, args.accumulate_db);
    return rest.dx.defined() ? backward_cuda(rest) : void();
  }
  const float* const mask = floats(args.y);
  const float* const dy = args.dy.data<float>();
  Product dw, dx;
  if (args.dw.defined()) {
    dw = {.a = {.data = dy,
                .mask = mask,
                .ld = narrow(s.o),
                .extent = narrow(s.o),
                .type = args.operand_type},
          .b = {.data = args.x.data<float>(),
                .ld = narrow(s.i),
                .extent = narrow(s.i),
                .ones = args.db.defined(),
                .type = args.operand_type},
          .c = {.data = args.dw.data<float>(),
                .ld = narrow(s.i),
                .rows = narrow(s.o),
                .columns = narrow(s.i),
                .accumulate = args.accumulate_dw,
                .behind = args.db.defined() ? args.db.data<float>() : nullptr,
                .accumulate_behind = args.accumulate_db},
          .k = narrow(s.n)};
  }
  if (args.dx.defined()) {
    dx = {.a = {.data = dy,
                .mask = mask,
                .ld = narrow(s.o),
                .extent = narrow(s.n),
                .type = args.operand_type},
          .b = {.data = args.w.data<float>(),
                .ld = narrow(s.i),
                .extent = narrow(s.i),
                .type = args.operand_type},
          .c = {.data = args.dx.data<float>(),
                .ld = narrow(s.i),
                .rows = narrow(s.n),
                .columns = narrow(s.i),
                .accumulate = args.accumulate_dx},
          .k = narrow(s.o)};
  }
  const bool packed = s.i % 4 == 0 && s.o % 4 == 0 && is_aligned(dy, 16) && is_aligned(mask, 16) &&
                      is_aligned(args.x.raw_data(), 16) && is_aligned(args.w.raw_data(), 16);
  using SmallWeight = WeightTile<2, 4, 1, 1, 128>;   // 16x16, eight groups
  using MiddleWeight = WeightTile<2, 4, 2, 1, 128>;  // 32x16, four groups
  using LargeWeight = WeightTile<2, 4, 2, 2, 128>;   // 32x32, two groups
  using SmallInput = InputTile<2, 4, 1, 1, 128>;
  using LargeInput = InputTile<2, 4, 2, 2, 128>;
  if (!packed) return queue_backward<false, SmallWeight, SmallInput>(dw, dx);
  const std::int64_t splits = ceil_div(dw.k, kSplit);
  const bool large_dw = dw.k > 0 && tiles_of(dw, 32, 32) * splits >= 3 * kEnoughBlocks / 2;
  const bool middle_dw = dw.k > 0 && tiles_of(dw, 32, 16) * splits >= kEnoughBlocks;
  if (dx.k > 0 && tiles_of(dx, 32, 32) >= kEnoughBlocks) {
    if (large_dw) return queue_backward<true, LargeWeight, LargeInput>(dw, dx);
    if (middle_dw) return queue_backward<true, MiddleWeight, LargeInput>(dw, dx);
    return queue_backward<true, SmallWeight, LargeInput>(dw, dx);
  }
  if (middle_dw) return queue_backward<true, MiddleWeight, SmallInput>(dw, dx);
  queue_backward<true, SmallWeight, SmallInput>(dw, dx);
}

[[maybe_unused]] const bool kRegistered = register_linear_fused(
    DeviceType::cuda, {.forward = {.workspace_bytes = forward_workspace, .run = forward_cuda},
                       .backward = {.workspace_bytes = backward_workspace, .run = backward_cuda},
                       .loss = linear_loss_on_cuda()});

}  // namespace
}  // namespace convscope
