// SPDX-License-Identifier: Apache-2.0
// sparse_conv.cpp: the sparse convolution in the commands. Benchmarks generate point clouds.
//
// In `convscope op sparse_conv`, rows of x, y and their gradients are in the order of their sites.
// The file --sites has the sites of x, or with --inverse the sites of y. --out-sites writes the
// sites of y.
#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

#include "experiments/bench/sparse/sparse_bench.h"
#include "experiments/check/reference_check.h"
#include "experiments/cli/bench/bench_legend.h"
#include "experiments/cli/command.h"
#include "experiments/explain/text_layout.h"
#include "experiments/operators/bench_call.h"
#include "experiments/operators/conv_sizes.h"
#include "experiments/operators/operator_table.h"
#include "experiments/tune/random_problems.h"
#include "experiments/tune/tuning.h"
#include "framework/io/npy.h"

namespace convscope {
namespace {

class SparseConvOpCall final : public OpCallOf<SparseConvProblem> {
 public:
  SparseConvOpCall()
      : OpCallOf(
            {{"sites",
              "sites of the rows of x, .npy, i4: [n,3] (batch, h, w) or [n,4] (batch, t, h, w)",
              /*is_required=*/true, /*has_gradient=*/false},
             {"x", "input [n,C], a row for each site, f4, f8 or f2"},
             {"w", "weights [K,C,R,S] or [K,C,T,R,S]"},
             {"b", "bias [K]", /*is_required=*/false}},
            "gradient of the output") {}

 private:
  std::vector<std::string> other_outputs() const override { return {out_sites_}; }
  void after_run(Direction direction, const std::function<void()>& run) const override {
    print_ms(std::string(name_of(direction)), run);
  }

  void add_options(CommandLine& app) override {
    app.add_flag("--submanifold", submanifold_,
                 "outputs only at the sites (default: wherever the kernel covers a site)");
    app.add_flag(
        "--inverse", inverse_,
        "inverse convolution: x is at the outputs of the strided convolution of --sites, y "
        "at --sites");
    app.add_option("--stride", stride_, "one number, H,W or T,H,W")->capture_default_str();
    app.add_option("--padding", padding_, "one number, H,W or T,H,W (default 0)");
    app.add_option("--dilation", dilation_, "one number, H,W or T,H,W")->capture_default_str();
    app.add_option("--extent", extent_,
                   "size of the image or volume, H,W or T,H,W (default: from the sites)");
    app.add_option("--batch", batch_, "number of images or volumes (default: from the sites)");
  }

  void add_run_options(CommandLine& app) override {
    app.add_option(
           "--precision", precision_,
           "precision of products for f4 files: f32, tf32, bf16 or f16 (tf32, bf16 and f16: "
           "cuda only); results are f4")
        ->one_of({"f32", "tf32", "bf16", "f16"});
    app.add_flag(
        "--explain", explain_,
        "estimated cost of each algorithm, and the choice with its reason; nothing is run");
    app.add_option("--repeats", repeats_,
                   "number of timed repetitions; prints the median time of reading and sorting the "
                   "sites, the map and each direction");
    app.add_option("--clock", clock_,
                   "clock of --repeats: wall, or cpu (CPU time, for one thread on a busy machine)")
        ->capture_default_str();
    app.add_option("--out-sites", out_sites_, "output file for the sites of the rows of y");
  }

