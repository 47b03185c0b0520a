// SPDX-License-Identifier: Apache-2.0
// winograd.cpp: Winograd's convolution F(m x m, 3 x 3) for tile sizes m = 2, 4 and 6; called by the
// algorithms of winograd_f2x3_cpu.cpp, winograd_f4x3_cpu.cpp and winograd_f6x3_cpu.cpp.
#include "layers/conv2d/winograd/cpu/winograd.h"

#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"
#include "layers/conv2d/counts.h"
#include "layers/conv2d/shared/data_pass.h"
#include "layers/conv2d/shared/nchw16c_support.h"
#include "layers/conv2d/winograd/cpu/winograd_images.h"
#include "layers/conv2d/winograd/cpu/winograd_kernels.h"
#include "layers/conv2d/winograd/cpu/winograd_plan.h"

namespace convscope {

constinit IsaTable<WinogradKernels> winograd_kernels;

namespace winograd {
namespace {

const WinogradTransforms& transforms(Index m) {
  const WinogradKernels& kernels = winograd_kernels.get();
  return m == 2 ? kernels.two : m == 4 ? kernels.four : kernels.six;
}

// A strip of one image, and its first output pixel.
struct Strip {
  Strip(const TileGrid& tiling, Index index)
      : image(index / (tiling.down * tiling.pieces)),
        row(index / tiling.pieces % tiling.down * tiling.size),
        column(index % tiling.pieces * tiling.across * tiling.size) {}
  Index image, row, column;
};

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
    transforms(pass.tiling.size)
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
        transforms_(transforms(tiling_.size)),
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

// ---- backward_weight ---------------------------------------------------------------------------

class WeightGradient {
 public:
  WeightGradient(const WinogradWeightTiling& plan, const Conv2dBackwardWeightArgs& args)
      : plan_(plan),
        z_(plan.z),
        tiling_(plan.tiling),
        kernels_(point_kernels.get()),
        transforms_(transforms(tiling_.size)),
        x_(static_cast<const float*>(args.x)),
        dy_(static_cast<const float*>(args.dy)),
        dw_(static_cast<float*>(args.dw)),
        accumulate_(args.accumulate),
        points_x_(static_cast<float*>(args.workspace)),
        points_y_(points_x_ + tiling_.points * plan.x_point),
        sums_(points_y_ + tiling_.points * plan.y_point),
        own_(plan.by_panels ? sums_ : sums_ + tiling_.points * plan.sum_point) {}

  void run() const { plan_.by_panels ? run_by_panels() : run_by_blocks(); }

 private:
  float* own(int thread) const { return own_ + thread * plan_.thread_floats(); }

  // Transforms the tiles of x [T, T] and of dy [M, M] of some strips.
  void transform_block(Index g, Index begin, Index end) const {
    const Index blocks = plan_.channel_blocks + plan_.kernel_blocks;
    const Index lanes = plan_.lanes;
    parallel_chunks((end - begin) * blocks, [&](Index chunk, int thread) {
      const Index place = chunk / blocks;
      const Strip at(tiling_, begin + place);
      const bool is_x = chunk % blocks < plan_.channel_blocks;
      const Index block = chunk % blocks - (is_x ? 0 : plan_.channel_blocks);
      const Index channels = is_x ? plan_.channels : plan_.kernels;
      const Images& images = is_x ? plan_.x : plan_.y;
      const Index columns = is_x ? tiling_.columns() : tiling_.across * tiling_.size;
      float* const panel = own(thread);
      const PixelView<const float> pixels = images.read(
          kernels_, (is_x ? x_ : dy_) + images.offset(at.image, g * channels + block * lanes),
          std::min(lanes, channels - block * lanes), at.row - (is_x ? z_.pad_top : 0),
          at.column - (is_x ? z_.pad_left : 0), is_x ? tiling_.t : tiling_.size, columns, panel);
      WinogradPoints points;
      points.tiles = static_cast<int>(tiling_.across);
      points.at = (is_x ? points_x_ : points_y_) +
                  (block * plan_.block_tiles + place * tiling_.across) * lanes;
      points.step = is_x ? plan_.x_point : plan_.y_point;
      is_x ? transforms_.input(pixels, points, panel) : transforms_.gradient(pixels, points);
    });
  }

  // Computes sums[point, panels of K/L, C, L] (+)= the products of x and dy over `tiles` tiles of
  // the block, for `vectors` vectors of kernels from k on.
  void sum_point(Index point, Index k, int vectors, Index tiles, bool accumulate,
                 float* sums) const {
    const Index lanes = plan_.lanes;
    PointSum sum;
    sum.vectors = vectors;
    sum.accumulate = accumulate;
    sum.depth = tiles;
    sum.dy_step = plan_.block_tiles * lanes;
    sum.dy = points_y_ + point * plan_.y_point + k * sum.dy_step;
    sum.out_step = plan_.kernel_floats();
    for (Index c = 0; c < plan_.channels; c += kernels_.sum_rows) {
      sum.x = points_x_ + point * plan_.x_point + c / lanes * sum.dy_step + c % lanes;
      sum.out = sums + c * lanes;
      kernels_.sum(sum);
    }
  }

