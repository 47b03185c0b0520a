// SPDX-License-Identifier: Apache-2.0
// winograd_cpu.cpp: 3x3 convolution by Winograd's F(m x m, 3x3) for m = 2, 4 and 6: m m outputs of
// a channel pair from (m + 2)^2 multiplications instead of 9 m m, through transforms of inputs,
// kernels and outputs.
//
// Formula    y[k] = A^T [ sum over c of (G w[k,c] G^T) . (B^T x[c] B) ] A, tile by tile: m x m
//            outputs from the T x T inputs around them, T = m + 2, 0 outside the image;
//            winograd_matrices.h defines A, B, G. For m = 2 in one dimension, in full:
//              m1 = (d0 - d2) g0                     y0 = m1 + m2 + m3
//              m2 = (d1 + d2) (g0 + g1 + g2) / 2     y1 = m2 - m3 + m4
//              m3 = (d2 - d1) (g0 - g1 + g2) / 2     4 multiplications, where
//              m4 = (d3 - d1) g2                     y0 = d0 g0 + d1 g1 + d2 g2,
//                                                    y1 = d1 g0 + d2 g1 + d3 g2 take 6
// Textbook   for each tile, k:  M[T,T] = 0
//              for each c:      M += (G * w[k,c] * G^T) . (B^T * x_tile[c] * B)   # elementwise
//              y_tile[k] = A^T * M * A + b[k]
// Method     The sum over c at each of the P = T T points is a separate matrix product: [tiles, C]
//            times [C, K]. U = G w G^T is made before the call (prepare_weights). The call works on
//            one block of tiles at a time. It moves 16 channels of T rows into the lanes (panel,
//            L1) and transforms them to V (L2). P products of register tiles with U make M (L2). M
//            is transformed and moved back to rows of y. No intermediate has the size of a tensor.
//            In layout NCHW16c (layers/dispatch/activation_layout.h) nothing is moved: the
//            transforms read x in place and store finished pixels of y (PixelView). U, the products
//            and all bits are the same. With U above 4 MiB, the call first makes V of up to 4 MiB,
//            then computes 32 output channels at a time. With more than 16 tiles, or when w is used
//            for one call only, each 32 channels of U are made in the call, used for all tiles of V
//            and discarded: they are never written to memory. backward_weight:
//            winograd_weights.cpp. Threads take blocks of tiles, or panels of output channels, or
//            in backward_weight (point, output channels). The cuts depend on the problem only.
// Shapes     x [N,C,H,W], w [K,C/G,3,3], y [N,K,P,Q], f32 row-major or x and y in NCHW16c (groups
//            of a multiple of 16 channels), any alignment; V [P, C/L, tiles, L], U [P, K/2L, C,
//            2L], M [P, K/L, tiles, L], L lanes, 64-byte aligned
// Supports   f32; kernel 3x3, stride 1, dilation 1; every padding; groups of at least 4 kernels'
//            planes (C/G K/G >= 4)
// Cost       FLOPs = 2 P tiles K C/G, plus for m = 4 about 400 cycles for each tile and 16 channels
//            of x, 340 of y, a third less in NCHW16c; bytes = the three tensors once; workspace = U
//            or V, and V or U + M for each thread; compute-bound
// Numerics   Each transform adds and subtracts terms larger than their result. In one dimension a
//            rounding error may grow by ||A^T|| ||G|| ||B^T|| (largest row sums), in two dimensions
//            by the square of that. Errors of random sign stay far below this worst case. The table
//            has the largest measured error in units of the tests' bound, the largest growth g on
//            any data, and the error on equal values in eps:
//              m    ||A^T|| ||G|| ||B^T||   measured             error_growth   g      equal values
//              2    3 * 1.5 * 2             1.2                  16             25     15
//              4    7.4 * 1.5 * 5.1         5.9, 2,000 problems  16             214    62
//              6    67 * 1.2 * 15           51 with one channel  128            1730   24
//            g is the square of the sum over j of the largest |A||G||B| of all pairs of a pixel and
//            a tap that are j apart. No pixel reaches the maximum in all pairs: for m = 4
//            worst_growth() allows 184. For m = 2, 7.9 was measured where roundings have random
//            signs, so its error_growth is twice the bound of chains, 8
//            (framework/simd/sum_chain.h). For m = 6, 38 was measured over 120 random problems and
//            15 with 64 channels; A contains the fifth power of the point 2. g is relative
//            to the largest of x times the sum over |w|, because products that belong to
//            no output cancel in A^T. Same bits on each run and for any number of threads. Not
//            exact on integers: for m = 4 sqrt(2) is irrational, and for m = 2 sums of quarters may
//            round. A NaN spreads over its tile.
// Backward   dx = the same with dy, padding 2 - pad and w flipped and transposed, assigned;
//            dw = G^T [sum over tiles of (A dy A^T) . (B^T x B)] G, assigned or added to
// Choices    winograd_plan.h: V + M of a block are 640 KB of L2; at least 28 tiles = 2 register
//            tiles. `auto` does not choose m = 6: 64/36 products for an output, compared with
//            36/16, are 21 % less at best. Outputs beyond the image (60 rows for 56) and the larger
//            transforms reduce this gain. Only 64 channels on 224x224 gained more than 5 % (8 to 10
//            %)
// Source     S. Winograd: Arithmetic Complexity of Computations, 1980; A. Lavin, S. Gray: Fast
//            Algorithms for Convolutional Neural Networks, 2015, arXiv 1509.09308; points: S. A.
//            Alam et al. 2022, arXiv 2201.10369, and ncnn; B. Barabasz et al. 2018, arXiv
//            1803.10986, on the error of larger tiles
// Read next  winograd_matrices.h, which derives the matrices; winograd_simd.cpp, the transforms;
//            winograd_weights.cpp, dw; direct_cpu.cpp, the same sums one by one
#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/counts.h"
#include "layers/conv2d/shared/data_pass.h"
#include "layers/conv2d/shared/nchw16c_support.h"
#include "layers/conv2d/winograd/cpu/winograd_kernels.h"
#include "layers/conv2d/winograd/cpu/winograd_plan.h"