  void check() const override {
    if (clock_ != "wall" && clock_ != "cpu") {
      fail_usage(command(), cat("expected --clock wall or cpu, got '", clock_, "'"));
    }
    require_dy();
    const bool writes = wants_results() || !out_sites_.empty();
    if (explain_ && writes) {
      fail_usage(command(),
                 "expected --explain without --out-y and other outputs because it runs nothing");
    }
    if (repeats_ < 0) {
      fail_usage(command(), cat("expected --repeats of at least 0, got ", repeats_));
    }
    if (batch_ < 0) fail_usage(command(), cat("expected --batch of at least 1, got ", batch_));
    const bool on_cpu = device_name().starts_with("cpu");
    if (!precision_.empty() && precision_ != "f32" && on_cpu) {
      fail_usage(command(), cat("expected --precision f32 because the CPU has no units for ",
                                precision_, "; --device cuda may have"));
    }
    if (clock_ == "cpu" && repeats_ > 0 && !on_cpu) {
      fail_usage(command(), cat("expected --clock wall because a GPU works asynchronously, got "
                                "--clock cpu with --device ",
                                device_name()));
    }
    if (!explain_ && !writes) {
      fail_usage(command(),
                 "expected --out-y, --out-sites, --out-dx, --out-dw, --out-db or --explain, got "
                 "none");
    }
    if (submanifold_ && inverse_) {
      fail_usage(command(), "expected --submanifold or --inverse, got both");
    }
    if (submanifold_ && !padding_.empty()) {
      fail_usage(command(),
                 "expected no --padding with --submanifold: the kernel's centre is on its site");
    }
  }

  // Parses one number for all axes, or one per axis T, H, W.
  std::array<std::int64_t, 3> per_axis(const char* option, const std::string& text, int rank,
                                       std::int64_t otherwise) const {
    std::array<std::int64_t, 3> out = {otherwise, otherwise, otherwise};
    if (text.empty()) return out;
    const auto axes = static_cast<std::size_t>(rank);
    const std::vector<std::int64_t> values = whole_numbers(command(), option, text, {1, axes});
    for (std::size_t d = 0; d < axes; ++d) {
      out[3 - axes + d] = values.size() == 1 ? values[0] : values[d];
    }
    return out;
  }

  SharedSites sites_of(const Tensor& coordinates) const {
    SiteGrid grid = SiteGrid::around(coordinates);
    const auto axes = static_cast<std::size_t>(grid.rank);
    if (!extent_.empty()) {
      const auto values = whole_numbers(command(), "--extent", extent_, {axes});
      std::copy(values.begin(), values.end(), grid.extent.end() - grid.rank);
    }
    if (batch_ > 0) grid.batch = batch_;
    return std::make_shared<const SparseSites>(coordinates, grid);
  }

  SharedMap map_of(const SharedSites& sites, const Shape& w) const {
    const int rank = sites->grid().rank;
    SparseKernel kernel{.stride = per_axis("--stride", stride_, rank, 1),
                        .padding = per_axis("--padding", padding_, rank, 0),
                        .dilation = per_axis("--dilation", dilation_, rank, 1)};
    for (int d = 0; d < rank; ++d) kernel.size[static_cast<std::size_t>(3 - rank + d)] = w[2 + d];
    if (submanifold_) return SparseMap::submanifold(sites, kernel);
    const SharedMap strided = SparseMap::strided(sites, kernel);
    return inverse_ ? SparseMap::inverse(strided) : strided;
  }

  // Sets the compute type: the type of the files, or for f32 files the type of --precision.
  void set_precision(SparseConvProblem& z) const {
    for (const ComputePrecision precision : kComputePrecisions) {
      if (name_of(precision) != precision_) continue;
      CONVSCOPE_CHECK(z.dtype == DType::f32 || z.dtype == factor_type(precision), command(),
                      "expected files of type f32 for --precision ", precision_, ", got x of type ",
                      name_of(z.dtype));
      z.dtype = factor_type(precision);
      z.math = math_mode(precision);
    }
  }

