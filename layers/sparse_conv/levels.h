// SPDX-License-Identifier: Apache-2.0
// levels.h: the site sets of one network, from fine to coarse: how sites travel with features.
//
// Between sparse layers a Variable holds only rows [n,C], so ReLU, dropout, masks and residual sums
// need no sites. The network knows which sites the rows belong to: a submanifold convolution keeps
// the sites, a strided step leads to other sites. Each site set of a network is a level. Levels are
// numbered while the network is built, and a layer knows the numbers of the levels before and after
// the layer. Level 0 has the sites of the batch; every other level is the result of a strided step
// from an earlier level. Two steps from one level with the same kernel lead to the same level, so
// the two branches of a residual block meet again.
//
//   begin(sites)            starts a batch: called when the network is entered
//   submanifold(1, kernel)  the map of a layer on level 1; built at the first call
//
// Sites and maps of a level are built at the first request and shared by all callers. A backward
// pass holds the maps that it needs, so a new batch may begin before the backward pass has run.
//
// Before the first batch there are no sites. Tables such as `convscope explain` are then made for
// an assumed sample: a ring (2-D) or a sphere's shell (3-D) as wide as the grid.
#pragma once

#include <memory>
#include <vector>

#include "layers/sparse_conv/map.h"

namespace convscope {

// Not thread-safe.
class CONVSCOPE_API SiteLevels {
 public:
  // Takes the grid of one sample; its batch size is ignored.
  explicit SiteLevels(SiteGrid grid);

  // Returns the level that a strided step leads to; adds the level if it is new. Throws Error when
  // the kernel does not fit this grid.
  int coarser(int from, const SparseKernel& kernel);
  int count() const { return static_cast<int>(levels_.size()); }
  int rank() const { return grid(0).rank; }
  const SiteGrid& grid(int level) const { return at(level).grid; }        // of one sample
  int finer(int level) const { return at(level).from; }                   // -1: of level 0
  const SparseKernel& step(int level) const { return at(level).kernel; }  // from finer(level)

  // Sets the sites of a batch and drops sites and maps of the previous batch.
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

// Returns the assumed sample: the sites at the surface of the largest ball in the grid.
CONVSCOPE_API SharedSites assumed_sites(const SiteGrid& grid);

}  // namespace convscope
