// SPDX-License-Identifier: Apache-2.0
// numerics.h: the one check that every convolution algorithm has to pass.
//
// An algorithm is run on a problem with its output full of NaN, guards around output and workspace,
// and all pointers one element off alignment, and compared with the double reference:
//
//   exact     small integers: every product and sum is exact in f32, so all bits must agree
//             (cards with exact_on_integers);
//   bounded   normal numbers: max|error| <= error_growth * eps * max(conv(|x|,|w|)), eps = 2^-23.
//
// The bound in each direction takes that direction's own sum over magnitudes: conv(|x|,|w|) + |b|
// forward, conv^T(|dy|,|w|) for dx, and for dw the sum of |x||dy| over all N P Q pixels, plus |dw|
// before when it accumulates. An error of one rounding in each of m steps of a sum is at most
// m eps/2 times that magnitude; with rounding errors of random sign it grows like sqrt(m) times the
// partial sums, which for numbers of random sign grow like sqrt(m) while the magnitude grows like
// m. So a growth of a few units holds for sums of any length, and one lost term of an average sum of
// up to a million terms is still beyond it.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "framework/cpu_isa.h"
#include "framework/memory.h"
#include "framework/parallel.h"
#include "framework/random.h"
#include "layers/conv2d/algorithm.h"

namespace convscope::testing {

enum class Tier { exact, bounded };

// The numbers of one problem, as f32 for the algorithm and f64 for the reference.
struct Numbers {
  std::vector<float> values;
  Numbers(std::int64_t count, Tier tier, std::uint64_t stream) {
    Generator random(11, stream);
    values.resize(static_cast<std::size_t>(count) + 1);  // element 0 is there to shift the rest
    for (float& value : values) {
      value = tier == Tier::exact ? static_cast<float>(random.below(7)) - 3.0f : random.normal();
    }
  }
  const float* data() const { return values.data() + 1; }
  std::vector<double> doubles(bool magnitudes) const {
    std::vector<double> out(values.begin() + 1, values.end());
    if (magnitudes) {
      for (double& value : out) value = std::abs(value);
    }
    return out;
  }
};

// What the reference says about one direction.
struct Expected {
  std::vector<double> values;
  double largest = 0;  // of the same sum over magnitudes
};

class ConvolutionCase {
 public:
  ConvolutionCase(const Conv2dProblem& problem, Tier tier)
      : problem_(problem),
        tier_(tier),
        x_(problem.x_shape().numel(), tier, 1),
        w_(problem.w_shape().numel(), tier, 2),
        b_(problem.k, tier, 3),
        y_(problem.y_shape().numel(), tier, 4),
        dw_before_(problem.w_shape().numel(), tier, 5) {}

  const Conv2dProblem& problem() const { return problem_; }

  // "" when the algorithm passes; otherwise a report. Leaves its output in `out`, if given.
  std::string check(const Conv2dAlgorithm& algorithm, Direction direction,
                    std::vector<float>* out = nullptr) {
    for (const bool extra : {false, true}) {  // with bias, or accumulating
      if (extra && direction == Direction::backward_data) break;
      std::vector<float> result;
      const std::string damage = run(algorithm, direction, extra, result);
      if (!damage.empty()) return report(algorithm, direction, damage);
      const std::string wrong = compare(algorithm, direction, extra, result);
      if (!wrong.empty()) return report(algorithm, direction, wrong);
      if (out != nullptr) *out = result;
    }
    return "";
  }

 private:
  static constexpr std::size_t kGuard = 17;  // elements; odd, so that the output is not aligned
  static constexpr float kGuardValue = -12345.0f;
  static constexpr std::size_t kCanaryBytes = 256;

  std::int64_t output_count(Direction direction) const {
    return direction == Direction::forward         ? problem_.y_shape().numel()
           : direction == Direction::backward_data ? problem_.x_shape().numel()
                                                   : problem_.w_shape().numel();
  }

