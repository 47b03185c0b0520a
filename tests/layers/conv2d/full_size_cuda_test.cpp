// SPDX-License-Identifier: Apache-2.0
// full_size_cuda_test.cpp: tests every convolution algorithm on CUDA at the sizes of real networks,
// and on tensors of more than 2^31 elements. The reference in double would take hours, so the test
// compares selected elements of each output: the first, the last, those near element 2^31, and
// random ones.
#include <gtest/gtest.h>

#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/run.h"
#include "tests/support/cases.h"
#include "tests/support/cuda.h"
#include "tests/support/numerics.h"
#include "tests/support/periodic.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::fits;
using testing::Periodic;
using testing::read_element;
using testing::samples_of;
using testing::Sum;

const Registry<Conv2dAlgorithm>& algorithms() { return conv2d_algorithms(DeviceType::cuda); }

// Computes element i of y, dx or dw directly from the definition.
Sum element(const Conv2dProblem& z, Direction direction, std::int64_t i, const Periodic& x,
            const Periodic& w, const Periodic& dy) {
  Sum sum;
  const std::int64_t cg = z.c_per_group();
  const std::int64_t kg = z.k_per_group();
  const auto x_index = [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t v) {
    return ((n * z.c + c) * z.h + h) * z.w + v;
  };
  const auto w_index = [&](std::int64_t k, std::int64_t c, std::int64_t r, std::int64_t s) {
    return ((k * cg + c) * z.r + r) * z.s + s;
  };
  const auto y_index = [&](std::int64_t n, std::int64_t k, std::int64_t p, std::int64_t q) {
    return ((n * z.k + k) * z.p() + p) * z.q() + q;
  };
  const auto inside = [&](std::int64_t h, std::int64_t v) {
    return h >= 0 && h < z.h && v >= 0 && v < z.w;
  };
  if (direction == Direction::forward) {
    const std::int64_t q = i % z.q(), p = i / z.q() % z.p();
    const std::int64_t k = i / (z.q() * z.p()) % z.k, n = i / (z.q() * z.p() * z.k);
    for (std::int64_t c = 0; c < cg; ++c) {
      for (std::int64_t r = 0; r < z.r; ++r) {
        for (std::int64_t s = 0; s < z.s; ++s) {
          const std::int64_t h = p * z.stride_h - z.pad_top + r * z.dilation_h;
          const std::int64_t v = q * z.stride_w - z.pad_left + s * z.dilation_w;
          if (inside(h, v)) {
            sum.add(x.at(x_index(n, k / kg * cg + c, h, v)), w.at(w_index(k, c, r, s)));
          }
        }
      }
    }
  } else if (direction == Direction::backward_data) {
    const std::int64_t v = i % z.w, h = i / z.w % z.h;
    const std::int64_t c = i / (z.w * z.h) % z.c, n = i / (z.w * z.h * z.c);
    for (std::int64_t r = 0; r < z.r; ++r) {
      for (std::int64_t s = 0; s < z.s; ++s) {
        const std::int64_t above = h + z.pad_top - r * z.dilation_h;
        const std::int64_t left = v + z.pad_left - s * z.dilation_w;
        if (above < 0 || left < 0 || above % z.stride_h != 0 || left % z.stride_w != 0) continue;
        const std::int64_t p = above / z.stride_h, q = left / z.stride_w;
        if (p >= z.p() || q >= z.q()) continue;
        for (std::int64_t k = c / cg * kg; k < (c / cg + 1) * kg; ++k) {
          sum.add(dy.at(y_index(n, k, p, q)), w.at(w_index(k, c % cg, r, s)));
        }
      }
    }
  } else {
    const std::int64_t s = i % z.s, r = i / z.s % z.r;
    const std::int64_t c = i / (z.s * z.r) % cg, k = i / (z.s * z.r * cg);
    for (std::int64_t n = 0; n < z.n; ++n) {
      for (std::int64_t p = 0; p < z.p(); ++p) {
        for (std::int64_t q = 0; q < z.q(); ++q) {
          const std::int64_t h = p * z.stride_h - z.pad_top + r * z.dilation_h;
          const std::int64_t v = q * z.stride_w - z.pad_left + s * z.dilation_w;
          if (inside(h, v)) {
            sum.add(x.at(x_index(n, k / kg * cg + c, h, v)), dy.at(y_index(n, k, p, q)));
          }
        }
      }
    }
  }
  return sum;
}

std::int64_t bytes_of(const Conv2dProblem& z) {
  return (z.x_shape().numel() + z.w_shape().numel() + z.y_shape().numel()) *
         static_cast<std::int64_t>(size_of(z.dtype));
}

