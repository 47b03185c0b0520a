// SPDX-License-Identifier: Apache-2.0
// group_norm.cpp: normalises each group of channels, then applies a learned scale and shift.
#include "layers/norm/group_norm.h"

#include "framework/graph/simple_operation.h"
#include "layers/layer_types.h"

namespace convscope {

constinit KernelSlot<void(const GroupNormArgs&)> group_norm_kernel{"group_norm"};
constinit KernelSlot<void(const GroupNormGradientArgs&)> group_norm_gradient_kernel{"group_norm"};

namespace {

constexpr const char* kGroupNorm = "group_norm";

void check_group_input(const Shape& x, std::int64_t groups) {
  CONVSCOPE_CHECK((x.rank() == 2 || x.rank() == 4) && x[1] >= 1, kGroupNorm,
                  "expected x [N,C,H,W] or [N,C], got ", x);
  CONVSCOPE_CHECK(groups >= 1 && x[1] % groups == 0, kGroupNorm,
                  "expected groups to divide the channels of x, got ", groups, " groups and x ", x);
}

class GroupNormOperation final : public SimpleOperation {
 public:
  GroupNormOperation(std::int64_t groups, double eps)
      : SimpleOperation(kGroupNorm), groups_(groups), eps_(eps) {}
  std::string text() const override { return cat(kGroupNorm, " ", groups_, " groups"); }
  Shape output_shape(const std::vector<Shape>& all) const override {
    check_group_input(all[0], groups_);
    const Shape channels{all[0][1]};
    CONVSCOPE_CHECK(all[1] == channels && all[2] == channels, kGroupNorm,
                    "expected weight and bias ", channels, " because x is ", all[0], ", got ",
                    all[1], " and ", all[2]);
    return all[0];
  }
  Keeps keeps(const std::vector<Shape>& all) const override {
    const Shape groups{all[0][0] * groups_};
    return {.inputs = true,
            .saved = {{groups, DType::f64}, {groups, DType::f64}},
            .scratch = {{Shape{2, all[0][0], all[0][1]}, DType::f64}}};
  }
  void run(const Forward& a) const override {
    group_norm_kernel.get(a.device())({.size = size(a.y.shape()),
                                       .x = a.x[0],
                                       .weight = a.x[1],
                                       .bias = a.x[2],
                                       .eps = eps_,
                                       .y = a.y,
                                       .mean = a.saved[0],
                                       .inverse = a.saved[1]});
  }
  void run(const Backward& a) const override {
    group_norm_gradient_kernel.get(a.device())({.size = size(a.dy.shape()),
                                                .dy = a.dy,
                                                .x = a.x[0],
                                                .weight = a.x[1],
                                                .mean = a.saved[0],
                                                .inverse = a.saved[1],
                                                .sums = a.scratch[0],
                                                .dx = a.dx[0],
                                                .dweight = a.dx[1],
                                                .dbias = a.dx[2]});
  }

 private:
  GroupNormSizes size(const Shape& x) const {
    return {x[0], x[1], x.rank() == 4 ? x[2] * x[3] : 1, groups_};
  }
  std::int64_t groups_;
  double eps_;
};

}  // namespace

Variable group_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    std::int64_t groups, double eps) {
  return apply(std::make_unique<GroupNormOperation>(groups, eps), {x, weight, bias});
}

GroupNorm::GroupNorm(std::int64_t channels, std::int64_t groups, double eps, LayerContext& context)
    : groups_(groups), eps_(eps) {
  weight_ = add_parameter("weight", Tensor::full({channels}, 1.0, DType::f32, context.device));
  bias_ = add_parameter("bias", Tensor::zeros({channels}, DType::f32, context.device));
}

Shape GroupNorm::output_shape(const Shape& input) const {
  check_group_input(input, groups_);
  CONVSCOPE_CHECK(input[1] == weight_.shape()[0], kGroupNorm, "expected x with ",
                  weight_.shape()[0], " channels, got ", input);
  return input;
}

CONVSCOPE_REGISTER_LAYER(
    "group_norm",
    {.doc = "normalises each group of channels of an image, then scales and shifts them",
     .fields = {{.name = "groups",
                 .type = OptionType::integer,
                 .doc = "number of groups; divides the number of channels",
                 .required = true,
                 .min = 1,
                 .max = 1 << 20},
                {.name = "eps",
                 .type = OptionType::number,
                 .default_value = 1e-5,
                 .doc = "constant added to the variance",
                 .min = 0,
                 .max = 1}},
     .build = [](const Options& options, const Shape& input,
                 LayerContext& context) -> std::shared_ptr<Module> {
       check_group_input(input, options.integer("groups"));
       return std::make_shared<GroupNorm>(input[1], options.integer("groups"),
                                          options.number("eps"), context);
     }})

}  // namespace convscope
