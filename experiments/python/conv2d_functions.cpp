// SPDX-License-Identifier: Apache-2.0
// conv2d_functions.cpp: convscope.conv2d and its gradients.
#include <nanobind/stl/string.h>

#include "experiments/python/functions.h"
#include "experiments/python/operator_call.h"

namespace convscope::python {
namespace {

class Conv2dCall final : public OperatorCall<Conv2dProblem> {
 public:
  Conv2dCall(std::initializer_list<ArrayArgument> arrays, const Conv2dParams& params)
      : OperatorCall(arrays, params.precision) {
    set_problem(conv2d_problem(x().shape, at("w").shape, params, x().dtype));
  }
};

nb::object conv2d(const nb::object& x, const nb::object& w, const nb::object& b,
                  const nb::object& stride, const nb::object& padding, const nb::object& dilation,
                  std::int64_t groups, const std::string& algorithm, const nb::object& device,
                  const std::string& precision) {
  Conv2dCall call({{"x", x}, {"w", w}, {"b", b, /*is_required=*/false}},
                  params_of({stride, padding, dilation, groups, precision}, "conv2d"));
  return call.y(algorithm, device);
}

nb::object conv2d_backward(const nb::object& dy, const nb::object& x, const nb::object& w,
                           const nb::object& stride, const nb::object& padding,
                           const nb::object& dilation, std::int64_t groups,
                           const std::string& algorithm, const nb::object& device,
                           const std::string& precision, const nb::object& needs) {
  static const Names gradients = {"dx", "dw", "db"};
  check_needs(needs, gradients, "conv2d");
  Conv2dCall call({{"dy", dy}, {"x", x}, {"w", w}},
                  params_of({stride, padding, dilation, groups, precision}, "conv2d"));
  return call.gradients(gradients, needs, algorithm, device);
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
  module.def("_conv2d_backward", conv2d_backward, "dy"_a.none(), "x"_a.none(), "w"_a.none(),
             "stride"_a, "padding"_a, "dilation"_a, "groups"_a, nb::kw_only(), "algorithm"_a,
             "device"_a.none(), "precision"_a, "needs"_a.none(),
             "(dx, dw, db); those that `needs` does not name are None.");
}

}  // namespace convscope::python
