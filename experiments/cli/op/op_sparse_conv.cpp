// SPDX-License-Identifier: Apache-2.0
// op_sparse_conv.cpp: `convscope op sparse_conv`: sparse convolution and its gradients on NumPy
// files.
//
// Rows of x, y and their gradients are in the order of their sites. The file --sites has the sites
// of x, or with --inverse the sites of y. --out-sites writes the sites of y.
#include "experiments/cli/op/op_sparse_conv.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <iostream>
#include <memory>
#include <vector>

#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "experiments/cli/op/op_conv_sizes.h"
#include "experiments/explain/text_layout.h"
#include "experiments/run_folder/check_lines.h"
#include "framework/io/npy.h"
#include "framework/io/output_place.h"
#include "layers/conv2d/bias_gradient.h"
#include "layers/dispatch/execute.h"
#include "layers/sparse_conv/algorithm.h"

namespace convscope {
namespace {

constexpr const char* kCommand = "op sparse_conv";

struct OpSparse {
  std::string sites, x, w, b, dy;
  std::string out_sites, out_y, out_dx, out_dw, out_db;
  bool submanifold = false, inverse = false;
  std::string stride = "1", padding, dilation = "1", extent;
  std::int64_t batch = 0, repeats = 0;
  std::string algorithm = "auto", clock = "wall";
  std::string device = "cpu", precision;
  bool explain = false;

