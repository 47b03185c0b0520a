// SPDX-License-Identifier: Apache-2.0
// criteria.cpp: which pieces of the weight matrices are pruned.
#include "sparsity/criteria.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "framework/int_math.h"
#include "sparsity/distribution.h"

namespace convscope {
namespace {

// A weight that is NaN counts as the strongest, so it is kept, and the loss becomes NaN and shows
// the error.
float strength_of(float value) {
  return std::isnan(value) ? std::numeric_limits<float>::infinity() : std::fabs(value);
}

// A tile of weights; single weights are 1x1 blocks.
struct Tile {
  std::int64_t rows = 1, cols = 1;
};
Tile tile_of(const SparsityOptions& options) {
  if (options.method == PruneMethod::block) return {options.block_rows, options.block_cols};
  return {};
}

Tensor expand_tiles(const PrunableLayer& layer, const Tile& tile, const std::uint8_t* keep_tile) {
  Tensor mask = Tensor::empty(layer.weight().shape());
  float* to = mask.data<float>();
  const std::int64_t tiles_in_row = ceil_div(layer.columns, tile.cols);
  for (std::int64_t k = 0; k < layer.rows; ++k) {
    const std::uint8_t* row = keep_tile + k / tile.rows * tiles_in_row;
    for (std::int64_t c = 0; c < layer.columns; ++c) {
      to[k * layer.columns + c] = row[c / tile.cols] != 0 ? 1.0f : 0.0f;
    }
  }
  return mask;
}

// Returns how many of m neighbouring weights stay at this sparsity. As the sparsity grows, m-1,
// m-2, ... of m stay, and finally n of m.
std::int64_t kept_of_m(const SparsityOptions& options, double sparsity) {
  const auto gone = std::floor(sparsity * static_cast<double>(options.m) + 1e-9);
  return std::max(options.n, options.m - static_cast<std::int64_t>(gone));
}

Tensor n_m_mask(const PrunableLayer& layer, std::int64_t n, std::int64_t m) {
  const Tensor weight = layer.weight().to(Device{});
  const float* w = weight.data<float>();
  Tensor mask = Tensor::zeros(weight.shape());
  float* to = mask.data<float>();
  std::vector<std::int64_t> order(static_cast<std::size_t>(m));
  for (std::int64_t k = 0; k < layer.rows; ++k) {
    for (std::int64_t begin = 0; begin < layer.columns; begin += m) {
      const std::int64_t real = std::min(m, layer.columns - begin);
      const std::int64_t base = k * layer.columns + begin;
      std::iota(order.begin(), order.begin() + real, base);
      std::stable_sort(order.begin(), order.begin() + real, [w](std::int64_t a, std::int64_t b) {
        return strength_of(w[a]) > strength_of(w[b]);
      });
      for (std::int64_t i = 0; i < std::min(n, real); ++i)
        to[order[static_cast<std::size_t>(i)]] = 1;
    }
  }
  return mask;
}

}  // namespace

PieceScores block_scores(const Tensor& weight, std::int64_t rows, std::int64_t columns,
                         std::int64_t block_rows, std::int64_t block_cols) {
  const Tensor here = weight.to(Device{});
  const float* w = here.data<float>();
  const std::int64_t down = ceil_div(rows, block_rows), across = ceil_div(columns, block_cols);
  std::vector<double> squares(static_cast<std::size_t>(down * across), 0);
  PieceScores out;
  out.sizes.assign(squares.size(), 0);
  for (std::int64_t k = 0; k < rows; ++k) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto piece = static_cast<std::size_t>(k / block_rows * across + c / block_cols);
      const double value = w[k * columns + c];
      squares[piece] += value * value;
      ++out.sizes[piece];
    }
  }
  for (const double square : squares) {
    out.strength.push_back(strength_of(static_cast<float>(std::sqrt(square))));
  }
  return out;
}

std::vector<std::uint8_t> drop_weakest(const std::vector<float>& strength, std::int64_t drop) {
  std::vector<std::uint8_t> keep(strength.size(), 1);
  std::vector<std::uint32_t> order(strength.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto weaker = [&strength](std::uint32_t a, std::uint32_t b) {
    const float x = strength[a], y = strength[b];
    return x != y ? x < y : a < b;
  };
  drop = std::clamp<std::int64_t>(drop, 0, static_cast<std::int64_t>(order.size()));
  if (drop < static_cast<std::int64_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + drop, order.end(), weaker);
  }
  for (std::int64_t i = 0; i < drop; ++i) keep[order[static_cast<std::size_t>(i)]] = 0;
  return keep;
}

std::vector<Tensor> weakest_masks(const std::vector<const PrunableLayer*>& layers,
                                  const SparsityOptions& options, double sparsity) {
  std::vector<Tensor> masks;
  if (options.method == PruneMethod::n_m) {
    const std::int64_t kept = kept_of_m(options, sparsity);
    for (const PrunableLayer* layer : layers) masks.push_back(n_m_mask(*layer, kept, options.m));
    return masks;
  }
  const Tile tile = tile_of(options);
  const bool global = options.distribution == SparsityDistribution::global;
  std::vector<PieceScores> scores;
  std::vector<std::int64_t> counts;
  for (const PrunableLayer* layer : layers) {
    scores.push_back(
        block_scores(layer->weight(), layer->rows, layer->columns, tile.rows, tile.cols));
    counts.push_back(static_cast<std::int64_t>(scores.back().strength.size()));
  }
  std::vector<std::uint8_t> keep;  // of all pieces, layer after layer
  if (global) {
    std::vector<float> all;
    for (const PieceScores& pieces : scores) {
      for (std::size_t i = 0; i < pieces.strength.size(); ++i) {
        all.push_back(pieces.strength[i] / std::sqrt(static_cast<float>(pieces.sizes[i])));
      }
    }
    keep = drop_weakest(all, std::llround(sparsity * static_cast<double>(all.size())));
  } else {
    const std::vector<std::int64_t> zeros =
        rounded_zeros(counts, layer_sparsities(layers, options.distribution, sparsity));
    for (std::size_t l = 0; l < layers.size(); ++l) {
      const std::vector<std::uint8_t> own = drop_weakest(scores[l].strength, zeros[l]);
      keep.insert(keep.end(), own.begin(), own.end());
    }
  }
  std::size_t begin = 0;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    masks.push_back(expand_tiles(*layers[l], tile, keep.data() + begin));
    begin += static_cast<std::size_t>(counts[l]);
  }
  return masks;
}

void check_pieces(const std::vector<const PrunableLayer*>& layers, const SparsityOptions& options) {
  const bool block = options.method == PruneMethod::block;
  for (const PrunableLayer* layer : layers) {
    if (block && options.block_rows >= layer->rows && options.block_cols >= layer->columns) {
      fail(ErrorKind::kConfig, "sparsity",
           cat("expected blocks that cut layer '", layer->name, "' [", layer->rows, ",",
               layer->columns,
               "] into at least two, because a layer that is one block can only be "
               "kept or lost, got block ",
               options.block_rows, "x", options.block_cols,
               "; take a smaller block or exclude the layer"));
    }
    if (options.method == PruneMethod::n_m && layer->columns < options.m) {
      fail(ErrorKind::kConfig, "sparsity",
           cat("expected rows of at least m = ", options.m, " weights, got layer '", layer->name,
               "' [", layer->rows, ",", layer->columns, "]; exclude it"));
    }
  }
}

}  // namespace convscope
