// SPDX-License-Identifier: Apache-2.0
// fft_cpu.cpp: convolution by Fourier transforms of tiles. A sum over R x S taps in the image
// becomes one complex product for each frequency.
//
// Formula    y[k] = F^-1 [ sum over c of F(x[c]) . conj F(w[k,c]) ] + b[k], tile by tile: T x T
//            inputs, 0 outside the image, give T - R + 1 x T - S + 1 outputs (other outputs would
//            need inputs outside of the tile, which F treats as periodic)
// Textbook   for each tile, k:  Y = 0                         # [T, T] complex
//              for each c:      Y += fft2(x_tile[c]) * conj(fft2(w[k,c], size=T))
//              y_tile[k] = real(ifft2(Y))[0 : T-R+1, 0 : T-S+1] + b[k]
// Method     Channels are in the lanes, so a transform is arithmetic on whole vectors. For each
//            block of tiles whose spectra fit in L3:
//            1. Rows: pixels are transposed into the lanes. Two real rows make one complex
//               transform. H keeps T/2 + 1 of its T bins; the others are conjugates.
//            2. Columns, for one pair of H's bins (frequency along the row) at a time, all in L2: V
//               = transforms of H's columns, U = transforms of W's columns. U is computed here, so
//               that the spectra of all kernels are never stored. For each frequency along the
//               column, V times U is summed over channels. G = the inverse transform of these sums.
//            3. G's rows are transformed back; the valid pixels are transposed to rows of y.
//            W = spectra of the kernels' rows, made before the call (prepare_weights). A complex
//            product is three real products (fft_kernels.h), so a register tile is 9 tiles x 16
//            channels x 3 accumulators.
//            backward_weight: step 2 multiplies x and dy and sums over tiles. The sums are
//            transformed to rows of kernels and added up block by block. Threads share tiles in
//            steps 1 and 3, and pairs in step 2. Depthwise: fft_depthwise.cpp.
// Shapes     x [N,C,H,W], w [K,C/G,R,S], y [N,K,P,Q], f32 row-major, any alignment; H [T/2, C/L,
//            tiles, rows, 2, L], V [3 T, C/L, tiles, L], U [2 T, C, L], L lanes, 64-byte aligned
// Supports   f32; stride 1, dilation 1; kernels from 2 taps to 48x48; every padding; groups of
//            one channel and one kernel (depthwise), or of at least 4 kernels' planes
// Cost       FLOPs = 2 * 3/2 T^2 tiles K C/G in products and about 4 T^2 log2(T) for each tile and
//            channel of x and of y; bytes = the three tensors once; workspace = H + G, and
//            V + U + M for each thread; compute-bound
// Numerics   a transform of T^2 numbers has an rms error of about 0.3 eps sqrt(log2 T^2) times the
//            rms of the numbers (Gentleman & Sande 1966), so an output has an error of about 0.3
//            eps sqrt(log2 T^2) |x| |w| (root of the sum of squares over tile and kernel, and over
//            channels). All outputs of a tile have the same absolute error. Relative to the tests'
//            bound the error is largest for one channel and few taps: 1.9 in problems made for it,
//            1.1 over random ones. Sums over channels and tiles are split into chains
//            (framework/simd/sum_chain.h). On data of one sign the error reaches 6.5, and
//            error_growth is 8. On equal numbers it reaches 22 eps (Algorithm::worst_growth()
//            allows 85). Same bits on each run and for any number of threads. Not exact on
//            integers. A NaN spreads over its tile.
// Backward   dx = F^-1 [ sum over k of F(dy) . F(w) ], whose valid outputs begin at R - 1, S - 1;
//            dw = F^-1 [ sum over tiles of F(x) . conj F(dy) ] [0:R, 0:S], assigned or added to
// Choices    lengths: see lengths_of(). A block's H + G = 4 MiB of L3, at least 27 tiles
// Source     M. Mathieu, M. Henaff, Y. LeCun: Fast Training of Convolutional Networks through FFTs,
//            2014, arXiv 1312.5851; N. Vasilache et al. 2015, arXiv 1412.7580 (tiles); J. Cooley,
//            J. Tukey 1965; three products: Gauss, in Knuth, The Art of Computer Programming 4.6.4.
//            Unlike in these papers, the spectra of the kernels are computed column by column.
// Read next  winograd_cpu.cpp, a similar transform with polynomials over real points;
//            fft_simd.cpp, the transforms
#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/fft/cpu/fft_depthwise.h"
#include "layers/conv2d/fft/cpu/fft_plan.h"
#include "layers/conv2d/shared/kept_plans.h"

