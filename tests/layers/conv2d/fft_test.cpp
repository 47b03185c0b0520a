// SPDX-License-Identifier: Apache-2.0
// fft_test.cpp: compares the transforms of the algorithm fft with sums in double; also tests the
// edges of tiles, and when `auto` chooses fft.
#include <gtest/gtest.h>

#include <complex>

#include "framework/memory/memory.h"
#include "layers/conv2d/fft/cpu/fft_kernels.h"
#include "layers/conv2d/select.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/numerics.h"

namespace convscope {
namespace {

using Number = std::complex<double>;
using Numbers = std::vector<Number>;

constexpr double kPi = 3.14159265358979323846;

Numbers dft(const Numbers& x) {
  const auto length = static_cast<double>(x.size());
  Numbers out(x.size());
  for (std::size_t k = 0; k < x.size(); ++k) {
    for (std::size_t n = 0; n < x.size(); ++n) {
      out[k] += x[n] * std::polar(1.0, -2 * kPi * static_cast<double>(k * n % x.size()) / length);
    }
  }
  return out;
}

double norm(const Numbers& x) {
  double sum = 0;
  for (const Number& value : x) sum += std::norm(value);
  return std::sqrt(sum);
}

// Each element of a transform has the rms value norm(x) and an rms error of about eps sqrt(log2 T)
// / 3 times this value (Gentleman & Sande 1966). The returned bound is 6 to 8 times that error.
double tolerance(const Numbers& x) {
  return std::numeric_limits<float>::epsilon() * std::log2(static_cast<double>(x.size())) * norm(x);
}

// The transforms of one length for one instruction set, and test numbers in the layouts that the
// transforms read. The numbers are 64-byte aligned and differ between lanes.
struct Machine {
  Machine(Isa isa, int which)
      : lanes(isa == Isa::avx512    ? 16
              : isa == Isa::avx2    ? 8
              : isa == Isa::vector4 ? 4
                                    : 1),
        kernels(fft_kernels.get(isa)),
        transform(kernels.lengths[which]),
        length(static_cast<std::size_t>(transform.length)) {}

  std::vector<float> random(std::size_t count) const {
    Generator generator(5, length);
    std::vector<float> out(count * lanes);
    for (float& value : out) value = generator.normal();
    return out;
  }
  // Numbers i of [count, 2, L].
  Number at(const std::vector<float>& values, std::size_t i, std::size_t lane) const {
    return {values[2 * i * lanes + lane], values[(2 * i + 1) * lanes + lane]};
  }

