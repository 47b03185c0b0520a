// SPDX-License-Identifier: Apache-2.0
// squeeze_excitation.cpp: multiplies each channel by a weight between 0 and 1 that depends on the
// means of all channels.
//
// Shapes      x [N,C,H,W] -> y, the same shape
// Formula     y = x s,  s [N,C,1,1] = sigmoid(fc2(activation(fc1(mean over H and W of x))))
// Parameters  reduction  fc1 has C / reduction output channels, at least 1; default 4
//             activation relu (default) or silu
//             algorithm  of the 1x1 convolutions fc1 and fc2, as for conv2d
// Names       fc1 and fc2 are children, 1x1 convolutions as in torchvision
// Usage       {type: squeeze_excitation, reduction: 4}
// Paper       J. Hu, L. Shen, S. Albanie, G. Sun, E. Wu: Squeeze-and-Excitation Networks, CVPR
//             2018, arXiv 1709.01507
#include <algorithm>

#include "framework/graph/graph.h"
#include "framework/ops/elementwise.h"
#include "layers/conv2d/conv2d.h"
#include "layers/pool2d/pool2d.h"

namespace convscope {
namespace {

class SqueezeExcitation final : public Module {
 public:
  SqueezeExcitation(std::int64_t channels, const Options& given, const Conv2dPolicy* policy,
                    LayerContext& context) {
    const std::int64_t reduction = given.integer("reduction");
    const std::int64_t squeezed = std::max<std::int64_t>(1, channels / reduction);
    const std::string path = context.layer_name;
    const auto conv = [&](const char* name, std::int64_t from, std::int64_t to) {
      Conv2dOptions options{.in_channels = from, .out_channels = to, .name = path + "." + name};
      if (policy != nullptr) {
        options.policy = *policy;
      } else if (context.conv_policy) {
        options.policy = context.conv_policy(options.name);
      }
      return add_child(name, std::make_shared<Conv2d>(options, context));
    };
    fc1_ = conv("fc1", channels, squeezed);
    activation_ = add_child(
        "activation",
        layer_types().get(given.text("activation")).build({}, {1, squeezed, 1, 1}, context));
    fc2_ = conv("fc2", squeezed, channels);
  }
  std::string kind() const override { return "squeeze_excitation"; }
  Shape output_shape(const Shape& input) const override { return input; }

  Variable forward(const Variable& x) override {
    const auto apply_to = [&](Module& child, const char* name, const Variable& v) {
      const Graph::Scope scope(x.graph(), name);
      return child(v);
    };
    const Variable squeezed = (*activation_)(apply_to(*fc1_, "fc1", adaptive_avg_pool2d(x, 1, 1)));
    return mul(x, sigmoid(apply_to(*fc2_, "fc2", squeezed)));
  }

  void walk(const Shapes& inputs, const WalkVisitor& visit) override {
    const Shape means{inputs[0].at(0), inputs[0].at(1), 1, 1};
    fc1_->walk({means}, visit);
    fc2_->walk({fc1_->output_shape(means)}, visit);
  }

 private:
  std::shared_ptr<Conv2d> fc1_, fc2_;
  std::shared_ptr<Module> activation_;
};

}  // namespace

CONVSCOPE_REGISTER_LAYER(
    "squeeze_excitation",
    {.doc = "multiplies each channel by a weight that depends on the means of all channels",
     .fields = {{.name = "reduction",
                 .type = OptionType::integer,
                 .default_value = std::int64_t{4},
                 .doc = "the inner convolution has C / reduction channels",
                 .min = 1,
                 .max = 1 << 20},
                {.name = "activation",
                 .type = OptionType::text,
                 .default_value = std::string("relu"),
                 .doc = "between the two convolutions",
                 .choices = {"relu", "silu"}},
                {.name = "algorithm",
                 .type = OptionType::text,
                 .doc = "of both convolutions, as for conv2d; default: that of the block 'conv'"}},
     .build = [](const Options& options, const Shape& input,
                 LayerContext& context) -> std::shared_ptr<Module> {
       CONVSCOPE_CHECK(input.rank() == 4, "squeeze_excitation",
                       "expected x of rank 4 [N,C,H,W], got ", input);
       Conv2dPolicy named;
       if (options.has("algorithm")) {
         const std::string& word = options.text("algorithm");
         named = {word, word, word};
       }
       return std::make_shared<SqueezeExcitation>(
           input[1], options, options.has("algorithm") ? &named : nullptr, context);
     }})

}  // namespace convscope