namespace convscope {

constinit IsaTable<FftKernels> fft_kernels;

namespace {

using fft::FftTiling;
using fft::Index;
using fft::Tile;

// The transforms of rows and the inverse transforms, which all directions share.
class Passes {
 protected:
  Passes(const FftTiling& plan, void* workspace)
      : plan_(plan),
        z_(plan.z),
        kernels_(point_kernels.get()),
        fft_(fft_kernels.get()),
        rows_(fft_.lengths[plan.columns.kernels]),  // rows_ transforms along a row
        columns_(fft_.lengths[plan.rows.kernels]),
        h_(static_cast<float*>(workspace)),
        g_(h_ + plan.pairs() * plan.in_pair()),
        own_(h_ + plan.shared_floats()) {}

  float* own(int thread) const { return own_ + thread * plan_.thread_floats(); }
  Index lanes_of(Index block, Index channels) const {
    return std::min(plan_.lanes, channels - block * plan_.lanes);
  }
  Index first_tile(Index block) const { return block * plan_.block_tiles; }
  Index tiles_of(Index block) const {
    return std::min(plan_.block_tiles, plan_.tiles() - first_tile(block));
  }

  // Step 1: computes the spectra [pairs, channels/L, tiles, rows, 2, L] of the tiles of a block.
  // The function reads a window of `rows` x `columns` pixels for each tile, in the planes [h, w] of
  // one group's channels. The window of a tile at [row, column] begins at pixel
  // [row + top, column + left].
  struct Source {
    const float* data;
    Index channels, h, w, top, left, rows, columns;
    float scale;
    float* to;
    Index pair_step;
  };
  void transform_rows(const Source& source, Index g, Index block) const {
    const Index lanes = plan_.lanes;
    const Index blocks = ceil_div(source.channels, lanes);
    parallel_chunks(tiles_of(block), [&](Index place, int thread) {
      const Tile tile(plan_, first_tile(block) + place);
      float* const panel = own(thread);  // [rows, columns, L]
      for (Index c = 0; c < blocks; ++c) {
        const Index plane = (tile.image * z_.groups + g) * source.channels + c * lanes;
        Planes{source.h, source.w}.read(
            kernels_, source.data + plane * source.h * source.w, lanes_of(c, source.channels),
            tile.row + source.top, tile.column + source.left, source.rows, source.columns, panel);
        FftRows rows;
        rows.rows = static_cast<int>(source.rows);
        rows.columns = static_cast<int>(source.columns);
        rows.from = panel;
        rows.from_row = source.columns * lanes;
        rows.scale = source.scale;
        rows.to = source.to + (c * plan_.block_tiles + place) * source.rows * 2 * lanes;
        rows.pair_step = source.pair_step;
        rows_.rows(rows);
      }
    });
  }

  // Returns the arguments that transform `count` columns of one pair.
  FftColumns column_of(Index pair, Index count) const {
    FftColumns columns;
    columns.two_real = pair == 0;
    columns.count = count;
    columns.to_step = plan_.lanes;
    return columns;
  }
  void transform_columns(const float* spectra, Index blocks, Index rows, FftColumns columns,
                         void (*transform)(const FftColumns&)) const {
    float* const to = columns.to;
    columns.rows = static_cast<int>(rows);
    columns.from_step = rows * 2 * plan_.lanes;
    for (Index c = 0; c < blocks; ++c) {
      columns.from = spectra + c * plan_.block_tiles * columns.from_step;
      columns.to = to + c * plan_.block_tiles * plan_.lanes;
      transform(columns);
    }
  }