namespace convscope {

constinit IsaTable<WinogradKernels> winograd_kernels;

namespace winograd {
namespace {

// ---- weights: U = G w G^T ----------------------------------------------------------------------

// Returns how many vectors of output channels a panel has.
Index vectors_of(const WinogradTiling& pass, Index panel) {
  const Index most = point_kernels.get().vectors;
  return std::min(most, pass.channel_blocks - panel * most);
}

// Transforms the output channels in the lanes of `block` into their panel u [points, channels,
// vectors, L]. `taps` is memory for kKernelsAtOnce kernels in lanes.
void transform_weights(const WinogradTiling& pass, const float* w, Index g, Index block, float* u,
                       float* taps) {
  const PointKernels& kernels = point_kernels.get();
  const auto lanes = static_cast<int>(std::min(pass.lanes, pass.channels - block * pass.lanes));
  const Index first = block * pass.lanes;
  const Index width = vectors_of(pass, block / kernels.vectors) * pass.lanes;
  u += block % kernels.vectors * pass.lanes;
  for (Index c = 0; c < pass.depth; c += kKernelsAtOnce) {
    const Index count = std::min(kKernelsAtOnce, pass.depth - c);
    if (pass.forward) {
      kernels.gather(w + ((g * pass.channels + first) * pass.depth + c) * 9, pass.depth * 9,
                     count * 9, lanes, taps);
    } else {
      for (Index i = 0; i < count; ++i) {
        kernels.gather(w + ((g * pass.depth + c + i) * pass.channels + first) * 9, 9, 9, lanes,
                       taps + i * 9 * pass.lanes);
      }
    }
    winograd_transforms(pass.tiling.size)
        .weights(taps, !pass.forward, count, u + c * width, width, pass.u_point);
  }
}

// ---- forward and backward_data: one pass from `in` to `out` ------------------------------------

class WinogradPass {
 public:
  WinogradPass(const WinogradTiling& pass, const DataPass& data)
      : pass_(pass),
        z_(pass.z),
        tiling_(pass.tiling),
        kernels_(point_kernels.get()),
        transforms_(winograd_transforms(tiling_.size)),
        data_(data),
        own_(data.workspace + odd_lines(pass.shared_floats())) {}

