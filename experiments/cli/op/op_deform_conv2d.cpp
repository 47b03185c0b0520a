// SPDX-License-Identifier: Apache-2.0
// op_deform_conv2d.cpp: `convscope op deform_conv2d`: deformable convolution and its gradients on
// NumPy files.
#include "experiments/cli/op/op_deform_conv2d.h"

#include <iostream>
#include <memory>

#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "experiments/cli/op/op_conv_sizes.h"
#include "experiments/run_folder/check_lines.h"
#include "framework/io/npy.h"
#include "framework/io/output_place.h"
#include "layers/conv2d/bias_gradient.h"
#include "layers/deform_conv2d/deform_conv2d.h"
#include "layers/dispatch/execute.h"

namespace convscope {
namespace {

constexpr const char* kCommand = "op deform_conv2d";

struct OpDeform {
  std::string x, offset, mask, w, b, dy;
  std::string out_y, out_dx, out_doffset, out_dmask, out_dw, out_db;
  OpConvSizes sizes;
  std::int64_t offset_groups = 1;
  std::string algorithm = "auto";
  std::string device = "cpu";

  bool wants_data() const { return !out_dx.empty() || !out_doffset.empty() || !out_dmask.empty(); }
  bool wants_gradients() const { return wants_data() || !out_dw.empty() || !out_db.empty(); }
};

void check(const OpDeform& op) {
  if (op.wants_gradients() && op.dy.empty()) {
    fail_usage(kCommand, "expected --dy because a gradient is asked for");
  }
  if (op.out_y.empty() && !op.wants_gradients()) {
    fail_usage(kCommand,
               "expected --out-y, --out-dx, --out-doffset, --out-dmask, --out-dw or --out-db, got "
               "none");
  }
  if (!op.out_dmask.empty() && op.mask.empty()) {
    fail_usage(kCommand, "expected --mask because --out-dmask asks for its gradient");
  }
}

// Returns a hint at the option that would make offsets of this shape right, or "" when no single
// option would. The offsets are checked before the mask: if only the mask has a wrong shape, the
// options are right, and there is no hint.
std::string option_for(const Shape& got, const Shape& expected, const DeformConv2dProblem& z) {
  if (expected != z.offset_shape() || got.rank() != 4 || got[0] != expected[0]) return "";
  if (got[2] != expected[2] || got[3] != expected[3]) {
    if (got[1] != expected[1]) return "";
    return cat("; --padding, --stride and --dilation say that y is ", z.y_shape());
  }
  const std::int64_t planes = expected[1] / z.offset_groups, groups = got[1] / planes;
  const bool fits = groups > 0 && got[1] == groups * planes && z.c % groups == 0;
  return fits && groups != z.offset_groups ? cat("; it fits with --offset-groups ", groups) : "";
}

// Reads the offsets or the mask (`what`). Both have values for each tap, offset group and pixel of
// y.
Tensor read_places(const char* name, const char* what, const std::string& path, const Shape& shape,
                   const DeformConv2dProblem& z, Device device) {
  const Tensor out = read_npy(path);
  CONVSCOPE_CHECK(out.shape() == shape && out.dtype() == z.dtype, kCommand, "expected ", name, " ",
                  shape, " of the type of x because it has ", what, " of ", z.taps(), " taps in ",
                  z.offset_groups, z.offset_groups == 1 ? " offset group" : " offset groups",
                  " for each pixel of y, got ", out.str(), option_for(out.shape(), shape, z));
  return out.to(device);
}

struct Inputs {
  DeformConv2dProblem problem;
  DeformConv2dTensors tensors;
};

Inputs read_inputs(const OpDeform& op, Device device) {
  DeformConv2dTensors t;
  t.x = read_npy(op.x).to(device);
  t.w = read_npy(op.w).to(device);
  CONVSCOPE_CHECK(t.x.dtype() == DType::f32 || t.x.dtype() == DType::f64, kCommand,
                  "expected x of type f32 or f64, got ", t.x.str());
  CONVSCOPE_CHECK(t.w.dtype() == t.x.dtype(), kCommand, "expected x and w of one type, got ",
                  t.x.str(), " and ", t.w.str());
  const DeformConv2dParams params{.conv = conv_params(kCommand, op.sizes),
                                  .offset_groups = op.offset_groups};
  const DeformConv2dProblem problem =
      deform_conv2d_problem(t.x.shape(), t.w.shape(), params, !op.mask.empty(), t.x.dtype());
  t.offset = read_places("offset", "(v, u)", op.offset, problem.offset_shape(), problem, device);
  if (problem.mask) {
    t.mask = read_places("mask", "a factor", op.mask, problem.mask_shape(), problem, device);
  }
  if (!op.b.empty()) {
    t.b = read_like(kCommand, "b", op.b, {problem.k}, t.x, "it has one number of each kernel");
  }
  if (op.wants_gradients()) {
    t.dy = read_like(kCommand, "dy", op.dy, problem.y_shape(), t.x, "that is y");
  }
  return {problem, t};
}

// Runs one direction and returns its outputs.
Operands computed(const OpDeform& op, const Inputs& inputs, Direction direction) {
  const Device device = inputs.tensors.x.device();
  const auto choice = select_algorithm(op.algorithm, inputs.problem, direction, device);
  std::cerr << name_of(direction) << ": " << choice.algorithm->name << "\n";
  Operands out = deform_conv2d_operands(direction, inputs.tensors);
  const OperandSpecs specs = inputs.problem.operands(direction);
  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
    out.out[i].values = Tensor::empty(specs.outputs[i].shape, inputs.problem.dtype, device);
  }
  execute(choice, inputs.problem, direction, out);
  return out;
}

void write(const std::string& path, const Tensor& values) {
  if (!path.empty()) write_npy(path, values.to(Device{}));
}

int run_deform(const OpDeform& op) {
  check(op);
  const Device device = Device::parse(op.device);
  backend_of(device);  // fails when it is not available
  check_policy("deform_conv2d", op.algorithm, device,
               deform_conv2d_algorithms(device.type).names());
  const Inputs inputs = read_inputs(op, device);
  check_output_files({op.out_y, op.out_dx, op.out_doffset, op.out_dmask, op.out_dw, op.out_db});
  measure_this_machine_once();
  forget_check_results();
  std::cerr << inputs.problem.text() << "\n";
  if (!op.out_y.empty()) write(op.out_y, computed(op, inputs, Direction::forward).out[0].values);
  if (op.wants_data()) {
    const Operands data = computed(op, inputs, Direction::backward_data);
    write(op.out_dx, data.out[0].values);
    write(op.out_doffset, data.out[1].values);
    write(op.out_dmask, data.out[2].values);
  }
  if (!op.out_dw.empty()) {
    write(op.out_dw, computed(op, inputs, Direction::backward_weight).out[0].values);
  }
  if (!op.out_db.empty()) {
    const Tensor db = Tensor::empty({inputs.problem.k}, inputs.problem.dtype, device);
    conv2d_bias_gradient_kernel.get(device)(inputs.tensors.dy, db, /*accumulate=*/false);
    write(op.out_db, db);
  }
  for (const std::string& line : check_lines()) std::cerr << line << "\n";
  return 0;
}

}  // namespace

