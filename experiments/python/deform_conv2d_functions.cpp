// SPDX-License-Identifier: Apache-2.0
// deform_conv2d_functions.cpp: convscope.deform_conv2d and its gradients.
#include <nanobind/stl/string.h>

#include "experiments/python/functions.h"
#include "experiments/python/operator_call.h"
#include "layers/deform_conv2d/deform_conv2d.h"

namespace convscope::python {
namespace {

class DeformConv2dCall final : public OperatorCall<DeformConv2dProblem> {
 public:
  DeformConv2dCall(std::initializer_list<ArrayArgument> arrays, const DeformConv2dParams& params)
      : OperatorCall(arrays, params.conv.precision) {
    set_problem(deform_conv2d_problem(x().shape, at("w").shape, params, has("mask"), x().dtype));
  }

 private:
  std::string because(const std::string& name) const override {
    if (name != "offset" && name != "mask") return OperatorCall::because(name);
    return cat("it has ", name == "offset" ? "(v, u)" : "a factor", " of ", problem().taps(),
               " taps for each pixel of y");
  }
};

nb::object deform_conv2d(const nb::object& x, const nb::object& offset, const nb::object& w,
                         const nb::object& mask, const nb::object& b, const nb::object& stride,
                         const nb::object& padding, const nb::object& dilation, std::int64_t groups,
                         std::int64_t offset_groups, const std::string& algorithm,
                         const nb::object& device, const std::string& precision) {
  DeformConv2dCall call(
      {{"x", x},
       {"offset", offset},
       {"w", w},
       {"mask", mask, /*is_required=*/false},
       {"b", b, /*is_required=*/false}},
      {params_of({stride, padding, dilation, groups, precision}, "deform_conv2d"), offset_groups});
  return call.y(algorithm, device);
}

nb::object deform_conv2d_backward(const nb::object& dy, const nb::object& x,
                                  const nb::object& offset, const nb::object& w,
                                  const nb::object& mask, const nb::object& stride,
                                  const nb::object& padding, const nb::object& dilation,
                                  std::int64_t groups, std::int64_t offset_groups,
                                  const std::string& algorithm, const nb::object& device,
                                  const std::string& precision, const nb::object& needs) {
  static const Names gradients = {"dx", "doffset", "dmask", "dw", "db"};
  check_needs(needs, gradients, "deform_conv2d");
  DeformConv2dCall call(
      {{"dy", dy}, {"x", x}, {"offset", offset}, {"w", w}, {"mask", mask, /*is_required=*/false}},
      {params_of({stride, padding, dilation, groups, precision}, "deform_conv2d"), offset_groups});
  return call.gradients(gradients, needs, algorithm, device);
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
  module.def("_deform_conv2d_backward", deform_conv2d_backward, "dy"_a.none(), "x"_a.none(),
             "offset"_a.none(), "w"_a.none(), "mask"_a.none(), "stride"_a, "padding"_a,
             "dilation"_a, "groups"_a, "offset_groups"_a, nb::kw_only(), "algorithm"_a,
             "device"_a.none(), "precision"_a, "needs"_a.none(),
             "(dx, doffset, dmask, dw, db); those that `needs` does not name are None.");
}

}  // namespace convscope::python
