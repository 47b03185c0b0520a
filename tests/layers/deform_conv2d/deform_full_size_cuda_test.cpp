// SPDX-License-Identifier: Apache-2.0
// deform_full_size_cuda_test.cpp: tests every algorithm of deformable convolution on CUDA on
// tensors of more than 2^31 elements: x, y, or the offsets. Compares selected elements of each
// output with the definition: the first, the last, those next to element 2^31, and random ones.
#include <gtest/gtest.h>

#include "framework/parallel.h"
#include "layers/deform_conv2d/algorithm.h"
#include "layers/deform_conv2d/place.h"
#include "layers/dispatch/run.h"
#include "tests/support/cuda.h"
#include "tests/support/periodic.h"

namespace convscope::testing {
namespace {

using Problem = DeformConv2dProblem;
using Index = std::int64_t;
using Place = DeformPlace<float>;

// Computes one element of a result from the definition, for problems with stride and dilation 1 and
// without groups.
struct Formula {
  const Problem& z;
  const Periodic &x, &w, &offset, &mask, &dy;

  Index tap_at(Index n, Index t, Index pixel) const {  // in mask
    return (n * z.taps() + t) * z.p() * z.q() + pixel;
  }
  Place place(Index n, Index t, Index pixel) const {
    const Index v_at = 2 * (tap_at(n, t, pixel) - pixel) + pixel;
    return {pixel / z.q() - z.pad_top + t / z.s,
            pixel % z.q() - z.pad_left + t % z.s,
            static_cast<float>(offset.at(v_at)),
            static_cast<float>(offset.at(v_at + z.p() * z.q())),
            z.h,
            z.w};
  }
  double factor(Index n, Index t, Index pixel) const {
    return z.mask ? mask.at(tap_at(n, t, pixel)) : 1.0;
  }
  double weight(Index k, Index c, Index t) const { return w.at((k * z.c + c) * z.taps() + t); }
  double gradient(Index n, Index k, Index pixel) const {
    return dy.at((n * z.k + k) * z.p() * z.q() + pixel);
  }
  // Calls visit(corner, x there) for the corners inside of the image.
  template <class Visit>
  void corners(const Place& at, Index n, Index c, const Visit& visit) const {
    for (int i = 0; i < 4; ++i) {
      if (at.has(i)) visit(i, x.at((n * z.c + c) * z.h * z.w + at.pixel(i)));
    }
  }

