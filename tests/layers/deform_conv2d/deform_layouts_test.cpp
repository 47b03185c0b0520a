// SPDX-License-Identifier: Apache-2.0
// deform_layouts_test.cpp: tests compiled steps in which deformable convolutions read NCHW16c
// images. The results of these steps must agree with those of steps on NCHW images. Offsets and
// masks are NCHW in both cases.
#include <gtest/gtest.h>

#include "layers/plan/step_plan.h"
#include "tests/layers/deform_conv2d/deform_network.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

const Shape kImages{3, 32, 9, 10};

std::shared_ptr<Sequential> in_layout(const std::vector<LayerSpec>& specs, const char* layout) {
  const auto out = network(specs, kImages, {}, ComputePrecision::f32, layout);
  move_branches(*out);
  return out;
}

LayerSpec conv(const char* name, std::int64_t k) {
  return layer("conv2d", name,
               {{"out_channels", k}, {"kernel_size", Ints{3}}, {"padding", Ints{1}}});
}

// Returns the layouts in which a layer of the compiled step runs, by direction.
std::string layouts_of(const StepPlan& plan, const std::string& name) {
  std::string out;
  for (const RanKernel& ran : plan.kernels()) {
    if (ran.layer == name) out += cat(out.empty() ? "" : " ", name_of(ran.layout));
  }
  return out;
}

// Results are sums of some hundred terms, added in different orders. The tolerance, 1e-4 of the
// largest number, is about ten times the difference.
void expect_close(const Tensor& a, const Tensor& b, const std::string& what) {
  double largest = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) largest = std::max(largest, std::abs(a.at(i)));
  EXPECT_GT(largest, 0) << what;
  EXPECT_TRUE(near(a, b, 1e-4 * largest, 0)) << what;
}

// Runs two training steps and an inference: compiled in NCHW16c, compiled in NCHW, and dynamic.
// `copies` is the expected number of layout conversions in the NCHW16c training step.
void expect_same_steps(const std::vector<LayerSpec>& specs, int copies,
                       bool begins_with_conv = true) {
  const auto plain = in_layout(specs, "nchw"), nchw16c = in_layout(specs, "nchw16c");
  const auto a = StepPlan::make(*plain, kImages, PlanMode::training, nullptr);
  const auto b = StepPlan::make(*nchw16c, kImages, PlanMode::training, nullptr);
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(layouts_of(*a, "d"), "nchw nchw nchw") << a->text();
  EXPECT_EQ(layouts_of(*b, "d"), "nchw16c nchw16c nchw16c") << b->text();
  EXPECT_NE(b->text().find("deform_conv2d fused nchw16c"), std::string::npos) << b->text();
  // Whether the first layer reads [N,C,H,W] or a copy depends on the estimates.
  const bool copies_images = begins_with_conv && b->lines().front().text == "copy to nchw16c";
  EXPECT_EQ(b->conversions(), copies + (copies_images ? 1 : 0)) << b->text();
  const Tensor y = labels(kImages[0]);
  for (std::uint64_t step = 1; step <= 2; ++step) {
    const Tensor x = normal(kImages, DType::f32, step);
    const double loss = a->forward(x, y);
    EXPECT_NEAR(b->forward(x, y), loss, 1e-5 * std::abs(loss));
    a->backward();
    b->backward();
    const auto plain_parameters = plain->parameters(), nchw16c_parameters = nchw16c->parameters();
    for (std::size_t i = 0; i < plain_parameters.size(); ++i) {
      expect_close(plain_parameters[i].variable.grad(), nchw16c_parameters[i].variable.grad(),
                   plain_parameters[i].name);
    }
  }
  const auto inference = StepPlan::make(*nchw16c, kImages, PlanMode::inference, nullptr);
  ASSERT_NE(inference, nullptr);
  EXPECT_EQ(layouts_of(*inference, "d"), "nchw16c") << inference->text();
  inference->prepare();
  const NoGrad no_grad;
  const Tensor x = normal(kImages, DType::f32, 3);
  expect_close(nchw16c->forward(Variable(x)).value(), inference->infer(x), "logits");
}

// Four layout conversions: the results of the offset branch become NCHW, and their gradient is
// converted back. The same happens at the flatten layer.
TEST(DeformLayouts, BlocksGiveWhatPlanesGive) {
  const LayerSpec before = conv("c", 32), relu = layer("relu", "r");
  expect_same_steps(ending({before, relu, deform("d", 20), layer("relu", "q")}), 4);
  expect_same_steps(ending({before, relu, deform("d", 20, {{"mask", false}})}), 4);
  expect_same_steps(ending({before,
                            deform("d", 32,
                                   {{"groups", std::int64_t{2}},
                                    {"offset_groups", std::int64_t{2}},
                                    {"stride", Ints{2, 1}},
                                    {"bias", false}}),
                            layer("max_pool2d", "p", {{"kernel_size", Ints{2}}})}),
                    4);
}

// The images arrive in NCHW. The offset branch reads them directly; the deformable convolution
// samples a converted copy.
TEST(DeformLayouts, TheFirstLayerReadsACopyOfTheImages) {
  expect_same_steps(ending({deform("d", 16), layer("relu", "r"), conv("c", 20)}), 5,
                    /*begins_with_conv=*/false);
}

TEST(DeformLayouts, PlanesStayWhereNothingElseIsOffered) {
  const auto expect_planes = [](const Pairs& keys) {
    const auto model = in_layout(ending({conv("c", 32), deform("d", 32, keys)}), "nchw16c");
    const auto plan = StepPlan::make(*model, kImages, PlanMode::training, nullptr);
    ASSERT_NE(plan, nullptr);
    EXPECT_EQ(layouts_of(*plan, "d"), "nchw nchw nchw") << plan->text();
  };
  expect_planes({{"algorithm", std::string("im2col_gemm")}});
  expect_planes({{"algorithm", std::string("check:fused,reference")}});
  expect_planes({{"offset_groups", std::int64_t{4}}});  // of 8 channels: no whole blocks
}

}  // namespace
}  // namespace convscope::testing
