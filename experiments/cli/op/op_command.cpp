// SPDX-License-Identifier: Apache-2.0
// op_command.cpp: `convscope op`: one operation on NumPy files, for comparison with any other
// system. conv2d is here, deform_conv2d in op_deform_conv2d.cpp, sparse_conv in op_sparse_conv.cpp,
// lsq in op_lsq.cpp, a whole network in op_net.cpp.
#include <iostream>
#include <memory>

#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "experiments/cli/op/op_conv_sizes.h"
#include "experiments/cli/op/op_deform_conv2d.h"
#include "experiments/cli/op/op_lsq.h"
#include "experiments/cli/op/op_net.h"
#include "experiments/cli/op/op_sparse_conv.h"
#include "experiments/run_folder/check_lines.h"
#include "framework/io/npy.h"
#include "framework/io/output_place.h"
#include "layers/conv2d/bias_gradient.h"
#include "layers/conv2d/conv2d.h"
#include "layers/conv2d/execute.h"

namespace convscope {
namespace {

struct OpConv2d {
  std::string x, w, b, dy;
  std::string out_y, out_dx, out_dw, out_db;
  OpConvSizes sizes;
  std::string algorithm = "auto";
  std::string device = "cpu";
};

int compute(const OpConv2d& op) {
  const bool backward = !op.out_dx.empty() || !op.out_dw.empty() || !op.out_db.empty();
  if (backward && op.dy.empty()) {
    fail_usage("op conv2d", "expected --dy because a gradient is asked for");
  }
  if (op.out_y.empty() && !backward) {
    fail_usage("op conv2d", "expected --out-y, --out-dx, --out-dw or --out-db, got none");
  }
  const Device device = Device::parse(op.device);
  backend_of(device);  // fails when it is not available
  const Conv2dParams params = conv_params("op conv2d", op.sizes);
  check_conv2d_policy(op.algorithm, device);
  const Tensor x = read_npy(op.x).to(device);
  const Tensor w = read_npy(op.w).to(device);
  const Tensor b = op.b.empty() ? Tensor() : read_npy(op.b).to(device);
  CONVSCOPE_CHECK(x.dtype() == DType::f32 || x.dtype() == DType::f64, "op conv2d",
                  "expected x of type f32 or f64, got ", x.str());
  CONVSCOPE_CHECK(w.dtype() == x.dtype(), "op conv2d", "expected x and w of one type, got ",
                  x.str(), " and ", w.str());
  const Conv2dProblem problem = conv2d_problem(x.shape(), w.shape(), params, x.dtype());
  CONVSCOPE_CHECK(!b.defined() || (b.shape() == Shape{problem.k} && b.dtype() == x.dtype()),
                  "op conv2d", "expected b [", problem.k, "] of the type of x, got ", b.str());

  check_output_files({op.out_y, op.out_dx, op.out_dw, op.out_db});
  measure_this_machine_once();
  const auto choose = [&](Direction direction) {
    const Conv2dChoice choice = select_conv2d(op.algorithm, problem, direction, device);
    std::cerr << name_of(direction) << ": " << choice.algorithm->name << "\n";
    return choice;
  };
  std::cerr << problem.text() << "\n";
  if (!op.out_y.empty()) {
    const Tensor y = Tensor::empty(problem.y_shape(), x.dtype(), device);
    execute_forward(choose(Direction::forward), problem, x, w, b, y);
    write_npy(op.out_y, y.to(Device{}));
  }
  if (!backward) return 0;
  const Tensor dy = read_like("op conv2d", "dy", op.dy, problem.y_shape(), x, "that is y");
  if (!op.out_dx.empty()) {
    const Tensor dx = Tensor::empty(problem.x_shape(), x.dtype(), device);
    execute_backward_data(choose(Direction::backward_data), problem, dy, w, dx);
    write_npy(op.out_dx, dx.to(Device{}));
  }
  if (!op.out_dw.empty()) {
    const Tensor dw = Tensor::empty(problem.w_shape(), x.dtype(), device);
    execute_backward_weight(choose(Direction::backward_weight), problem, x, dy, dw,
                            /*accumulate=*/false);
    write_npy(op.out_dw, dw.to(Device{}));
  }
  if (!op.out_db.empty()) {
    const Tensor db = Tensor::empty({problem.k}, x.dtype(), device);
    conv2d_bias_gradient_kernel.get(device)(dy, db, /*accumulate=*/false);
    write_npy(op.out_db, db.to(Device{}));
  }
  return 0;
}

int run(const OpConv2d& op) {
  forget_check_results();
  const int code = compute(op);
  for (const std::string& line : check_lines()) std::cerr << line << "\n";
  return code;
}

std::function<int()> declare(CommandLine& app) {
  auto op = std::make_shared<OpConv2d>();
  CommandLine* const conv = app.add_subcommand("conv2d", "Run a convolution or its gradients.");
  app.require_subcommand(1);
  conv->add_option("--x", op->x, "input [N,C,H,W], .npy, f4 or f8")->required();
  conv->add_option("--w", op->w, "weights [K,C/groups,R,S]")->required();
  conv->add_option("--b", op->b, "bias [K]");
  conv->add_option("--dy", op->dy, "gradient of the output [N,K,P,Q]");
  add_conv_sizes(*conv, op->sizes);
  conv->add_option("--algorithm", op->algorithm,
                   "algorithm: auto, measure, check:<a>,<b>, a name, or a list <a>,<b>,auto")
      ->capture_default_str();
  conv->add_option("--device", op->device, "device: cpu, cuda or cuda:<index>")
      ->capture_default_str();
  conv->add_option("--out-y", op->out_y, "output file for y, .npy");
  conv->add_option("--out-dx", op->out_dx, "output file for the gradient of x");
  conv->add_option("--out-dw", op->out_dw, "output file for the gradient of w");
  conv->add_option("--out-db", op->out_db, "output file for the gradient of b");
  auto other = std::make_shared<std::function<int()>>();
  declare_op_deform_conv2d(app, *other);
  declare_op_lsq(app, *other);
  declare_op_net(app, *other);
  declare_op_sparse_conv(app, *other);
  return [op, other] { return *other ? (*other)() : run(*op); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "op", {.summary = "Run one operator on NumPy files.",
           .usage = "op conv2d|deform_conv2d|sparse_conv --x X.npy --w W.npy [options]\n"
                    "op lsq --v V.npy --step S.npy [options]\n"
                    "op net CONFIG [KEY=VALUE...] --x X.npy [options]",
           .examples = {"op conv2d --x x.npy --w w.npy --padding 1 --out-y y.npy",
                        "op conv2d --x x.npy --w w.npy --dy dy.npy --stride 2,1 --out-dw dw.npy",
                        "op deform_conv2d --x x.npy --offset offset.npy --mask mask.npy --w w.npy "
                        "--padding 1 --dy dy.npy --out-y y.npy --out-doffset doffset.npy",
                        "op sparse_conv --sites sites.npy --x x.npy --w w.npy --submanifold "
                        "--out-y y.npy",
                        "op lsq --v v.npy --step s.npy --bits 4 --dy dy.npy --out-dstep ds.npy"},
           .order = 50,
           .declare = convscope::declare})