  std::size_t lanes;
  const FftKernels& kernels;
  const FftLength& transform;
  std::size_t length;
};

template <class Body>
void on_every_length(const Body& body) {
  for (int isa = 0; isa < kIsaCount; ++isa) {
    if (!supports_isa(static_cast<Isa>(isa))) continue;
    for (int which = 0; which < kFftLengthCount; ++which) {
      const Machine machine(static_cast<Isa>(isa), which);
      SCOPED_TRACE(cat(name_of(static_cast<Isa>(isa)), ", length ", machine.transform.length));
      ASSERT_EQ(machine.transform.length, kFftLengths[which]);
      body(machine);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Transforms `rows` rows of `columns` numbers each, and returns their spectra [T / 2, rows, 2, L].
// The numbers after the first `columns` count as 0.
std::vector<float> spectra(const Machine& machine, const std::vector<float>& panel,
                           std::size_t rows, std::size_t columns, float scale = 1) {
  const std::size_t lanes = machine.lanes;
  std::vector<float> out(machine.length * rows * lanes);
  FftRows z;
  z.rows = static_cast<int>(rows);
  z.columns = static_cast<int>(columns);
  z.from = panel.data();
  z.from_row = static_cast<std::int64_t>(columns * lanes);
  z.scale = scale;
  z.to = out.data();
  z.pair_step = static_cast<std::int64_t>(2 * rows * lanes);
  machine.transform.rows(z);
  return out;
}

FftColumns column_of(const Machine& machine, const std::vector<float>& from, std::size_t rows,
                     std::vector<float>& to) {
  FftColumns z;
  z.rows = static_cast<int>(rows);
  z.count = 1;
  z.from = from.data();
  z.to = to.data();
  z.point_step = static_cast<std::int64_t>(machine.lanes);
  return z;
}

TEST(FftRows, AgreeWithTheSumsOfTheDefinition) {
  on_every_length([](const Machine& machine) {
    const std::size_t length = machine.length;
    for (const std::size_t rows : {1, 2, 5}) {
      for (const std::size_t columns : {length, length - 3, std::size_t{1}}) {
        const std::vector<float> panel = machine.random(rows * columns);
        const std::vector<float> found = spectra(machine, panel, rows, columns, 0.5f);
        for (std::size_t row = 0; row < rows; ++row) {
          for (std::size_t lane = 0; lane < machine.lanes; ++lane) {
            Numbers x(length);
            for (std::size_t i = 0; i < columns; ++i) {
              x[i] = panel[(row * columns + i) * machine.lanes + lane];
            }
            const Numbers expected = dft(x);  // 0.5 here, doubled in the transform
            for (std::size_t j = 0; j < length / 2; ++j) {
              const Number bin =
                  j > 0 ? expected[j] : Number{expected[0].real(), expected[length / 2].real()};
              ASSERT_NEAR(std::abs(machine.at(found, j * rows + row, lane) - bin), 0, tolerance(x))
                  << rows << " rows of " << columns << ", row " << row << ", bin " << j;
            }
          }
        }
      }
    }
  });
}

TEST(FftRows, ComeBackTwiceTheirLengthTimesThemselves) {
  on_every_length([](const Machine& machine) {
    const std::size_t length = machine.length;
    const std::size_t rows = 3;
    const std::size_t first = 2;
    const std::size_t columns = length - 5;
    const std::vector<float> panel = machine.random(rows * length);
    const std::vector<float> there = spectra(machine, panel, rows, length);
    const std::vector<float> bias = machine.random(1);
    std::vector<float> back(rows * columns * machine.lanes, 1.0f);
    FftRowsBack z;
    z.rows = static_cast<int>(rows);
    z.first = static_cast<int>(first);
    z.columns = static_cast<int>(columns);
    z.from = there.data();
    z.pair_step = static_cast<std::int64_t>(2 * rows * machine.lanes);
    z.to = back.data();
    z.to_row = static_cast<std::int64_t>(columns * machine.lanes);
    z.bias = bias.data();
    z.lanes = static_cast<int>(machine.lanes);
    z.accumulate = true;
    machine.transform.rows_back(z);
    for (std::size_t i = 0; i < back.size(); ++i) {
      const std::size_t lane = i % machine.lanes;
      const std::size_t pixel = i / machine.lanes;
      const float x =
          panel[(pixel / columns * length + first + pixel % columns) * machine.lanes + lane];
      // Forward and back: 2 T numbers of rms 1, see tolerance().
      const auto scale = static_cast<double>(2 * length);
      ASSERT_NEAR(back[i], 1 + bias[lane] + scale * x, scale * 4e-6) << pixel;
    }
  });
}

TEST(FftRows, AnImpulseHasTheSameMagnitudeEverywhereAndTransformsAreLinear) {
  on_every_length([](const Machine& machine) {
    const std::size_t length = machine.length;
    std::vector<float> impulse(length * machine.lanes);
    for (std::size_t lane = 0; lane < machine.lanes; ++lane) {
      impulse[lane % length * machine.lanes + lane] = 1;
    }
    const std::vector<float> bins = spectra(machine, impulse, 1, length, 0.5f);
    for (std::size_t lane = 0; lane < machine.lanes; ++lane) {
      for (std::size_t j = 1; j < length / 2; ++j) {
        const double turn =
            2 * kPi * static_cast<double>(j * (lane % length)) / static_cast<double>(length);
        EXPECT_NEAR(std::abs(machine.at(bins, j, lane) - std::polar(1.0, -turn)), 0, 1e-6);
      }
    }
    const std::vector<float> x = machine.random(length);
    std::vector<float> sum(x);
    for (std::size_t i = 0; i < x.size(); ++i) sum[i] = 2 * x[i] + 3 * impulse[i];
    const std::vector<float> x_spectrum = spectra(machine, x, 1, length, 0.5f);
    const std::vector<float> sum_spectrum = spectra(machine, sum, 1, length, 0.5f);
    for (std::size_t i = 0; i < x_spectrum.size(); ++i) {
      // norm(2 x + 3 impulse) < 2 sqrt(64) + 3; tolerance() explains the bound
      ASSERT_NEAR(sum_spectrum[i], 2 * x_spectrum[i] + 3 * bins[i], 1e-5) << i;
    }
  });
}

TEST(FftColumns, AgreeWithTheSumsOfTheDefinitionAndKeepTheEnergy) {
  on_every_length([](const Machine& machine) {
    const std::size_t length = machine.length;
    for (const std::size_t rows : {length, length - 3, std::size_t{1}}) {
      const std::vector<float> from = machine.random(2 * rows);
      std::vector<float> data(3 * length * machine.lanes);
      std::vector<float> kernel(2 * length * machine.lanes);
      machine.transform.data_columns(column_of(machine, from, rows, data));
      FftColumns conjugate = column_of(machine, from, rows, kernel);
      conjugate.conjugate = true;
      machine.transform.kernel_columns(conjugate);
      for (std::size_t lane = 0; lane < machine.lanes; ++lane) {
        Numbers x(length);
        for (std::size_t i = 0; i < rows; ++i) x[i] = machine.at(from, i, lane);
        const Numbers expected = dft(x);
        double energy = 0;
        for (std::size_t k = 0; k < length; ++k) {
          const auto point = [&](std::size_t part) {
            return data[(3 * k + part) * machine.lanes + lane];
          };
          ASSERT_NEAR(std::abs(Number(point(1), point(2)) - expected[k]), 0, tolerance(x)) << k;
          EXPECT_EQ(point(0), point(1) + point(2));
          ASSERT_EQ(machine.at(kernel, k, lane), std::conj(Number(point(1), point(2)))) << k;
          energy += std::norm(Number(point(1), point(2)));
        }
        // Parseval: sum |X|^2 = T sum |x|^2
        EXPECT_NEAR(energy / (static_cast<double>(length) * norm(x) * norm(x)), 1, 2e-6);
      }
    }
  });
}

TEST(FftColumns, TwoRealOnesAreTakenApart) {
  on_every_length([](const Machine& machine) {
    const std::size_t length = machine.length;
    const std::vector<float> from = machine.random(2 * length);
    std::vector<float> kernel(2 * length * machine.lanes);
    FftColumns z = column_of(machine, from, length, kernel);
    z.two_real = true;
    machine.transform.kernel_columns(z);
    for (std::size_t lane = 0; lane < machine.lanes; ++lane) {
      Numbers a(length);
      Numbers b(length);
      for (std::size_t i = 0; i < length; ++i) {
        a[i] = machine.at(from, i, lane).real();
        b[i] = machine.at(from, i, lane).imag();
      }
      const double error = tolerance(a) + tolerance(b);
      const Numbers a_spectrum = dft(a);
      const Numbers b_spectrum = dft(b);
      for (const std::size_t row : {std::size_t{0}, length / 2}) {
        const Number both(a_spectrum[row].real(), b_spectrum[row].real());
        ASSERT_NEAR(std::abs(machine.at(kernel, row, lane) - both), 0, error) << row;
      }
      for (std::size_t k = 1; k < length / 2; ++k) {
        ASSERT_NEAR(std::abs(machine.at(kernel, k, lane) - a_spectrum[k]), 0, error) << k;
        ASSERT_NEAR(std::abs(machine.at(kernel, length - k, lane) - b_spectrum[k]), 0, error) << k;
      }
    }
  });
}

TEST(FftColumns, ComeBackTheirLengthTimesThemselves) {
  on_every_length([](const Machine& machine) {
    const std::size_t length = machine.length;
    const std::size_t first = 3;
    const std::size_t rows = length - 7;
    for (const bool two_real : {false, true}) {
      const std::vector<float> from = machine.random(2 * length);
      std::vector<float> there(2 * length * machine.lanes);
      FftColumns z = column_of(machine, from, length, there);
      z.two_real = two_real;
      machine.transform.kernel_columns(z);
      std::vector<float> back(2 * rows * machine.lanes, 1.0f);
      FftColumnsBack y;
      y.first = static_cast<int>(first);
      y.rows = static_cast<int>(rows);
      y.two_real = two_real;
      y.accumulate = true;
      y.count = 1;
      y.from = there.data();
      y.point_step = static_cast<std::int64_t>(machine.lanes);
      y.to = back.data();
      machine.transform.columns_back(y);
      const auto scale = static_cast<double>(length);
      for (std::size_t i = 0; i < back.size(); ++i) {
        ASSERT_NEAR(back[i], 1 + scale * from[2 * first * machine.lanes + i], scale * 4e-6)
            << two_real << " at " << i;
      }
    }
  });
}

TEST(FftProduct, IsTheSumOfComplexProducts) {
  on_every_length([](const Machine& machine) {
    if (machine.length != 16) return;  // the products do not depend on it
    const std::size_t lanes = machine.lanes;
    const std::size_t depth = lanes + 3;  // channels: one block of lanes and part of another
    const auto rows = static_cast<std::size_t>(machine.kernels.rows);
    const std::size_t block = rows * lanes;
    const std::size_t blocks = (depth + lanes - 1) / lanes;
    std::vector<float> v = machine.random(3 * rows * blocks);  // [3, channels / L, rows, L]
    for (std::size_t i = 0; i < blocks * block; ++i) {
      v[i] = v[blocks * block + i] + v[2 * blocks * block + i];
    }
    const std::vector<float> u = machine.random(2 * depth);  // [2, channels, L]
    for (std::size_t height = 1; height <= rows; ++height) {
      std::vector<float> out(2 * block, std::nanf(""));
      FftProduct z;
      z.rows = static_cast<int>(height);
      z.depth = static_cast<std::int64_t>(depth);
      z.v = v.data();
      z.v_point = static_cast<std::int64_t>(blocks * block);
      z.block_step = static_cast<std::int64_t>(block);
      z.u = u.data();
      z.u_point = static_cast<std::int64_t>(depth * lanes);
      z.out = out.data();
      z.out_point = static_cast<std::int64_t>(block);
      machine.kernels.product(z);
      for (std::size_t i = 0; i < height; ++i) {
        for (std::size_t lane = 0; lane < lanes; ++lane) {
          Number sum;
          for (std::size_t c = 0; c < depth; ++c) {
            const std::size_t at = blocks * block + c / lanes * block + i * lanes + c % lanes;
            sum += Number(v[at], v[at + blocks * block]) *
                   Number(u[c * lanes + lane], u[(depth + c) * lanes + lane]);
          }
          const Number found(out[i * lanes + lane], out[block + i * lanes + lane]);
          // Each channel adds three products of numbers up to about 8, each with a rounding error
          // of 2^-24
          ASSERT_NEAR(std::abs(found - sum), 0, static_cast<double>(depth) * 1e-6) << height;
        }
      }
      EXPECT_TRUE(height == rows || std::isnan(out[height * lanes])) << "wrote beyond its rows";
    }
  });
}

// ---- the algorithm ------------------------------------------------------------------------------

const Conv2dAlgorithm& algorithm() { return conv2d_algorithms(DeviceType::cpu).get("fft"); }

TEST(Fft, OutputsOneBelowAndAboveATileAgreeWithTheReference) {
  const testing::MachineScope scope;
  set_num_threads(2);
  // A transform of length 16, 20 or 64 is just long enough for some of these sizes of y. Other
  // sizes are one element smaller or larger. One axis is long and the other short, so that the two
  // lengths differ.
  for (const char* kernel : {"r=5,s=7,pad=1x2x3x4", "r=2,s=15", "r=16,s=1", "r=17,s=33,pad=8x16"}) {
    for (const int outputs : {1, 9, 10, 11, 12, 13, 16, 17, 58, 60, 61}) {
      const std::string text = cat("n=2,c=3,k=2,", kernel);
      Conv2dProblem problem = Conv2dProblem::parse(text + ",h=99,w=99");
      problem.h =
          std::max<std::int64_t>(1, outputs + problem.r - 1 - problem.pad_top - problem.pad_bottom);
      problem.w = std::max<std::int64_t>(
          1, 71 - outputs + problem.s - 1 - problem.pad_left - problem.pad_right);
      if (problem.p() < 1 || problem.q() < 1) continue;
      testing::ConvolutionCase one(problem, testing::Tier::bounded);
      for (const Direction direction : kDirections) {
        ASSERT_EQ(one.check(algorithm(), direction), "");
      }
    }
  }
}

TEST(Fft, DepthwiseTilesAgreeWithTheReference) {
  const testing::MachineScope scope;
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    for (const char* text : {"n=3,c=17,k=17,groups=17,h=33,w=20,r=11,s=11,pad=5",
                             "n=1,c=2,k=2,groups=2,h=70,w=9,r=31,s=3,pad=15x0x1x2",
                             "n=2,c=16,k=16,groups=16,h=8,w=90,r=2,s=21,pad=0x10"}) {
      testing::ConvolutionCase one(Conv2dProblem::parse(text), testing::Tier::bounded);
      for (const Direction direction : kDirections) {
        ASSERT_EQ(one.check(algorithm(), direction), "");
      }
    }
  }
}

TEST(Fft, RefusesWithASentence) {
  const auto reason = [](const char* text) {
    return algorithm().supports(Conv2dProblem::parse(text), Direction::forward).reason;
  };
  EXPECT_EQ(reason("h=9,w=9,r=3,s=3,stride=2x1"), "expects stride 1, got 2x1");
  EXPECT_EQ(reason("h=9,w=9,r=3,s=3,dilation=2"), "expects dilation 1, got 2x2");
  EXPECT_EQ(reason("h=60,w=60,r=49,s=3"),
            "expects a kernel of at most 48x48, because tiles are 64x64, got 49x3");
  EXPECT_EQ(reason("h=9,w=9"), "expects a kernel of more than one tap, got 1x1");
  EXPECT_EQ(
      reason("c=2,k=4,groups=2,h=9,w=9,r=3,s=3"),
      "expects groups of one channel and one kernel or of at least 4 kernels' planes, got 1x2");
  EXPECT_EQ(reason("c=2,k=2,groups=2,h=9,w=9,r=3,s=3"), "");
}

TEST(Fft, IsTakenByAutoForLargeKernelsAndNotForSmallOnes) {
  const auto chosen = [](const char* text, Direction direction) {
    return std::string(
        select_conv2d("auto", Conv2dProblem::parse(text), direction, Device()).algorithm->name);
  };
  for (const Direction direction : kDirections) {
    EXPECT_EQ(chosen("n=8,c=64,h=56,w=56,k=64,r=11,s=11,pad=5", direction), "fft");
    EXPECT_EQ(chosen("n=8,c=64,h=56,w=56,k=64,r=7,s=7,pad=3", direction), "fft");
    EXPECT_EQ(chosen("n=8,c=64,h=56,w=56,k=64,r=31,s=31,pad=15,groups=64", direction), "fft");
    EXPECT_NE(chosen("n=8,c=64,h=56,w=56,k=64,r=3,s=3,pad=1", direction), "fft");
    EXPECT_NE(chosen("n=8,c=64,h=56,w=56,k=64,r=3,s=3,pad=1,groups=64", direction), "fft");
    EXPECT_NE(chosen("n=8,c=1,h=28,w=28,k=6,r=5,s=5", direction), "fft");
  }
}

}  // namespace
}  // namespace convscope
