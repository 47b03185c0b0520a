// SPDX-License-Identifier: Apache-2.0
// int8_block_sparse_cuda.cu: convolution on int8 values that skips pruned weights. Each warp
// computes 16 output channels: it walks along the list of the quads of input channels that these
// channels keep, and reads x from shared memory.
//
// Formula    as int8_gemm, over the (c,r,s) that a block of row k holds
// Textbook   for n, blocks of 16 kernels, p, q: sum[16] = 0
//              for quads (c..c+3,r,s) in list[block]:
//                sum[0..15] += w[k..k+15][c..c+3][r][s] * x[n][c..c+3][..]     (exact)
//              y[n][k..k+15][p][q] = clip(round(real(sum) / s_y))
// Method     1. prepare_weights makes the list of each 16 output channels once
//               (int8_sparse_lists.cuh): for each entry the offset of its word of x, and 16 x 4
//               weights.
//            2. A block copies the pixels that a tile of 16 to 112 pixels reads into shared memory
//               (int8_sparse_patch.h): each pixel once for all taps, with zeros outside the image.
//               The copies run a segment of channels ahead of the products. In shared memory a tap
//               is an offset, for every stride.
//            3. A warp has one list and all pixels of the tile. Eight quads of 16 pixels are
//               operand A of two MMAs: a load of 32 bits has four channels of a pixel. Each quad
//               may have any tap and any channels, so the only zeros that are multiplied are those
//               inside the stored blocks. A thread ends with four neighbouring channels of a pixel:
//               one word of y.
//            4. With few tiles, several warps share a list. Each warp takes every n-th pair of
//               entries, and the warps add their sums in shared memory.
//            A kernel of the image's size is a matrix product: the images are then the pixels of a
//            row. With a 1x1 kernel, all pixels of an image form one row
// Shapes     as int8_gemm; w blocks of i8 [blocks,rows,columns]
// Supports   forward; block-sparse weights of every block shape, stride, dilation and padding; one
//            group; types as int8_gemm; kernels whose patch fits into shared memory; sm_80 and
//            newer
// Cost       FLOPs = 2 N K P Q times four for each entry; bytes = x, the entries, y. Bound by the
//            loads from shared memory: a load of 128 bytes feeds 2048 products
// Numerics   sums are exact: the codes of int8_gemm on the same weights, bit by bit. Same bits on
//            each run
// Backward   none: gradients are those of the fake quantiser (quant/lsq.h)
// Choices    A tile has 7, 4, 2 or 1 groups of 16 pixels: 112 pixels are whole rows of 56, 28 and
//            14 pixels, and two images of 7x7. A block has 8 lists down to 1, whichever has the
//            lowest estimated time. A segment has as many channels as fit with two stages and two
//            blocks in an SM
// Source     the lists: E. Elsen et al.: Fast Sparse ConvNets, CVPR 2020, arXiv 1911.09723; short
//            columns as one side of a tensor-core product: Z. Chen et al.: Efficient Tensor
//            Core-Based GPU Kernels for Structured Sparsity, SC 2021, doi 10.1145/3458817.3476182;
//            the integers: B. Jacob et al., CVPR 2018, arXiv 1712.05877
// Read next  int8_gemm_cuda.cu; block_sparse_cuda.cu, the same in f32; int8_sparse_tiles.cuh
#include <algorithm>
#include <cmath>

#include "layers/conv2d/int8/int8_block_sparse/cuda/int8_sparse_tiles.cuh"
#include "layers/conv2d/int8/shared/cuda/int8_support.cuh"
#include "layers/conv2d/shared/kept_plans.h"

