// SPDX-License-Identifier: Apache-2.0
// update_cuda_test.cpp: compares optimisers on `device cuda`, step by step and recorded, with the
// CPU.
#include "optim/device_update.h"
#include "optim/slow_weights.h"
#include "tests/support/cuda_like_cpu.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

using testing::normal;
using UpdateOnCuda = testing::CudaTest;

// Returns `rows` parameters: more than one kernel launch handles. Their sizes are near 4 (a 16-byte
// vector) and near 2048 (the chunk of a thread block), and one parameter is empty.
std::vector<ParameterGroup> groups_on(Device device, DType dtype, int rows) {
  const std::int64_t sizes[] = {1, 3, 4, 5, 0, 2047, 2048, 2049, 4099, 17};
  std::vector<ParameterGroup> groups(2);
  groups[0] = {.name = "weights", .parameters = {}, .lr_scale = 1.0, .weight_decay = 0.01};
  groups[1] = {.name = "biases", .parameters = {}, .lr_scale = 0.5, .weight_decay = 0.0};
  for (int i = 0; i < rows; ++i) {
    const Tensor w = normal({sizes[i % 10]}, dtype, 100 + static_cast<std::uint64_t>(i)).to(device);
    groups[static_cast<std::size_t>(i % 2)].parameters.push_back({cat("p", i), Variable(w, true)});
  }
  return groups;
}

void give_gradients(const Optimizer& optimizer, int step) {
  std::uint64_t seed = 1000 * static_cast<std::uint64_t>(step + 1);
  for (const ParameterGroup& group : optimizer.groups()) {
    for (const OptimParameter& p : group.parameters) {
      const Tensor& w = p.variable.value();
      const Tensor dw = normal(w.shape(), w.dtype(), ++seed);
      Variable::State& state = *p.variable.state();
      if (!state.grad.defined()) state.grad = Tensor::zeros(w.shape(), w.dtype(), w.device());
      state.grad.copy_from(dw);  // keeps the memory
      state.grad_is_zero = false;
    }
  }
}

struct Case {
  const char* name;
  std::map<std::string, OptionValue> settings;
  SlowWeightsOptions slow = {};
  std::unique_ptr<Optimizer> make(std::vector<ParameterGroup> groups) const {
    return with_slow_weights(make_optimizer(name, std::move(groups), settings), {}, slow);
  }
};
const Case kCases[] = {{"sgd", {{"momentum", 0.0}}},
                       {"sgd", {{"dampening", 0.1}}},
                       {"sgd", {{"nesterov", true}}},
                       {"adam", {}},
                       {"adamw", {}},
                       {"lion", {}},
                       {"sgdw", {{"nesterov", true}}},
                       {"muon", {}},
                       {"sgd", {}, {.decay = 0.75}},
                       {"adamw", {}, {.decay = 0.5, .k = 2, .alpha = 0.25}}};

constexpr double kRates[] = {0.1, 0.05, 0.2, 0.01, 0.3};

void expect_same_weights(const Optimizer& got, const Optimizer& want, const testing::Bound& bound) {
  for (std::size_t g = 0; g < want.groups().size(); ++g) {
    const auto& parameters = want.groups()[g].parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(testing::near(got.groups()[g].parameters[i].variable.value().to(Device{}),
                                parameters[i].variable.value(), bound.absolute, bound.relative))
          << parameters[i].name;
    }
  }
}

// Five steps have a few roundings each. Adam's quotient changes quickly where its second moment v
// is near 0, so errors grow there.
testing::Bound bound_of(DType dtype) { return testing::few_ulp(dtype, 64); }

TEST_F(UpdateOnCuda, MakesTheStepsOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(cat(c.name, " ", name_of(dtype)));
      const auto want = c.make(groups_on(Device{}, dtype, 12));
      const auto got = c.make(groups_on(testing::cuda(), dtype, 12));
      for (int step = 0; step < 5; ++step) {
        give_gradients(*want, step);
        give_gradients(*got, step);
        want->step(kRates[step]);
        got->step(kRates[step]);
      }
      expect_same_weights(*got, *want, bound_of(dtype));
    }
  }
}