  void run() const {
    if (pass_.by_panels) return run_by_panels();
    // Takes blocks of tiles from input to output.
    parallel_chunks(z_.groups * pass_.blocks, [&](Index chunk, int thread) {
      const Index g = chunk / pass_.blocks;
      const Index block = chunk % pass_.blocks;
      const Index begin = block * pass_.block_strips;
      const Index end = std::min(begin + pass_.block_strips, tiling_.strips);
      float* const v = own(thread);
      float* const m = v + pass_.v_floats();
      float* const scratch = scratch_of(thread);
      for (Index strip = begin; strip < end; ++strip) {
        for (Index c = 0; c < pass_.depth_blocks; ++c) {
          transform_input(g, c, strip, strip - begin, v, scratch);
        }
      }
      for (Index point = 0; point < tiling_.points; ++point) {
        for (Index panel = 0; panel < pass_.panels; ++panel) {
          const Index k = panel * kernels_.vectors;
          multiply(v + point * pass_.v_point,
                   data_.prepared + pass_.u_at(g, panel) + point * pass_.u_point,
                   vectors_of(pass_, panel), (end - begin) * tiling_.across,
                   m + point * pass_.m_point + k * pass_.block_tiles * pass_.lanes);
        }
      }
      for (Index strip = begin; strip < end; ++strip) {
        for (Index k = 0; k < pass_.channel_blocks; ++k) {
          transform_output(g, k, strip, strip - begin, m + k * pass_.block_tiles * pass_.lanes,
                           scratch);
        }
      }
    });
  }

 private:
  float* own(int thread) const { return own_ + thread * pass_.thread_floats(); }
  float* scratch_of(int thread) const {
    return own(thread) + (pass_.by_panels ? pass_.u_thread_floats() : pass_.v_floats()) +
           pass_.m_floats();
  }
  Index lanes_of(Index block, Index channels) const {
    return std::min(pass_.lanes, channels - block * pass_.lanes);
  }

  // Computes V of many tiles. Then computes one panel of output channels after another, from U to
  // the output.
  void run_by_panels() const {
    float* const v = data_.workspace;  // shared by all threads
    for (Index job = 0; job < z_.groups * pass_.blocks; ++job) {
      const Index g = job / pass_.blocks;
      const Index begin = job % pass_.blocks * pass_.block_strips;
      const Index end = std::min(begin + pass_.block_strips, tiling_.strips);
      parallel_chunks((end - begin) * pass_.depth_blocks, [&](Index chunk, int thread) {
        const Index strip = chunk / pass_.depth_blocks;
        transform_input(g, chunk % pass_.depth_blocks, begin + strip, strip, v, scratch_of(thread));
      });
      parallel_chunks(pass_.panels, [&](Index panel, int thread) {
        const float* u = nullptr;
        float* const m = own(thread) + pass_.u_thread_floats();
        float* const scratch = scratch_of(thread);
        const Index vectors = vectors_of(pass_, panel);
        if (data_.prepared == nullptr) {
          for (Index i = 0; i < vectors; ++i) {
            transform_weights(pass_, data_.w, g, panel * kernels_.vectors + i, own(thread),
                              scratch);
          }
          u = own(thread);
        } else {
          u = data_.prepared + pass_.u_at(g, panel);
        }
        for (Index point = 0; point < tiling_.points; ++point) {
          multiply(v + point * pass_.v_point, u + point * pass_.u_point, vectors,
                   (end - begin) * tiling_.across, m + point * pass_.m_point);
        }
        for (Index strip = begin; strip < end; ++strip) {
          for (Index i = 0; i < vectors; ++i) {
            transform_output(g, panel * kernels_.vectors + i, strip, strip - begin,
                             m + i * pass_.block_tiles * pass_.lanes, scratch);
          }
        }
      });
    }
  }

  // Computes V of channel c of the group for the tiles of a strip. `place` is the index of this
  // strip in its block.
  void transform_input(Index g, Index c, Index strip, Index place, float* v, float* panel) const {
    const Strip at(tiling_, strip);
    const Index channel = g * pass_.depth + c * pass_.lanes;
    const PixelView<const float> pixels = pass_.in.read(
        kernels_, data_.in + pass_.in.offset(at.image, channel), lanes_of(c, pass_.depth),
        at.row + pass_.top, at.column + pass_.left, tiling_.t, tiling_.columns(), panel);
    WinogradPoints points;
    points.tiles = static_cast<int>(tiling_.across);
    points.at = v + (c * pass_.block_tiles + place * tiling_.across) * pass_.lanes;
    points.step = pass_.v_point;
    transforms_.input(pixels, points, panel);
  }

