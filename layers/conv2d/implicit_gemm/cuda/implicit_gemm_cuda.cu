// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_cuda.cu: convolution as a matrix product whose im2col matrix is never stored: its
// tiles are gathered straight from the image into shared memory and multiplied on the tensor cores.
//
// Formula    y[n,k,p,q] = b[k] + sum over c, r, s of
//                         x[n, g C/G + c, p stride_h - pad_top + r dilation_h, ...] w[k,c,r,s]
// Textbook   A[k][crs] = w                                  # [K, C R S], packed by prepare_weights
//            for pixel = (n,p,q):                           # columns of the product
//              for crs: B[crs][pixel] = x[n, c, p - pad + r, q - pad + s], 0 outside
//            y = A B                                        # [K, N P Q], reduction length C R S
//            dx: the same product with dy for x and the flipped, transposed w for w
//            dw = dy B^T                                    # [K, C R S], reduction length N P Q
// Method     1. f32 only: find the largest magnitude of both operands, for their scales.
//            2. Store both operands in fp16/bf16 with the channels innermost. A piece is 8 channels
//               of a pixel, 16 bytes, so 32 channels of a tap are 64 contiguous bytes of any pixel.
//               prepare_weights runs steps 1 and 2 for the weights before the call. A single f32
//               call runs both steps itself, with one launch of step 1 for both operands. In
//               backward_weight one launch does step 2 for dy and x, if a block has equally many
//               channels of dy and of x.
//            3. Multiply: a block computes a tile of 64..128 rows x 64..256 pixels. Each thread
//               copies pieces of the same reduction index for several pixels. A table, written by
//               the pass over the weights, has the offset of each step relative to a pixel. A mask
//               of 2 x 15 bits for each pixel tells which taps are in the padding. Copies run one
//               to three steps of 64 reduction indices ahead (cp.async). On sm_90a the tensor cores
//               read shared memory directly (wgmma). On other GPUs, fragments go through registers
//               (mma.sync).
//            4. With few tiles, split the reduction into parts; one pass adds the parts in order.
//            In backward_weight the product reduces over pixels. Pixels are the outer dimension of
//            both operands, which the tensor cores accept in fp16/bf16. Each kernel starts while
//            the previous one ends.
// Shapes     x [N,C,H,W], w [K,C/G,R,S], y [N,K,P,Q] row-major, any alignment; f32, f16, bf16;
//            packed pixels [planes][N][H][W][G][C/G in pieces]; sums in f32. In layout NHWC w, b,
//            dw are f32, and f16, bf16 images are used unpacked
// Supports   f32 (as f32 or tf32), f16, bf16; kernels up to 15x15; strides up to 8; every padding
//            and dilation; groups of at least 8 channels, in NHWC of a multiple of 8; sm_80 and
//            newer
// Cost       FLOPs = 2 N K P Q C/G R S, and three times as many for f32 in full precision; bytes =
//            the tensors and both packed operands; workspace = packed pixels (backward_weight: also
//            packed dy), the f32 weights of a single call, and parts. Compute-bound above about 64
//            channels
// Numerics   f32: an operand times a power of two is high + low, two fp16 numbers of 11 bits each,
//            22 together. The three products low high, high low and high high are exact; the
//            omitted product low low is 2^-22 of the whole. The tensor cores round sums towards
//            zero. So after 256 terms they restart from zero, and their sum is added in f32.
//            Numbers below 2^-27 of their tensor's largest magnitude lose bits: the error is small
//            relative to the largest sums, as with every bound of this kind. tf32: one fp16
//            product, with the 10 mantissa bits of tf32. f16, bf16: exact products. Same bits on
//            each run; exact on integers up to 2^11, sums below 2^24. In f32 an infinity has an
//            infinite low part and gives NaN
// Backward   dx assigned, by phases of the stride without zero taps; dw assigned or added to
// Choices    A step has 64 fp16 numbers: one swizzled row of 128 bytes. Two planes of 128 x 128
//            take 64 KiB in a step, so three steps fit into 227 KiB. The tile and the number of
//            parts have the lowest estimated time (implicit_gemm_choice.cuh)
// Source     S. Chetlur et al. 2014: cuDNN: Efficient Primitives for Deep Learning, arXiv
//            1410.0759; H. Ootomo, R. Yokota 2022: Recovering single precision accuracy from Tensor
//            Cores, arXiv 2203.03341 (there the low parts have their own scale and accumulators)
// Read next  im2col_gemm_cuda.cu, which stores the matrix; implicit_gemm_tiles.cuh, the kernels
#include <algorithm>
#include <limits>