// Checks all algorithms on one problem; returns the number of checks.
int check_samples(const Conv2dProblem& z) {
  const std::int64_t largest =
      std::max({z.x_shape().numel(), z.w_shape().numel(), z.y_shape().numel()});
  if (!fits(bytes_of(z) + largest * static_cast<std::int64_t>(size_of(z.dtype)))) return 0;
  const Periodic x(z.x_shape(), z.dtype, 1);
  const Periodic w(z.w_shape(), z.dtype, 2);
  const Periodic dy(z.y_shape(), z.dtype, 3);
  int checks = 0;
  for (const Direction direction : kDirections) {
    const std::int64_t count = testing::output_numel(z, direction);
    const std::int64_t length = z.sum_length(direction);
    const std::vector<std::int64_t> samples =
        samples_of(count, std::clamp<std::int64_t>((1 << 26) / length, 4, 60));
    std::vector<Sum> expected;
    for (const auto& [name, algorithm] : algorithms().entries()) {
      if (!support_of(algorithm, z, direction).yes) continue;
      const std::size_t scratch_bytes =
          algorithm.workspace_bytes(z, direction) + algorithm.prepared_size(z, direction);
      if (!fits(static_cast<std::int64_t>(scratch_bytes) +
                count * static_cast<std::int64_t>(size_of(z.dtype)))) {
        continue;
      }
      if (expected.empty()) {
        expected.resize(samples.size());
        parallel_chunks(static_cast<std::int64_t>(samples.size()), [&](std::int64_t i, int) {
          const auto at = static_cast<std::size_t>(i);
          expected[at] = element(z, direction, samples[at], x, w, dy);
        });
      }
      const Tensor out = Tensor::empty({count}, z.dtype, cuda());
      backend_of(cuda()).fill_bytes(0, out.raw_data(), 0xff,
                                    static_cast<std::size_t>(out.size_bytes()));
      {
        const Scratch<Conv2dProblem> scratch(algorithm, z, direction, cuda());
        if (direction == Direction::forward) {
          algorithm.forward({z,
                             x.data(),
                             w.data(),
                             nullptr,
                             out.raw_data(),
                             scratch.workspace(),
                             {},
                             scratch.prepare(w.data())});
        } else if (direction == Direction::backward_data) {
          algorithm.backward_data({z, dy.data(), w.data(), out.raw_data(), scratch.workspace(),
                                   scratch.prepare(w.data())});
        } else {
          algorithm.backward_weight(
              {z, x.data(), dy.data(), out.raw_data(), false, scratch.workspace()});
        }
        backend_of(cuda()).synchronize(0);
      }
      ++checks;
      double most = 0;
      for (const Sum& sum : expected) most = std::max(most, sum.magnitude);
      double errors = 0;
      double squares = 0;
      for (std::size_t i = 0; i < samples.size(); ++i) {
        const double got = read_element(out.raw_data(), z.dtype, samples[i]);
        const double error = std::abs(got - expected[i].value);
        errors += error * error;
        squares += expected[i].value * expected[i].value;
        if (error <= testing::allowed_error(z, algorithm.error_growth, expected[i].value, most))
          continue;
        ADD_FAILURE() << name << ", " << name_of(direction) << " of " << z.text() << ": element "
                      << samples[i] << " of " << count << ": got " << got << ", expected "
                      << expected[i].value;
        break;
      }
      if (length <= 4608 && samples.size() >= 32) {
        EXPECT_LE(std::sqrt(errors), testing::allowed_l2(z) * std::sqrt(squares))
            << name << ", " << name_of(direction) << " of " << z.text()
            << ": relative L2 error of the samples " << std::sqrt(errors / squares);
      }
    }
  }
  return checks;
}

std::vector<Conv2dProblem> in_all_types(const Conv2dProblem& problem) {
  std::vector<Conv2dProblem> out(4, problem);
  out[1].math = MathMode::tf32;
  out[2].dtype = DType::bf16;
  out[3].dtype = DType::f16;
  return out;
}

class Conv2dOnCudaAtFullSize : public testing::CudaTest,
                               public ::testing::WithParamInterface<const char*> {};

TEST_P(Conv2dOnCudaAtFullSize, EveryAlgorithmAgreesWithTheFormula) {
  int checks = 0;
  for (Conv2dProblem problem : testing::shapes_of(GetParam())) {
    if (testing::is_emulated()) {  // only to run the code of this test
      if (checks > 0) break;
      problem = testing::shrunk(problem, 1e5);
    }
    for (const Conv2dProblem& z : in_all_types(problem)) checks += check_samples(z);
  }
  EXPECT_GT(checks, 0);
}
INSTANTIATE_TEST_SUITE_P(Conv2dOnCuda, Conv2dOnCudaAtFullSize,
                         ::testing::Values("lenet", "gpu_dense", "gpu_depthwise", "resnet18"),
                         [](const auto& name) { return name.param; });

// Many input channels, many output channels, both, and a huge batch.
class Conv2dOnCudaBeyond31Bits : public Conv2dOnCudaAtFullSize {};

TEST_P(Conv2dOnCudaBeyond31Bits, EveryAlgorithmAgreesWithTheFormula) {
  if (testing::is_emulated()) GTEST_SKIP() << "too large for the emulation";
  const Conv2dProblem problem = Conv2dProblem::parse(GetParam());
  if (check_samples(problem) == 0) GTEST_SKIP() << "not enough memory on the device";
}
INSTANTIATE_TEST_SUITE_P(Conv2dOnCuda, Conv2dOnCudaBeyond31Bits,
                         ::testing::Values("n=33,c=64,h=1024,w=1024,k=2,r=3,s=3,pad=1",
                                           "n=33,c=2,h=1024,w=1024,k=64,r=3,s=3,pad=1",
                                           "n=33,c=64,h=1024,w=1024,k=64,r=3,s=3,pad=1,groups=64",
                                           "n=33,c=64,h=1024,w=1024,k=1",
                                           "n=2200000,c=1,h=32,w=32,k=1,r=5,s=5"),
                         [](const auto& name) { return "problem" + std::to_string(name.index); });

}  // namespace
}  // namespace convscope