  // Tells whether the two points of a row are real: true for rows 0 and T / 2 of pair 0, which
  // holds two real columns.
  bool is_real(Index pair, Index row) const {
    return pair == 0 && (row == 0 || 2 * row == plan_.rows.length);
  }

  const FftTiling& plan_;
  const Conv2dProblem& z_;
  const PointKernels& kernels_;
  const FftKernels& fft_;
  const FftLength& rows_;
  const FftLength& columns_;
  float* const h_;
  float* const g_;
  float* const own_;
};

// ---- weights: spectra of the kernels' rows -----------------------------------------------------

// Computes W of group g: [pairs, channels/L, depth, R, 2, L].
void transform_kernel_rows(const FftTiling& plan, const float* w, Index g, float* spectra,
                           float* workspace) {
  const PointKernels& kernels = point_kernels.get();
  const Conv2dProblem& z = plan.z;
  const Index lanes = plan.lanes;
  const Index taps = z.r * z.s;
  const Index pieces = ceil_div(plan.depth, fft::kKernelsAtOnce);
  parallel_chunks(plan.channel_blocks * pieces, [&](Index chunk, int thread) {
    const Index k = chunk / pieces;
    const Index first = k * lanes;
    const Index begin = chunk % pieces * fft::kKernelsAtOnce;
    const Index end = std::min(begin + fft::kKernelsAtOnce, plan.depth);
    const auto width = static_cast<int>(std::min(lanes, plan.channels - first));
    float* const panel = workspace + thread * plan.thread_floats();  // [depth, R, S, L]
    if (plan.forward) {
      kernels.gather(w + ((g * plan.channels + first) * plan.depth + begin) * taps,
                     plan.depth * taps, (end - begin) * taps, width, panel);
    }
    for (Index c = begin; c < end; ++c) {
      float* const one = panel + (c - begin) * taps * lanes;
      if (!plan.forward) {
        kernels.gather(w + ((g * plan.depth + c) * plan.channels + first) * taps, taps, taps, width,
                       one);
      }
      FftRows rows;
      rows.rows = static_cast<int>(z.r);
      rows.columns = static_cast<int>(z.s);
      rows.from = one;
      rows.from_row = z.s * lanes;
      rows.scale = plan.scale();
      rows.to = spectra + (k * plan.depth + c) * z.r * 2 * lanes;
      rows.pair_step = plan.weight_pair();
      fft_kernels.get().lengths[plan.columns.kernels].rows(rows);
    }
  });
}

std::size_t prepared_bytes(const Conv2dProblem& z, Direction direction) {
  const FftTiling plan(z, direction);
  if (plan.depthwise) return fft::depthwise_prepared_bytes(plan);
  return static_cast<std::size_t>(z.groups * plan.weight_floats()) * sizeof(float);
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  const FftTiling plan(args.problem, args.direction);
  const auto* const w = static_cast<const float*>(args.w);
  auto* const prepared = static_cast<float*>(args.prepared);
  auto* const workspace = static_cast<float*>(args.workspace);
  if (plan.depthwise) return fft::depthwise_prepare(plan, w, prepared, workspace);
  for (Index g = 0; g < args.problem.groups; ++g) {
    transform_kernel_rows(plan, w, g, prepared + g * plan.weight_floats(), workspace);
  }
}

// ---- forward and backward_data: from `in` to `out` ---------------------------------------------

class FftPass : private Passes {
 public:
  FftPass(const FftTiling& plan, const DataPass& data)
      : Passes(plan, data.workspace), data_(data) {}

