// SPDX-License-Identifier: Apache-2.0
// winograd_fp16x3_plan.cuh: the tiling of winograd_f4x3_fp16x3_cuda.cu: the tiles of a chunk, the
// compiled tile of products, the parts of the reduction, and the layout of memory.
// Read next  winograd_fp16x3_product.cuh; winograd_f4x3_fp16x3_cuda.cu
#pragma once

#include <algorithm>
#include <limits>

#include "framework/memory/memory.h"
#include "layers/conv2d/shared/kept_plans.h"
#include "layers/conv2d/winograd/fp16x3/cuda/winograd_fp16x3_product.cuh"
#include "layers/conv2d/winograd/fp16x3/cuda/winograd_fp16x3_transforms.cuh"

namespace convscope::winograd {

constexpr int kProductTiles = 4;
// The compiled tiles, and how many blocks share an SM.
struct ProductShape {
  int rows, columns, blocks;
};
constexpr ProductShape kProductShapes[kProductTiles] = {
    {128, 128, 1}, {64, 128, 2}, {128, 64, 2}, {64, 64, 2}};
constexpr int kMaxProductParts = 64;

// A tile of products and the parts of their reduction, and the counts of all products.
struct ProductChoice {
  int shape = 0, parts = 1;
  Cost cost = {};
};

struct Fp16x3Plan {
  Fp16x3Plan(const Conv2dProblem& problem, Direction direction)
      : z(problem),
        for_dw(direction == Direction::backward_weight),
        forward(direction != Direction::backward_data),
        depth(forward ? z.c : z.k),
        channels(forward ? z.k : z.c),
        in(forward ? Planes(4, z.n, z.c, z.h, z.w, z.p(), z.q(), -z.pad_top, -z.pad_left)
                   : Planes(4, z.n, z.k, z.p(), z.q(), z.h, z.w, z.pad_top - 2, z.pad_left - 2)),
        dy_planes(4, z.n, z.k, z.p(), z.q(), z.p(), z.q(), 0, 0),
        weight_width(round_up(depth, Index{8})) {
    const Index all = ceil_div(in.tiles, kTileStep) * kTileStep;
    const Index tile_bytes = 4 * kFp16x3Points * (z.c + z.k);
    const Index most = std::max<Index>(1, kChunkBytes / (tile_bytes * kTileStep)) * kTileStep;
    chunk = round_up(ceil_div(all, ceil_div(all, most)), kTileStep);
    chunks = ceil_div(in.tiles, chunk);
    static KeptPlans<ProductChoice> kept;
    const auto choice = kept.get(z, direction, [&] { return choose(direction); });
    shape = choice->shape;
    parts = choice->parts;
    cost = choice->cost;
  }

  Index rows() const { return for_dw ? z.k : channels; }
  Index columns() const { return for_dw ? z.c : chunk; }
  int steps() const { return int(ceil_div(for_dw ? chunk : depth, Index{kDepthStep})); }
  Index product_tiles() const { return tiles_of(kProductShapes[shape]) * parts; }

  ProductChoice choose(Direction direction) const {
    Cheapest<ProductChoice> best({"conv2d", "winograd_f4x3_fp16x3", direction}, DeviceType::cuda,
                                 z.dtype);
    const int most = for_dw ? std::min(steps(), kMaxProductParts) : 1;
    for (int i = 0; i < kProductTiles; ++i) {
      for (int n = 1; n <= most; n += 1 + n / 4) {
        const ProductChoice choice{i, n, counts_of(i, n)};
        best.offer(choice, choice.cost);
      }
    }
    return best.found();
  }