  // Multiplies one point: m[vectors, tiles, L] = v [C/L, tiles, L] u [C, vectors, L].
  void multiply(const float* v, const float* u, Index vectors, Index count, float* m) const {
    const RowTiles rows(count, kernels_.rows);
    PointProduct product;
    product.vectors = static_cast<int>(vectors);
    product.depth = pass_.depth;
    product.block_step = pass_.block_tiles * pass_.lanes;
    product.u = u;
    product.out_step = pass_.block_tiles * pass_.lanes;
    for (Index t = 0; t < rows.tiles; ++t) {
      product.rows = rows.height(t);
      product.v = v + rows.begin(t) * pass_.lanes;
      product.out = m + rows.begin(t) * pass_.lanes;
      kernels_.product(product);
    }
  }

  void transform_output(Index g, Index block, Index strip, Index place, float* m,
                        float* panel) const {
    const Strip at(tiling_, strip);
    const Index lanes = lanes_of(block, pass_.channels);
    const Index channel = g * pass_.channels + block * pass_.lanes;
    WinogradPoints points;
    points.tiles = static_cast<int>(tiling_.across);
    points.at = m + place * tiling_.across * pass_.lanes;
    points.step = pass_.m_point;
    WinogradFinish finish;
    finish.bias = data_.b == nullptr ? nullptr : data_.b + channel;
    finish.lanes = static_cast<int>(lanes);
    float* const to = data_.out + pass_.out.offset(at.image, channel);
    if (pass_.out.nchw16c) {
      finish.residual = data_.epilogue.residual_of(to);
      finish.relu = data_.epilogue.relu();
      finish.most = data_.epilogue.most();
      transforms_.output(points, {to, pass_.out.h, pass_.out.w, kChannelBlock, at.row, at.column},
                         finish);
      if (block == pass_.channel_blocks - 1) clear_lanes(at, to - channel % kChannelBlock);
      return;
    }
    const Index width = tiling_.across * tiling_.size;
    transforms_.output(points, {panel, tiling_.size, width, pass_.lanes, 0, 0}, finish);
    const Index plane = pass_.out.h * pass_.out.w;
    const Index columns = std::min(width, pass_.out.w - at.column);
    for (Index i = 0; i < tiling_.size && at.row + i < pass_.out.h; ++i) {
      float* const row = to + (at.row + i) * pass_.out.w + at.column;
      kernels_.scatter(panel + i * width * pass_.lanes, columns, static_cast<int>(lanes), row,
                       plane);
      data_.epilogue.finish(row, lanes, columns, plane);
    }
  }

  // Writes zeros after the last channel of an image. In the empty lanes of the last vector the
  // transforms leave the product of 0 and a value that may be NaN. Vectors without a channel are
  // not computed at all.
  void clear_lanes(const Strip& at, float* block) const {
    const Index used = pass_.channels % kChannelBlock;
    if (used == 0) return;
    const Index end = std::min(at.column + tiling_.across * tiling_.size, pass_.out.w);
    for (Index i = at.row; i < std::min(at.row + tiling_.size, pass_.out.h); ++i) {
      for (Index j = at.column; j < end; ++j) {
        float* const pixel = block + (i * pass_.out.w + j) * kChannelBlock;
        std::fill(pixel + used, pixel + kChannelBlock, 0.0f);
      }
    }
  }

