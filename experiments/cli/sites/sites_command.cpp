// SPDX-License-Identifier: Apache-2.0
// sites_command.cpp: `convscope sites`: a point cloud, from a file or generated, and its active
// sites in a network, as a table and a figure.
#include <filesystem>
#include <memory>

#include "experiments/bench/sparse/cloud_problem.h"
#include "experiments/cli/command.h"
#include "experiments/notebooks/show_sites.h"
#include "experiments/report/text_table.h"
#include "framework/io/atomic_file.h"
#include "framework/io/npy.h"

namespace convscope {
namespace {

constexpr const char* kCommand = "sites";

struct SitesArguments {
  std::string sites, cloud, figure, out_sites;
  std::int64_t kernel = 3, stride = 2, stages = 2, batch = 0;
};

SharedSites read_sites(const SitesArguments& arguments) {
  if (arguments.sites.empty() == arguments.cloud.empty()) {
    fail_usage(kCommand, cat("expected a file SITES or --cloud TEXT, got ",
                             arguments.sites.empty() ? "none of them" : "both"));
  }
  if (!arguments.cloud.empty()) {
    // The syntax of a benchmark's problem; its layer parameters are ignored.
    const bool whole = arguments.cloud.find("kernel=") != std::string::npos;
    return cloud_sites(
        CloudProblem::parse(whole ? arguments.cloud : arguments.cloud + ",kernel=1,c=1,k=1").cloud);
  }
  const Tensor coordinates = read_npy(arguments.sites);
  return std::make_shared<const SparseSites>(coordinates, SiteGrid::around(coordinates));
}

void check(const SitesArguments& arguments) {
  if (arguments.kernel < 1 || arguments.kernel > 7 || arguments.kernel % 2 == 0) {
    fail_usage(kCommand, cat("expected --kernel 1, 3, 5 or 7 because a submanifold convolution has "
                             "its centre on a site, got ",
                             arguments.kernel));
  }
}

std::string table_of(const std::vector<SitesOfLayer>& submanifold,
                     const std::vector<SitesOfLayer>& plain) {
  TextTable table;
  table.columns = {{"layer"},         {"sites", kWhole},        {"density", 3},
                   {"pairs", kWhole}, {"plain: sites", kWhole}, {"density", 3},
                   {"pairs", kWhole}};
  for (std::size_t i = 0; i < submanifold.size(); ++i) {
    std::vector<TableCell> row = {submanifold[i].layer};
    for (const SitesOfLayer* one : {&submanifold[i], &plain[i]}) {
      row.emplace_back(one->sites->count());
      row.emplace_back(one->sites->density());
      row.push_back(i == 0 ? TableCell() : TableCell(one->pairs));
    }
    table.rows.push_back(std::move(row));
  }
  return to_markdown(table);
}

int sites(const SitesArguments& arguments) {
  check(arguments);
  for (const std::string& path : {arguments.figure, arguments.out_sites}) {
    if (!path.empty()) check_writable(path);
  }
  const SharedSites input = read_sites(arguments);
  const SiteNetwork network{.kernel = arguments.kernel,
                            .stride = arguments.stride,
                            .stages = static_cast<int>(arguments.stages)};
  const auto submanifold = sites_through(input, network, /*keep=*/true);
  const auto plain = sites_through(input, network, /*keep=*/false);
  const Figure figure = sites_figure(submanifold, plain, arguments.batch);
  if (!arguments.figure.empty()) write_file(arguments.figure, to_svg(figure));
  if (!arguments.out_sites.empty()) {
    write_npy(arguments.out_sites, input->in_users_order(input->coordinates()));
  }
  print_screen(cat(input->count(), " sites in ", input->grid().text(), "\n\n",
                   table_of(submanifold, plain)));
  return 0;
}

std::function<int()> declare_sites(CommandLine& app) {
  auto arguments = std::make_shared<SitesArguments>();
  app.add_option("SITES", arguments->sites,
                 "coordinates, .npy, i4: [n,3] (batch, h, w) or [n,4] (batch, t, h, w)");
  app.add_option("--cloud", arguments->cloud,
                 "generated cloud: cloud=shell|room|lidar|random|full|ink,sites=2000,seed=1")
      ->type_name("TEXT");
  app.add_option("--kernel", arguments->kernel, "kernel size of all convolutions along each axis")
      ->capture_default_str();
  app.add_option("--stride", arguments->stride, "stride of every second convolution")
      ->range(1, 64)
      ->capture_default_str();
  app.add_option("--stages", arguments->stages,
                 "number of stages, each of a convolution that keeps the grid and a strided one")
      ->range(1, 8)
      ->capture_default_str();
  app.add_option("--batch-index", arguments->batch, "index of the image or volume to draw")
      ->capture_default_str();
  app.add_option("-o,--out", arguments->figure, "file for the figure (SVG); -: stdout")
      ->type_name("FILE")
      ->output_file();
  app.add_option("--out-sites", arguments->out_sites, "file for the coordinates, .npy")
      ->type_name("FILE");
  return [arguments] { return sites(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "sites", {.summary = "Show the active sites of a cloud after sparse convolutions.",
              .usage = "sites SITES.npy|--cloud TEXT [--kernel K] [--stride S] [-o FILE]",
              .examples = {"sites --cloud cloud=ink,sites=300,seed=4 -o ink.svg",
                           "sites --cloud cloud=shell,sites=20000 --stages 3 -o shell.svg",
                           "sites scan.npy --stride 1 --out-sites again.npy"},
              .order = 37,
              .declare = convscope::declare_sites})
