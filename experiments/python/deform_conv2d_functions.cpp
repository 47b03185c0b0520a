// SPDX-License-Identifier: Apache-2.0
// deform_conv2d_functions.cpp: convscope.deform_conv2d and its gradients.
#include <nanobind/stl/string.h>

#include "experiments/python/arguments.h"
#include "experiments/python/functions.h"
#include "layers/conv2d/bias_gradient.h"
#include "layers/deform_conv2d/deform_conv2d.h"
#include "layers/dispatch/execute.h"

namespace convscope::python {
namespace {

constexpr const char* kOperation = "deform_conv2d";

// The checked array arguments of a call. `mask`, `b` and `dy` may be missing.
struct Inputs {
  Array x, offset, w;
  std::optional<Array> mask, b, dy;
  DeformConv2dProblem problem;
};

Inputs inputs_of(const nb::object& x, const nb::object& offset, const nb::object& w,
                 const nb::object& mask, const nb::object& b, const nb::object& dy, bool forward,
                 const Conv2dParams& params, std::int64_t offset_groups) {
  Inputs in{.x = array_of(x, kOperation, "x"),
            .offset = array_of(offset, kOperation, "offset"),
            .w = array_of(w, kOperation, "w"),
            .mask = array_or_none(mask, kOperation, "mask"),
            .b = array_or_none(b, kOperation, "b"),
            .dy = forward ? std::nullopt : std::optional(array_of(dy, kOperation, "dy")),
            .problem = {}};
  check_type(in.x, params.precision, kOperation);
  in.problem = deform_conv2d_problem(in.x.shape, in.w.shape,
                                     {.conv = params, .offset_groups = offset_groups},
                                     in.mask.has_value(), in.x.dtype);
  const auto check = [&](const Array& array, const Shape& shape, const std::string& because,
                         const char* name) {
    check_beside(array, in.x, kOperation, name);
    check_shape(array, shape, because, kOperation, name);
  };
  check_beside(in.w, in.x, kOperation, "w");
  check(in.offset, in.problem.offset_shape(),
        cat("it has (v, u) of ", in.problem.taps(), " taps for each pixel of y"), "offset");
  if (in.mask) {
    check(*in.mask, in.problem.mask_shape(),
          cat("it has a factor of ", in.problem.taps(), " taps for each pixel of y"), "mask");
  }
  if (in.b) check(*in.b, {in.problem.k}, "w has that many kernels", "b");
  if (in.dy) check(*in.dy, in.problem.y_shape(), "that is y", "dy");
  return in;
}

DeformConv2dTensors tensors_of(const Inputs& in, Device device) {
  const auto moved = [&](const Array& array) {
    return array.tensor.to(device).to(in.problem.dtype);
  };
  return {.x = moved(in.x),
          .w = moved(in.w),
          .offset = moved(in.offset),
          .mask = in.mask ? moved(*in.mask) : Tensor(),
          .b = in.b ? moved(*in.b) : Tensor(),
          .dy = in.dy ? moved(*in.dy) : Tensor()};
}

// Returns the outputs of one direction, in the type and on the device of x.
std::array<Tensor, 3> computed(const Inputs& in, const DeformConv2dTensors& tensors,
                               const std::string& algorithm, Direction direction, Device device) {
  Operands operands = deform_conv2d_operands(direction, tensors);
  const OperandSpecs specs = in.problem.operands(direction);
  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
    operands.out[i].values = Tensor::empty(specs.outputs[i].shape, in.problem.dtype, device);
  }
  execute(chosen(algorithm, in.problem, direction, device), in.problem, direction, operands);
  std::array<Tensor, 3> out;
  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
    out[i] = operands.out[i].values.to(in.x.dtype).to(in.x.device);
  }
  return out;
}

nb::object deform_conv2d(const nb::object& x, const nb::object& offset, const nb::object& w,
                         const nb::object& mask, const nb::object& b, const nb::object& stride,
                         const nb::object& padding, const nb::object& dilation, std::int64_t groups,
                         std::int64_t offset_groups, const std::string& algorithm,
                         const nb::object& device_in, const std::string& precision) {
  const Conv2dParams params = params_of({stride, padding, dilation, groups, precision}, kOperation);
  const Inputs in =
      inputs_of(x, offset, w, mask, b, nb::none(), /*forward=*/true, params, offset_groups);
  const Device device = device_of(device_in, in.x);
  check_device(in.x.dtype, params.precision, device, kOperation);
  Tensor y;
  {
    const nb::gil_scoped_release without_lock;
    measure_before(algorithm);
    const DeviceTurn turn(device);
    y = computed(in, tensors_of(in, device), algorithm, Direction::forward, device)[0];
    turn.finish();
  }
  return to_python(y, in.x.library);
}

