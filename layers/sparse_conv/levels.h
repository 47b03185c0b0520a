// SPDX-License-Identifier: Apache-2.0
// levels.h: the site sets of one network, from fine to coarse: how sites travel with features.
//
// Between sparse layers a Variable holds rows [n,C] and nothing else, so ReLU, dropout, masks and
// residual sums know nothing of sites. Which sites the rows belong to is a fact of the network: a
// submanifold convolution keeps them, a strided step leads to other ones. So each site set of a
// network is a level, counted while the network is built, and a layer knows the numbers of the
// levels before and behind it. Level 0 are the sites of the batch; each other one is the strided
// step from an earlier level. Two steps from one level with the same kernel lead to the same level,
// so the two ways of a residual block meet again.
//
//   begin(sites)            the entry of the network, once for each batch
//   submanifold(1, kernel)  the map of a layer on level 1; built when the first layer asks for it
//
// Sites and maps of a level are built when somebody asks, and shared by all that ask. A backward
// pass holds the maps that it needs itself, so a new batch may begin before it has run.
//
// Before the first batch nobody knows any sites. Tables such as `convscope explain` are then made
// for an assumed sample: a ring (2-D) or a sphere's shell (3-D) as wide as the grid.
#pragma once

#include <memory>
#include <vector>

#include "layers/sparse_conv/map.h"

namespace convscope {

// Not for two threads at a time.
class CONVSCOPE_API SiteLevels {
 public:
  // The grid of one sample; its batch size is not looked at.
  explicit SiteLevels(SiteGrid grid);

  // The level that a strided step leads to: a known one, or a new one. An error when the kernel is
  // none for this grid.
  int coarser(int from, const SparseKernel& kernel);
  int count() const { return static_cast<int>(levels_.size()); }
  int rank() const { return grid(0).rank; }
  const SiteGrid& grid(int level) const { return at(level).grid; }        // of one sample
  int finer(int level) const { return at(level).from; }                   // -1: of level 0
  const SparseKernel& step(int level) const { return at(level).kernel; }  // from finer(level)

  // The sites of a batch; sites and maps of the batch before are forgotten.
  void begin(SharedSites sites);
  bool has_batch() const { return has_batch_; }

  const SharedSites& sites(int level);
  SharedMap submanifold(int level, const SparseKernel& kernel);
  SharedMap strided(int level);  // from finer(level) to `level`
  SharedMap inverse(int level);  // from `level` back to finer(level)

 private:
  struct Level {
    SiteGrid grid;
    int from = -1;
    SparseKernel kernel = {};
    SharedSites sites = {};  // of the batch, or null
    SharedMap inverse = {};
  };
  const Level& at(int level) const;
  Level& at(int level);

  std::vector<Level> levels_;
  SparseMaps maps_;
  bool has_batch_ = false;
};

using SharedLevels = std::shared_ptr<SiteLevels>;

// The assumed sample: places at the border of the largest ball in the grid.
CONVSCOPE_API SharedSites assumed_sites(const SiteGrid& grid);

}  // namespace convscope