  SparseConvProblem problem_of_arrays() const override {
    const SharedSites sites = sites_of(given("sites"));
    const int rank = sites->grid().rank;
    const Tensor &x = given("x"), &w = given("w");
    const DType type = x.dtype();
    CONVSCOPE_CHECK((type == DType::f32 || type == DType::f64 || type == DType::f16) &&
                        x.shape().rank() == 2 && x.shape()[1] >= 1,
                    command(), "expected x [n,C] of type f32, f64 or f16, got ", x.str());
    CONVSCOPE_CHECK(w.dtype() == type && w.shape().rank() == 2 + rank, command(),
                    "expected w [K,C,", rank == 3 ? "T," : "",
                    "R,S] of the type of x because the sites have ", rank, " axes, got ", w.str());
    CONVSCOPE_CHECK(w.shape()[0] >= 1 && w.shape()[1] == x.shape()[1], command(),
                    "expected w [K,C,...] with the C of x ", x.shape(), ", got ", w.str());
    SparseConvProblem z{
        .map = map_of(sites, w.shape()), .c = x.shape()[1], .k = w.shape()[0], .dtype = type};
    z.check();
    CONVSCOPE_CHECK(x.shape() == z.x_shape(), command(), "expected x ", z.x_shape(),
                    inverse_ ? " because the strided convolution has that many outputs, got "
                             : " because --sites has that many rows, got ",
                    x.str());
    set_precision(z);
    return z;
  }

  Tensor stored(const std::string& name, const Tensor& array) const override {
    if (name == "x") return problem().map->in_sites()->in_key_order(array);
    return name == "dy" ? problem().map->out_sites()->in_key_order(array) : array;
  }

  Tensor shown(const std::string& name, const Tensor& result) const override {
    if (name == "dx") return problem().map->in_sites()->in_users_order(result);
    return name == "y" ? problem().map->out_sites()->in_users_order(result) : result;
  }

  // Prints the median time of some runs after one warm-up run. `run` returns when all its work is
  // done.
  void print_ms(const std::string& what, const std::function<void()>& run) const {
    if (repeats_ <= 0) return;
    const auto now = [&] {
      if (clock_ == "cpu") return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
      const auto time = std::chrono::steady_clock::now().time_since_epoch();
      return std::chrono::duration<double, std::milli>(time).count();
    };
    std::vector<double> ms;
    run();
    for (std::int64_t i = 0; i < repeats_; ++i) {
      const double begin = now();
      run();
      ms.push_back(now() - begin);
    }
    std::ranges::sort(ms);
    std::cout << what << " ms: " << ms[ms.size() / 2] << "\n";
  }

  bool begin() override {
    if (explain_) {
      print_explanation();
      return false;
    }
    OpCallOf::begin();
    const SparseMap& map = *problem().map;
    std::cerr << "map: " << map.bytes() << " bytes\n";
    print_ms("sites", [&] { sites_of(read_npy(file("sites"))); });
    print_ms("map",
             [&] { map_of(inverse_ ? map.out_sites() : map.in_sites(), problem().w_shape()); });
    if (!out_sites_.empty()) {
      write_npy(out_sites_, map.out_sites()->in_users_order(map.out_sites()->coordinates()));
    }
    return true;
  }

  // Returns a table of all algorithms of the device, and the reason of the choice of `auto`.
  std::string explained(Direction direction) const {
    std::vector<std::vector<std::string>> rows(
        1, {"  algorithm", "ms", "limit", "products", "workspace", "prepared", ""});
    std::string refusing;
    const auto mib = [](std::size_t bytes) {
      return number_text("%.2f", static_cast<double>(bytes) / 1048576.0);
    };
    for (const Verdict& one : explain(algorithm(), problem(), direction, device())) {
      if (!one.accepts) {
        refusing += wrapped_text(
            cat("    ", one.refused ? "! " : "  ", one.algorithm, " refuses: ", one.reason), 8);
        continue;
      }
      rows.push_back({cat(one.chosen || one.checks ? "* " : "  ", one.algorithm),
                      number_text("%.3f", one.estimated_ms), one.limit,
                      number_text("%.2fx", one.executed_per_useful), mib(one.workspace_bytes),
                      mib(one.prepared_bytes), one.reason});
    }
    std::string out = cat(name_of(direction), " (", algorithm(), ")\n");
    if (rows.size() > 1) out += columns_text(rows, 4, {1, 3, 4, 5});
    return out + refusing;
  }