  const WinogradTiling& pass_;
  const Conv2dProblem& z_;
  const TileGrid& tiling_;
  const PointKernels& kernels_;
  const WinogradTransforms& transforms_;
  const DataPass data_;  // prepared: U, or null: w is read
  float* const own_;
};

// ---- the algorithms, for tiles of m x m outputs -------------------------------------------------

template <int m>
std::size_t prepared_bytes(const Conv2dProblem& z, Direction direction) {
  return static_cast<std::size_t>(WinogradTiling(m, z, direction).prepared_floats()) *
         sizeof(float);
}

template <int m>
bool prepares_for_one_call(const Conv2dProblem& z, Direction direction) {
  return WinogradTiling(m, z, direction).prepares_always;
}

template <int m>
void prepare_weights(const Conv2dPrepareArgs& args) {
  const WinogradTiling pass(m, args.problem, args.direction);
  const auto* const w = static_cast<const float*>(args.w);
  parallel_chunks(pass.z.groups * pass.channel_blocks, [&](Index chunk, int thread) {
    const Index g = chunk / pass.channel_blocks;
    const Index block = chunk % pass.channel_blocks;
    float* const taps = static_cast<float*>(args.workspace) + thread * pass.thread_floats();
    float* const u =
        static_cast<float*>(args.prepared) + pass.u_at(g, block / point_kernels.get().vectors);
    transform_weights(pass, w, g, block, u, taps);
  });
}

template <int m>
void forward(const Conv2dForwardArgs& args) {
  const WinogradTiling pass(m, args.problem, Direction::forward);
  WinogradPass(pass, DataPass(args)).run();
}

template <int m>
void backward_data(const Conv2dBackwardDataArgs& args) {
  const WinogradTiling pass(m, args.problem, Direction::backward_data);
  WinogradPass(pass, DataPass(args)).run();
}

template <int m>
void backward_weight(const Conv2dBackwardWeightArgs& args) {
  weight_gradient(m, args);
}

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  const auto no = [](const auto&... words) { return Conv2dSupport::no(cat(words...)); };
  if (z.dtype != DType::f32) return no("expects elements of type f32, got ", name_of(z.dtype));
  if (z.r != 3 || z.s != 3) return no("expects a kernel of 3x3, got ", z.r, "x", z.s);
  if (z.stride_h != 1 || z.stride_w != 1) {
    return no("expects stride 1, got ", z.stride_h, "x", z.stride_w);
  }
  if (z.dilation_h != 1 || z.dilation_w != 1) {
    return no("expects dilation 1, got ", z.dilation_h, "x", z.dilation_w);
  }
  if (z.groups > 1 && z.c_per_group() * z.k_per_group() < 4) {
    return no("expects groups of at least 4 kernels' planes, got ", z.c_per_group(), "x",
              z.k_per_group());
  }
  return is_nchw16c(z) ? groups_of_blocks(z) : Conv2dSupport{};
}

// Lanes without a channel cost as much as lanes with a channel.
template <int m>
Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  const PointKernels& kernels = point_kernels.get();
  const bool data = direction == Direction::backward_data;
  const Index lanes = kernels.lanes;
  const Index depth = data ? z.k_per_group() : z.c_per_group();
  const Index channels = data ? z.c_per_group() : z.k_per_group();
  const Index depth_blocks = ceil_div(depth, lanes), channel_blocks = ceil_div(channels, lanes);
  const TileGrid tiling(m, z.n, data ? z.h : z.p(), data ? z.w : z.q());
  const double points = number(z.groups * tiling.points);
  const double tiles = number(tiling.strips * tiling.across);
  const double moved = points * tiles * number((depth_blocks + channel_blocks) * lanes);
  Conv2dCost out{
      .flops = 2 * points * tiles * number(channels * depth),
      .bytes = z.nominal_bytes(),
      .transposed = is_nchw16c(z) ? 0 : number(z.x_shape().numel() + z.y_shape().numel()),
      .transformed = moved,
      .listed = number(z.groups * tiling.strips * (depth_blocks + channel_blocks)),
      .schedule = is_nchw16c(z) ? "nchw16c" : ""};
  if (direction == Direction::backward_weight) {
    const WinogradWeightTiling plan(m, z);
    const double sums = points * number(channel_blocks * depth_blocks * lanes * lanes);
    const double products = number(ceil_div(depth, kernels.sum_rows)) *
                            number(ceil_div(channel_blocks, kernels.sum_vectors));
    out.issued = 2 * tiles * sums;
    out.loads = points * tiles * products * number(kernels.sum_vectors);
    out.tiles = points * number(plan.blocks) * products;
    // Each block of tiles loads and stores all sums.
    out.cached = 2 * sizeof(float) * number(plan.blocks) * sums;
    out.prepared = 0;
    out.transposed += sums;
    out.regions = number(z.groups * (plan.by_panels ? 2 : 2 * plan.blocks + 1));
    out.chunks = plan.by_panels ? number(ceil_div(channel_blocks, kernels.sum_vectors)) : 0;
    return out;
  }
  const WinogradTiling pass(m, z, direction);
  const RowTiles block_rows(pass.block_tiles, kernels.rows);
  const double rows = number(pass.blocks * block_rows.tiles);
  const Index accumulators =
      block_rows.height(0) * std::min<Index>(kernels.vectors, channel_blocks);
  out.issued = 2 * points * tiles * number(depth * channel_blocks * lanes) * slots(accumulators) /
               number(accumulators);
  out.loads = points * rows * number(depth * channel_blocks);
  out.tiles = points * rows * number(pass.panels);
  // Each block of tiles reads all transformed weights.
  out.cached =
      number(pass.blocks) * points * number(depth * channel_blocks * lanes) * sizeof(float);
  out.prepared = points * number(depth * channel_blocks * lanes);
  out.regions = pass.by_panels ? number(2 * z.groups * pass.blocks) : 1;
  out.chunks = number(pass.by_panels ? pass.panels : z.groups * pass.blocks);
  return out;
}

template <int m>
std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  Index floats = 0;
  if (direction == Direction::backward_weight) {
    const WinogradWeightTiling plan(m, z);
    floats = plan.shared_floats() + num_threads() * plan.thread_floats();
  } else {
    const WinogradTiling pass(m, z, direction);
    floats = odd_lines(pass.shared_floats()) + num_threads() * pass.thread_floats();
  }
  return static_cast<std::size_t>(floats) * sizeof(float);
}

