// SPDX-License-Identifier: Apache-2.0
// row_case.h: makes sites, feature rows and small networks for tests of layers on sparse rows.
#pragma once

#include <numeric>

#include "layers/layer_types.h"
#include "layers/sparse_conv/levels.h"
#include "tests/layers/sparse_conv/sparse_case.h"
#include "tests/support/numbers.h"

namespace convscope::testing {

inline SharedSites some_sites(const SiteGrid& grid, double density, std::uint64_t seed = 11) {
  return std::make_shared<const SparseSites>(
      coordinates_of(random_places(grid, density, seed), grid.rank), grid);
}

inline SharedSites no_sites(const SiteGrid& grid) {
  return std::make_shared<const SparseSites>(std::vector<std::uint64_t>(), grid);
}

// Returns every place of the grid.
inline SharedSites all_sites(const SiteGrid& grid) {
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(grid.all_places()));
  std::iota(keys.begin(), keys.end(), std::uint64_t{0});
  return std::make_shared<const SparseSites>(std::move(keys), grid);
}

// Returns the sites of three samples; the middle sample has no sites.
inline SharedSites sites_with_a_gap(SiteGrid grid, double density) {
  grid.batch = 3;
  std::vector<std::uint64_t> keys;
  const SharedSites all = some_sites(grid, density);
  for (std::int64_t i = 0; i < all->count(); ++i) {
    if (all->place(i).batch != 1) keys.push_back(all->keys()[static_cast<std::size_t>(i)]);
  }
  return std::make_shared<const SparseSites>(std::move(keys), grid);
}

// Returns lists of points [N,M,rank+C] with the coordinates of these sites and their `features`
// [n,C]. M is large enough for the sample with most sites.
inline Tensor points_of(const SparseSites& sites, const Tensor& features, std::int64_t more = 1) {
  const int rank = sites.grid().rank;
  const std::int64_t samples = sites.grid().batch, channels = features.dim(1);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(samples), 0);
  for (std::int64_t i = 0; i < sites.count(); ++i) {
    ++counts[static_cast<std::size_t>(sites.place(i).batch)];
  }
  const std::int64_t most = *std::max_element(counts.begin(), counts.end()) + more;
  const Tensor out = Tensor::full({samples, most, rank + channels}, -1);
  std::fill(counts.begin(), counts.end(), 0);
  for (std::int64_t i = 0; i < sites.count(); ++i) {
    const SitePlace place = sites.place(i);
    std::int64_t& at = counts[static_cast<std::size_t>(place.batch)];
    float* const row = out.data<float>() + (place.batch * most + at++) * (rank + channels);
    for (int d = 0; d < rank; ++d) {
      row[d] = static_cast<float>(place.at[static_cast<std::size_t>(3 - rank + d)]);
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      row[rank + c] = static_cast<float>(features.at(i * channels + c));
    }
  }
  return out;
}

inline LayerSpec layer(const std::string& type, const std::map<std::string, OptionValue>& options,
                       const std::string& name = "") {
  LayerSpec out{.type = type, .name = name, .options = {}};
  for (const auto& [key, value] : options) out.options.set(key, value);
  return out;
}

inline OptionValue whole(std::int64_t value) { return value; }
inline OptionValue word(const char* value) { return std::string(value); }

inline std::shared_ptr<Module> row_network(const std::vector<LayerSpec>& specs, const Shape& input,
                                           std::vector<std::int64_t> grid = {}) {
  LayerContext context;
  context.seed = 3;
  context.point_grid = std::move(grid);
  return build_layers(specs, input, context);
}

}  // namespace convscope::testing