  void run() const {
    const Source source{data_.in,  plan_.depth, plan_.in_h,     plan_.in_w,
                        plan_.top, plan_.left,  plan_.rows.in,  plan_.columns.in,
                        1.0f,      h_,          plan_.in_pair()};
    for (Index g = 0; g < z_.groups; ++g) {
      for (Index block = 0; block < plan_.blocks; ++block) {
        transform_rows(source, g, block);
        parallel_chunks(plan_.pairs(), [&](Index pair, int thread) {
          multiply(g, pair, tiles_of(block), own(thread));
        });
        transform_rows_back(g, block);
      }
    }
  }

 private:
  // Step 2 of one pair: computes V. Then, for L output channels at a time, computes U, the product
  // M = V U, and the inverse transform of M.
  void multiply(Index g, Index pair, Index count, float* v) const {
    const Index lanes = plan_.lanes;
    float* const u = v + 3 * plan_.rows.length * plan_.v_point();
    float* const m = u + 2 * plan_.rows.length * plan_.u_point();
    FftColumns columns = column_of(pair, count);
    columns.to = v;
    columns.point_step = plan_.v_point();
    transform_columns(h_ + pair * plan_.in_pair(), plan_.depth_blocks, plan_.rows.in, columns,
                      columns_.data_columns);
    for (Index k = 0; k < plan_.channel_blocks; ++k) {
      FftColumns kernel = column_of(pair, plan_.depth);
      kernel.conjugate = plan_.forward;
      kernel.rows = static_cast<int>(z_.r);
      kernel.from_step = z_.r * 2 * lanes;
      kernel.from = data_.prepared + g * plan_.weight_floats() + pair * plan_.weight_pair() +
                    k * plan_.depth * kernel.from_step;
      kernel.to = u;
      kernel.point_step = plan_.u_point();
      columns_.kernel_columns(kernel);
      for (Index row = 0; row < plan_.rows.length; ++row) {
        multiply_row(v + 3 * row * plan_.v_point(), u + 2 * row * plan_.u_point(), count,
                     is_real(pair, row), m + 2 * row * plan_.m_point());
      }
      FftColumnsBack back;
      back.first = static_cast<int>(plan_.forward ? 0 : z_.r - 1);
      back.rows = static_cast<int>(plan_.rows.out);
      back.two_real = pair == 0;
      back.count = count;
      back.from = m;
      back.from_step = lanes;
      back.point_step = plan_.m_point();
      back.to_step = plan_.rows.out * 2 * lanes;
      back.to = g_ + pair * plan_.out_pair() + k * plan_.block_tiles * back.to_step;
      columns_.columns_back(back);
    }
  }

  // Computes m [2, tiles, L] = v [3, C/L, tiles, L] u [2, C, L]. With `real` the two points are
  // multiplied separately, as real numbers.
  void multiply_row(const float* v, const float* u, Index count, bool real, float* m) const {
    const Index block_step = plan_.block_tiles * plan_.lanes;
    const RowTiles tiles(count, real ? kernels_.rows : fft_.rows);
    for (Index t = 0; t < tiles.tiles; ++t) {
      const Index first = tiles.begin(t) * plan_.lanes;
      for (Index part = 0; real && part < 2; ++part) {
        kernels_.product({.rows = tiles.height(t),
                          .vectors = 1,
                          .depth = plan_.depth,
                          .v = v + part * plan_.v_point() + first,
                          .block_step = block_step,
                          .u = u + part * plan_.u_point(),
                          .out = m + part * plan_.m_point() + first,
                          .out_step = 0});
      }
      if (real) continue;
      fft_.product({.rows = tiles.height(t),
                    .depth = plan_.depth,
                    .v = v + first,
                    .v_point = plan_.v_point(),
                    .block_step = block_step,
                    .u = u,
                    .u_point = plan_.u_point(),
                    .out = m + first,
                    .out_point = plan_.m_point()});
    }
  }