  // Used with few tiles and many weights: all sums of a few kernels stay in a thread's cache.
  void run_by_panels() const {
    const RowTiles pieces(plan_.kernel_blocks, kernels_.sum_vectors);
    for (Index g = 0; g < z_.groups; ++g) {
      transform_block(g, 0, tiling_.strips);
      parallel_chunks(pieces.tiles, [&](Index piece, int thread) {
        float* const sums = own(thread);
        float* const taps = sums + tiling_.points * plan_.sum_point;
        const Index k = pieces.begin(piece);
        for (Index point = 0; point < tiling_.points; ++point) {
          sum_point(point, k, pieces.height(piece), plan_.block_tiles, false,
                    sums + point * plan_.sum_point);
        }
        for (Index i = 0; i < pieces.height(piece); ++i) {
          write_kernels(g, k + i, sums + i * plan_.kernel_floats(), taps);
        }
      });
    }
  }

  void run_by_blocks() const {
    const RowTiles pieces(plan_.kernel_blocks, kernels_.sum_vectors);
    for (Index g = 0; g < z_.groups; ++g) {
      for (Index block = 0; block < plan_.blocks; ++block) {
        const Index begin = block * plan_.block_strips;
        const Index end = std::min(begin + plan_.block_strips, tiling_.strips);
        transform_block(g, begin, end);
        parallel_chunks(tiling_.points * pieces.tiles, [&](Index chunk, int) {
          const Index point = chunk / pieces.tiles;
          const Index k = pieces.begin(chunk % pieces.tiles);
          sum_point(point, k, pieces.height(chunk % pieces.tiles), (end - begin) * tiling_.across,
                    block > 0, sums_ + point * plan_.sum_point + k * plan_.kernel_floats());
        });
      }
      parallel_chunks(plan_.kernel_blocks, [&](Index k, int thread) {
        write_kernels(g, k, sums_ + k * plan_.kernel_floats(), own(thread));
      });
    }
  }

  // Writes dw of the kernels in the lanes of block k.
  void write_kernels(Index g, Index k, const float* sums, float* taps) const {
    const auto lanes = static_cast<int>(std::min(plan_.lanes, plan_.kernels - k * plan_.lanes));
    const Index row = plan_.channels * 9;
    for (Index c = 0; c < plan_.channels; c += kKernelsAtOnce) {
      const Index count = std::min(kKernelsAtOnce, plan_.channels - c);
      float* const to = dw_ + (g * plan_.kernels + k * plan_.lanes) * row + c * 9;
      if (accumulate_) kernels_.gather(to, row, count * 9, lanes, taps);
      transforms_.weight_sums(sums + c * plan_.lanes, plan_.lanes, plan_.sum_point, count,
                              accumulate_, taps);
      kernels_.scatter(taps, count * 9, lanes, to, row);
    }
  }

  const WinogradWeightTiling& plan_;
  const Conv2dProblem& z_;
  const TileGrid& tiling_;
  const PointKernels& kernels_;
  const WinogradTransforms& transforms_;
  const float* const x_;
  const float* const dy_;
  float* const dw_;
  const bool accumulate_;
  float* const points_x_;
  float* const points_y_;
  float* const sums_;
  float* const own_;
};

}  // namespace

std::size_t prepared_bytes(int m, const Conv2dProblem& z, Direction direction) {
  return static_cast<std::size_t>(WinogradTiling(m, z, direction).prepared_floats()) *
         sizeof(float);
}

bool prepares_for_one_call(int m, const Conv2dProblem& z, Direction direction) {
  return WinogradTiling(m, z, direction).prepares_always;
}

void prepare_weights(int m, const Conv2dPrepareArgs& args) {
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

void forward(int m, const Conv2dForwardArgs& args) {
  const WinogradTiling pass(m, args.problem, Direction::forward);
  WinogradPass(pass, DataPass(args)).run();
}

void backward_data(int m, const Conv2dBackwardDataArgs& args) {
  const WinogradTiling pass(m, args.problem, Direction::backward_data);
  WinogradPass(pass, DataPass(args)).run();
}

void backward_weight(int m, const Conv2dBackwardWeightArgs& args) {
  const WinogradWeightTiling plan(m, args.problem);
  WeightGradient(plan, args).run();
}

// ---- for the algorithms -------------------------------------------------------------------------

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
Conv2dCost cost(int m, const Conv2dProblem& z, Direction direction) {
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

std::size_t workspace_bytes(int m, const Conv2dProblem& z, Direction direction) {
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

}  // namespace winograd
}  // namespace convscope
