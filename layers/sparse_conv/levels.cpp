// SPDX-License-Identifier: Apache-2.0
// levels.cpp: the site sets of one network, from fine to coarse.
#include "layers/sparse_conv/levels.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace convscope {
namespace {

constexpr const char* kLevels = "sites";

SiteGrid sample_grid(SiteGrid grid) {
  grid.batch = 1;
  grid.check();
  return grid;
}

}  // namespace

SiteLevels::SiteLevels(SiteGrid grid) { levels_.push_back({.grid = sample_grid(grid)}); }

const SiteLevels::Level& SiteLevels::at(int level) const {
  CONVSCOPE_CHECK(level >= 0 && level < count(), kLevels, "expected a level from 0 to ",
                  count() - 1, ", got ", level);
  return levels_[static_cast<std::size_t>(level)];
}

SiteLevels::Level& SiteLevels::at(int level) {
  return const_cast<Level&>(std::as_const(*this).at(level));
}

int SiteLevels::coarser(int from, const SparseKernel& kernel) {
  // A map without sites checks the kernel and computes the grid.
  const auto none = std::make_shared<const SparseSites>(std::vector<std::uint64_t>(), grid(from));
  const SiteGrid grid = SparseMap::strided(none, kernel)->out_sites()->grid();
  for (int level = 1; level < count(); ++level) {
    if (finer(level) == from && step(level) == kernel) return level;
  }
  levels_.push_back({.grid = grid, .from = from, .kernel = kernel});
  return count() - 1;
}

void SiteLevels::begin(SharedSites sites) {
  CONVSCOPE_CHECK(sites != nullptr && sample_grid(sites->grid()) == grid(0), kLevels,
                  "expected sites in the grid ", grid(0).text(), " of a sample, got ",
                  sites == nullptr ? std::string("none") : sites->grid().text());
  for (Level& level : levels_) {
    level.sites = nullptr;
    level.inverse = nullptr;
  }
  maps_.clear();
  levels_[0].sites = std::move(sites);
  has_batch_ = true;
}

const SharedSites& SiteLevels::sites(int level) {
  Level& own = at(level);
  if (own.sites == nullptr) {
    own.sites = level == 0 ? assumed_sites(own.grid) : strided(level)->out_sites();
  }
  return own.sites;
}

SharedMap SiteLevels::submanifold(int level, const SparseKernel& kernel) {
  return maps_.submanifold(sites(level), kernel);
}

SharedMap SiteLevels::strided(int level) {
  CONVSCOPE_CHECK(level > 0, kLevels, "expected a level after a strided step, got ", level);
  return maps_.strided(sites(finer(level)), step(level));
}

SharedMap SiteLevels::inverse(int level) {
  SharedMap& map = at(level).inverse;
  if (map == nullptr) map = SparseMap::inverse(strided(level));
  return map;
}

SharedSites assumed_sites(const SiteGrid& grid) {
  const SiteGrid one = sample_grid(grid);
  const SparseSites keyed(std::vector<std::uint64_t>(), one);
  std::vector<std::uint64_t> keys;
  const auto size = [&](std::size_t d) { return one.extent[d]; };
  std::int64_t smallest = size(2);
  for (std::size_t d = static_cast<std::size_t>(3 - one.rank); d < 3; ++d) {
    smallest = std::min(smallest, size(d));
  }
  // Only sites at the surface of the ball are visited: each line along w meets the ball in an
  // interval whose ends are at the surface. So the cost is proportional to the area of one face of
  // the grid.
  const double radius = 0.5 * static_cast<double>(smallest);
  const auto off = [&](std::size_t d, std::int64_t at) {
    return static_cast<double>(at) + 0.5 - 0.5 * static_cast<double>(size(d));
  };
  for (std::int64_t t = 0; t < size(0); ++t) {
    for (std::int64_t h = 0; h < size(1); ++h) {
      const double a = one.rank == 3 ? off(0, t) : 0, b = off(1, h);
      const double left = radius * radius - a * a - b * b;
      if (left < 0) continue;
      const auto half = static_cast<std::int64_t>(std::sqrt(left));
      for (const std::int64_t w : {size(2) / 2 - half, size(2) / 2 + half}) {
        keys.push_back(keyed.key({0, {t, h, std::clamp<std::int64_t>(w, 0, size(2) - 1)}}));
      }
    }
  }
  return std::make_shared<const SparseSites>(std::move(keys), one);
}

}  // namespace convscope
