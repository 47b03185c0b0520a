// SPDX-License-Identifier: Apache-2.0
// linear_tail_weights_cuda.cu: the launch that ends the backward pass of a classifier. It computes
// the gradients of the weights of the last linear layers, adds up partial gradients (pieces) of
// other kernels, and, if possible, updates all weights.
//
// Formula    dw = g^T x, db = sum over n of g, for each layer; to = sum over p of pieces[p]; then
//            the optimiser's formula for w, element by element
// Textbook   for each layer: for o, i: dw[o,i] = sum over n of g[n,o] x[n,i]
//            for each i: to[i] = sum over p of pieces[p][i]
//            for each parameter: w, states = update(w, dw, states)
// Method     A block computes one tile of one product (linear_product.cuh), or adds up the pieces
//            of some neighbouring elements: each of its threads adds some of the pieces of an
//            element. For db the pieces are the rows of g. The thread that stores an element of a
//            gradient also updates the weight. If the first launch (linear_tail_cuda.cu) has ended,
//            tiles and db read nothing that the previous kernel writes, and run concurrently with
//            it. Blocks that add pieces of the previous kernel load their weights, then wait for
//            that kernel. Half-precision operands have been rounded by the kernels that wrote them,
//            except perhaps x of the first layer.
// Shapes     g [N,O], x [N,I], dw [O,I], db [O], pieces [P][floats], w and states as the gradients;
//            f32, accumulated in f32; operands f32 or rounded to half precision
// Supports   up to four layers, four targets of pieces; all update rules
// Cost       FLOPs = 2 N I O in all; bytes = x, g, pieces once, 12 to 28 for each weight; bound by
//            latency
// Numerics   products are those of linear_fused_cuda.cu. Pieces are first added in order by each
//            row of threads, then the sums of the rows are added. The order depends only on the
//            sizes. The update has the same bits as optim/update_cuda.cu
// Backward   dw, db and targets are assigned or added to
// Choices    a block adds 8 to 32 columns of pieces. With many pieces it has fewer columns and more
//            rows, so that a thread has at most nine pieces; it loads eight of them together. Small
//            tiles take 256 images at once, in the memory that large tiles need for 128, so they
//            wait for memory once instead of twice
// Read next  linear_tail_cuda.cu (the previous launch), optim/update_cuda.cu (the update only)
#include <convscope/update_rules.h>

#include "framework/cuda/carveout.cuh"
#include "framework/cuda/half.cuh"
#include "framework/cuda/update_step.cuh"
#include "layers/linear/linear_product.cuh"
#include "layers/linear/linear_tail.h"

