// SPDX-License-Identifier: Apache-2.0
// winograd_weights.cpp: backward_weight of Winograd's convolution: dw from transformed tiles of x
// and dy.
//
// Method     x and dy are transformed for a block of tiles. Each point is a product [C, tiles]
//            [tiles, K], summed over the blocks and transformed back at the end. With few tiles and
//            many weights, all tiles are transformed at once, and some output channels are computed
//            at a time.
// Read next  winograd_cpu.cpp, the algorithm; winograd_plan.h, the sizes
#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"
#include "layers/conv2d/winograd/cpu/winograd_kernels.h"
#include "layers/conv2d/winograd/cpu/winograd_plan.h"

namespace convscope::winograd {
namespace {

class WeightGradient {
 public:
  WeightGradient(const WinogradWeightTiling& plan, const Conv2dBackwardWeightArgs& args)
      : plan_(plan),
        z_(plan.z),
        tiling_(plan.tiling),
        kernels_(point_kernels.get()),
        transforms_(winograd_transforms(tiling_.size)),
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

void weight_gradient(int m, const Conv2dBackwardWeightArgs& args) {
  const WinogradWeightTiling plan(m, args.problem);
  WeightGradient(plan, args).run();
}

}  // namespace convscope::winograd