  bool wants_gradients() const { return !out_dx.empty() || !out_dw.empty() || !out_db.empty(); }
  bool wants_outputs() const { return wants_gradients() || !out_y.empty() || !out_sites.empty(); }
};

void check(const OpSparse& op) {
  if (op.clock != "wall" && op.clock != "cpu") {
    fail_usage(kCommand, cat("expected --clock wall or cpu, got '", op.clock, "'"));
  }
  if (op.wants_gradients() && op.dy.empty()) {
    fail_usage(kCommand, "expected --dy because a gradient is asked for");
  }
  if (op.explain && op.wants_outputs()) {
    fail_usage(kCommand,
               "expected --explain without --out-y and other outputs because it runs nothing");
  }
  if (op.repeats < 0) {
    fail_usage(kCommand, cat("expected --repeats of at least 0, got ", op.repeats));
  }
  if (op.batch < 0) {
    fail_usage(kCommand, cat("expected --batch of at least 1, got ", op.batch));
  }
  if (!op.precision.empty() && op.precision != "f32" && op.device.starts_with("cpu")) {
    fail_usage(kCommand, cat("expected --precision f32 because the CPU has no units for ",
                             op.precision, "; --device cuda may have"));
  }
  if (op.clock == "cpu" && op.repeats > 0 && !op.device.starts_with("cpu")) {
    fail_usage(kCommand, cat("expected --clock wall because a GPU works asynchronously, got "
                             "--clock cpu with --device ",
                             op.device));
  }
  if (!op.explain && !op.wants_outputs()) {
    fail_usage(kCommand,
               "expected --out-y, --out-sites, --out-dx, --out-dw, --out-db or --explain, got "
               "none");
  }
  if (op.submanifold && op.inverse) {
    fail_usage(kCommand, "expected --submanifold or --inverse, got both");
  }
  if (op.submanifold && !op.padding.empty()) {
    fail_usage(kCommand,
               "expected no --padding with --submanifold: the kernel's centre is on its site");
  }
}

// Parses one number for all axes, or one per axis T, H, W.
std::array<std::int64_t, 3> per_axis(const char* option, const std::string& text, int rank,
                                     std::int64_t otherwise) {
  std::array<std::int64_t, 3> out = {otherwise, otherwise, otherwise};
  if (text.empty()) return out;
  const auto axes = static_cast<std::size_t>(rank);
  const std::vector<std::int64_t> values = whole_numbers(kCommand, option, text, {1, axes});
  for (std::size_t d = 0; d < axes; ++d) {
    out[3 - axes + d] = values.size() == 1 ? values[0] : values[d];
  }
  return out;
}

SharedSites read_sites(const OpSparse& op) {
  const Tensor coordinates = read_npy(op.sites);
  SiteGrid grid = SiteGrid::around(coordinates);
  const auto axes = static_cast<std::size_t>(grid.rank);
  if (!op.extent.empty()) {
    const auto values = whole_numbers(kCommand, "--extent", op.extent, {axes});
    std::copy(values.begin(), values.end(), grid.extent.end() - grid.rank);
  }
  if (op.batch > 0) grid.batch = op.batch;
  return std::make_shared<const SparseSites>(coordinates, grid);
}

SharedMap map_of(const OpSparse& op, const SharedSites& sites, const Shape& w) {
  const int rank = sites->grid().rank;
  SparseKernel kernel{.stride = per_axis("--stride", op.stride, rank, 1),
                      .padding = per_axis("--padding", op.padding, rank, 0),
                      .dilation = per_axis("--dilation", op.dilation, rank, 1)};
  for (int d = 0; d < rank; ++d) kernel.size[static_cast<std::size_t>(3 - rank + d)] = w[2 + d];
  if (op.submanifold) return SparseMap::submanifold(sites, kernel);
  const SharedMap strided = SparseMap::strided(sites, kernel);
  return op.inverse ? SparseMap::inverse(strided) : strided;
}

struct Inputs {
  SparseConvProblem problem;
  SparseConvTensors tensors;  // rows in the order of the keys, on the device
  DType file_type = DType::f32;
};

// Sets the compute type: the type of the files, or for f32 files the type of --precision.
void set_precision(const OpSparse& op, SparseConvProblem& z) {
  for (const ComputePrecision precision : kComputePrecisions) {
    if (name_of(precision) != op.precision) continue;
    CONVSCOPE_CHECK(z.dtype == DType::f32 || z.dtype == factor_type(precision), kCommand,
                    "expected files of type f32 for --precision ", op.precision, ", got x of type ",
                    name_of(z.dtype));
    z.dtype = factor_type(precision);
    z.math = math_mode(precision);
  }
}

Inputs read_inputs(const OpSparse& op, Device device) {
  const SharedSites sites = read_sites(op);
  const int rank = sites->grid().rank;
  SparseConvTensors t{.x = read_npy(op.x), .w = read_npy(op.w), .b = {}, .dy = {}};
  const DType type = t.x.dtype();
  CONVSCOPE_CHECK((type == DType::f32 || type == DType::f64 || type == DType::f16) &&
                      t.x.shape().rank() == 2 && t.x.shape()[1] >= 1,
                  kCommand, "expected x [n,C] of type f32, f64 or f16, got ", t.x.str());
  CONVSCOPE_CHECK(t.w.dtype() == t.x.dtype() && t.w.shape().rank() == 2 + rank, kCommand,
                  "expected w [K,C,", rank == 3 ? "T," : "",
                  "R,S] of the type of x because the sites have ", rank, " axes, got ", t.w.str());
  CONVSCOPE_CHECK(t.w.shape()[0] >= 1 && t.w.shape()[1] == t.x.shape()[1], kCommand,
                  "expected w [K,C,...] with the C of x ", t.x.shape(), ", got ", t.w.str());
  SparseConvProblem z{.map = map_of(op, sites, t.w.shape()),
                      .c = t.x.shape()[1],
                      .k = t.w.shape()[0],
                      .dtype = type};
  z.check();
  CONVSCOPE_CHECK(t.x.shape() == z.x_shape(), kCommand, "expected x ", z.x_shape(),
                  op.inverse ? " because the strided convolution has that many outputs, got "
                             : " because --sites has that many rows, got ",
                  t.x.str());
  t.x = z.map->in_sites()->in_key_order(t.x);
  if (!op.b.empty()) {
    t.b = read_like(kCommand, "b", op.b, {z.k}, t.x, "it has one number of each kernel");
  }
  if (op.wants_gradients()) {
    t.dy = z.map->out_sites()->in_key_order(
        read_like(kCommand, "dy", op.dy, z.y_shape(), t.x, "that is y"));
  }
  set_precision(op, z);
  for (Tensor* const one : {&t.x, &t.w, &t.b, &t.dy}) {
    if (one->defined()) *one = one->to(z.dtype).to(device);
  }
  return {z, t, type};
}

// Prints the median time of some runs after one warm-up run. `run` returns when all its work is
// done.
void print_ms(const OpSparse& op, const std::string& what, const std::function<void()>& run) {
  if (op.repeats <= 0) return;
  const auto now = [&] {
    if (op.clock == "cpu") return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
    const auto time = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(time).count();
  };
  std::vector<double> ms;
  run();
  for (std::int64_t i = 0; i < op.repeats; ++i) {
    const double begin = now();
    run();
    ms.push_back(now() - begin);
  }
  std::ranges::sort(ms);
  std::cout << what << " ms: " << ms[ms.size() / 2] << "\n";
}

// Returns the result on the host, in the type of the files.
Tensor computed(const OpSparse& op, const Inputs& inputs, Direction direction) {
  const Device device = inputs.tensors.x.device();
  const auto choice = select_algorithm(op.algorithm, inputs.problem, direction, device);
  std::cerr << name_of(direction) << ": " << choice.algorithm->name << "\n";
  Operands out = sparse_conv_operands(direction, inputs.tensors);
  out.out[0] = Tensor::empty(inputs.problem.operands(direction).outputs[0].shape,
                             inputs.problem.dtype, device);
  execute(choice, inputs.problem, direction, out);
  print_ms(op, std::string(name_of(direction)), [&] {
    execute(choice, inputs.problem, direction, out);
    backend_of(device).synchronize(device.index);
  });
  return out.out[0].values.to(Device{}).to(inputs.file_type);
}

Tensor bias_gradient(const Inputs& inputs) {
  const Tensor db =
      Tensor::empty({inputs.problem.k}, inputs.file_type == DType::f64 ? DType::f64 : DType::f32);
  const Tensor dy = inputs.tensors.dy.to(Device{}).to(db.dtype());
  const Shape& shape = dy.shape();  // images of one pixel
  conv2d_bias_gradient_kernel.get(Device{})(dy.reshape({shape[0], shape[1], 1, 1}), db,
                                            /*accumulate=*/false);
  return db.to(inputs.file_type);
}

// Returns a table of all algorithms of the device, and the reason of the choice of `auto`.
std::string explained(const OpSparse& op, const SparseConvProblem& problem, Direction direction,
                      Device device) {
  const std::vector<Verdict> verdicts = explain(op.algorithm, problem, direction, device);
  std::vector<std::vector<std::string>> rows(
      1, {"  algorithm", "ms", "limit", "products", "workspace", "prepared", ""});
  std::string refusing;
  const auto mib = [](std::size_t bytes) {
    return number_text("%.2f", static_cast<double>(bytes) / 1048576.0);
  };
  for (const Verdict& one : verdicts) {
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
  std::string out = cat(name_of(direction), " (", op.algorithm, ")\n");
  if (rows.size() > 1) out += columns_text(rows, 4, {1, 3, 4, 5});
  return out + refusing;
}

int explain_sparse(const OpSparse& op, const Inputs& inputs, Device device) {
  const SparseConvProblem& z = inputs.problem;
  const double sites = static_cast<double>(std::max<std::int64_t>(1, z.out_count()));
  std::string out = cat(
      z.text(), "\n", number_text("%.2f", static_cast<double>(z.map->pairs()) / sites),
      " pairs for each output site, density ", number_text("%.3g", z.map->in_sites()->density()),
      ", ", number_text("%.4g", z.nominal_flops() * 1e-6), " MFLOP\n");
  for (const Direction direction : kDirections) out += explained(op, z, direction, device);
  print_screen(out +
               "*: chosen (auto: the least estimate). ms are estimates; limit: what dominates the "
               "estimate;\nproducts: executed products / products of pairs; workspace and prepared "
               "weights in MiB.\n");
  return 0;
}

int run_sparse(const OpSparse& op) {
  check(op);
  const Device device = Device::parse(op.device);
  backend_of(device);  // fails when it is not available
  const std::vector<std::string> names = sparse_conv_algorithms(device.type).names();
  if (names.empty()) {
    fail(ErrorKind::kUnavailable, kCommand,
         cat("expected --device cpu because there is no algorithm of sparse convolution for ",
             name_of(device.type), " in this build, got --device ", op.device));
  }
  check_policy("sparse_conv", op.algorithm, device, names);
  const Inputs inputs = read_inputs(op, device);
  const SparseMap& map = *inputs.problem.map;
  check_output_files({op.out_sites, op.out_y, op.out_dx, op.out_dw, op.out_db});
  measure_this_machine_once();
  forget_check_results();
  if (op.explain) return explain_sparse(op, inputs, device);
  std::cerr << inputs.problem.text() << "\n";
  std::cerr << "map: " << map.bytes() << " bytes\n";
  print_ms(op, "sites", [&] { read_sites(op); });
  print_ms(op, "map", [&] {
    const SharedSites& given = op.inverse ? map.out_sites() : map.in_sites();
    map_of(op, given, inputs.problem.w_shape());
  });
  if (!op.out_sites.empty()) {
    write_npy(op.out_sites, map.out_sites()->in_users_order(map.out_sites()->coordinates()));
  }
  if (!op.out_y.empty()) {
    write_npy(op.out_y, map.out_sites()->in_users_order(computed(op, inputs, Direction::forward)));
  }
  if (!op.out_dx.empty()) {
    write_npy(op.out_dx,
              map.in_sites()->in_users_order(computed(op, inputs, Direction::backward_data)));
  }
  if (!op.out_dw.empty()) write_npy(op.out_dw, computed(op, inputs, Direction::backward_weight));
  if (!op.out_db.empty()) write_npy(op.out_db, bias_gradient(inputs));
  for (const std::string& line : check_lines()) std::cerr << line << "\n";
  return 0;
}

}  // namespace

void declare_op_sparse_conv(CommandLine& op, std::function<int()>& run) {
  auto sparse = std::make_shared<OpSparse>();
  CommandLine* const app = op.add_subcommand(
      "sparse_conv", "Run a sparse convolution at given sites, or its gradients.");
  app->add_option("--sites", sparse->sites,
                  "sites of the rows of x, .npy, i4: [n,3] (batch, h, w) or [n,4] (batch, t, h, w)")
      ->required();
  app->add_option("--x", sparse->x, "input [n,C], a row for each site, f4, f8 or f2")->required();
  app->add_option("--w", sparse->w, "weights [K,C,R,S] or [K,C,T,R,S]")->required();
  app->add_option("--b", sparse->b, "bias [K]");
  app->add_option("--dy", sparse->dy, "gradient of the output");
  app->add_flag("--submanifold", sparse->submanifold,
                "outputs only at the sites (default: wherever the kernel covers a site)");
  app->add_flag("--inverse", sparse->inverse,
                "inverse convolution: x is at the outputs of the strided convolution of --sites, y "
                "at --sites");
  app->add_option("--stride", sparse->stride, "one number, H,W or T,H,W")->capture_default_str();
  app->add_option("--padding", sparse->padding, "one number, H,W or T,H,W (default 0)");
  app->add_option("--dilation", sparse->dilation, "one number, H,W or T,H,W")
      ->capture_default_str();
  app->add_option("--extent", sparse->extent,
                  "size of the image or volume, H,W or T,H,W (default: from the sites)");
  app->add_option("--batch", sparse->batch,
                  "number of images or volumes (default: from the sites)");
  app->add_option("--algorithm", sparse->algorithm,
                  "algorithm: auto, measure, check:<a>,<b>, a name, or a list <a>,<b>,auto")
      ->capture_default_str();
  app->add_option("--device", sparse->device, "device: cpu, cuda or cuda:<index>")
      ->capture_default_str();
  app->add_option("--precision", sparse->precision,
                  "precision of products for f4 files: f32, tf32, bf16 or f16 (tf32, bf16 and f16: "
                  "cuda only); results are f4")
      ->one_of({"f32", "tf32", "bf16", "f16"});
  app->add_flag("--explain", sparse->explain,
                "estimated cost of each algorithm, and the choice with its reason; nothing is run");
  app->add_option("--repeats", sparse->repeats,
                  "number of timed repetitions; prints the median time of reading and sorting the "
                  "sites, the map and each direction");
  app->add_option("--clock", sparse->clock,
                  "clock of --repeats: wall, or cpu (CPU time, for one thread on a busy machine)")
      ->capture_default_str();
  app->add_option("--out-sites", sparse->out_sites, "output file for the sites of the rows of y");
  app->add_option("--out-y", sparse->out_y, "output file for y, .npy");
  app->add_option("--out-dx", sparse->out_dx, "output file for the gradient of x");
  app->add_option("--out-dw", sparse->out_dw, "output file for the gradient of w");
  app->add_option("--out-db", sparse->out_db, "output file for the gradient of b");
  app->callback([sparse, &run] { run = [sparse] { return run_sparse(*sparse); }; });
}

}  // namespace convscope
