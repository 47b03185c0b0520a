// SPDX-License-Identifier: Apache-2.0
// lsq_cuda_test.cpp: compares the LSQ quantiser and the pruning masks on `device cuda` with the
// CPU.
#include "quant/lsq.h"
#include "quant/quantizer.h"
#include "sparsity/hold.h"
#include "sparsity/mask.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using testing::expect_gradients_like_cpu;
using testing::expect_like_cpu;
using testing::normal;
using LsqOnCuda = testing::CudaTest;
using HoldOnCuda = testing::CudaTest;

TEST_F(LsqOnCuda, RoundsToTheCodesOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const StepForm form : {StepForm::plain, StepForm::log}) {
      for (const bool by_channel : {false, true}) {
        for (const Shape& shape : {Shape{3, 5, 3, 3}, Shape{2, 5001}, Shape{0, 4}}) {
          if (by_channel && shape[0] == 0) continue;
          SCOPED_TRACE(cat(shape, " ", name_of(dtype), " log ", form == StepForm::log));
          const Shape steps{by_channel ? shape[0] : 1};
          const LsqRule rule{.grid = integer_grid(3, true), .form = form, .g = 0.01};
          const bool log = form == StepForm::log;
          // v_hat and dv agree bit for bit if exp(t) has the same bits on both devices, else
          // within an ulp. The gradient of the step size is a sum of up to 5001 numbers of size 1,
          // times 0.01.
          expect_gradients_like_cpu(
              [&](const auto& v) { return lsq_quantize(v[0], v[1], rule); },
              {normal(shape, dtype, 1),
               testing::uniform(steps, log ? -1.5f : 0.2f, log ? -0.5f : 0.6f, dtype, 2)},
              testing::few_ulp(dtype, 64));
        }
      }
    }
  }
}

// Quantises several tensors in one call. `t` holds four tensors for each of them: v, the step size,
// its previous value (`last`) and its calibrated value (`first`). Returns y, step size, previous
// value, dstep and dv for each tensor, but no dv for the second one.
std::vector<Tensor> several(const std::vector<Tensor>& t, StepForm form) {
  std::vector<LsqForward> forward;
  std::vector<LsqBackward> backward;
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < t.size(); i += 4) {
    const Tensor v = t[i], step = t[i + 1].clone(), last = t[i + 2].clone();
    const LsqRule rule{.grid = integer_grid(2 + static_cast<int>(i / 4) % 7, true),
                       .form = form,
                       .g = 0.01,
                       .log_rate = form == StepForm::log};
    const Tensor y = Tensor::empty(v.shape(), DType::f32, v.device());
    const Tensor dv = Tensor::empty(v.shape(), DType::f32, v.device());
    const Tensor dstep = Tensor::empty(step.shape(), DType::f32, v.device());
    forward.push_back({.v = v, .step = step, .rule = rule, .bounds = {last, t[i + 3]}, .y = y});
    backward.push_back({.dy = v,
                        .v = v,
                        .step = step,
                        .rule = rule,
                        .bounds = {last, t[i + 3]},
                        .dv = i == 4 ? Tensor() : dv,
                        .dstep = dstep});
    out.insert(out.end(), {y, step, last, dstep});
    if (i != 4) out.push_back(dv);
  }
  const Device device = t[0].device();
  lsq_kernel.get(device)(forward.data(), static_cast<int>(forward.size()));
  lsq_gradient_kernel.get(device)(backward.data(), static_cast<int>(backward.size()));
  return out;
}

TEST_F(LsqOnCuda, RoundsSeveralTensorsAtOnceWithStepsInTheirBounds) {
  for (const StepForm form : {StepForm::plain, StepForm::log}) {
    const bool log = form == StepForm::log;
    std::vector<Tensor> t;
    // There are more tensors than one kernel launch handles. The first two tensors are so large
    // that several thread blocks share each of them.
    for (std::uint64_t i = 0; i < 19; ++i) {
      const Shape shape = i == 0 ? Shape{4, 5003} : i == 1 ? Shape{2, 9000} : Shape{5, 7};
      const std::int64_t steps = i % 3 == 2 ? 1 : shape[0];
      t.push_back(normal(shape, DType::f32, i));
      // Steps inside, below and above their bounds.
      t.push_back(
          testing::uniform({steps}, log ? -4.0f : 0.001f, log ? 4.0f : 30.0f, DType::f32, i));
      t.push_back(testing::uniform({steps}, log ? -1.5f : 0.2f, log ? -0.5f : 0.6f, DType::f32, i));
      t.push_back(testing::uniform({steps}, 0.2f, 0.6f, DType::f32, 99 + i));
    }
    expect_like_cpu([&](const auto& all) { return several(all, form); }, t,
                    testing::few_ulp(DType::f32, 64));
  }
}

TEST_F(HoldOnCuda, PutsBackAndClearsWhatIsMaskedOut) {
  // More tensors than one launch takes; some have several blocks.
  std::vector<Tensor> t;
  for (std::uint64_t i = 0; i < 27; ++i) {
    const std::int64_t n = i == 3 ? 0 : i < 3 ? 5000 : 1 + static_cast<std::int64_t>(i);
    t.push_back(elementwise(UnaryOp::relu, normal({n}, DType::f32, i)));
    t.push_back(normal({n}, DType::f32, 100 + i));
    t.push_back(normal({n}, DType::f32, 200 + i));
  }
  expect_like_cpu(
      [](const auto& all) {
        std::vector<RestedTensor> rested;
        std::vector<MaskedTensor> masked;
        std::vector<Tensor> out;
        for (std::size_t i = 0; i < all.size(); i += 3) {
          out.push_back(all[i + 2].clone());
          rested.push_back({all[i], i % 2 == 0 ? all[i + 1] : Tensor(), out.back()});
          out.push_back(Tensor::empty(all[i].shape(), DType::f32, all[i].device()));
          masked.push_back({all[i + 1], all[i], out.back()});
        }
        const Device device = all[0].device();
        rest_kernel.get(device)(rested.data(), static_cast<int>(rested.size()));
        mask_kernel.get(device)(masked.data(), static_cast<int>(masked.size()));
        return out;
      },
      t, {});
}

}  // namespace
}  // namespace convscope