nb::object deform_conv2d_backward(const nb::object& dy, const nb::object& x,
                                  const nb::object& offset, const nb::object& w,
                                  const nb::object& mask, const nb::object& stride,
                                  const nb::object& padding, const nb::object& dilation,
                                  std::int64_t groups, std::int64_t offset_groups,
                                  const std::string& algorithm, const nb::object& device_in,
                                  const std::string& precision, const nb::object& needs) {
  check_needs(needs, {"dx", "doffset", "dmask", "dw", "db"}, kOperation);
  const Conv2dParams params = params_of({stride, padding, dilation, groups, precision}, kOperation);
  const Inputs in =
      inputs_of(x, offset, w, mask, nb::none(), dy, /*forward=*/false, params, offset_groups);
  const Device device = device_of(device_in, in.x);
  check_device(in.x.dtype, params.precision, device, kOperation);
  const bool wants_data = wants(needs, "dx") || wants(needs, "doffset") || wants(needs, "dmask");
  const bool wants_dw = wants(needs, "dw");
  const bool wants_db = wants(needs, "db");
  std::array<Tensor, 3> data;
  Tensor dw, db;
  {
    const nb::gil_scoped_release without_lock;
    measure_before(algorithm);
    const DeviceTurn turn(device);
    const DeformConv2dTensors tensors = tensors_of(in, device);
    if (wants_data) data = computed(in, tensors, algorithm, Direction::backward_data, device);
    if (wants_dw) dw = computed(in, tensors, algorithm, Direction::backward_weight, device)[0];
    if (wants_db) {
      const DType sums = in.x.dtype == DType::f64 ? DType::f64 : DType::f32;
      db = Tensor::empty({in.problem.k}, sums, device);
      conv2d_bias_gradient_kernel.get(device)(in.dy->tensor.to(device).to(sums), db,
                                              /*accumulate=*/false);
      db = db.to(in.x.dtype).to(in.x.device);
    }
    turn.finish();
  }
  const auto given = [&](const Tensor& tensor, const char* name) {
    return tensor.defined() && wants(needs, name) ? to_python(tensor, in.x.library) : nb::none();
  };
  return nb::make_tuple(given(data[0], "dx"), given(data[1], "doffset"), given(data[2], "dmask"),
                        given(dw, "dw"), given(db, "db"));
}

}  // namespace

void add_deform_conv2d(nb::module_& module) {
  using namespace nb::literals;  // NOLINT(google-build-using-namespace): "x"_a
  module.def(
      "deform_conv2d", deform_conv2d, "x"_a.none(), "offset"_a.none(), "w"_a.none(),
      "mask"_a = nb::none(), "b"_a = nb::none(), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1,
      "groups"_a = 1, "offset_groups"_a = 1, nb::kw_only(), "algorithm"_a = "auto",
      "device"_a = nb::none(), "precision"_a = "f32",
      nb::sig("def deform_conv2d(x: ArrayT, offset: ArrayT, w: ArrayT, mask: ArrayT | None = None, "
              "b: ArrayT | None = None, stride: Pair = 1, padding: Padding = 0, dilation: Pair = "
              "1, groups: int = 1, offset_groups: int = 1, *, algorithm: str = 'auto', device: str "
              "| None = None, precision: str = 'f32') -> ArrayT"),
      R"(The deformable convolution (v1; v2 with a mask): each tap reads x at its offset.

x [N,C,H,W], offset [N,2 O R S,P,Q] with (v,u) of a tap side by side as in torchvision, w
[K,C/groups,R,S], mask [N,O R S,P,Q], b [K] -> y [N,K,P,Q]; O is offset_groups.

The other arguments and the accepted arrays are those of conv2d().
)");
  module.def(
      "_deform_conv2d_backward", deform_conv2d_backward, "dy"_a.none(), "x"_a.none(),
      "offset"_a.none(), "w"_a.none(), "mask"_a = nb::none(), "stride"_a = 1, "padding"_a = 0,
      "dilation"_a = 1, "groups"_a = 1, "offset_groups"_a = 1, nb::kw_only(),
      "algorithm"_a = "auto", "device"_a = nb::none(), "precision"_a = "f32",
      "needs"_a = nb::none(),
      nb::sig("def _deform_conv2d_backward(dy: ArrayT, x: ArrayT, offset: ArrayT, w: ArrayT, mask: "
              "ArrayT | None = None, stride: Pair = 1, padding: Padding = 0, dilation: Pair = 1, "
              "groups: int = 1, offset_groups: int = 1, *, algorithm: str = 'auto', device: str | "
              "None = None, precision: str = 'f32', needs: Sequence[str] | None = None) -> "
              "tuple[ArrayT | None, ArrayT | None, ArrayT | None, ArrayT | None, ArrayT | None]"),
      "(dx, doffset, dmask, dw, db); those that `needs` does not name are None.");
}

}  // namespace convscope::python
