// SPDX-License-Identifier: Apache-2.0
// compact_test.cpp: the smaller network gives the outputs of the masked one.
#include "sparsity/compact.h"

#include <cmath>

#include "tests/sparsity/networks.h"
#include "tests/support/expect_error.h"

namespace convscope::testing {
namespace {

using Text = std::string;

// The same layers as small_network() with these widths.
std::shared_ptr<Module> narrow_network(const CompactPlan& plan, bool batch_norm) {
  LayerContext context;
  context.seed = 99;
  const auto width = [&](std::size_t l) { return static_cast<std::int64_t>(plan.kept[l].size()); };
  std::vector<LayerSpec> specs = {layer("conv2d", "c1", width(0))};
  if (batch_norm) specs.push_back(layer("batch_norm2d", "bn1"));
  for (const LayerSpec& spec :
       {layer("relu", "r1"), layer("max_pool2d", "p1"), layer("conv2d", "c2", width(1)),
        layer("relu", "r2"), layer("flatten", "flat"), layer("linear", "f3", width(2)),
        layer("relu", "r3"), layer("linear", "f4", 3)}) {
    specs.push_back(spec);
  }
  return build_layers(specs, kImage, context);
}

TEST(Compact, gives_the_outputs_of_the_masked_network_with_fewer_parameters) {
  for (const bool batch_norm : {false, true}) {
    for (const char* method : {"filter", "channel", "magnitude"}) {
      const auto model = small_network(11, batch_norm);
      for (const NamedParameter& parameter : model->parameters()) {  // nonzero biases
        if (!parameter.name.ends_with(".bias")) continue;
        parameter.variable.value().copy_from(random_tensor(parameter.variable.shape(), 8));
      }
      const bool structured = Text(method) != "magnitude";
      Pruner pruner(*model, kImage,
                    options_of({{"method", Text(method)},
                                {"target", structured ? 0.5 : 0.9},
                                {"schedule", Text("one_shot")},
                                {"start", 0.0}}),
                    10, 1);
      pruner.before_step(0);
      const Variable x(random_tensor({5, 2, 10, 10}, 4));
      model->forward(x);  // changes the running means of batch norm
      const CompactPlan plan = compact_plan(pruner.network(), pruner.masks());
      if (structured) {
        EXPECT_EQ(plan.kept[0].size(), 2u);
        EXPECT_EQ(plan.kept[1].size(), 3u);
        EXPECT_EQ(plan.kept[2].size(), 4u);
      }
      EXPECT_EQ(plan.kept[3].size(), 3u);
      const auto compact = narrow_network(plan, batch_norm);
      copy_compact(*model, pruner.network(), pruner.masks(), plan, *compact);
      if (structured) {
        EXPECT_LT(compact->parameter_count(), model->parameter_count() / 2);
      }
      const NoGrad no_grad;
      model->eval();
      compact->eval();
      const std::vector<float> wanted = values_of(model->forward(x).value());
      const std::vector<float> got = values_of(compact->forward(x).value());
      // Only the summation order of some hundred f32 products differs, so 1e-5 of the largest
      // output is a sufficient tolerance.
      float largest = 1;
      for (const float value : wanted) largest = std::max(largest, std::fabs(value));
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_NEAR(got[i], wanted[i], 1e-5f * largest) << method << " " << batch_norm;
      }
    }
  }
}

// The name of one layer may end with the name of another: "momentum.xc1.weight" is not optimiser
// state of c1.
TEST(Compact, state_is_cut_as_the_parameter_whose_name_it_has) {
  const auto build = [](std::int64_t first, std::int64_t second) {
    LayerContext context;
    context.seed = 3;
    return build_layers(
        {layer("conv2d", "c1", first), layer("relu", "r1"), layer("conv2d", "xc1", second),
         layer("flatten", "flat"), layer("linear", "f", 3)},
        kImage, context);
  };
  const auto model = build(4, 6);
  Pruner pruner(*model, kImage,
                options_of({{"method", Text("filter")},
                            {"target", 0.5},
                            {"schedule", Text("one_shot")},
                            {"start", 0.0}}),
                10, 1);
  pruner.before_step(0);
  const CompactPlan plan = compact_plan(pruner.network(), pruner.masks());
  const auto compact = build(static_cast<std::int64_t>(plan.kept[0].size()),
                             static_cast<std::int64_t>(plan.kept[1].size()));
  copy_compact(*model, pruner.network(), pruner.masks(), plan, *compact);
  // State that is the parameter itself is cut like the parameter.
  std::vector<NamedTensor> from, to;
  for (const NamedParameter& parameter : model->parameters()) {
    from.push_back({"momentum." + parameter.name, parameter.variable.value()});
  }
  for (const NamedParameter& parameter : compact->parameters()) {
    to.push_back({"momentum." + parameter.name, Tensor::zeros(parameter.variable.shape())});
  }
  copy_compact_state(*model, pruner.network(), pruner.masks(), plan, from, to);
  const auto cut = compact->parameters();
  ASSERT_EQ(cut.size(), to.size());
  for (std::size_t i = 0; i < to.size(); ++i) {
    EXPECT_EQ(values_of(to[i].tensor), values_of(cut[i].variable.value())) << to[i].name;
  }
}

TEST(Compact, keeps_an_output_that_nothing_makes_as_long_as_it_is_read) {
  // Row 1 of c1 is pruned, but its output is relu(bias), which c2 reads. Removing the row would
  // change the result.
  const auto model = small_network();
  const PrunableNetwork network = prunable_network(*model, kImage);
  std::vector<Tensor> masks(4);
  masks[0] = Tensor::full(network.layers[0].weight().shape(), 1.0);
  for (std::int64_t i = 18; i < 36; ++i) masks[0].data<float>()[i] = 0;
  EXPECT_EQ(compact_plan(network, masks).kept[0].size(), 4u);
  // No layer reads output 2 of c1, so this output is removed, whatever its weights are.
  masks[1] = Tensor::full(network.layers[1].weight().shape(), 1.0);
  for (std::int64_t k = 0; k < 6; ++k) {
    for (std::int64_t i = 18; i < 27; ++i) masks[1].data<float>()[k * 36 + i] = 0;
  }
  EXPECT_EQ(compact_plan(network, masks).kept[0], (std::vector<std::int64_t>{0, 1, 3}));
}

TEST(Compact, is_refused_for_a_cut_network_with_the_layer) {
  const auto model = small_network();
  const PrunableNetwork network = prunable_network(*model, kImage);
  std::vector<Tensor> masks(4);
  masks[2] = Tensor::zeros(network.layers[2].weight().shape());
  EXPECT_ERROR(ErrorKind::kConfig, "'f3'", compact_plan(network, masks));
}

}  // namespace
}  // namespace convscope::testing
