// SPDX-License-Identifier: Apache-2.0
// conv2d_functions.cpp: convscope.conv2d and its gradients.
#include <nanobind/stl/string.h>

#include "experiments/python/arguments.h"
#include "experiments/python/functions.h"
#include "layers/conv2d/bias_gradient.h"
#include "layers/conv2d/execute.h"

namespace convscope::python {
namespace {

constexpr const char* kOperation = "conv2d";

Conv2dProblem problem_of(const Array& x, const Array& w, const Conv2dParams& params) {
  check_type(x, params.precision, kOperation);
  return conv2d_problem(x.shape, w.shape, params, x.dtype);
}

// Copies an array to the device and converts it to the problem's operand type.
Tensor moved(const Array& array, const Conv2dProblem& problem, Device device) {
  return array.tensor.to(device).to(problem.dtype);
}

// Converts a result to the type and the device of x.
Tensor answer(const Tensor& tensor, const Array& x) { return tensor.to(x.dtype).to(x.device); }

nb::object conv2d(const nb::object& x_in, const nb::object& w_in, const nb::object& b_in,
                  const nb::object& stride, const nb::object& padding, const nb::object& dilation,
                  std::int64_t groups, const std::string& algorithm, const nb::object& device_in,
                  const std::string& precision) {
  const Array x = array_of(x_in, kOperation, "x");
  const Array w = array_of(w_in, kOperation, "w");
  const std::optional<Array> b = array_or_none(b_in, kOperation, "b");
  check_beside(w, x, kOperation, "w");
  if (b) check_beside(*b, x, kOperation, "b");
  const Conv2dParams params = params_of({stride, padding, dilation, groups, precision}, kOperation);
  const Conv2dProblem problem = problem_of(x, w, params);
  if (b) check_shape(*b, {problem.k}, "w has that many kernels", kOperation, "b");
  const Device device = device_of(device_in, x);
  check_device(x.dtype, params.precision, device, kOperation);
  Tensor y;
  {
    const nb::gil_scoped_release without_lock;
    measure_before(algorithm);
    const DeviceTurn turn(device);
    y = Tensor::empty(problem.y_shape(), problem.dtype, device);
    execute_forward(chosen(algorithm, problem, Direction::forward, device), problem,
                    moved(x, problem, device), moved(w, problem, device),
                    b ? moved(*b, problem, device) : Tensor(), y);
    y = answer(y, x);
    turn.finish();
  }
  return to_python(y, x.library);
}

nb::object conv2d_backward(const nb::object& dy_in, const nb::object& x_in, const nb::object& w_in,
                           const nb::object& stride, const nb::object& padding,
                           const nb::object& dilation, std::int64_t groups,
                           const std::string& algorithm, const nb::object& device_in,
                           const std::string& precision, const nb::object& needs) {
  check_needs(needs, {"dx", "dw", "db"}, kOperation);
  const Array dy = array_of(dy_in, kOperation, "dy");
  const Array x = array_of(x_in, kOperation, "x");
  const Array w = array_of(w_in, kOperation, "w");
  check_beside(w, x, kOperation, "w");
  check_beside(dy, x, kOperation, "dy");
  const Conv2dParams params = params_of({stride, padding, dilation, groups, precision}, kOperation);
  const Conv2dProblem problem = problem_of(x, w, params);
  check_shape(dy, problem.y_shape(), "that is y", kOperation, "dy");
  const Device device = device_of(device_in, x);
  check_device(x.dtype, params.precision, device, kOperation);
  const bool wants_dx = wants(needs, "dx");
  const bool wants_dw = wants(needs, "dw");
  const bool wants_db = wants(needs, "db");
  Tensor dx, dw, db;
  {
    const nb::gil_scoped_release without_lock;
    measure_before(algorithm);
    const DeviceTurn turn(device);
    const Tensor dy_there = moved(dy, problem, device);
    if (wants_dx) {
      dx = Tensor::empty(problem.x_shape(), problem.dtype, device);
      execute_backward_data(chosen(algorithm, problem, Direction::backward_data, device), problem,
                            dy_there, moved(w, problem, device), dx);
      dx = answer(dx, x);
    }
    if (wants_dw) {
      dw = Tensor::empty(problem.w_shape(), problem.dtype, device);
      execute_backward_weight(chosen(algorithm, problem, Direction::backward_weight, device),
                              problem, moved(x, problem, device), dy_there, dw,
                              /*accumulate=*/false);
      dw = answer(dw, x);
    }
    if (wants_db) {  // a sum, in f32 for half-precision operands
      const DType sums = x.dtype == DType::f64 ? DType::f64 : DType::f32;
      db = Tensor::empty({problem.k}, sums, device);
      conv2d_bias_gradient_kernel.get(device)(dy.tensor.to(device).to(sums), db,
                                              /*accumulate=*/false);
      db = answer(db, x);
    }
    turn.finish();
  }
  const auto given = [&](const Tensor& tensor) {
    return tensor.defined() ? to_python(tensor, x.library) : nb::none();
  };
  return nb::make_tuple(given(dx), given(dw), given(db));
}

}  // namespace

void add_conv2d(nb::module_& module) {
  using namespace nb::literals;  // NOLINT(google-build-using-namespace): "x"_a
  module.def(
      "conv2d", conv2d, "x"_a.none(), "w"_a.none(), "b"_a = nb::none(), "stride"_a = 1,
      "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1, nb::kw_only(), "algorithm"_a = "auto",
      "device"_a = nb::none(), "precision"_a = "f32",
      nb::sig(
          "def conv2d(x: ArrayT, w: ArrayT, b: ArrayT | None = None, stride: Pair = 1, padding: "
          "Padding = 0, dilation: Pair = 1, groups: int = 1, *, algorithm: str = 'auto', "
          "device: str | None = None, precision: str = 'f32') -> ArrayT"),
      R"(y = x * w + b, the convolution of deep learning (a cross-correlation).

x [N,C,H,W], w [K,C/groups,R,S], b [K] -> y [N,K,P,Q] with
P = (H + top + bottom - dilation (R - 1) - 1) // stride + 1, Q likewise.

Arrays of NumPy, PyTorch or any library with __dlpack__; y is such an array, on the device of x (for
other libraries, an object that their from_dlpack takes).
float32 and float64; float16 and bfloat16 on CUDA. Elements are read in place; an array that
is not row-major is copied first (copy_reason() says so).

stride, dilation  one number or (h, w)
padding           one number, (h, w) or (top, bottom, left, right); zeros
algorithm         a name of algorithms(), "auto" (least estimated time), "measure" (fastest when
                  timed), "a,b,auto" (the first that accepts) or "check:a,b" (both, compared)
device            where it is computed, "cpu" or "cuda" (x, w, b are copied there); None: that of x
precision         of float32 arrays: "f32"; on CUDA also "tf32", "bf16", "f16"
)");
  module.def(
      "_conv2d_backward", conv2d_backward, "dy"_a.none(), "x"_a.none(), "w"_a.none(),
      "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1, nb::kw_only(),
      "algorithm"_a = "auto", "device"_a = nb::none(), "precision"_a = "f32",
      "needs"_a = nb::none(),
      nb::sig("def _conv2d_backward(dy: ArrayT, x: ArrayT, w: ArrayT, stride: Pair = 1, padding: "
              "Padding = 0, dilation: Pair = 1, groups: int = 1, *, algorithm: str = 'auto', "
              "device: str | None = None, precision: str = 'f32', needs: Sequence[str] | None = "
              "None) -> tuple[ArrayT | None, ArrayT | None, ArrayT | None]"),
      "(dx, dw, db); those that `needs` does not name are None.");
}

}  // namespace convscope::python