// Averages of buffers have rows without a gradient, which clipping must skip.
TEST_F(UpdateOnCuda, AveragesBuffersAndSkipsThemInTheNorm) {
  std::unique_ptr<Optimizer> optimizers[2];
  Tensor buffers[2];
  for (const int i : {0, 1}) {
    const Device device = i == 0 ? Device{} : testing::cuda();
    buffers[i] = normal({2050}, DType::f32, 7).to(device);
    optimizers[i] = with_slow_weights(make_optimizer("sgd", groups_on(device, DType::f32, 12), {}),
                                      {{"bn.running_mean", buffers[i]}}, {.decay = 0.5});
  }
  const Tensor later = normal({2050}, DType::f32, 8);
  for (int step = 0; step < 3; ++step) {
    for (const int i : {0, 1}) {
      give_gradients(*optimizers[i], step);
      optimizers[i]->step(0.1);
      buffers[i].copy_from(later);
    }
  }
  const auto want = optimizers[0]->averages();
  const auto got = optimizers[1]->averages();
  ASSERT_EQ(got.size(), 13u);
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(testing::near(got[i].average.to(Device{}), want[i].average,
                              bound_of(DType::f32).absolute, bound_of(DType::f32).relative));
  }
  EXPECT_FALSE(testing::same_bits(want[12].average, later));

  give_gradients(*optimizers[1], 0);
  std::vector<OptimParameter> parameters;
  for (const ParameterGroup& group : optimizers[1]->groups()) {
    parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
  }
  const DeviceUpdate update(*optimizers[1], testing::cuda(), 1);
  EXPECT_EQ(update.joined(0), nullptr);
  update.clip(1e9);
  EXPECT_EQ(update.norm(), clip_gradient_norm(parameters, 1e9));
}

TEST_F(UpdateOnCuda, TakesMoreParametersThanOneLaunchHolds) {
  const auto want = kCases[1].make(groups_on(Device{}, DType::f32, 131));
  const auto got = kCases[1].make(groups_on(testing::cuda(), DType::f32, 131));
  for (const auto& optimizer : {want.get(), got.get()}) {
    give_gradients(*optimizer, 0);
    optimizer->step(0.1);
  }
  expect_same_weights(*got, *want, bound_of(DType::f32));
}

// A recorded update reads the learning rate at each replay, so the rate may change. Each replay
// counts as a step of the optimiser.
TEST_F(UpdateOnCuda, MakesTheSameStepsFromARecording) {
  const Device device = testing::cuda();
  const DeviceBackend& backend = backend_of(device);
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const auto want = c.make(groups_on(device, DType::f32, 12));
    const auto got = c.make(groups_on(device, DType::f32, 12));
    give_gradients(*want, 0);
    give_gradients(*got, 0);
    DeviceUpdate update(*got, device, 2);
    backend.begin_recording(device.index);
    update.launch(0);
    update.launch(1);
    void* const recording = backend.end_recording(device.index);
    want->step(0.4);  // a step outside of the recording, before and after
    got->step(0.4);
    for (const double rate : {0.1, 0.05, 0.2, 0.01}) want->step(rate);
    for (const double* rates : {kRates, kRates + 2}) {
      update.upload(rates, 2);
      backend.replay(device.index, recording);
    }
    want->step(0.3);
    got->step(0.3);
    expect_same_weights(*got, *want, {});
    const auto states = got->state();
    const auto wanted = want->state();
    ASSERT_EQ(states.size(), wanted.size());
    for (std::size_t i = 0; i < states.size(); ++i) {
      EXPECT_TRUE(testing::same_bits(states[i].tensor.to(Device{}), wanted[i].tensor.to(Device{})))
          << states[i].name;
    }
    backend.synchronize(device.index);
    backend.free_recording(device.index, recording);
  }
}

// A wide and a tall matrix, the weights of a convolution, and a vector. The average follows.
std::vector<ParameterGroup> matrices_on(Device device) {
  std::vector<ParameterGroup> groups = {{.name = "all", .parameters = {}, .weight_decay = 0.01}};
  const Shape shapes[] = {{20, 50}, {70, 33}, {16, 3, 3, 3}, {30}};
  std::uint64_t seed = 40;
  for (const Shape& shape : shapes) {
    const Tensor w = normal(shape, DType::f32, ++seed).to(device);
    groups[0].parameters.push_back({cat("p", seed), Variable(w, true)});
  }
  return groups;
}

