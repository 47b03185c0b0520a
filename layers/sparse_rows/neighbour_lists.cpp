// SPDX-License-Identifier: Apache-2.0
// neighbour_lists.cpp: lists of rows, made from a map or from the samples of a batch.
#include "layers/sparse_rows/neighbour_lists.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace convscope {

constinit KernelSlot<void(const Tensor&, const NeighbourLists&, const Tensor&, const Tensor&)>
    list_max_kernel{"sparse_pool"};
constinit KernelSlot<void(const Tensor&, const NeighbourLists&, const Tensor&)> list_mean_kernel{
    "sparse_pool"};
constinit KernelSlot<void(const Tensor&, const NeighbourLists&, const Tensor&, const Tensor&)>
    list_max_gradient_kernel{"sparse_pool"};
constinit KernelSlot<void(const Tensor&, const PoolLists&, const Tensor&)>
    list_mean_gradient_kernel{"sparse_pool"};

namespace {

using Rows = std::vector<std::int32_t>;

NeighbourLists on_device(const Rows& begin, const Rows& at, Device device) {
  const auto moved = [&](const Rows& rows) {
    return Tensor::from(std::span<const std::int32_t>(rows),
                        {static_cast<std::int64_t>(rows.size())})
        .to(device);
  };
  return {moved(begin), moved(at)};
}

NeighbourLists lists_of(const SparseView& view, std::int64_t pairs, Device device) {
  const SparseTable& table = *view.table;
  Rows begin, at, site_neighbours;
  begin.reserve(static_cast<std::size_t>(table.sites + 1));
  at.reserve(static_cast<std::size_t>(pairs));
  for (std::int64_t site = 0; site < table.sites; ++site) {
    begin.push_back(static_cast<std::int32_t>(at.size()));
    site_neighbours.clear();
    for (std::int64_t tap = 0; tap < table.taps; ++tap) {
      const std::int64_t neighbour = table.neighbour(tap, site);
      if (neighbour >= 0) site_neighbours.push_back(static_cast<std::int32_t>(neighbour));
    }
    std::ranges::sort(site_neighbours);
    at.insert(at.end(), site_neighbours.begin(), site_neighbours.end());
  }
  begin.push_back(static_cast<std::int32_t>(at.size()));
  return on_device(begin, at, device);
}

}  // namespace

PoolLists pool_lists(const SparseMap& map, Device device) {
  CONVSCOPE_CHECK(map.pairs() <= std::numeric_limits<std::int32_t>::max(), "sparse_pool",
                  "expected fewer than 2^31 pairs of sites, got ", map.text());
  return {lists_of(map.by_output(), map.pairs(), device),
          lists_of(map.by_input(), map.pairs(), device)};
}

PoolLists sample_lists(const SparseSites& sites, Device device) {
  const std::int64_t samples = sites.grid().batch, n = sites.count();
  Rows begin(static_cast<std::size_t>(samples + 1), 0), at(static_cast<std::size_t>(n)), of(at);
  for (std::int64_t site = 0; site < n; ++site) {
    const std::int64_t sample = sites.place(site).batch;
    of[static_cast<std::size_t>(site)] = static_cast<std::int32_t>(sample);
    ++begin[static_cast<std::size_t>(sample + 1)];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::iota(at.begin(), at.end(), 0);
  Rows one_each(static_cast<std::size_t>(n + 1));
  std::iota(one_each.begin(), one_each.end(), 0);
  return {on_device(begin, at, device), on_device(one_each, of, device)};
}

}  // namespace convscope
