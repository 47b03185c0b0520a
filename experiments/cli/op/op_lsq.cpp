// SPDX-License-Identifier: Apache-2.0
// op_lsq.cpp: `convscope op lsq`: learned step size quantisation and its gradients on NumPy files.
#include <memory>

#include "experiments/cli/command.h"
#include "experiments/cli/nested_commands.h"
#include "framework/io/npy.h"
#include "quant/lsq.h"

namespace convscope {
namespace {

struct OpLsq {
  std::string v, step, dy;
  std::string out_y, out_dv, out_dstep;
  int bits = 8;
  bool is_unsigned = false;
  double g = 0;  // 0: the paper's value
};

int run_lsq(const OpLsq& op) {
  const bool backward = !op.out_dv.empty() || !op.out_dstep.empty();
  if (backward && op.dy.empty()) {
    fail_usage("op lsq", "expected --dy because a gradient is asked for");
  }
  if (op.out_y.empty() && !backward) {
    fail_usage("op lsq", "expected --out-y, --out-dv or --out-dstep, got none");
  }
  const Tensor value = read_npy(op.v), steps = read_npy(op.step);
  CONVSCOPE_CHECK(steps.numel() > 0, "op lsq", "expected at least one step, got ", steps.str());
  const IntegerGrid grid = integer_grid(op.bits, !op.is_unsigned);
  const double g = op.g > 0 ? op.g : lsq_grad_scale(value.numel() / steps.numel(), grid.qp);
  const Variable v(value, /*requires_grad=*/true), step(steps, /*requires_grad=*/true);
  const Variable y = lsq_quantize(v, step, {.grid = grid, .g = g});
  if (!op.out_y.empty()) write_npy(op.out_y, y.value());
  if (!backward) return 0;
  const Tensor dy = read_npy(op.dy);
  CONVSCOPE_CHECK(dy.shape() == value.shape() && dy.dtype() == value.dtype(), "op lsq",
                  "expected dy like v because that is y, ", value.str(), ", got ", dy.str());
  y.backward(dy);
  if (!op.out_dv.empty()) write_npy(op.out_dv, v.grad());
  if (!op.out_dstep.empty()) write_npy(op.out_dstep, step.grad());
  return 0;
}

}  // namespace

void declare_op_lsq(CommandLine& op, std::function<int()>& run) {
  auto lsq = std::make_shared<OpLsq>();
  CommandLine* const app =
      op.add_subcommand("lsq", "Run the LSQ quantiser (quant/lsq.h) or its gradients.");
  app->add_option("--v", lsq->v, "values, .npy, f4 or f8")->required();
  app->add_option("--step", lsq->step, "steps [1], or [K] for v [K,...]")->required();
  app->add_option("--dy", lsq->dy, "gradient of the output, like v");
  app->add_option("--bits", lsq->bits, "2 to 8")->capture_default_str();
  app->add_flag("--unsigned", lsq->is_unsigned,
                "unsigned codes, 0..2^bits-1 (default: signed, -2^(bits-1)..)");
  app->add_option("--g", lsq->g, "scale of the step's gradient (default 1/sqrt(N Qp))")->positive();
  app->add_option("--out-y", lsq->out_y, "output file for the rounded values, .npy");
  app->add_option("--out-dv", lsq->out_dv, "output file for the gradient of v");
  app->add_option("--out-dstep", lsq->out_dstep, "output file for the gradient of the steps");
  app->callback([lsq, &run] { run = [lsq] { return run_lsq(*lsq); }; });
}

}  // namespace convscope
