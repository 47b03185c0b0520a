// SPDX-License-Identifier: Apache-2.0
// show_sites.h: pictures of the sites of sparse images and volumes, and of how a network of
// convolutions changes them: submanifold or plain.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/report/chart/figure.h"
#include "layers/sparse_conv/map.h"

namespace convscope {

// Draws one image or volume of the batch. A volume is seen along t: darker pixels have more sites
// in the line of sight. Beyond 96 rows or columns, several grid positions are drawn as one.
CONVSCOPE_API ImagePanel sites_panel(const SparseSites& sites, const std::string& title,
                                     std::int64_t batch = 0);
CONVSCOPE_API void show_sites(const SparseSites& sites, const std::string& title = "",
                              std::int64_t batch = 0);

// Sites after each layer of a network.
struct SitesOfLayer {
  std::string layer;  // "input", "3x3x3", "3x3x3 / 2"
  SharedSites sites;
  std::int64_t pairs = 0;  // from the previous layer to these sites; 0: of the input
};

struct SiteNetwork {
  std::int64_t kernel = 3, stride = 2;
  int stages = 2;  // a stage: a convolution that keeps the grid, then a strided one
};
// Computes the sites after each layer. With `keep`, the convolutions that keep the grid are
// submanifold. Without `keep`, they are plain convolutions: every position whose window contains a
// site becomes a site, so sites spread from layer to layer.
CONVSCOPE_API std::vector<SitesOfLayer> sites_through(const SharedSites& sites,
                                                      const SiteNetwork& network, bool keep);
// Draws both networks, one above the other.
CONVSCOPE_API Figure sites_figure(const std::vector<SitesOfLayer>& submanifold,
                                  const std::vector<SitesOfLayer>& plain, std::int64_t batch = 0);

}  // namespace convscope
