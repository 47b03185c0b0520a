// SPDX-License-Identifier: Apache-2.0
// show_sites.cpp: pictures of the sites of sparse images and volumes, and of how a network of
// convolutions changes them.
#include "experiments/notebooks/show_sites.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/notebooks/display.h"
#include "framework/int_math.h"

namespace convscope {
namespace {

constexpr std::int64_t kMaxPixels = 96;

// "1,234,567"
std::string grouped(std::int64_t value) {
  std::string out = std::to_string(value);
  for (std::size_t at = out.size(); at > 3;) out.insert(at -= 3, ",");
  return out;
}

std::string percent(double part) { return fmt::format("{:.3g} %", 100 * part); }

SparseKernel kernel_of(const SiteNetwork& network, int rank, std::int64_t stride) {
  SparseKernel out;
  for (std::size_t d = static_cast<std::size_t>(3 - rank); d < 3; ++d) {
    out.size[d] = network.kernel;
    out.stride[d] = stride;
    out.padding[d] = (network.kernel - 1) / 2;
  }
  return out;
}

Section section_of(const std::string& title, const std::vector<SitesOfLayer>& layers,
                   std::int64_t batch) {
  Section out{.title = title, .columns = static_cast<int>(layers.size())};
  for (const SitesOfLayer& one : layers) {
    out.panels.emplace_back(sites_panel(
        *one.sites,
        cat(one.layer, ": ", grouped(one.sites->count()), ", ", percent(one.sites->density())),
        batch));
  }
  return out;
}

}  // namespace

ImagePanel sites_panel(const SparseSites& sites, const std::string& title, std::int64_t batch) {
  const SiteGrid& grid = sites.grid();
  CONVSCOPE_CHECK(batch >= 0 && batch < grid.batch, "sites", "expected a batch index from 0 to ",
                  grid.batch - 1, ", got ", batch);
  const std::int64_t step =
      ceil_div(std::max({grid.extent[1], grid.extent[2], std::int64_t{1}}), kMaxPixels);
  ImagePanel out{.title = title,
                 .rows = static_cast<int>(ceil_div(grid.extent[1], step)),
                 .columns = static_cast<int>(ceil_div(grid.extent[2], step))};
  out.shades.assign(static_cast<std::size_t>(out.rows * out.columns), 0.0);
  for (std::int64_t i = 0; i < sites.count(); ++i) {
    const SitePlace at = sites.place(i);
    if (at.batch != batch) continue;
    out.shades[static_cast<std::size_t>(at.at[1] / step * out.columns + at.at[2] / step)] += 1;
  }
  // The shade of a single site is at least a quarter, so that it is visible next to the longest
  // column of sites.
  const double most = std::max(1.0, *std::ranges::max_element(out.shades));
  for (double& shade : out.shades) {
    if (shade > 0) shade = most == 1 ? 1 : 0.25 + 0.75 * std::sqrt((shade - 1) / (most - 1));
  }
  return out;
}

void show_sites(const SparseSites& sites, const std::string& title, std::int64_t batch) {
  Figure figure{.title = title, .width = 300};
  figure.panels.emplace_back(
      sites_panel(sites, cat(grouped(sites.count()), " sites, ", percent(sites.density())), batch));
  show(figure);
}

std::vector<SitesOfLayer> sites_through(const SharedSites& sites, const SiteNetwork& network,
                                        bool keep) {
  const int rank = sites->grid().rank;
  std::string size;
  for (int d = 0; d < rank; ++d) size += cat(d == 0 ? "" : "x", network.kernel);
  std::vector<SitesOfLayer> out = {{"input", sites, 0}};
  const auto add = [&](const std::string& layer, const SharedMap& map) {
    out.push_back({layer, map->out_sites(), map->pairs()});
  };
  for (int stage = 0; stage < network.stages; ++stage) {
    const SparseKernel same = kernel_of(network, rank, 1);
    add(size, keep ? SparseMap::submanifold(out.back().sites, same)
                   : SparseMap::strided(out.back().sites, same));
    if (network.stride == 1) continue;
    add(cat(size, " / ", network.stride),
        SparseMap::strided(out.back().sites, kernel_of(network, rank, network.stride)));
  }
  return out;
}

Figure sites_figure(const std::vector<SitesOfLayer>& submanifold,
                    const std::vector<SitesOfLayer>& plain, std::int64_t batch) {
  const SparseSites& first = *submanifold.front().sites;
  const int columns = std::clamp(static_cast<int>(submanifold.size()), 4, 7);
  Figure out{.title = "Active sites through a network",
             .subtitle = cat(grouped(first.count()), " sites in a grid of ", first.grid().text(),
                             "; next to each layer: its sites, and their share of the grid"),
             .width = columns * kFigureWidth / 4};
  out.sections = {
      section_of("Submanifold: the sites stay where they are; a stride makes the grid coarser",
                 submanifold, batch),
      section_of("Plain: outputs wherever the kernel meets a site", plain, batch)};
  if (first.grid().rank == 3) {
    out.notes.push_back("Projection along t: darker places have more sites.");
  }
  if (first.grid().batch > 1) {
    out.notes.push_back(
        cat("Drawn: number ", batch, " of the batch. Counts are of all ", first.grid().batch, "."));
  }
  out.data.push_back({"network", "layer", "sites", "density", "pairs"});
  for (const auto& [name, layers] :
       {std::pair("submanifold", &submanifold), std::pair("plain", &plain)}) {
    for (const SitesOfLayer& one : *layers) {
      out.data.push_back({name, one.layer, std::to_string(one.sites->count()),
                          fmt::format("{:.6g}", one.sites->density()), std::to_string(one.pairs)});
    }
  }
  return out;
}

}  // namespace convscope