  // Step 3: the inverse transform of rows.
  void transform_rows_back(Index g, Index block) const {
    const Index lanes = plan_.lanes;
    const Index plane = plan_.out_h * plan_.out_w;
    parallel_chunks(tiles_of(block), [&](Index place, int thread) {
      const Tile tile(plan_, first_tile(block) + place);
      const Index height = std::min(plan_.rows.out, plan_.out_h - tile.row);
      const Index width = std::min(plan_.columns.out, plan_.out_w - tile.column);
      float* const panel = own(thread);  // [rows, columns, L]
      for (Index k = 0; k < plan_.channel_blocks; ++k) {
        const Index channel = g * plan_.channels + k * lanes;
        FftRowsBack rows;
        rows.rows = static_cast<int>(height);
        rows.first = static_cast<int>(plan_.forward ? 0 : z_.s - 1);
        rows.columns = static_cast<int>(width);
        rows.from = g_ + (k * plan_.block_tiles + place) * plan_.rows.out * 2 * lanes;
        rows.pair_step = plan_.out_pair();
        rows.to = panel;
        rows.to_row = plan_.columns.out * lanes;
        rows.bias = data_.b == nullptr ? nullptr : data_.b + channel;
        rows.lanes = static_cast<int>(lanes_of(k, plan_.channels));
        rows_.rows_back(rows);
        float* const to = data_.out + (tile.image * z_.groups * plan_.channels + channel) * plane +
                          tile.row * plan_.out_w + tile.column;
        for (Index i = 0; i < height; ++i) {
          kernels_.scatter(panel + i * rows.to_row, width, rows.lanes, to + i * plan_.out_w, plane);
          data_.epilogue.finish(to + i * plan_.out_w, rows.lanes, width, plane);
        }
      }
    });
  }

  const DataPass data_;  // data_.prepared: the spectra of the kernels' rows
};

// ---- backward_weight ---------------------------------------------------------------------------

class WeightGradient : private Passes {
 public:
  WeightGradient(const FftTiling& plan, const Conv2dBackwardWeightArgs& args)
      : Passes(plan, args.workspace),
        x_(static_cast<const float*>(args.x)),
        dy_(static_cast<const float*>(args.dy)),
        dw_(static_cast<float*>(args.dw)),
        accumulate_(args.accumulate),
        w_rows_(g_ + plan.pairs() * plan.out_pair()) {}

  void run() const {
    const Source x{x_,        plan_.depth, plan_.in_h,     plan_.in_w,
                   plan_.top, plan_.left,  plan_.rows.in,  plan_.columns.in,
                   1.0f,      h_,          plan_.in_pair()};
    const Source dy{dy_,
                    plan_.channels,
                    plan_.out_h,
                    plan_.out_w,
                    0,
                    0,
                    plan_.rows.out,
                    plan_.columns.out,
                    plan_.scale(),
                    g_,
                    plan_.out_pair()};
    for (Index g = 0; g < z_.groups; ++g) {
      for (Index block = 0; block < plan_.blocks; ++block) {
        transform_rows(x, g, block);
        transform_rows(dy, g, block);
        parallel_chunks(plan_.pairs(), [&](Index pair, int thread) {
          sum(pair, tiles_of(block), block > 0, own(thread));
        });
      }
      write_kernels(g);
    }
  }