#include "framework/memory/memory.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_choice.cuh"
#include "layers/conv2d/shared/cuda/half_pack_launch.cuh"

namespace convscope {
namespace {

using namespace implicit_gemm;  // NOLINT(google-build-using-namespace): this file's own parts

constexpr int kMaxSide = 16000;  // largest side of an image, for 16-bit coordinates

// Allocates 16-byte pieces in a block of memory, or only counts them.
struct Pieces {
  explicit Pieces(void* memory) : arena(memory, std::numeric_limits<std::size_t>::max() / 2) {}
  uint4* take(std::int64_t count) {
    bytes += ScratchArena::round_up(static_cast<std::size_t>(count) * 16);
    return arena.take<uint4>(static_cast<std::size_t>(count));
  }
  ScratchArena arena;
  std::size_t bytes = 0;
};

// Layout of the prepared weights of forward and backward_data: one or two fp16/bf16 planes in the
// order of the reduction, the maxima that determine the scale of f32, and the table of offsets.
struct PreparedLayout {
  PreparedLayout() = default;
  PreparedLayout(const ImplicitGemmTiling& plan, const void* memory) {
    Pieces pieces(const_cast<void*>(memory));
    if (plan.z.dtype == DType::f32) {
      maxima = {reinterpret_cast<unsigned*>(pieces.take(kMaximaBlocks / 4)),
                maxima_blocks(plan.z.w_shape().numel())};
    }
    plane = plan.weight_pieces();
    weights = pieces.take(plan.planes * plane);
    const int places = plan.phases_h * plan.phases_w * plan.depth_pieces();
    table = reinterpret_cast<int2*>(pieces.take((places + 1) / 2));
    bytes = pieces.bytes;
  }
  std::size_t bytes = 0;
  Maxima maxima;
  uint4* weights = nullptr;
  int2* table = nullptr;  // see place_of()
  std::int64_t plane = 0;
};

// Returns how many elements an image tensor has in memory, padding channels included.
std::int64_t stored_count(const Conv2dProblem& z, const Shape& images) {
  return stored_shape(images, z.layout).numel();
}

// Lays out the workspace, or only counts its bytes. In forward and backward_data `other` points to
// the packed weights, in the prepared block or, for f32 weights that were not prepared, in the
// workspace. The maxima of these f32 weights follow those of the image, so that one launch finds
// both.
struct Layout {
  Layout(const ImplicitGemmTiling& plan, Direction direction, void* memory, const void* prepared) {
    const Conv2dProblem& z = plan.z;
    Pieces pieces(memory);
    const auto take_pieces = [&](std::int64_t count) { return pieces.take(count); };
    const bool weight = direction == Direction::backward_weight;
    if (z.dtype == DType::f32) {
      unscale = reinterpret_cast<float2*>(take_pieces(1));
      auto* const bits = reinterpret_cast<unsigned*>(take_pieces(2 * kMaximaBlocks / 4));
      const bool forward = direction == Direction::forward;
      maxima = {bits,
                maxima_blocks(stored_count(z, forward || weight ? z.x_shape() : z.y_shape()))};
      other_maxima = {bits == nullptr ? nullptr : bits + maxima.count,
                      maxima_blocks(stored_count(z, z.y_shape()))};
    }
    const bool backward_data = direction == Direction::backward_data;
    pixels_plane = plan.pixel_pieces(plan.pieces, backward_data ? z.p() * z.q() : z.h * z.w);
    if (!plan.is_packed()) pixels = take_pieces(plan.planes * pixels_plane);
    if (weight) {
      other_plane = plan.pixel_pieces(pieces_of(plan.rows), z.p() * z.q());
      if (!plan.is_packed()) other = take_pieces(plan.planes * other_plane);
    } else if (prepared != nullptr || z.dtype == DType::f32) {
      const PreparedLayout counted(plan, nullptr);
      const void* const own =
          take_pieces(prepared != nullptr ? 0 : static_cast<std::int64_t>(counted.bytes / 16));
      weights = PreparedLayout(plan, prepared != nullptr ? prepared : own);
      if (prepared == nullptr) weights.maxima.bits = other_maxima.bits;
      other_maxima = weights.maxima;
      other_plane = weights.plane;
      other = weights.weights;
      table = weights.table;
    }
    parts = reinterpret_cast<float*>(take_pieces((plan.part_floats() + 3) / 4));
    bytes = pieces.bytes;
  }