  Sum y(Index i) const {
    const Index pixels = z.p() * z.q(), pixel = i % pixels, k = i / pixels % z.k;
    const Index n = i / pixels / z.k;
    Sum sum;
    for (Index t = 0; t < z.taps(); ++t) {
      const Place at = place(n, t, pixel);
      for (Index c = 0; c < z.c; ++c) {
        const double rest = weight(k, c, t) * factor(n, t, pixel);
        corners(at, n, c,
                [&](int corner, double value) { sum.add(rest * at.weight(corner), value); });
      }
    }
    return sum;
  }
  // Periodic draws at most 10^6 offsets from the standard normal distribution. The magnitude of all
  // of them is below kReach pixels.
  static constexpr Index kReach = 7;
  Sum dx(Index i) const {
    const Index row = i / z.w % z.h, column = i % z.w, c = i / z.w / z.h % z.c;
    const Index n = i / z.w / z.h / z.c;
    Sum sum;
    for (Index p = row - kReach - z.r; p <= row + kReach + z.r; ++p) {
      for (Index q = column - kReach - z.s; q <= column + kReach + z.s; ++q) {
        if (p < 0 || p >= z.p() || q < 0 || q >= z.q()) continue;
        const Index pixel = p * z.q() + q;
        for (Index t = 0; t < z.taps(); ++t) {
          const Place at = place(n, t, pixel);
          for (int corner = 0; corner < 4; ++corner) {
            if (!at.has(corner) || at.pixel(corner) != row * z.w + column) continue;
            const double rest = at.weight(corner) * factor(n, t, pixel);
            for (Index k = 0; k < z.k; ++k) {
              sum.add(rest * weight(k, c, t), gradient(n, k, pixel));
            }
          }
        }
      }
    }
    return sum;
  }
  // Computes one gradient of a sampling position, for one tap of one pixel. `of` selects it: 0 is
  // doffset along v, 1 is doffset along u, 2 is dmask.
  Sum place_gradient(Index n, Index t, Index pixel, int of) const {
    const Place at = place(n, t, pixel);
    Sum sum;
    for (Index c = 0; c < z.c; ++c) {
      double column = 0, magnitude = 0;
      for (Index k = 0; k < z.k; ++k) {
        const double term = weight(k, c, t) * gradient(n, k, pixel);
        column += term;
        magnitude += std::abs(term);
      }
      corners(at, n, c, [&](int corner, double value) {
        const double by = of == 0   ? factor(n, t, pixel) * at.weight_by_v(corner)
                          : of == 1 ? factor(n, t, pixel) * at.weight_by_u(corner)
                                    : at.weight(corner);
        sum.value += column * by * value;
        sum.magnitude += magnitude * std::abs(by * value);
      });
    }
    return sum;
  }
  Sum doffset(Index i) const {
    const Index pixels = z.p() * z.q(), channel = i / pixels % (2 * z.taps());
    return place_gradient(i / pixels / (2 * z.taps()), channel / 2, i % pixels,
                          static_cast<int>(channel % 2));
  }
  Sum dmask(Index i) const {
    const Index pixels = z.p() * z.q();
    return place_gradient(i / pixels / z.taps(), i / pixels % z.taps(), i % pixels, 2);
  }
  Sum dw(Index i) const {
    const Index t = i % z.taps(), c = i / z.taps() % z.c, k = i / z.taps() / z.c;
    std::vector<Sum> images(static_cast<std::size_t>(z.n));
    parallel_chunks(z.n, [&](Index n, int) {
      Sum& sum = images[static_cast<std::size_t>(n)];
      for (Index pixel = 0; pixel < z.p() * z.q(); ++pixel) {
        const Place at = place(n, t, pixel);
        const double rest = gradient(n, k, pixel) * factor(n, t, pixel);
        corners(at, n, c,
                [&](int corner, double value) { sum.add(rest * at.weight(corner), value); });
      }
    });
    Sum sum;
    for (const Sum& image : images) {
      sum.value += image.value;
      sum.magnitude += image.magnitude;
    }
    return sum;
  }
  Sum element(Direction direction, std::size_t output, Index i) const {
    if (direction == Direction::forward) return y(i);
    if (direction == Direction::backward_weight) return dw(i);
    return output == 0 ? dx(i) : output == 1 ? doffset(i) : dmask(i);
  }
};

// The elements of one output that are compared.
struct Samples {
  std::vector<Index> at;
  std::vector<Sum> right;
  double most = 0;
};

Samples samples_of_output(const Formula& formula, Direction direction, std::size_t output,
                          Index count) {
  Samples out;
  out.at = samples_of(count, direction == Direction::backward_weight ? 2 : 40);
  out.right.resize(out.at.size());
  for (std::size_t i = 0; i < out.at.size(); ++i) {
    out.right[i] = formula.element(direction, output, out.at[i]);
  }
  for (const Sum& sum : out.right) out.most = std::max(out.most, sum.magnitude);
  return out;
}

// Checks all algorithms on one problem, and returns the number of checks.
int check_samples(const Problem& z) {
  constexpr Index kBytes = sizeof(float);
  const Index places = z.offset_shape().numel() + (z.mask ? z.mask_shape().numel() : 0);
  const Index inputs = z.x_shape().numel() + z.w_shape().numel() + z.y_shape().numel() + places;
  if (!fits(inputs * kBytes)) return 0;
  const Periodic x(z.x_shape(), z.dtype, 1), w(z.w_shape(), z.dtype, 2);
  const Periodic offset(z.offset_shape(), z.dtype, 3), mask(z.mask_shape(), z.dtype, 4);
  const Periodic dy(z.y_shape(), z.dtype, 5);
  const Formula formula{z, x, w, offset, mask, dy};
  int checks = 0;
  for (const Direction direction : kDirections) {
    const OperandSpecs specs = z.operands(direction);
    std::vector<Samples> samples;
    Index outputs = 0;
    for (const OperandSpec& one : specs.outputs) outputs += one.desc.shape.numel();
    for (const auto& [name, algorithm] : deform_conv2d_algorithms(DeviceType::cuda).entries()) {
      if (!support_of(algorithm, z, direction).yes) continue;
      const auto scratch = static_cast<Index>(algorithm.workspace_bytes(z, direction) +
                                              algorithm.prepared_size(z, direction));
      if (!fits(outputs * kBytes + scratch)) continue;
      Operands at = deform_conv2d_operands(direction, {x.tensor(),
                                                       w.tensor(),
                                                       offset.tensor(),
                                                       z.mask ? mask.tensor() : Tensor(),
                                                       {},
                                                       dy.tensor()});
      for (std::size_t o = 0; o < specs.outputs.size(); ++o) {
        at.out[o].values = Tensor::empty(specs.outputs[o].desc.shape, z.dtype, cuda());
        backend_of(cuda()).fill_bytes(0, at.output(static_cast<int>(o)), 0xff,
                                      static_cast<std::size_t>(at.out[o].values.size_bytes()));
        if (samples.size() <= o) {
          samples.push_back(
              samples_of_output(formula, direction, o, specs.outputs[o].desc.shape.numel()));
        }
      }
      run_algorithm(algorithm, z, direction, at);
      backend_of(cuda()).synchronize(0);
      ++checks;
      const double terms =
          z.nominal_flops() / 2 / static_cast<double>(specs.outputs[0].desc.shape.numel());
      for (std::size_t o = 0; o < specs.outputs.size(); ++o) {
        const double bound = algorithm.growth(terms) * eps_of(z.dtype, z.math) * samples[o].most;
        for (std::size_t i = 0; i < samples[o].at.size(); ++i) {
          const double got =
              read_element(at.output(static_cast<int>(o)), z.dtype, samples[o].at[i]);
          if (std::abs(got - samples[o].right[i].value) <= bound) continue;
          ADD_FAILURE() << name << ", " << name_of(direction) << " of " << z.text() << ": element "
                        << samples[o].at[i] << " of output " << o << ": got " << got
                        << ", expected " << samples[o].right[i].value << ", bound " << bound;
          break;
        }
      }
    }
  }
  return checks;
}

using DeformOnCudaAtFullSize = CudaTest;

// Runs this test's own code where problems must be small.
TEST_F(DeformOnCudaAtFullSize, TheFormulaOfThisTestIsThatOfTheAlgorithms) {
  EXPECT_GT(check_samples(Problem::parse("n=2,c=3,h=9,w=8,k=4,r=3,s=3,pad=1")), 0);
  EXPECT_GT(check_samples(Problem::parse("n=3,c=2,h=6,w=7,k=3,mask=0")), 0);
}

// Many channels in, many channels out, many places.
class DeformOnCudaBeyond31Bits : public CudaTest,
                                 public ::testing::WithParamInterface<const char*> {};

TEST_P(DeformOnCudaBeyond31Bits, EveryAlgorithmAgreesWithTheFormula) {
  if (is_emulated()) GTEST_SKIP() << "too large for the emulation";
  if (check_samples(Problem::parse(GetParam())) == 0) {
    GTEST_SKIP() << "not enough memory on the device";
  }
}
INSTANTIATE_TEST_SUITE_P(Deform, DeformOnCudaBeyond31Bits,
                         ::testing::Values("n=33,c=64,h=1024,w=1024,k=2",
                                           "n=33,c=2,h=1024,w=1024,k=64",
                                           "n=115,c=1,h=1024,w=1024,k=1,r=3,s=3,pad=1"),
                         [](const auto& name) { return "problem" + std::to_string(name.index); });

}  // namespace
}  // namespace convscope::testing