 private:
  // Step 2 of one pair: computes V of x and dy. Then, for some output channels at a time, sums the
  // products over the block's tiles and transforms the sums back to rows of kernels.
  void sum(Index pair, Index count, bool accumulate, float* v) const {
    const Index lanes = plan_.lanes;
    float* const v_dy = v + 3 * plan_.rows.length * plan_.v_point();
    float* const sums = v_dy + 2 * plan_.rows.length * plan_.u_point();
    FftColumns columns = column_of(pair, count);
    columns.to = v;
    columns.point_step = plan_.v_point();
    transform_columns(h_ + pair * plan_.in_pair(), plan_.depth_blocks, plan_.rows.in, columns,
                      columns_.data_columns);
    columns.to = v_dy;
    columns.point_step = plan_.u_point();
    columns.conjugate = true;
    transform_columns(g_ + pair * plan_.out_pair(), plan_.channel_blocks, plan_.rows.out, columns,
                      columns_.kernel_columns);
    for (Index k = 0; k < plan_.channel_blocks; ++k) {
      for (Index row = 0; row < plan_.rows.length; ++row) {
        sum_row(v + 3 * row * plan_.v_point(),
                v_dy + 2 * row * plan_.u_point() + k * plan_.block_tiles * lanes, count,
                is_real(pair, row), sums + 2 * row * plan_.m_point());
      }
      FftColumnsBack back;
      back.rows = static_cast<int>(z_.r);
      back.two_real = pair == 0;
      back.accumulate = accumulate;
      back.count = plan_.depth;
      back.from = sums;
      back.from_step = lanes;
      back.point_step = plan_.m_point();
      back.to_step = z_.r * 2 * lanes;
      back.to = w_rows_ + pair * plan_.weight_pair() + k * plan_.depth_padded() * back.to_step;
      columns_.columns_back(back);
    }
  }

  // Computes sums [2, C, L] = v [3, C/L, tiles, L] dy [2, tiles, L]. With `real` the two points are
  // summed separately, as real numbers.
  void sum_row(const float* v, const float* dy, Index count, bool real, float* sums) const {
    const Index lanes = plan_.lanes;
    const Index step = real ? kernels_.sum_rows : fft_.sum_rows;
    for (Index c = 0; c < plan_.depth; c += step) {
      const float* const x = v + c / lanes * plan_.block_tiles * lanes + c % lanes;
      for (Index part = 0; real && part < 2; ++part) {
        kernels_.sum({.vectors = 1,
                      .accumulate = false,
                      .depth = count,
                      .x = x + part * plan_.v_point(),
                      .dy = dy + part * plan_.u_point(),
                      .dy_step = 0,
                      .out = sums + part * plan_.m_point() + c * lanes,
                      .out_step = 0});
      }
      if (real) continue;
      fft_.sum({.rows = fft_.sum_rows,
                .depth = count,
                .v = x,
                .v_point = plan_.v_point(),
                .block_step = 0,
                .u = dy,
                .u_point = plan_.u_point(),
                .out = sums + c * lanes,
                .out_point = plan_.m_point()});
    }
  }

  // Computes dw of one group from its kernels' rows.
  void write_kernels(Index g) const {
    const Index lanes = plan_.lanes;
    const Index taps = z_.r * z_.s;
    const Index pieces = ceil_div(plan_.depth, fft::kKernelsAtOnce);
    parallel_chunks(plan_.channel_blocks * pieces, [&](Index chunk, int thread) {
      const Index k = chunk / pieces;
      const Index begin = chunk % pieces * fft::kKernelsAtOnce;
      const Index end = std::min(begin + fft::kKernelsAtOnce, plan_.depth);
      const auto width = static_cast<int>(lanes_of(k, plan_.channels));
      const Index kernel = plan_.depth * taps;
      float* const to = dw_ + (g * plan_.channels + k * lanes) * kernel + begin * taps;
      float* const panel = own(thread);  // [depth, R, S, L]
      if (accumulate_) kernels_.gather(to, kernel, (end - begin) * taps, width, panel);
      for (Index c = begin; c < end; ++c) {
        FftRowsBack rows;
        rows.rows = static_cast<int>(z_.r);
        rows.columns = static_cast<int>(z_.s);
        rows.from = w_rows_ + (k * plan_.depth_padded() + c) * z_.r * 2 * lanes;
        rows.pair_step = plan_.weight_pair();
        rows.to = panel + (c - begin) * taps * lanes;
        rows.to_row = z_.s * lanes;
        rows.accumulate = accumulate_;
        rows_.rows_back(rows);
      }
      kernels_.scatter(panel, (end - begin) * taps, width, to, kernel);
    });
  }