  std::string run(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
                  std::vector<float>& result) const {
    const auto count = static_cast<std::size_t>(output_count(direction));
    std::vector<float> guarded(count + 2 * kGuard, kGuardValue);
    float* const output = guarded.data() + kGuard;
    for (std::size_t i = 0; i < count; ++i) {
      output[i] = direction == Direction::backward_weight && extra
                      ? dw_before_.data()[i]
                      : std::numeric_limits<float>::quiet_NaN();
    }
    Conv2dProblem problem = problem_;
    problem.dtype = DType::f32;
    const std::size_t bytes = algorithm.workspace_bytes(problem, direction);
    const Workspace workspace({}, bytes + 2 * kCanaryBytes);
    auto* const block = static_cast<unsigned char*>(workspace.data());
    std::memset(block, 0xff, workspace.bytes());  // f32 NaN inside, canaries outside
    void* const scratch = block + kCanaryBytes;
    switch (direction) {
      case Direction::forward:
        algorithm.forward(
            {problem, x_.data(), w_.data(), extra ? b_.data() : nullptr, output, scratch});
        break;
      case Direction::backward_data:
        algorithm.backward_data({problem, y_.data(), w_.data(), output, scratch});
        break;
      case Direction::backward_weight:
        algorithm.backward_weight({problem, x_.data(), y_.data(), output, extra, scratch});
        break;
    }
    result.assign(output, output + count);
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (guarded[i] != kGuardValue) return "wrote in front of the output";
      if (guarded[kGuard + count + i] != kGuardValue) return "wrote behind the output";
    }
    for (std::size_t i = 0; i < kCanaryBytes; ++i) {
      if (block[i] != 0xff) return "wrote in front of the workspace";
      if (block[kCanaryBytes + bytes + i] != 0xff) return "wrote behind the workspace";
    }
    return "";
  }

  std::string compare(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
                      const std::vector<float>& result) {
    const Expected& expected = expect(direction, extra);
    const double eps = static_cast<double>(std::numeric_limits<float>::epsilon());
    const double bound =
        tier_ == Tier::exact ? 0.0 : algorithm.error_growth * eps * expected.largest;
    for (std::size_t i = 0; i < result.size(); ++i) {
      const double error = std::abs(static_cast<double>(result[i]) - expected.values[i]);
      if (error <= bound) continue;  // false for NaN
      std::ostringstream text;
      text.precision(9);
      text << "first wrong element " << i << " of " << result.size() << ": got " << result[i]
           << ", expected " << expected.values[i] << ", error " << error << ", allowed " << bound
           << (extra ? " (with bias or accumulating)" : "");
      return text.str();
    }
    return "";
  }

  // By the reference card in f64, once for each direction.
  const Expected& expect(Direction direction, bool extra) {
    Expected& expected = expected_[static_cast<int>(direction)][extra ? 1 : 0];
    if (!expected.values.empty() || output_count(direction) == 0) return expected;
    expected.values = reference(direction, extra, false);
    for (const double value : reference(direction, extra, true)) {
      expected.largest = std::max(expected.largest, value);
    }
    return expected;
  }

  std::vector<double> reference(Direction direction, bool extra, bool magnitudes) const {
    const Conv2dAlgorithm& card = conv2d_algorithms(DeviceType::cpu).get("reference");
    Conv2dProblem problem = problem_;
    problem.dtype = DType::f64;
    const std::vector<double> x = x_.doubles(magnitudes);
    const std::vector<double> w = w_.doubles(magnitudes);
    const std::vector<double> b = b_.doubles(magnitudes);
    const std::vector<double> y = y_.doubles(magnitudes);
    std::vector<double> out(static_cast<std::size_t>(output_count(direction)));
    if (direction == Direction::backward_weight && extra) out = dw_before_.doubles(magnitudes);
    switch (direction) {
      case Direction::forward:
        card.forward(
            {problem, x.data(), w.data(), extra ? b.data() : nullptr, out.data(), nullptr});
        break;
      case Direction::backward_data:
        card.backward_data({problem, y.data(), w.data(), out.data(), nullptr});
        break;
      case Direction::backward_weight:
        card.backward_weight({problem, x.data(), y.data(), out.data(), extra, nullptr});
        break;
    }
    return out;
  }

  std::string report(const Conv2dAlgorithm& algorithm, Direction direction,
                     const std::string& what) const {
    return cat(algorithm.name, " on ", name_of(algorithm.device), ", ", name_of(direction), " of ",
               problem_.text(), tier_ == Tier::exact ? ", integers" : ", normal numbers", ", ",
               name_of(current_isa()), ", ", num_threads(), " threads: ", what,
               "\nto see it again: CONVSCOPE_TEST_PROBLEM='", problem_.text(),
               "' CONVSCOPE_TEST_ALGORITHM=", algorithm.name,
               " test_layers --gtest_filter=Conv2dAlgorithms.PassTheProblemOfTheEnvironment");
  }

  const Conv2dProblem problem_;
  const Tier tier_;
  const Numbers x_, w_, b_, y_, dw_before_;
  Expected expected_[3][2];
};

}  // namespace convscope::testing