TEST_F(UpdateOnCuda, OrthogonalisesLikeTheCpuAlsoRecorded) {
  const Device device = testing::cuda();
  const DeviceBackend& backend = backend_of(device);
  const auto make = [](Device where) {
    return with_slow_weights(make_optimizer("muon", matrices_on(where), {}), {}, {.decay = 0.5});
  };
  const auto want = make(Device{});
  const auto got = make(device);
  const auto recorded = make(device);
  for (const auto& optimizer : {want.get(), got.get(), recorded.get()}) {
    give_gradients(*optimizer, 0);
    optimizer->step(0.02);
  }
  DeviceUpdate update(*recorded, device, 2);
  EXPECT_EQ(update.joined(0), nullptr);
  backend.begin_recording(device.index);
  update.launch(0);
  update.launch(1);
  void* const recording = backend.end_recording(device.index);
  for (const double rate : {0.03, 0.01}) {
    want->step(rate);
    got->step(rate);
  }
  const double rates[] = {0.03, 0.01};
  update.upload(rates, 2);
  backend.replay(device.index, recording);
  // The iteration multiplies the rounding errors of its products by up to 500.
  expect_same_weights(*got, *want, {.absolute = 2e-5, .relative = 2e-5});
  expect_same_weights(*recorded, *got, {});
  const auto averages = recorded->averages();
  for (std::size_t i = 0; i < averages.size(); ++i) {
    EXPECT_TRUE(testing::same_bits(averages[i].average.to(Device{}),
                                   got->averages()[i].average.to(Device{})));
  }
  backend.synchronize(device.index);
  backend.free_recording(device.index, recording);
}

TEST_F(UpdateOnCuda, NoticesThatAGradientHasMoved) {
  const auto optimizer = kCases[1].make(groups_on(testing::cuda(), DType::f32, 3));
  give_gradients(*optimizer, 0);
  DeviceUpdate update(*optimizer, testing::cuda(), 1);
  EXPECT_TRUE(update.is_current());
  Variable::State& state = *optimizer->groups()[0].parameters[0].variable.state();
  state.grad = state.grad.clone();
  EXPECT_FALSE(update.is_current());
  EXPECT_ERROR(ErrorKind::kInvalid, "a recording holds their addresses", update.upload(kRates, 1));
}

TEST_F(UpdateOnCuda, ClipsTheJointNorm) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto want = kCases[0].make(groups_on(Device{}, dtype, 12));
    const auto got = kCases[0].make(groups_on(testing::cuda(), dtype, 12));
    const auto recorded = kCases[0].make(groups_on(testing::cuda(), dtype, 12));
    std::vector<OptimParameter> parameters[2];
    const Optimizer* const both[] = {want.get(), got.get()};
    for (int i = 0; i < 2; ++i) {
      give_gradients(*both[i], 0);
      for (const ParameterGroup& group : both[i]->groups()) {
        parameters[i].insert(parameters[i].end(), group.parameters.begin(), group.parameters.end());
      }
    }
    give_gradients(*recorded, 0);
    const DeviceUpdate update(*recorded, testing::cuda(), 1);
    for (const double most : {1e9, 2.5}) {  // clips nothing / clips
      const double norm = clip_gradient_norm(parameters[0], most);
      EXPECT_NEAR(clip_gradient_norm(parameters[1], most), norm, 1e-6 * norm);
      update.clip(most);
      EXPECT_NEAR(update.norm(), norm, 1e-6 * norm);
      for (std::size_t i = 0; i < parameters[0].size(); ++i) {
        const testing::Bound bound = testing::few_ulp(dtype);
        const Tensor& dw = parameters[0][i].variable.grad();
        const Tensor clipped = parameters[1][i].variable.grad().to(Device{});
        EXPECT_TRUE(testing::near(clipped, dw, bound.absolute, bound.relative));
      }
    }
    for (std::size_t g = 0; g < 2; ++g) {
      for (std::size_t i = 0; i < got->groups()[g].parameters.size(); ++i) {
        EXPECT_TRUE(
            testing::same_bits(recorded->groups()[g].parameters[i].variable.grad().to(Device{}),
                               got->groups()[g].parameters[i].variable.grad().to(Device{})));
      }
    }
  }
}

}  // namespace
}  // namespace convscope