  void print_explanation() const {
    const SparseConvProblem& z = problem();
    const double sites = static_cast<double>(std::max<std::int64_t>(1, z.out_count()));
    std::string out = cat(
        z.text(), "\n", number_text("%.2f", static_cast<double>(z.map->pairs()) / sites),
        " pairs for each output site, density ", number_text("%.3g", z.map->in_sites()->density()),
        ", ", number_text("%.4g", z.nominal_flops() * 1e-6), " MFLOP\n");
    for (const Direction direction : kDirections) out += explained(direction);
    print_screen(
        out +
        "*: chosen (auto: the least estimate). ms are estimates; limit: what dominates the "
        "estimate;\nproducts: executed products / products of pairs; workspace and prepared "
        "weights in MiB.\n");
  }

  bool submanifold_ = false, inverse_ = false, explain_ = false;
  std::string stride_ = "1", padding_, dilation_ = "1", extent_, out_sites_;
  std::int64_t batch_ = 0, repeats_ = 0;
  std::string clock_ = "wall", precision_;
};

class SparseConvBenchCall final : public BenchCallOf<CloudProblem, SparseConvProblem> {
 public:
  SparseConvBenchCall()
      : BenchCallOf(
            {"cloud=shell|room|lidar|random|full|ink,sites=100000,seed=1,kernel=3x3x3,c=64,k="
             "64; optional: batch=2, density=0.05 (for random), kind=strided|inverse, "
             "stride=2, pad=1, dilation=2",
             "cloud=shell,sites=10000"}) {}

 private:
  ReportedGroup measure(const CloudProblem& problem, Direction direction,
                        const BenchProgress& progress) override {
    if (map_ == nullptr || problem.map_text() != map_text_) {
      progress("drawing the cloud");
      map_.reset();
      map_ = std::make_unique<CloudMap>(problem, settings().cpu_clock, device());
      map_text_ = problem.map_text();
    }
    return bench_cloud(settings(), problem, *map_, direction, algorithms(), progress);
  }
  std::string legend() const override { return BenchCallOf::legend() + sparse_legend(); }

  // The map of the last problem, because consecutive problems often differ only in channels.
  std::string map_text_;
  std::unique_ptr<CloudMap> map_;
};

// Each kind of map in volumes and images, with few and with many channels.
CheckedProblems<SparseConvProblem> checked_problems() {
  return {
      .texts = {"cloud=shell,sites=300,kernel=3x3x3,c=16,k=16",
                "cloud=random,sites=200,density=0.1,batch=2,kernel=3x3x3,stride=2,pad=1,c=5,k=7",
                "cloud=ink,sites=150,kernel=3x3,c=3,k=33",
                "cloud=random,sites=150,density=0.2,kind=inverse,kernel=2x2x2,stride=2,c=17,k=4",
                "cloud=room,sites=400,kernel=1x1x1,c=24,k=8",
                "cloud=lidar,sites=500,kernel=3x3x3,dilation=2,c=32,k=24",
                "cloud=ink,sites=200,kernel=2x3,stride=2,c=4,k=64",
                "cloud=full,sites=512,kernel=3x3x3,c=1,k=1"},
      .parse = [](const std::string& text) {
        const CloudProblem cloud = CloudProblem::parse(text);
        return cloud.on(cloud.map());
      }};
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_OPERATOR(
    SparseConvProblem, SparseConvOpCall, SparseConvBenchCall,
    {.title = "sparse convolution",
     .list_titles = {"Algorithms of sparse convolution, CPU",
                     "Algorithms of sparse convolution, CUDA"},
     .op_summary = "Run a sparse convolution at given sites, or its gradients.",
     .bench_summary = "Time the algorithms of sparse convolution on point clouds.",
     .op_examples = {"--sites sites.npy --x x.npy --w w.npy --submanifold "
                     "--out-y y.npy"},
     .bench_examples = {"--shapes experiments/shapes/sparse.txt --threads 1"},
     .check_examples = {"implicit_gemm --quick"},
     .check = convscope::reference_check(convscope::checked_problems()),
     .tune = [](convscope::Tuning& tuning) {
       const auto cloud = convscope::CloudProblem::parse(
           convscope::random_cloud(tuning.random(), tuning.device().type));
       tuning.measure(cloud.on(cloud.map()));
     }})