  const float* const x_;
  const float* const dy_;
  float* const dw_;
  const bool accumulate_;
  float* const w_rows_;  // spectra of dw's rows
};

// ---- the three directions ----------------------------------------------------------------------

void forward(const Conv2dForwardArgs& args) {
  const FftTiling plan(args.problem, Direction::forward);
  if (plan.depthwise) return fft::depthwise_pass(plan, DataPass(args));
  FftPass(plan, DataPass(args)).run();
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const FftTiling plan(args.problem, Direction::backward_data);
  if (plan.depthwise) return fft::depthwise_pass(plan, DataPass(args));
  FftPass(plan, DataPass(args)).run();
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const FftTiling plan(args.problem, Direction::backward_weight);
  if (plan.depthwise) return fft::depthwise_weights(plan, args);
  WeightGradient(plan, args).run();
}

// ---- algorithm
// --------------------------------------------------------------------------------------

constexpr Index kLargestKernel = 48;

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  const auto no = [](const auto&... words) { return Conv2dSupport::no(cat(words...)); };
  if (z.dtype != DType::f32) return no("expects elements of type f32, got ", name_of(z.dtype));
  if (z.r * z.s == 1) return no("expects a kernel of more than one tap, got 1x1");
  if (z.r > kLargestKernel || z.s > kLargestKernel) {
    return no("expects a kernel of at most ", kLargestKernel, "x", kLargestKernel,
              ", because tiles are 64x64, got ", z.r, "x", z.s);
  }
  if (z.stride_h != 1 || z.stride_w != 1) {
    return no("expects stride 1, got ", z.stride_h, "x", z.stride_w);
  }
  if (z.dilation_h != 1 || z.dilation_w != 1) {
    return no("expects dilation 1, got ", z.dilation_h, "x", z.dilation_w);
  }
  const Index planes = z.c_per_group() * z.k_per_group();
  if (z.groups > 1 && (planes == 2 || planes == 3)) {
    return no("expects groups of one channel and one kernel or of at least 4 kernels' planes, got ",
              z.c_per_group(), "x", z.k_per_group());
  }
  return {};
}

Conv2dCost counts_of(const FftTiling& plan) {
  const fft::FftCounts n = plan.counts();
  return {.flops = plan.flops(),
          .bytes = plan.z.nominal_bytes(),
          .issued = n.products,
          .transposed = n.pixels,
          .transformed = n.transforms,
          .cached = n.spectra * sizeof(float),
          .prepared = n.weights,
          .regions = number(3 * plan.blocks * (plan.depthwise ? 1 : plan.z.groups)),
          .schedule = plan.depthwise ? "depthwise" : ""};
}

Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  return counts_of(FftTiling(z, direction));
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  const FftTiling plan(z, direction);
  if (plan.depthwise) return fft::depthwise_bytes(plan);
  return static_cast<std::size_t>(plan.shared_floats() + num_threads() * plan.thread_floats()) *
         sizeof(float);
}

const Conv2dAlgorithm kAlgorithm{
    .name = "fft",
    .device = DeviceType::cpu,
    .idea = "Fourier transforms of tiles: one complex product instead of R x S taps",
    .paper =
        "Mathieu, Henaff, LeCun 2014: Fast Training of Convolutional Networks through FFTs, "
        "arXiv 1312.5851",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 8,
    .exact_on_integers = false,
    .fuses_epilogue = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace

fft::FftLengths fft::lengths_of(const Conv2dProblem& z, Direction direction) {
  static KeptPlans<FftLengths> kept;
  return *kept.get(z, direction, [&] {
    Cheapest<FftLengths> best({"conv2d", "fft", direction}, DeviceType::cpu, z.dtype);
    for (int down = 0; down < kFftLengthCount; ++down) {
      if (kFftLengths[down] < z.r) continue;
      for (int across = 0; across < kFftLengthCount; ++across) {
        if (kFftLengths[across] < z.s) continue;
        const FftLengths lengths{down, across};
        best.offer(lengths, counts_of(FftTiling(z, direction, lengths)));
      }
    }
    return best.found();
  });
}

}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