  // Counts the products of all chunks; in backward_weight, the last kernel reads the parts.
  Cost counts_of(int tile, int split) const {
    constexpr const char* kNames[kProductTiles][2] = {{"128x128", "128x128 unaligned"},
                                                      {"64x128", "64x128 unaligned"},
                                                      {"128x64", "128x64 unaligned"},
                                                      {"64x64", "64x64 unaligned"}};
    const ProductShape& by = kProductShapes[tile];
    const double tiles = number(tiles_of(by)), all = number(chunks);
    const double products = all * tiles * steps();  // of a tile and a step
    const double out = all * tiles * split * by.rows * by.columns;
    return {.issued = 1.5 * products * 2 * by.rows * by.columns * kDepthStep,
            .cached = products * 4 * (by.rows + by.columns) * kDepthStep,
            .schedule = kNames[tile][has_whole_fours() ? 0 : 1],
            .blocks = tiles * split,
            .resident = number(by.blocks),
            .chain = all * ceil_div(steps(), split),
            .stored = out,
            .pass_bytes =
                for_dw ? 4 * all * split * kFp16x3Points * number(weight_numbers()) : 0,
            .tensor_cores = true};
  }

  // Returns whether transforms read and write four pixels of a row at a time.
  bool has_whole_fours() const {
    return in.in_w % 4 == 0 && in.left == -1 && in.tiles_w * 4 == in.in_w && in.out_w % 4 == 0;
  }
  Index tiles_of(const ProductShape& by) const {
    return kFp16x3Points * ceil_div(rows(), Index{by.rows}) *
           ceil_div(columns(), Index{by.columns});
  }
  Index weight_numbers() const { return z.k * z.c; }
  Index v_words(const Planes& planes) const {  // high and low parts of all points
    return kFp16x3Points * planes.channels * chunk;
  }
  Index u_words() const { return kFp16x3Points * channels * weight_width; }
  Index m_floats() const {
    return for_dw ? chunks * parts * kFp16x3Points * weight_numbers()
                      : kFp16x3Points * channels * chunk;
  }

  const Conv2dProblem& z;
  bool for_dw, forward;
  Index depth, channels;
  Planes in, dy_planes;
  Index weight_width;           // elements of a row of U
  Index chunk = 0, chunks = 0;  // tiles at a time
  int shape = 0, parts = 1;     // tile and parts of the products
  Cost cost = {};               // of the products
};

// Allocates a block of memory, or only counts it.
struct Fp16x3Memory {
  explicit Fp16x3Memory(void* memory)
      : arena(memory, std::numeric_limits<std::size_t>::max() / 2) {}
  template <class T>
  T* take(Index count) {
    bytes += ScratchArena::round_up(static_cast<std::size_t>(count) * sizeof(T));
    return arena.take<T>(static_cast<std::size_t>(count));
  }
  ScratchArena arena;
  std::size_t bytes = 0;
};

struct Fp16x3Prepared {
  Fp16x3Prepared(const Fp16x3Plan& plan, const void* memory) {
    Fp16x3Memory block(const_cast<void*>(memory));
    exponents = block.take<int>(plan.channels);
    u = block.take<unsigned>(plan.u_words());
    bytes = block.bytes;
  }
  int* exponents = nullptr;  // of the rows
  unsigned* u = nullptr;
  std::size_t bytes = 0;
};

struct Fp16x3Workspace {
  Fp16x3Workspace(const Fp16x3Plan& plan, void* memory) {
    Fp16x3Memory block(memory);
    const Conv2dProblem& z = plan.z;
    exponent = block.take<int>(1);
    auto* const bits = block.take<unsigned>(2 * half_tiles::kMaximaBlocks);
    maxima = {bits, half_tiles::maxima_blocks((plan.forward ? z.x_shape() : z.y_shape()).numel())};
    dy_maxima = {bits == nullptr ? nullptr : bits + maxima.count,
             half_tiles::maxima_blocks(z.y_shape().numel())};
    v = block.take<unsigned>(plan.v_words(plan.in));
    if (plan.for_dw) d = block.take<unsigned>(plan.v_words(plan.dy_planes));
    m = block.take<float>(plan.m_floats());
    bytes = block.bytes;
  }
  int* exponent = nullptr;
  half_tiles::Maxima maxima, dy_maxima;
  unsigned* v = nullptr;
  unsigned* d = nullptr;
  float* m = nullptr;
  std::size_t bytes = 0;
};

}  // namespace convscope::winograd