const Conv2dAlgorithm kF2x3{
    .name = "winograd_f2x3",
    .device = DeviceType::cpu,
    .idea = "2x2 outputs from 16 multiplications instead of 36, between transforms",
    .paper =
        "Lavin, Gray 2015: Fast Algorithms for Convolutional Neural Networks, arXiv 1509.09308",
    .supports = supports,
    .cost = cost<2>,
    .workspace_bytes = workspace_bytes<2>,
    .prepared_bytes = prepared_bytes<2>,
    .prepare_weights = prepare_weights<2>,
    .prepares_for_one_call = prepares_for_one_call<2>,
    .error_growth = 16,
    .exact_on_integers = false,
    .fuses_epilogue = true,
    .takes_nchw16c_layout = true,
    .forward = forward<2>,
    .backward_data = backward_data<2>,
    .backward_weight = backward_weight<2>,
};
const Conv2dAlgorithm kF4x3{
    .name = "winograd_f4x3",
    .device = DeviceType::cpu,
    .idea = "4x4 outputs from 36 multiplications instead of 144, between transforms",
    .paper =
        "Lavin, Gray 2015: Fast Algorithms for Convolutional Neural Networks, arXiv 1509.09308",
    .supports = supports,
    .cost = cost<4>,
    .workspace_bytes = workspace_bytes<4>,
    .prepared_bytes = prepared_bytes<4>,
    .prepare_weights = prepare_weights<4>,
    .prepares_for_one_call = prepares_for_one_call<4>,
    .error_growth = 16,
    .exact_on_integers = false,
    .fuses_epilogue = true,
    .takes_nchw16c_layout = true,
    .forward = forward<4>,
    .backward_data = backward_data<4>,
    .backward_weight = backward_weight<4>,
};
const Conv2dAlgorithm kF6x3{
    .name = "winograd_f6x3",
    .device = DeviceType::cpu,
    .idea = "6x6 outputs from 64 multiplications instead of 324, between transforms",
    .paper =
        "Lavin, Gray 2015: Fast Algorithms for Convolutional Neural Networks, arXiv 1509.09308",
    .supports = supports,
    .cost = cost<6>,
    .workspace_bytes = workspace_bytes<6>,
    .prepared_bytes = prepared_bytes<6>,
    .prepare_weights = prepare_weights<6>,
    .prepares_for_one_call = prepares_for_one_call<6>,
    .error_growth = 128,
    .exact_on_integers = false,
    .auto_ok = false,  // at most a tenth faster than winograd_f4x3, with 6 to 10 times its error
    .fuses_epilogue = true,
    .takes_nchw16c_layout = true,
    .forward = forward<6>,
    .backward_data = backward_data<6>,
    .backward_weight = backward_weight<6>,
};

}  // namespace
}  // namespace winograd
}  // namespace convscope

// The registration declares the same name for each tile size.
namespace convscope::winograd::f2x3 {
CONVSCOPE_CONV2D_ALGORITHM(kF2x3)
}
namespace convscope::winograd::f4x3 {
CONVSCOPE_CONV2D_ALGORITHM(kF4x3)
}
namespace convscope::winograd::f6x3 {
CONVSCOPE_CONV2D_ALGORITHM(kF6x3)
}