namespace convscope::int8 {
namespace {

constexpr int kMaxSide = 16000;           // largest side of an image
constexpr int kFixedSharedBytes = 6144;    // of scales and pixels, and reserved by the system
constexpr int kMaxListBytes = 160 << 10;  // of shared memory while a list is made

int narrow(std::int64_t value) { return static_cast<int>(value); }

// ---- the layer ---------------------------------------------------------------------------------

// Returns true where the kernel covers the image, so that y has one pixel.
bool is_product(const Conv2dProblem& z) {
  return z.p() == 1 && z.q() == 1 && z.r == z.h && z.s == z.w && z.dilation_h == 1 &&
         z.dilation_w == 1 && z.pad_top + z.pad_bottom + z.pad_left + z.pad_right == 0;
}
bool is_plain_1x1(const Conv2dProblem& z) {
  return z.r * z.s == 1 && z.stride_h == 1 && z.stride_w == 1 &&
         z.pad_top + z.pad_bottom + z.pad_left + z.pad_right == 0;
}

SparseView view_of(const Conv2dProblem& z) {
  const int blocks = narrow(ceil_div(z.c, kChannelBlock));
  const int out_blocks = narrow(ceil_div(z.k, kChannelBlock));
  const int area = narrow(z.h * z.w), out_area = narrow(z.p() * z.q());
  if (is_product(z)) {
    return {.pieces = blocks * area,
            .w = narrow(z.n),
            .q = narrow(z.n),
            .x_column = blocks * area,
            .x_piece = 1,
            .y_pixel = out_blocks,
            .y_block = 1,
            .merged = true};
  }
  SparseView out{.images = narrow(z.n),
                 .pieces = blocks,
                 .x_image = blocks * area,
                 .x_row = narrow(z.w),
                 .x_column = 1,
                 .x_piece = area,
                 .y_image = out_blocks * out_area,
                 .y_pixel = 1,
                 .y_block = out_area};
  if (is_plain_1x1(z)) {
    out.w = out.q = area;
    return out;
  }
  out.h = narrow(z.h);
  out.w = narrow(z.w);
  out.p = narrow(z.p());
  out.q = narrow(z.q());
  out.taps_h = narrow(z.r);
  out.taps_w = narrow(z.s);
  out.stride_h = narrow(z.stride_h);
  out.stride_w = narrow(z.stride_w);
  out.pad_h = narrow(z.pad_top);
  out.pad_w = narrow(z.pad_left);
  out.apart_h = narrow(z.dilation_h);
  out.apart_w = narrow(z.dilation_w);
  return out;
}

// ---- tiles -------------------------------------------------------------------------------------

struct SparseTile {
  int groups, lists;                         // of 16 pixels; lists of a block
  void (*kernels[2][2])(const SparseBytes);  // [x is signed][straight]
};
template <int kGroups, int kLists>
constexpr SparseTile tile_of() {
  constexpr bool kCan = kGroups >= 4;  // few pixels need few registers for offsets
  return {kGroups,
          kLists,
          {{sparse_bytes_kernel<false, kGroups, kLists, false>,
            sparse_bytes_kernel<false, kGroups, kLists, kCan>},
           {sparse_bytes_kernel<true, kGroups, kLists, false>,
            sparse_bytes_kernel<true, kGroups, kLists, kCan>}}};
}
constexpr SparseTile kTiles[] = {tile_of<7, 8>(), tile_of<7, 4>(), tile_of<4, 8>(),
                                 tile_of<4, 4>(), tile_of<4, 2>(), tile_of<2, 4>(),
                                 tile_of<2, 1>(), tile_of<1, 1>()};

// Returns the expected number of quads in the list of 16 output channels, if blocks are random.
double expected_quads(const Conv2dProblem& z) {
  const WeightFormat& format = z.weight_format;
  const double weights = static_cast<double>(z.k) * static_cast<double>(z.c * z.r * z.s);
  const double density =
      std::min(1.0, static_cast<double>(format.stored_elements()) / std::max(weights, 1.0));
  const auto rows =
      static_cast<double>(std::min<std::int64_t>(format.block_rows, std::int64_t{kListRows}));
  // Adjacent columns are channels only in a 1x1 kernel.
  const double together =
      z.r * z.s == 1
          ? static_cast<double>(std::min<std::int64_t>(format.block_columns, std::int64_t{kQuad}))
          : 1;
  return static_cast<double>(quads_of(z)) *
         (1 - std::pow(1 - density, kListRows / rows * kQuad / together));
}

// The chosen tile, and the patch of pixels that fits into shared memory with it.
struct Int8SparseChoice {
  const SparseTile* tile = nullptr;
  Patch patch;
  int segments = 1, segment_pieces = 1;
  int stage_bytes = 0, places_at = 0;
  std::size_t shared_bytes = 0;
  Cost cost = {};
};

class Int8SparseTiling : public Int8SparseChoice {
 public:
  explicit Int8SparseTiling(const Conv2dProblem& problem) : z(problem), view(view_of(problem)) {
    Cheapest<Int8SparseChoice> best({"conv2d", "int8_block_sparse", Direction::forward},
                                    DeviceType::cuda, z.types->w);
    quads = expected_quads(z);
    for (const SparseTile& candidate : kTiles) consider(candidate, best);
    static_cast<Int8SparseChoice&>(*this) = best.found();
  }

