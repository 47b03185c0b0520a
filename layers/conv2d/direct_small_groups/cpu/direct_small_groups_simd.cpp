// SPDX-License-Identifier: Apache-2.0
// direct_small_groups_simd.cpp: register tiles of small groups in NCHW16c, forward and
// backward_data. direct_small_groups_cpu.cpp calls them.
//
// Method     A tile is some pixels of a block, one vector of lanes after another. In step d, a lane
//            adds one channel of its group (source(l, d) in direct_small_groups_tiles.h). For each
//            step and kernel row r, the weights of up to three taps (r, s) stay in registers. Each
//            column of `in` is loaded and shuffled once, for the up to three pixels that read it.
// Cost       per pixel, step and row of a 3x3 kernel: 3 FMAs, 1 + 2 / pixels loads and as many
//            shuffles, none in step 0 (groups of 4: 9 FMAs, 3 loads, 2.3 shuffles for a row and 3
//            steps). With AVX-512 a shuffle uses a port of the FMAs, which leaves 78 % of the peak;
//            with AVX2 it does not. A block computed as 16 x 16 with zeros would need 4 times the
//            FMAs for groups of 4 and twice those for groups of 8, and NaN would pass from one
//            group to another.
// Choices    AVX-512: 14 pixels, a row of ResNet-like images. AVX2: 10 pixels; 3 vectors of
//            weights, the pixel and its indices also need registers, of 16. At least 7 accumulators
//            hide most of an FMA's 4 cycles.
// GCC 12 keeps an array on the stack when a loop without unrolling indexes it, so every loop over
// accumulators has an unroll pragma.
// Read next  direct_small_groups_tiles.h; direct_small_groups_cpu.cpp, the caller
#include "framework/simd/lane_exchange.h"
#include "layers/conv2d/direct_small_groups/cpu/direct_small_groups_tiles.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

constexpr int kPixels = kManyRegisters ? 14 : 10;
constexpr int kBlock = 16;

// The next four types load one column of `in`: unchanged, with lanes exchanged by a step known at
// run time or at compile time, or with one channel broadcast.
struct AsItIs {
  CONVSCOPE_INLINE Vec operator()(const float* in) const { return load(in); }
};
struct Exchanged {  // by a step that is known at run time
  Exchange exchange;
  CONVSCOPE_INLINE Vec operator()(const float* in) const { return exchange(load(in)); }
};
template <int Step>
struct ExchangedBy {
  CONVSCOPE_INLINE Vec operator()(const float* in) const { return exchanged(load(in), Step); }
};
struct Broadcast {
  CONVSCOPE_INLINE Vec operator()(const float* in) const { return broadcast(*in); }
};

// Returns the same pointer, hidden from the compiler, which would otherwise keep the columns of one
// step in registers for the next step and spill the accumulators.
CONVSCOPE_INLINE const float* anew(const float* p) {
  __asm__ volatile("" : "+r"(p));
  return p;
}

// Adds one step of one row of the kernel. With Checked, columns outside the image are skipped.
template <GroupForm Form, int Pixels, bool Checked, class Read>
CONVSCOPE_INLINE void add_columns(const GroupTile& tile, const GroupRun& run, const float* in,
                                  const float* w, const Read& read, Vec (&sums)[Pixels]) {
  constexpr int kTaps = taps_of(Form), kStride = stride_of(Form);
  constexpr int kColumns = (Pixels - 1) * kStride + kTaps;
  const Index step = kTaps == 1 ? tile.in_step : kBlock;
  in = anew(in);
  const float* base = in;  // address of three pixels; an x86 operand can add 0, 1 or 2 steps
  Vec weights[kTaps];
#pragma GCC unroll 3
  for (int t = 0; t < kTaps; ++t) weights[t] = load(w + t * tile.w_tap);
#pragma GCC unroll 32
  for (int c = 0; c < kColumns; ++c) {
    if (kTaps == 1 && c > 0 && c % 3 == 0) base += 3 * step;
    if (Checked && (kTaps == 1 || c < kTaps - 1) && c < run.first) continue;
    if (Checked && (kTaps == 1 || c >= kColumns - (kTaps - 1)) && c >= run.end) continue;
    const Vec value = read(kTaps == 1 ? base + c % 3 * step : in + c * step);
#pragma GCC unroll 3
    for (int t = 0; t < kTaps; ++t) {
      const int j = (c - t) / kStride;
      if (c < t || (c - t) % kStride != 0 || j >= Pixels) continue;
      sums[j] = fma(value, weights[t], sums[j]);
    }
  }
}

template <GroupForm Form, int Pixels, class Read>
CONVSCOPE_INLINE void add_step(const GroupTile& tile, const GroupRun& run, const float* in,
                               const float* w, const Read& read, Vec (&sums)[Pixels]) {
  // Only single taps have a version without border tests. With several taps only the outer columns
  // are tested, which takes no extra time because FMAs run in parallel.
  if (taps_of(Form) == 1 && run.first == 0 && run.end == Pixels) {
    return add_columns<Form, Pixels, false>(tile, run, in, w, read, sums);
  }
  add_columns<Form, Pixels, true>(tile, run, in, w, read, sums);
}