  std::size_t bytes = 0;
  Maxima maxima, other_maxima;  // maxima of `pixels`, and of the other operand
  float2* unscale = nullptr;    // factor that undoes the scales in the sums
  const int2* table = nullptr;
  const uint4* pixels = nullptr;
  const uint4* other = nullptr;  // weights, or dy
  float* parts = nullptr;
  std::int64_t pixels_plane = 0, other_plane = 0;
  PreparedLayout weights;
};

// Finds the maximum of one tensor, or of two tensors whose maxima are stored one after the other.
void find_maxima(const ImplicitGemmTiling& plan, const Maxima& a_maxima, const void* a,
                 std::int64_t a_count, int b_blocks = 0, const void* b = nullptr,
                 std::int64_t b_count = 0) {
  if (plan.z.dtype != DType::f32) return;
  launch(maxima_kernel<kMaximaThreads>,
         {.grid = dim3(static_cast<unsigned>(a_maxima.count + b_blocks)),
          .block = dim3(kMaximaThreads),
          .overlaps_previous = true},
         static_cast<const float*>(a), a_count, a_maxima.count, static_cast<const float*>(b),
         b_count, const_cast<unsigned*>(a_maxima.bits));
}

LaunchShape sums_shape(std::int64_t count) {
  LaunchShape shape = grid_for(count);
  shape.overlaps_previous = true;
  return shape;
}

// `writes_unscale` is true for the pass that also writes the factor that undoes both scales. It
// runs when the maxima of both operands are known.
PackPixels pack_of(const ImplicitGemmTiling& plan, const Layout& at, const void* from, int channels,
                   std::int64_t area, bool other, bool writes_unscale) {
  return {.from = from,
          .to = const_cast<uint4*>(other ? at.other : at.pixels),
          .plane = other ? at.other_plane : at.pixels_plane,
          .channels = channels,
          .groups = narrow(plan.z.groups),
          .pieces = pieces_of(channels),
          .area = narrow(area),
          .channels_log2 = pack_channels_log2(channels),
          .maxima = other ? at.other_maxima : at.maxima,
          .other_maxima = other ? at.maxima : at.other_maxima,
          .unscale = writes_unscale ? at.unscale : nullptr};
}

void run_pack(const ImplicitGemmTiling& plan, const PackPixels& pack) {
  if (plan.is_last()) {
    const std::int64_t pieces = plan.pixel_pieces(pack.pieces, pack.area);
    const LaunchShape by_pieces = sums_shape(pieces);
    return plan.planes == 2 ? launch(pack_last_pixels_kernel<2>, by_pieces, pack, pieces)
                            : launch(pack_last_pixels_kernel<1>, by_pieces, pack, pieces);
  }
  if (plan.z.dtype != DType::f32) return launch_pack<Float16, 1>(pack, plan.z.n);
  plan.planes == 2 ? launch_pack<float, 2>(pack, plan.z.n) : launch_pack<float, 1>(pack, plan.z.n);
}

// Packs pixels, unless the product can read them as they are stored.
void pack_pixels(const ImplicitGemmTiling& plan, Layout& at, const void* from, int channels,
                 std::int64_t area) {
  if (plan.is_packed()) {
    at.pixels = static_cast<const uint4*>(from);
  } else {
    run_pack(plan, pack_of(plan, at, from, channels, area, false, true));
  }
}
void pack_both(const ImplicitGemmTiling& plan, Layout& at, const void* x, const void* dy) {
  const Conv2dProblem& z = plan.z;
  if (plan.is_packed()) {
    at.pixels = static_cast<const uint4*>(x);
    at.other = static_cast<const uint4*>(dy);
    return;
  }
  const PackPixels first = pack_of(plan, at, x, plan.channels, z.h * z.w, false, false);
  const PackPixels second = pack_of(plan, at, dy, plan.rows, z.p() * z.q(), true, true);
  if (plan.is_last() || z.dtype != DType::f32) {
    run_pack(plan, first);
    return run_pack(plan, second);
  }
  plan.planes == 2 ? launch_pack_two<float, 2>(first, second, z.n)
                   : launch_pack_two<float, 1>(first, second, z.n);
}

void pack_weights(const ImplicitGemmTiling& plan, const PreparedLayout& at, const void* from,
                  bool backward) {
  PackWeights pack{.from = from,
                   .to = at.weights,
                   .plane = at.plane,
                   .rows = plan.rows,
                   .channels = plan.channels,
                   .groups = narrow(plan.z.groups),
                   .pieces = plan.pieces,
                   .depth_pieces = plan.depth_pieces(),
                   .kernel_h = narrow(plan.z.r),
                   .kernel_w = narrow(plan.z.s),
                   .backward = backward,
                   .phases_h = plan.phases_h,
                   .phases_w = plan.phases_w,
                   .table = at.table,
                   .pixel_pieces = narrow(plan.z.groups) * plan.pieces,
                   .maxima = at.maxima};
  std::copy_n(plan.high, kMaxPhases, pack.high);
  std::copy_n(plan.wide, kMaxPhases, pack.wide);
  const bool transposes = !backward && pack.kernel_h * pack.kernel_w <= kTransposeTaps &&
                     plan.z.w_shape().numel() >= kTransposeLeast;
  const LaunchShape shape{
      .grid = transposes ? dim3(static_cast<unsigned>(ceil_div(pack.pieces, kChannelPieces)),
                           static_cast<unsigned>(ceil_div(pack.rows, kTransposeRows)),
                           static_cast<unsigned>(pack.groups))
                    : dim3(static_cast<unsigned>(ceil_div(pack.depth_pieces, 32)),
                           static_cast<unsigned>(ceil_div(pack.rows, 8)),
                           static_cast<unsigned>(pack.phases_h * pack.phases_w * pack.groups)),
      .block = dim3(kThreads),
      .overlaps_previous = true};
  const auto run = [&]<class In, int kPlanes, class Half>() {
    transposes ? launch(transpose_weights_kernel<In, kPlanes, Half>, shape, pack)
          : launch(pack_weights_kernel<In, kPlanes, Half>, shape, pack);
  };
  if (plan.is_packed()) {  // w is f32
    return plan.z.dtype == DType::bf16 ? run.operator()<float, 1, BFloat16>()
                                       : run.operator()<float, 1, Float16>();
  }
  if (plan.z.dtype != DType::f32) return run.operator()<Float16, 1, Float16>();
  plan.planes == 2 ? run.operator()<float, 2, Float16>() : run.operator()<float, 1, Float16>();
}

// Runs forward or backward_data: `out` = weights x pixels.
void run_gather(const ImplicitGemmTiling& plan, const Layout& at, const Finish& end, void* out,
                std::int64_t out_width, std::int64_t out_area) {
  const Conv2dProblem& z = plan.z;
  const Instance& by = *plan.choice.instance;
  const int row_tiles = ceil_div(plan.rows, by.rows);
  const std::size_t two = 2 * size_of(z.dtype);
  const int channels = narrow(z.groups) * plan.rows;
  const int lanes = plan.is_last() ? round_up(channels, kPieceElements) : 0;
  const bool paired = plan.phases_h * plan.phases_w == 1 && out_area % 2 == 0 &&
                      reinterpret_cast<std::uintptr_t>(out) % two == 0;
  Gather gather{.weights = at.other,
                .weights_plane = at.other_plane,
                .pixels = at.pixels,
                .pixels_plane = at.pixels_plane,
                .out = out,
                .parts = at.parts,
                .out_count = plan.out_count,
                .table = at.table,
                .unscale = at.unscale,
                .end = end,
                .images = narrow(z.n),
                .groups = narrow(z.groups),
                .rows = plan.rows,
                .pieces = plan.pieces,
                .depth_pieces = plan.depth_pieces(),
                .splits = plan.splits(),
                .out_width = narrow(out_width),
                .out_area = narrow(out_area),
                .lanes = lanes,
                .paired = paired,
                .phases_w = plan.phases_w,
                .by_row_tiles = FastDivisor(row_tiles),
                .by_phases_w = FastDivisor(plan.phases_w),
                .by_groups = FastDivisor(narrow(z.groups))};
  std::copy_n(plan.high, kMaxPhases, gather.high);
  std::copy_n(plan.wide, kMaxPhases, gather.wide);
  // Phase (0, 0) has the most pixels.
  const int pixels = narrow(z.n * plan.high[0].outputs * plan.wide[0].outputs);
  const unsigned tiles = static_cast<unsigned>(row_tiles * ceil_div(pixels, by.columns));
  const unsigned phases = static_cast<unsigned>(narrow(z.groups) * plan.phases_h * plan.phases_w);
  const auto parts = static_cast<unsigned>(plan.splits());
  const bool cached = static_cast<std::size_t>(plan.out_count) * two < cuda_device_facts().l2_bytes;
  gather.phases_first = plan.phases_h * plan.phases_w > 1 && !cached && tiles <= 65535;
  launch(by.gather,
         {.grid = gather.phases_first ? dim3(phases, tiles, parts) : dim3(tiles, phases, parts),
          .block = dim3(by.threads),
          .shared_bytes = by.shared_bytes,
          .overlaps_previous = true},
         gather);
  if (plan.splits() == 1) return;
  if (lanes > 0) {
    return with_float_type(z.dtype, [&](auto zero) {
      launch(sum_parts_nhwc_kernel<decltype(zero)>,
             sums_shape(plan.out_count / kPieceElements), at.parts, plan.splits(), plan.out_count,
             lanes, channels, end, out);
    });
  }
  with_float_type(z.dtype, [&](auto zero) {
    using Out = decltype(zero);
    launch(sum_parts_kernel<Out>, sums_shape(plan.out_count), at.parts, plan.splits(),
           plan.out_count, gather.out_area, channels, end, static_cast<Out*>(out));
  });
}

// Runs backward_weight: computes the parts dy x pixels, then adds them.
void run_weight(const ImplicitGemmTiling& plan, const Layout& at, void* dw, bool accumulate) {
  const Conv2dProblem& z = plan.z;
  const Instance& by = *plan.choice.instance;
  const int row_tiles = ceil_div(plan.rows, by.rows);
  const int columns = plan.columns();
  const WeightGather gather{.errors = at.other,
                            .errors_plane = at.other_plane,
                            .pixels = at.pixels,
                            .pixels_plane = at.pixels_plane,
                            .parts = at.parts,
                            .unscale = at.unscale,
                            .steps = plan.most_steps,
                            .columns = columns,
                            .by_row_tiles = FastDivisor(row_tiles),
                            .images = narrow(z.n),
                            .groups = narrow(z.groups),
                            .rows = plan.rows,
                            .row_pieces = pieces_of(plan.rows),
                            .pieces = plan.pieces,
                            .splits = plan.splits(),
                            .high = plan.high[0],
                            .wide = plan.wide[0]};
  launch(by.weight,
         {.grid = dim3(static_cast<unsigned>(row_tiles) *
                           static_cast<unsigned>(ceil_div(columns, by.columns)),
                       static_cast<unsigned>(z.groups), static_cast<unsigned>(plan.splits())),
          .block = dim3(by.threads),
          .shared_bytes = by.weight_bytes(),
          .overlaps_previous = true},
         gather);
  with_float_type(z.operand_types().w, [&](auto zero) {
    using Out = decltype(zero);
    launch(sum_weight_parts_kernel<Out>, sums_shape(plan.out_count), at.parts, plan.splits(), z.k,
           columns, plan.channels, plan.pieces, narrow(z.r), narrow(z.s), accumulate,
           static_cast<Out*>(dw));
  });
}

// ---- weights -----------------------------------------------------------------------------------

std::size_t prepared_bytes(const Conv2dProblem& z, Direction direction) {
  return PreparedLayout(ImplicitGemmTiling(z, direction), nullptr).bytes;
}

// f32 is scaled and split into high and low parts (implicit_gemm_plan.h); fp16/bf16 are only
// reordered.
void prepare_weights(const Conv2dPrepareArgs& args) {
  const ImplicitGemmTiling plan(args.problem, args.direction);
  const PreparedLayout at(plan, args.prepared);
  find_maxima(plan, at.maxima, args.w, args.problem.w_shape().numel());
  pack_weights(plan, at, args.w, args.direction == Direction::backward_data);
}

// An f32 call without prepared weights finds the maxima of both operands in one launch.
bool prepares_for_one_call(const Conv2dProblem& z, Direction) { return z.dtype != DType::f32; }

// ---- the three directions ----------------------------------------------------------------------

// Packs the image, and also the weights `w` where they were not prepared.
void pack_operands(const ImplicitGemmTiling& plan, Layout& at, Direction direction,
                  const void* image, const void* w, const void* prepared) {
  const Conv2dProblem& z = plan.z;
  const bool forward = direction == Direction::forward;
  const std::int64_t count = stored_count(z, forward ? z.x_shape() : z.y_shape());
  if (prepared != nullptr) {
    find_maxima(plan, at.maxima, image, count);
  } else {
    find_maxima(plan, at.maxima, image, count, at.other_maxima.count, w, z.w_shape().numel());
    pack_weights(plan, at.weights, w, !forward);
  }
  pack_pixels(plan, at, image, plan.channels, forward ? z.h * z.w : z.p() * z.q());
}

void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  const ImplicitGemmTiling plan(z, Direction::forward);
  Layout at(plan, Direction::forward, args.workspace, args.prepared);
  pack_operands(plan, at, Direction::forward, args.x, args.w, args.prepared);
  run_gather(plan, at, {args.b, args.epilogue.residual, args.epilogue.relu}, args.y, z.q(),
             z.p() * z.q());
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  const ImplicitGemmTiling plan(z, Direction::backward_data);
  Layout at(plan, Direction::backward_data, args.workspace, args.prepared);
  pack_operands(plan, at, Direction::backward_data, args.dy, args.w, args.prepared);
  run_gather(plan, at, {}, args.dx, z.w, z.h * z.w);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const ImplicitGemmTiling plan(z, Direction::backward_weight);
  Layout at(plan, Direction::backward_weight, args.workspace, nullptr);
  find_maxima(plan, at.maxima, args.x, stored_count(z, z.x_shape()), at.other_maxima.count, args.dy,
              stored_count(z, z.y_shape()));
  pack_both(plan, at, args.x, args.dy);
  run_weight(plan, at, args.dw, args.accumulate);
}

// ---- algorithm ---------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction direction) {
  if (z.dtype != DType::f32 && z.dtype != DType::f16 && z.dtype != DType::bf16) {
    return Conv2dSupport::no(cat("expects elements of f32, f16 or bf16, got ", name_of(z.dtype)));
  }
  const bool nhwc = z.layout == ActivationLayout::nhwc;
  const OperandTypes last{.x = z.dtype, .w = DType::f32, .accumulator = DType::f32, .y = z.dtype};
  if (nhwc ? z.operand_types() != last : z.types.has_value()) {
    return Conv2dSupport::no(cat("expects weights of f32 where channels come last, and one type ",
                                 "elsewhere, got ", z.operand_types().text(), " with layout ",
                                 name_of(z.layout)));
  }
  if (nhwc && z.groups > 1 &&
      (z.c_per_group() % kPieceElements != 0 || z.k_per_group() % kPieceElements != 0)) {
    return Conv2dSupport::no(cat("expects groups of a multiple of ", kPieceElements,
                                 " channels where channels come last, because a copy moves as ",
                                 "many, got ", z.c_per_group(), " in and ", z.k_per_group(),
                                 " out"));
  }
  if (cuda_device_facts().major < 8) {
    return Conv2dSupport::no(cat("expects a GPU of compute capability 8.0 or higher, for its ",
                                 "tensor cores and asynchronous copies, got ",
                                 cuda_device_facts().major, ".", cuda_device_facts().minor));
  }
  if (z.groups > 1 && std::min(z.c_per_group(), z.k_per_group()) < kPieceElements) {
    return Conv2dSupport::no(cat("expects groups of at least ", kPieceElements,
                                 " channels, because smaller ones leave the tensor cores empty, ",
                                 "got ", z.c_per_group(), " in and ", z.k_per_group(), " out"));
  }
  if (z.r > kMaxTaps || z.s > kMaxTaps) {
    return Conv2dSupport::no(cat("expects a kernel of at most ", kMaxTaps, "x", kMaxTaps,
                                 ", because each pixel keeps a bit for each tap, got ", z.r, "x",
                                 z.s));
  }
  if (direction == Direction::backward_data && std::max(z.stride_h, z.stride_w) > kMaxPhases) {
    return Conv2dSupport::no(cat("expects strides of at most ", kMaxPhases,
                                 " in backward_data, one phase each, got ", z.stride_h, "x",
                                 z.stride_w));
  }
  const std::int64_t side =
      std::max({z.h + z.pad_top + z.pad_bottom, z.w + z.pad_left + z.pad_right, z.p(), z.q()});
  if (side > kMaxSide || std::max(z.stride_h, z.stride_w) > kMaxSide) {
    return Conv2dSupport::no(cat("expects images of at most ", kMaxSide, "x", kMaxSide,
                                 " with padding, because coordinates have 16 bits, got ", side));
  }
  const std::int64_t area = std::max(z.h * z.w, z.p() * z.q());
  const std::int64_t pieces = (std::max(z.c, z.k) / z.groups + 7) / 8 * z.groups;
  if (z.n * area * pieces > 0x7fff0000 || (area + 512) * std::max(z.c, z.k) > 0x7fff0000 ||
      z.groups * kMaxPhases * kMaxPhases > 65535 || (pieces / 8 + z.groups) > 65535) {
    return Conv2dSupport::no(
        "expects fewer than 2^31 pieces of 8 channels in a tensor and fewer "
        "than 2^31 elements in an image, because places in them have 32 bits");
  }
  return {};
}

Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  return ImplicitGemmTiling(z, direction).choice.cost;
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  return Layout(ImplicitGemmTiling(z, direction), direction, nullptr, nullptr).bytes;
}

const Conv2dAlgorithm kAlgorithm{
    .name = "implicit_gemm",
    .device = DeviceType::cuda,
    .idea =
        "a matrix product on the tensor cores whose im2col tiles are gathered into shared memory",
    .paper = "Chetlur et al. 2014: cuDNN: Efficient Primitives for Deep Learning, arXiv 1410.0759",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .prepares_for_one_call = prepares_for_one_call,
    .error_growth = 32,  // 3 x 2 (high and low parts), 16 x 1.5 (sums of 256 terms), 2 (f32)
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_mixed_types = true,
    .takes_nhwc = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