namespace convscope {
namespace {

using namespace linear_tiles;

enum class WeightSize { unpacked, small, middle, large };
using SmallWeight = WeightTile<2, 4, 1, 1, 256>;
using MiddleWeight = WeightTile<2, 4, 2, 1, 128>;  // as linear_fused_cuda.cu
using LargeWeight = WeightTile<2, 4, 2, 2, 128>;

// to[i] = sum over p of from[p * stride + i]: adds up one gradient from the pieces of other
// kernels. The gradient of a bias is such a sum, too: its pieces are the rows of g.
struct Sum {
  const float* from = nullptr;
  std::int64_t stride = 0;
  int count = 0, floats = 0;
  float* to = nullptr;
  bool accumulate = false;
  bool is_there = false;  // true: the pieces are complete; false: the previous kernel writes them
  int columns = 0;        // of one block: 8, 16 or 32
  int first_block = 1 << 30;
  JoinedRow updated;
};
constexpr int kMaxSums = PieceSums::kMaxTargets + kMaxTailLayers;

struct TailWeights {
  int count;
  Product product[kMaxTailLayers];
  WeightSize size[kMaxTailLayers];
  JoinedRow weight_rows[kMaxTailLayers];
  bool rows_ended;       // LinearTailArgs
  bool shares_counters;  // some product is split
  int tile_blocks;       // blocks after these have sums
  Sum sum[kMaxSums];
  UpdateGate gate;
};

// These take the place of an update rule. NoUpdate does nothing. UnscaleOnly divides gradients by
// the loss scale.
struct NoUpdate {};
struct UnscaleOnly {
  DeviceLossScale* scale;
};

template <class Half>
__device__ inline void store_rounded(const WeightCopy& copy, std::int64_t i, float w) {
  if (copy.as_floats) {
    static_cast<float*>(copy.to)[i] = rounded<Half>(w);
  } else {
    static_cast<Half*>(copy.to)[i] = from_float<Half>(w);
  }
}
__device__ inline void store_copy(const WeightCopy& copy, std::int64_t i, float w) {
  if (copy.to == nullptr) return;
  if (copy.operand_type == DType::bf16) return store_rounded<BFloat16>(copy, i, w);
  store_rounded<Float16>(copy, i, w);
}

// Weight and states of one element, and the scalars of its update. They may be loaded before the
// gradient is known.
template <class Rule>
struct Element {
  float w = 0, state[Rule::kStates] = {};
  typename Rule::Scalars scalars = {};
  __device__ void load(const JoinedRow& row, std::int64_t i) {
    w = row.w[i];
#pragma unroll
    for (int k = 0; k < Rule::kStates; ++k) {
      if (row.state[k] != nullptr) state[k] = row.state[k][i];
    }
    scalars = row.scalars->as<typename Rule::Scalars>();
  }
  __device__ void update(const JoinedRow& row, const Rule& rule, std::int64_t i, float dw) {
    DeviceStep<Rule, float>(scalars, rule).run(w, dw, state);
    row.w[i] = w;
#pragma unroll
    for (int k = 0; k < Rule::kStates; ++k) {
      if (row.state[k] != nullptr) row.state[k][i] = state[k];
    }
    store_copy(row.copy, i, w);
  }
};
template <>
struct Element<NoUpdate> {};
template <>
struct Element<UnscaleOnly> {};
// Copies w for the next step when the update is skipped: w does not change, but the next step reads
// its copy.
__device__ inline void keep_state(const JoinedRow& row, std::int64_t i) {
  if (row.copy.to != nullptr) store_copy(row.copy, i, row.w[i]);
}

// Takes the place of NothingMore: when an element of a gradient is stored, weight() updates the
// weight. The product has no additional column, so behind() does nothing. The scalars are loaded
// only in weight(), so that they take no registers from the product.
template <class Rule>
struct ProductUpdate {
  const TailWeights& a;
  int k;
  const Rule& rule;
  bool open;
  __device__ void behind(std::int64_t, float) const {}
  __device__ void weight(std::int64_t i, float dw) const {
    const JoinedRow& row = a.weight_rows[k];
    if (!open) return keep_state(row, i);
    Element<Rule> element;
    element.load(row, i);
    element.update(row, rule, i, dw);
  }
};

template <class More>
__device__ void multiply_tile(const TailWeights& a, int k, int block, const More& more) {
  auto* const shared = dynamic_shared<float>();
  const Product& p = a.product[k];
  switch (a.size[k]) {
    case WeightSize::unpacked:
      return SmallWeight::run<false, true>(p, block, shared, more);
    case WeightSize::small:
      return SmallWeight::run<true, true>(p, block, shared, more);
    case WeightSize::middle:
      return MiddleWeight::run<true, true>(p, block, shared, more);
    case WeightSize::large:
      return LargeWeight::run<true, true>(p, block, shared, more);
  }
}

// Divides gradients by the scale of the loss and records overflow. Several threads may record it at
// once, because all write the same value.
struct Unscale {
  float factor;
  std::int32_t* overflow;
  __device__ explicit Unscale(DeviceLossScale* scale)
      : factor(static_cast<float>(1 / scale->state.scale)), overflow(&scale->overflow) {}
  __device__ void change(float* to, float gradient) const {
    if (!isfinite(gradient)) *overflow = 1;
    *to = gradient * factor;
  }
};
struct ProductUnscale {
  const Result& to;
  Unscale unscale;
  __device__ void weight(std::int64_t at, float dw) const { unscale.change(to.data + at, dw); }
  __device__ void behind(std::int64_t, float) const {}
};

template <class Rule>
__device__ void multiply_tiles(const TailWeights& a, const Rule& rule) {
  int block = static_cast<int>(blockIdx.x);
  int k = 0;
  while (k + 1 < a.count &&
         block >= a.product[k].tiles_m * a.product[k].tiles_n * a.product[k].splits) {
    block -= a.product[k].tiles_m * a.product[k].tiles_n * a.product[k].splits;
    ++k;
  }
  if constexpr (std::is_same_v<Rule, NoUpdate>) {
    multiply_tile(a, k, block, NothingMore{});
  } else if constexpr (std::is_same_v<Rule, UnscaleOnly>) {
    multiply_tile(a, k, block, ProductUnscale{a.product[k].c, Unscale(rule.scale)});
  } else {
    multiply_tile(a, k, block, ProductUpdate<Rule>{a, k, rule, is_open(a.gate)});
  }
}

template <class Rule>
__device__ void add_pieces(const TailWeights& a, const Rule& rule) {
  constexpr bool kUnscales = std::is_same_v<Rule, UnscaleOnly>;
  constexpr bool kUpdates = !kUnscales && !std::is_same_v<Rule, NoUpdate>;
  auto* const shared = dynamic_shared<float>();  // [rows][columns]
  int which = 0;
#pragma unroll
  for (int j = 1; j < kMaxSums; ++j) {  // unused sums begin after all blocks
    if (static_cast<int>(blockIdx.x) >= a.sum[j].first_block) which = j;
  }
  const Sum z = a.sum[which];
  const int rows = static_cast<int>(kThreads) / z.columns;
  const int row = static_cast<int>(threadIdx.x) / z.columns;
  const int column = static_cast<int>(threadIdx.x) - row * z.columns;
  const int i = (static_cast<int>(blockIdx.x) - z.first_block) * z.columns + column;
  const bool stores = row == 0 && i < z.floats;
  // The inputs of the update are loaded before the gradient is known.
  [[maybe_unused]] Element<Rule> element;
  [[maybe_unused]] bool open = false;
  if constexpr (kUpdates) {
    open = stores && is_open(a.gate);
    if (open) element.load(z.updated, i);
  }
  if (!z.is_there) wait_for_previous_kernel();
  float sum = 0;
  constexpr int kHeld = 8;  // number of pieces that are loaded together, even if fewer exist
#pragma unroll 1
  for (int first = row; first < z.count && i < z.floats; first += kHeld * rows) {
    float held[kHeld];
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int p = first + j * rows;
      held[j] = p < z.count ? __ldcg(z.from + p * z.stride + i) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      if (first + j * rows < z.count) sum += held[j];
    }
  }
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (!stores) return;
#pragma unroll 8
  for (int j = 1; j < rows; ++j) sum += shared[j * z.columns + column];
  if (z.accumulate) sum += z.to[i];
  if constexpr (kUnscales) return Unscale(rule.scale).change(z.to + i, sum);
  z.to[i] = sum;
  if constexpr (kUpdates) {
    if (!open) return keep_state(z.updated, i);
    element.update(z.updated, rule, i, sum);
  }
}

template <class Rule>
__global__ void __launch_bounds__(kThreads, 4) tail_weights(const TailWeights a, const Rule rule) {
  // If the first launch (linear_tail.h) has ended, the inputs of the tiles are complete, and no
  // kernel reads these weights any more. So this kernel waits for all other previous kernels only
  // after its work. It must wait, because a later kernel that waits for this one assumes that all
  // earlier kernels have ended. Two launches that overlap must not share the counters.
  if (!a.rows_ended) wait_for_previous_kernel();
  if (!a.shares_counters) let_next_kernel_start();
  if (static_cast<int>(blockIdx.x) < a.tile_blocks) {
    multiply_tiles(a, rule);
  } else {
    add_pieces(a, rule);
  }
  wait_for_previous_kernel();
  if (a.shares_counters) let_next_kernel_start();
}

// ---- launches ----

float* floats(const Tensor& t) { return t.defined() ? t.data<float>() : nullptr; }

// Returns the row of the update that belongs to the gradient dw; an empty row if there is no
// update.
JoinedRow row_of(const JoinedUpdate& update, const float* dw) {
  if (dw == nullptr || update.rows.empty()) return {};
  const auto at = std::ranges::find(update.rows, static_cast<const void*>(dw), &JoinedRow::dw);
  CONVSCOPE_CHECK(at != update.rows.end(), "linear_tail",
                  "expected an update of all weights because it is made where their gradients are, "
                  "got none of one of them");
  return *at;
}

// Chooses as backward_cuda() in linear_fused_cuda.cu.
WeightSize weight_size(const Product& dw, bool packed, bool wants_dx) {
  if (!packed) return WeightSize::unpacked;
  const std::int64_t splits = ceil_div(dw.k, kSplit);
  const bool large_dx =
      wants_dx && ceil_div(dw.k, 32) * ceil_div(dw.c.columns, 32) >= kEnoughBlocks;
  if (large_dx && tiles_of(dw, 32, 32) * splits >= 3 * kEnoughBlocks / 2) return WeightSize::large;
  return tiles_of(dw, 32, 16) * splits >= kEnoughBlocks ? WeightSize::middle : WeightSize::small;
}

template <class Weight>
void tile_weights(Product& dw, std::size_t& part_floats) {
  const std::int64_t tiles = tiles_of(dw, Weight::kRows, Weight::kColumns);
  tile<Weight>(dw, splits_of(dw.k, tiles));
  const std::size_t floats =
      static_cast<std::size_t>(dw.blocks()) * Weight::kRows * Weight::kColumns;
  const bool fits = dw.first_tile + tiles <= kMaxSplitTiles &&
                    (part_floats + floats) * sizeof(float) <= kScratchBytes;
  if (dw.splits == 1 || !fits) return tile<Weight>(dw);
  dw.part = cuda_scratch_of<float>(part_floats + floats) + part_floats;
  part_floats += floats;
}

void add_sum(Sum*& to, unsigned& blocks, Sum sum) {
  sum.columns = sum.count <= 16 ? 32 : sum.count <= 64 ? 16 : 8;
  sum.first_block = static_cast<int>(blocks);
  blocks += static_cast<unsigned>(ceil_div(sum.floats, sum.columns));
  *to++ = sum;
}

void weights_cuda(const LinearTailArgs& args) {
  TailWeights a{};
  a.rows_ended = args.rows_ended;
  const JoinedUpdate none;
  const JoinedUpdate& update = args.update != nullptr ? *args.update : none;
  std::size_t part_floats = 0;
  int first_tile = 0;
  unsigned blocks = 0;
  for (int k = 0; k < args.layers; ++k) {
    const LinearTailLayer& z = args.layer[k];
    if (!z.dw.defined()) continue;
    const Tensor& x = k == 0 ? args.x : args.layer[k - 1].h;
    const int n = narrow(x.dim(0)), i = narrow(z.w.dim(1)), o = narrow(z.w.dim(0));
    Product& dw = a.product[a.count];
    // true if the kernels that wrote h and the copy of g have rounded both
    const bool has_copy = z.g_half.defined();
    dw = {.a = {.data = floats(has_copy ? z.g_half : z.g),
                .ld = o,
                .extent = o,
                .type = has_copy ? DType::f32 : args.operand_type},
          .b = {.data = floats(x),
                .ld = i,
                .extent = i,
                .type = k == 0 && !args.x_is_rounded ? args.operand_type : DType::f32},
          .c = {.data = floats(z.dw),
                .ld = i,
                .rows = o,
                .columns = i,
                .accumulate = z.accumulate_dw},
          .k = n,
          .first_tile = first_tile};
    const bool packed =
        i % 4 == 0 && o % 4 == 0 && is_aligned(dw.a.data, 16) && is_aligned(dw.b.data, 16);
    const bool wants_dx = k > 0 || args.dx.defined();
    a.size[a.count] = weight_size(dw, packed, wants_dx);
    switch (a.size[a.count]) {
      case WeightSize::unpacked:
      case WeightSize::small:
        tile_weights<SmallWeight>(dw, part_floats);
        break;
      case WeightSize::middle:
        tile_weights<MiddleWeight>(dw, part_floats);
        break;
      case WeightSize::large:
        tile_weights<LargeWeight>(dw, part_floats);
        break;
    }
    a.weight_rows[a.count] = row_of(update, dw.c.data);
    first_tile += dw.tiles_m * dw.tiles_n;
    blocks += static_cast<unsigned>(dw.blocks());
    a.shares_counters = a.shares_counters || dw.splits > 1;
    ++a.count;
  }
  a.tile_blocks = static_cast<int>(blocks);
  Sum* next = a.sum;
  const PieceSums& pieces = args.sums;
  for (int j = 0; j < PieceSums::kMaxTargets && pieces.count > 0; ++j) {
    const PieceSums::Target& target = pieces.target[j];
    const std::int64_t end = j + 1 < PieceSums::kMaxTargets
                                 ? std::min(pieces.target[j + 1].begin, pieces.floats)
                                 : pieces.floats;
    if (target.to == nullptr || target.begin >= end) continue;
    add_sum(next, blocks,
            {.from = pieces.pieces + target.begin,
             .stride = pieces.floats,
             .count = pieces.count,
             .floats = narrow(end - target.begin),
             .to = target.to,
             .accumulate = target.accumulate,
             .updated = row_of(update, target.to)});
  }
  for (int k = 0; k < args.layers; ++k) {
    const LinearTailLayer& z = args.layer[k];
    if (!z.dw.defined() || !z.db.defined()) continue;
    const int o = narrow(z.w.dim(0));
    add_sum(next, blocks,
            {.from = floats(z.g),
             .stride = o,
             .count = narrow(z.g.dim(0)),
             .floats = o,
             .to = floats(z.db),
             .accumulate = z.accumulate_db,
             .is_there = args.rows_ended,
             .updated = row_of(update, floats(z.db))});
  }
  a.gate = update.gate;
  constexpr int kFloats = std::max(
      {SmallWeight::floats(false), MiddleWeight::floats(false), LargeWeight::floats(false)});
  const LaunchShape shape{.grid = dim3(blocks),
                          .block = dim3(kThreads),
                          .shared_bytes = kFloats * sizeof(float),
                          .overlaps_previous = true};
  if (update.unscale != nullptr) {
    launch_beside_others(tail_weights<UnscaleOnly>, shape, a, UnscaleOnly{update.unscale});
  } else if (args.update == nullptr) {
    launch_beside_others(tail_weights<NoUpdate>, shape, a, NoUpdate{});
  } else {
    visit_rule(UpdateRules{}, update.rule, [&]<class Rule>(const Rule& rule) {
      launch_beside_others(tail_weights<Rule>, shape, a, rule);
    });
  }
}

}  // namespace
CONVSCOPE_KERNEL(linear_tail_weights_kernel, cuda, weights_cuda)
}  // namespace convscope