  bool fits() const { return tile != nullptr; }
  std::int64_t tiles() const {
    return ceil_div(std::int64_t{view.images}, patch.images) * ceil_div(view.p, patch.rows) *
           ceil_div(view.q, patch.columns);
  }
  std::int64_t list_blocks() const {
    return ceil_div(ceil_div(z.k, std::int64_t{kListRows}), std::int64_t{tile->lists});
  }
  MakeSparseLists lists(const BlockSparseView& w, const SparseLists& to) const {
    return {.w = w,
            .to = to,
            .patch = patch,
            .rows = narrow(z.k),
            .columns = narrow(z.c * z.r * z.s),
            .taps = narrow(z.r * z.s),
            .taps_w = narrow(z.s),
            .quads = narrow(quads_of(z)),
            .block_quads = narrow(quads_of_block(z)),
            .segments = segments,
            .segment_pieces = segment_pieces,
            .merged = view.merged};
  }

  Conv2dProblem z;
  SparseView view;
  double quads = 0;  // expected in a list

 private:
  void consider(const SparseTile& candidate, Cheapest<Int8SparseChoice>& best) const {
    const Patch cut = patch_of(view, candidate.groups * kGroupPixels);
    const std::int64_t most = cuda_device_facts().shared_bytes_per_block - kFixedSharedBytes;
    const std::int64_t half = (most - kFixedSharedBytes) / 2;  // two blocks share an SM
    const std::int64_t table = std::int64_t{8} * cut.used();
    const std::int64_t piece = std::int64_t{kPiece} * cut.slots;
    std::int64_t pieces = (half - table) / 2 / piece;
    if (pieces < 1) pieces = (most - table) / 2 / piece;
    if (pieces < 1) return;
    const std::int64_t parts = ceil_div(view.pieces, std::min<std::int64_t>(view.pieces, pieces));
    pieces = ceil_div(view.pieces, parts);
    const std::int64_t stages =
        std::max<std::int64_t>(std::min<std::int64_t>(parts, 2) * pieces * piece,
                               sparse_parts_bytes(candidate.groups, candidate.lists));
    if (stages + table > most) return;
    const Cost counts = counts_of(candidate, cut, narrow(parts), stages + table <= half ? 2 : 1);
    best.offer({.tile = &candidate,
                .patch = cut,
                .segments = narrow(parts),
                .segment_pieces = narrow(pieces),
                .stage_bytes = narrow(pieces * piece),
                .places_at = narrow(stages),
                .shared_bytes = static_cast<std::size_t>(stages + table),
                .cost = counts},
               counts);
  }