void declare_op_deform_conv2d(CommandLine& op, std::function<int()>& run) {
  auto deform = std::make_shared<OpDeform>();
  CommandLine* const app =
      op.add_subcommand("deform_conv2d", "Run a deformable convolution or its gradients.");
  app->add_option("--x", deform->x, "input [N,C,H,W], .npy, f4 or f8")->required();
  app->add_option("--offset", deform->offset,
                  "offset of each tap [N,2 O R S,P,Q] with O offset groups; (v, u) of a tap are "
                  "adjacent, as in torchvision")
      ->required();
  app->add_option("--mask", deform->mask, "factor of each tap [N,O R S,P,Q] (default 1)");
  app->add_option("--w", deform->w, "weights [K,C/groups,R,S]")->required();
  app->add_option("--b", deform->b, "bias [K]");
  app->add_option("--dy", deform->dy, "gradient of the output [N,K,P,Q]");
  add_conv_sizes(*app, deform->sizes);
  app->add_option("--offset-groups", deform->offset_groups,
                  "number of channel groups with their own offsets")
      ->capture_default_str();
  app->add_option("--algorithm", deform->algorithm,
                  "algorithm: auto, measure, check:<a>,<b>, a name, or a list <a>,<b>,auto")
      ->capture_default_str();
  app->add_option("--device", deform->device, "device: cpu, cuda or cuda:<index>")
      ->capture_default_str();
  app->add_option("--out-y", deform->out_y, "output file for y, .npy");
  app->add_option("--out-dx", deform->out_dx, "output file for the gradient of x");
  app->add_option("--out-doffset", deform->out_doffset, "output file for the gradient of offset");
  app->add_option("--out-dmask", deform->out_dmask, "output file for the gradient of mask");
  app->add_option("--out-dw", deform->out_dw, "output file for the gradient of w");
  app->add_option("--out-db", deform->out_db, "output file for the gradient of b");
  app->callback([deform, &run] { run = [deform] { return run_deform(*deform); }; });
}

}  // namespace convscope