// Adds the steps of one row of the kernel.
template <GroupForm Form, int Pixels, bool Within>
CONVSCOPE_INLINE void add_steps(const GroupTile& tile, const GroupRun& run, const float* in,
                                const float* w, Vec (&sums)[Pixels]) {
  if constexpr (Within) {
    for (int d = tile.channels; d > 0; --d, ++in, w += tile.w_step) {
      add_step<Form, Pixels>(tile, run, in, w, Broadcast{}, sums);
    }
    return;
  }
  add_step<Form, Pixels>(tile, run, in, w, AsItIs{}, sums);
  if constexpr (kExchangedGroup <= 4) {
    add_step<Form, Pixels>(tile, run, in, w + tile.w_step, ExchangedBy<1>{}, sums);
    if (kExchangedGroup == 2 || tile.channels == 2) return;
    add_step<Form, Pixels>(tile, run, in, w + 2 * tile.w_step, ExchangedBy<2>{}, sums);
    add_step<Form, Pixels>(tile, run, in, w + 3 * tile.w_step, ExchangedBy<3>{}, sums);
  } else {
    for (int d = 1; d < tile.channels; ++d) {
      w += tile.w_step;
      add_step<Form, Pixels>(tile, run, in, w, Exchanged{Exchange(d)}, sums);
    }
  }
}

template <int Pixels>
CONVSCOPE_INLINE void store_sums(const GroupTile& tile, int lane, const Vec (&sums)[Pixels]) {
  float* const out = tile.out + lane;
  if (!tile.adds && !tile.relu && tile.residual == nullptr) {
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) store(out + j * tile.out_step, sums[j]);
    return;
  }
#pragma GCC unroll 16
  for (int j = 0; j < Pixels; ++j) {
    Vec sum = sums[j];
    const Index at = j * tile.out_step;
    if (tile.adds) sum = load(out + at) + sum;
    if (tile.residual != nullptr) sum = sum + load(tile.residual + lane + at);
    // NaN stays NaN, and -0 becomes 0.
    if (tile.relu) sum = bounded_relu(sum, broadcast(tile.most));
    store(out + at, sum);
  }
}

template <GroupForm Form, int Pixels, bool Within>
CONVSCOPE_INLINE void tile_sums(const GroupTile& tile) {
  const float* w = tile.w;
  for (int lane = 0; lane < kBlock; lane += kLanes, w += tile.w_vector) {
    const float* const in = tile.in + (Within ? lane & -tile.channels : lane);
    Vec sums[Pixels];
    const Vec start = tile.start == nullptr ? zero() : load(tile.start + lane);
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) sums[j] = start;
    for (int r = 0; r < tile.rows; ++r) {
      const GroupRow& row = tile.row[r];
      for (int i = 0; i < tile.runs; ++i) {
        const GroupRun& run = tile.run[i];
        add_steps<Form, Pixels, Within>(tile, run, in + row.in + run.in, w + row.w + run.w, sums);
      }
    }
    store_sums(tile, lane, sums);
  }
}

template <GroupForm Form, int Pixels>
void tile_of(const GroupTile& tile) {
  if constexpr (kExchangedGroup < 8) {
    if (tile.channels >= kLanes) return tile_sums<Form, Pixels, true>(tile);
  }
  if constexpr (kExchangedGroup > 1) tile_sums<Form, Pixels, false>(tile);
}

using TileFunction = void (*)(const GroupTile&);
template <GroupForm Form, int Pixels>
constexpr TileFunction entry() {
  if constexpr (Pixels <= kPixels) return tile_of<Form, Pixels>;
  return nullptr;
}
template <GroupForm F>
constexpr TileFunction kTiles[14] = {entry<F, 1>(),  entry<F, 2>(),  entry<F, 3>(),  entry<F, 4>(),
                                     entry<F, 5>(),  entry<F, 6>(),  entry<F, 7>(),  entry<F, 8>(),
                                     entry<F, 9>(),  entry<F, 10>(), entry<F, 11>(), entry<F, 12>(),
                                     entry<F, 13>(), entry<F, 14>()};

void tile(const GroupTile& tile, GroupForm form) {
  switch (form) {
    case GroupForm::single:
      return kTiles<GroupForm::single>[tile.pixels - 1](tile);
    case GroupForm::pair:
      return kTiles<GroupForm::pair>[tile.pixels - 1](tile);
    case GroupForm::triple:
      return kTiles<GroupForm::triple>[tile.pixels - 1](tile);
    case GroupForm::triple_by_two:
      return kTiles<GroupForm::triple_by_two>[tile.pixels - 1](tile);
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(group_kernels, (GroupKernels{.lanes = CONVSCOPE_ISA::kLanes,
                                                    .pixels = CONVSCOPE_ISA::kPixels,
                                                    .tile = CONVSCOPE_ISA::tile}))