  Cost counts_of(const SparseTile& candidate, const Patch& cut, int parts, int resident) const {
    const double all_lists = number(ceil_div(z.k, std::int64_t{kListRows}));
    const double list_blocks = std::ceil(all_lists / candidate.lists);
    const double blocks = list_blocks * ceil_div(view.images, cut.images) *
                          ceil_div(view.p, cut.rows) * ceil_div(view.q, cut.columns);
    const double pairs = std::ceil(quads / 8 + 0.5 * parts);  // of a list; each segment is padded
    const double slots = static_cast<double>(cut.used()) * view.pieces;
    const double tiles = blocks / list_blocks;  // of pixels
    const double groups = candidate.groups, share = kSparseWarps / candidate.lists;
    constexpr double kPairBytes = 8 * 4 + 16 * 32;  // entries, and weights
    return {.flops = std::max(1.0, 2 * number(z.n * z.k * z.p() * z.q()) * kQuad * quads),
            .bytes = z.nominal_bytes(),
            .issued = tiles * all_lists * pairs * 2 * groups * kGroupPixels * kListRows * 8 * kQuad,
            .cached = blocks * slots * kPiece + tiles * all_lists * pairs * kPairBytes,
            .schedule = candidate.groups == 7   ? "7 groups"
                        : candidate.groups == 4 ? "4 groups"
                        : candidate.groups == 2 ? "2 groups"
                                                : "1 group",
            .blocks = blocks,
            .resident = static_cast<double>(resident),
            .chain = std::ceil(pairs / share),
            .copies = std::ceil(slots / (32 * kSparseWarps)),
            .waits = parts + share - 1,  // segments, and the sums of other warps
            .listed_warps = tiles * all_lists * pairs * groups * 4,  // loads from shared memory
            .stored = tiles * all_lists * kListRows * groups * kGroupPixels,
            .prepared_bytes = number(z.weight_format.stored_elements()) +
                              all_lists * pairs * kPairBytes,
            .prepare_launches = 1,
            .tensor_cores = true};
  }
};

Int8SparseTiling plan_of(const Conv2dProblem& z) {
  static KeptPlans<Int8SparseTiling> kept;
  return *kept.get(z, Direction::forward, [&] { return Int8SparseTiling(z); });
}

// ---- weights -----------------------------------------------------------------------------------

std::size_t prepared_bytes(const Conv2dProblem& z, Direction) {
  return SparseListLayout(z, plan_of(z).segments, nullptr).bytes;
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  const Int8SparseTiling plan = plan_of(z);
  const MakeSparseLists make =
      plan.lists(args.views.w_blocks, SparseListLayout(z, plan.segments, args.prepared).lists);
  launch(write_sparse_lists_kernel,
         {.grid = dim3(static_cast<unsigned>(ceil_div(make.rows, kListRows))),
          .block = dim3(kListThreads),
          .shared_bytes = make.shared_bytes()},
         make);
}

// ---- forward -----------------------------------------------------------------------------------

void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  const Int8SparseTiling plan = plan_of(z);
  const Patch& patch = plan.patch;
  const SparseBytes pass{
      .x = static_cast<const uint4*>(args.x),
      .lists = SparseListLayout(z, plan.segments, const_cast<void*>(args.prepared)).lists,
      .end = cuda_outputs(args),
      .view = plan.view,
      .patch = patch,
      .lists_count = narrow(ceil_div(z.k, std::int64_t{kListRows})),
      .segments = plan.segments,
      .segment_pieces = plan.segment_pieces,
      .stage_bytes = plan.stage_bytes,
      .places_at = plan.places_at,
      .by_tiles_down = FastDivisor(ceil_div(plan.view.p, patch.rows)),
      .by_tiles_across = FastDivisor(ceil_div(plan.view.q, patch.columns)),
      .by_used = FastDivisor(patch.used()),
      .by_image = FastDivisor(patch.high.slots() * patch.wide.slots()),
      .by_line = FastDivisor(patch.wide.slots()),
      .by_tile_image = FastDivisor(patch.rows * patch.columns),
      .by_columns = FastDivisor(patch.columns)};
  launch(
      plan.tile->kernels[z.types->x == DType::i8 ? 1 : 0][patch.straight ? 1 : 0],
      {.grid = dim3(static_cast<unsigned>(plan.tiles()), static_cast<unsigned>(plan.list_blocks())),
       .block = dim3(32 * kSparseWarps),
       .shared_bytes = plan.shared_bytes,
       .overlaps_previous = true},
      pass);
}

// ---- algorithm ---------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  if (z.weight_format.is_dense()) {
    return Conv2dSupport::no("expects block-sparse weights, got dense ones");
  }
  const Conv2dSupport codes = supports_codes(z);
  if (!codes.yes) return codes;
  if (z.groups != 1) return Conv2dSupport::no(cat("expects one group, got ", z.groups));
  const std::int64_t side =
      std::max({z.h + z.pad_top + z.pad_bottom, z.w + z.pad_left + z.pad_right, z.stride_h,
                z.stride_w, z.dilation_h, z.dilation_w});
  if (side > kMaxSide) {
    return Conv2dSupport::no(cat("expects images of at most ", kMaxSide, "x", kMaxSide,
                                 " with padding, because places have 32 bits, got ", side));
  }
  constexpr std::int64_t kMax = 0x7fff0000;
  const std::int64_t pieces = ceil_div(std::max(z.c, z.k), kChannelBlock);
  if (z.n * std::max(z.h * z.w, z.p() * z.q()) * pieces > kMax || z.k > 16 * 65535) {
    return Conv2dSupport::no(
        "expects fewer than 2^31 pieces of 16 channels in a tensor, because places have 32 bits");
  }
  const Int8SparseTiling plan = plan_of(z);
  if (!plan.fits()) {
    return Conv2dSupport::no(
        "expects a kernel whose reach fits into shared memory, with 16 channels of 16 pixels");
  }
  if (plan.lists({}, {}).shared_bytes() > kMaxListBytes ||
      most_pairs(z, plan.segments) > kMax / 32) {
    return Conv2dSupport::no(
        "expects lists whose places have 32 bits, and bits that fit into "
        "shared memory");
  }
  return {};
}

Conv2dCost cost(const Conv2dProblem& z, Direction) { return plan_of(z).cost; }

const Conv2dAlgorithm kAlgorithm{
    .name = "int8_block_sparse",
    .device = DeviceType::cuda,
    .idea = "int8 products of the stored weights: lists of quads, x in shared memory",
    .paper = "Elsen et al. 2020: Fast Sparse ConvNets, arXiv 1911.09723",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = [](const Conv2dProblem&, Direction) -> std::size_t { return 0; },
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 2,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_mixed_types = true,
    .takes_sparse_weights = true,
    .takes_nchw16c_layout = true,
    .forward = forward,
};

}  // namespace
}  // namespace convscope::int8
CONVSCOPE_CONV2D_ALGORITHM(convscope::int8::kAlgorithm)
