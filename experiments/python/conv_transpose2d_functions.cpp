// SPDX-License-Identifier: Apache-2.0
// conv_transpose2d_functions.cpp: convscope.conv_transpose2d and its gradients.
#include <nanobind/stl/string.h>

#include "experiments/python/functions.h"
#include "experiments/python/operator_call.h"

namespace convscope::python {
namespace {

class ConvTranspose2dCall final : public OperatorCall<ConvTranspose2dProblem> {
 public:
  ConvTranspose2dCall(std::initializer_list<ArrayArgument> arrays,
                      const ConvTranspose2dParams& params)
      : OperatorCall(arrays, params.conv.precision) {
    set_problem(conv_transpose2d_problem(x().shape, at("w").shape, params, x().dtype));
  }

 private:
  std::string because(const std::string& name) const override {
    return name == "b" ? "y has that many channels" : OperatorCall::because(name);
  }
};

nb::object conv_transpose2d(const nb::object& x, const nb::object& w, const nb::object& b,
                            const nb::object& stride, const nb::object& padding,
                            const nb::object& dilation, std::int64_t groups,
                            const nb::object& output_padding, const std::string& algorithm,
                            const nb::object& device, const std::string& precision) {
  ConvTranspose2dCall call(
      {{"x", x}, {"w", w}, {"b", b, /*is_required=*/false}},
      transposed_params_of({stride, padding, dilation, groups, precision}, output_padding));
  return call.y(algorithm, device);
}

nb::object conv_transpose2d_backward(const nb::object& dy, const nb::object& x, const nb::object& w,
                                     const nb::object& stride, const nb::object& padding,
                                     const nb::object& dilation, std::int64_t groups,
                                     const nb::object& output_padding, const std::string& algorithm,
                                     const nb::object& device, const std::string& precision,
                                     const nb::object& needs) {
  static const Names gradients = {"dx", "dw", "db"};
  check_needs(needs, gradients, "conv_transpose2d");
  ConvTranspose2dCall call(
      {{"dy", dy}, {"x", x}, {"w", w}},
      transposed_params_of({stride, padding, dilation, groups, precision}, output_padding));
  return call.gradients(gradients, needs, algorithm, device);
}

}  // namespace

void add_conv_transpose2d(nb::module_& module) {
  using namespace nb::literals;  // NOLINT(google-build-using-namespace): "x"_a
  module.def(
      "conv_transpose2d", conv_transpose2d, "x"_a.none(), "w"_a.none(), "b"_a = nb::none(),
      "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1, "output_padding"_a = 0,
      nb::kw_only(), "algorithm"_a = "auto", "device"_a = nb::none(), "precision"_a = "f32",
      nb::sig("def conv_transpose2d(x: ArrayT, w: ArrayT, b: ArrayT | None = None, stride: Pair = "
              "1, padding: Padding = 0, dilation: Pair = 1, groups: int = 1, output_padding: Pair "
              "= 0, *, algorithm: str = 'auto', device: str | None = None, precision: str = 'f32') "
              "-> ArrayT"),
      R"(The transposed convolution: each pixel of x adds a multiple of the kernel to y.

x [N,C,H,W], w [C,K/groups,R,S], b [K] -> y [N,K,P,Q] with
P = (H - 1) stride - top - bottom + dilation (R - 1) + output_padding + 1, Q likewise.

output_padding    one number or (h, w): rows and columns added at the bottom and right

The other arguments and the accepted arrays are those of conv2d(). PyTorch has the same arguments in
another order (output_padding and groups before dilation), so pass them by name.
)");
  module.def("_conv_transpose2d_backward", conv_transpose2d_backward, "dy"_a.none(), "x"_a.none(),
             "w"_a.none(), "stride"_a, "padding"_a, "dilation"_a, "groups"_a, "output_padding"_a,
             nb::kw_only(), "algorithm"_a, "device"_a.none(), "precision"_a, "needs"_a.none(),
             "(dx, dw, db); those that `needs` does not name are None.");
}

}  // namespace convscope::python
