// SPDX-License-Identifier: Apache-2.0
// numerics.h: the one check that every convolution algorithm has to pass.
//
// An algorithm is run on a problem with its output full of NaN, guards around output and workspace,
// and all pointers one element off alignment, and compared with the double reference:
//
//   exact     small integers: every product and sum is exact in f32, so all bits must agree
//             (cards with exact_on_integers);
//   bounded   normal numbers: max|error| <= growth * eps * max(conv(|x|,|w|)), eps = 2^-23, growth
//             being the card's error_growth (Card::growth() for cards that sum in one chain);
//   offset    the same bound on 1 + 0.1 N(0,1), as behind a ReLU or in images: all terms have one
//             sign, so partial sums and their roundings are as large as they can be;
//   heavy     the same bound on N(0,1) / (0.1 + |N(0,1)|): few large numbers among many small ones.
//
// A card that prepares its weights does so once, into a block with guards, and is then called twice
// without w: both calls must give the same bits (deterministic cards) and leave the block as it
// was.
//
// Of block-sparse weights the same w and dw are taken, at random places of kept blocks; elsewhere
// the reference sees w = 0, and dw is not compared.
//
// On CUDA all of it is copied to the device and back. There, too, sum(error^2) <= L^2 sum(value^2):
// L = 2e-6 for f32 (sums of up to 4608 products), 1e-3 for tf32, 1e-2 for bf16, 2e-3 for f16.
// Blocked images (layers/dispatch/activation_layout.h) are made of the same numbers; lanes behind
// the last channel must be 0 in the output. Inputs of half types are rounded before the reference
// sees them. A half output is rounded once, by at most a unit u = 2^-9 or 2^-12 of itself; the
// bound allows twice that.
//
// The bound in each direction takes that direction's own sum over magnitudes: conv(|x|,|w|) + |b|
// forward, conv^T(|dy|,|w|) for dx, and for dw the sum of |x||dy| over all N P Q pixels, plus |dw|
// before when it accumulates. An error of one rounding in each of m steps of a sum is at most
// m eps/2 times that magnitude; with rounding errors of random sign it grows like sqrt(m) times the
// partial sums. For numbers of random sign these grow like sqrt(m) while the magnitude grows like
// m, so the error is about 1 eps for sums of any length. For numbers of one sign they are as large
// as the magnitude: 0.126 sqrt(m) eps is the standard deviation of one chain, and chains of 160
// terms stay below 8 eps (framework/simd/sum_chain.h). One lost term of an average sum of up to a
// million terms is still beyond it.
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "framework/memory/memory.h"
#include "framework/parallel.h"
#include "framework/random.h"
#include "framework/simd/cpu_isa.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/operands.h"
#include "tests/support/device_block.h"
#include "tests/support/tiers.h"

namespace convscope::testing {

// The numbers of one tensor, rounded to the type of the problem.
struct Numbers {
  std::vector<float> values;
  Numbers(std::int64_t count, Tier tier, std::uint64_t stream, DType dtype) {
    Generator random(11, stream);
    values.resize(static_cast<std::size_t>(count) + 1);  // element 0 is there to shift the rest
    for (float& value : values) value = rounded_to(dtype, draw(tier, random));
  }
  const float* data() const { return values.data() + 1; }
  std::int64_t count() const { return static_cast<std::int64_t>(values.size()) - 1; }
  std::vector<double> doubles(bool magnitudes) const {
    std::vector<double> out(values.begin() + 1, values.end());
    if (magnitudes) {
      for (double& value : out) value = std::abs(value);
    }
    return out;
  }
};

// How far one element of an output may be from `expected`; `largest` of the sums over magnitudes.
inline double allowed_error(const Conv2dProblem& problem, double error_growth, double expected,
                            double largest) {
  const double f32 =
      error_growth * static_cast<double>(std::numeric_limits<float>::epsilon()) * largest;
  if (problem.dtype == DType::bf16) return f32 + 0x1p-8 * std::abs(expected);
  // Below 2^-14 the steps of f16 stay 2^-24.
  if (problem.dtype == DType::f16) return f32 + 0x1p-11 * std::abs(expected) + 0x1p-24;
  // tf32: each factor is rounded by at most 2^-10 of itself.
  return problem.math == MathMode::tf32 ? f32 + 0x1p-9 * largest : f32;
}

// The relative L2 error that an output on a device may have.
inline double allowed_l2(const Conv2dProblem& problem) {
  if (problem.dtype == DType::bf16) return 1e-2;
  if (problem.dtype == DType::f16) return 2e-3;
  return problem.math == MathMode::tf32 ? 1e-3 : 2e-6;
}

// How many products are added to one element of the output.
inline std::int64_t sum_length(const Conv2dProblem& z, Direction direction) {
  return direction == Direction::forward         ? z.c_per_group() * z.r * z.s
         : direction == Direction::backward_data ? z.k_per_group() * z.r * z.s
                                                 : z.n * z.p() * z.q();
}

inline std::int64_t output_numel(const Conv2dProblem& z, Direction direction) {
  return direction == Direction::forward         ? z.y_shape().numel()
         : direction == Direction::backward_data ? z.x_shape().numel()
                                                 : z.w_shape().numel();
}

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
        x_(problem.x_shape().numel(), tier, 1, problem.dtype),
        w_(problem.w_shape().numel(), tier, 2, problem.dtype),
        b_(problem.k, tier, 3, problem.dtype),
        y_(problem.y_shape().numel(), tier, 4, problem.dtype),
        dw_before_(problem.w_shape().numel(), tier, 5, problem.dtype) {
    if (problem.weight_format.is_dense()) return;
    places_ = empty_operand(problem.operands(Direction::forward).inputs[1], Device{}, 2);
  }

  const Conv2dProblem& problem() const { return problem_; }
  // How many elements the pointers on a device are off alignment. (On the CPU it is always one.)
  void set_shift(std::int64_t elements) { shift_ = elements; }

  // "" when the algorithm passes; otherwise a report. Leaves its outputs in `out`, if given. A
  // problem of plain images is checked in every layout that the algorithm takes.
  std::string check(const Conv2dAlgorithm& algorithm, Direction direction,
                    std::vector<float>* out = nullptr) {
    if (out != nullptr) out->clear();
    if (problem_.layout != ActivationLayout::nchw) return check_layout(algorithm, direction, out);
    std::string wrong;
    for (const ActivationLayout layout : kActivationLayouts) {
      problem_.layout = layout;
      const bool plain = layout == ActivationLayout::nchw;
      if (!wrong.empty() || (!plain && !support_of(algorithm, problem_, direction).yes)) continue;
      wrong = check_layout(algorithm, direction, out);
    }
    problem_.layout = ActivationLayout::nchw;
    return wrong;
  }

 private:
  std::string check_layout(const Conv2dAlgorithm& algorithm, Direction direction,
                           std::vector<float>* out) {
    for (const bool extra : {false, true}) {  // with bias, or accumulating
      if (extra && direction == Direction::backward_data) break;
      std::vector<float> result;
      const std::string damage = run(algorithm, direction, extra, result);
      if (!damage.empty()) return report(algorithm, direction, damage);
      const std::string wrong = compare(algorithm, direction, extra, result);
      if (!wrong.empty()) return report(algorithm, direction, wrong);
      if (out != nullptr) out->insert(out->end(), result.begin(), result.end());
    }
    return "";
  }

  static constexpr std::size_t kGuard = 17;  // elements; odd, so that the output is not aligned
  static constexpr float kGuardValue = -12345.0f;
  static constexpr std::size_t kCanaryBytes = 256;

  bool is_sparse() const { return !problem_.weight_format.is_dense(); }
  // Of sparse dw the stored elements.
  std::int64_t output_count(Direction direction) const {
    return is_sparse() && direction == Direction::backward_weight
               ? problem_.weight_format.stored_elements()
               : output_numel(problem_, direction);
  }

  template <class Visit>
  void for_each_stored(const Visit& visit) const {
    convscope::for_each_stored(places_, problem_.operands(Direction::forward).inputs[1],
                               [&](std::int64_t stored, std::int64_t at) {
                                 visit(static_cast<std::size_t>(stored),
                                       static_cast<std::size_t>(at));
                               });
  }
  // Of numbers of w's shape, behind one element that shifts them: those that are stored; all of
  // dense weights.
  std::vector<float> kept(const Numbers& numbers) const {
    if (!is_sparse()) return numbers.values;
    std::vector<float> out{0.0f};
    for_each_stored([&](std::size_t, std::size_t at) { out.push_back(numbers.data()[at]); });
    return out;
  }
  // With zeros where nothing is stored.
  std::vector<double> dense_w(bool magnitudes) const {
    const std::vector<double> all = w_.doubles(magnitudes);
    if (!is_sparse()) return all;
    std::vector<double> out(all.size(), 0.0);
    for_each_stored([&](std::size_t, std::size_t at) { out[at] = all[at]; });
    return out;
  }
  // `places` are places_ on the device of w.
  OperandViews views(const void* w, const Operand& places) const {
    OperandViews out;
    if (!is_sparse()) return out;
    out.w_blocks = places.blocks();
    out.w_blocks.values = w;
    return out;
  }

  std::string run(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
                  std::vector<float>& result) const {
    return algorithm.device == DeviceType::cpu ? run_on_host(algorithm, direction, extra, result)
                                               : run_on_device(algorithm, direction, extra, result);
  }

  struct Pointers {
    const void *x, *w, *b, *dy;
    void *output, *workspace;
    const void* prepared;
    const Operand* places = nullptr;  // null: those on the host
  };
  void call(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
            const Pointers& at) const {
    const auto views = [&](const void* w) {
      return this->views(w, at.places == nullptr ? places_ : *at.places);
    };
    switch (direction) {
      case Direction::forward:
        algorithm.forward({problem_,
                           at.x,
                           at.w,
                           extra ? at.b : nullptr,
                           at.output,
                           at.workspace,
                           {},
                           at.prepared,
                           views(at.w)});
        break;
      case Direction::backward_data:
        algorithm.backward_data(
            {problem_, at.dy, at.w, at.output, at.workspace, at.prepared, views(at.w)});
        break;
      case Direction::backward_weight:
        algorithm.backward_weight(
            {problem_, at.x, at.dy, at.output, extra, at.workspace, views(at.output)});
        break;
    }
  }

  // Bytes of the CPU between canaries; f32 NaN inside until somebody writes there.
  struct HostBlock {
    explicit HostBlock(std::size_t count)
        : bytes(count), memory({}, count + 2 * kCanaryBytes), all(pointer()) {
      poison();
    }
    unsigned char* pointer() const { return static_cast<unsigned char*>(memory.data()); }
    unsigned char* data() const { return all + kCanaryBytes; }
    void poison() const { std::memset(all, 0xff, memory.bytes()); }
    const char* damage() const {
      for (std::size_t i = 0; i < kCanaryBytes; ++i) {
        if (all[i] != 0xff) return "in front of";
        if (all[kCanaryBytes + bytes + i] != 0xff) return "behind";
      }
      return nullptr;
    }
    std::vector<unsigned char> contents() const { return {all, all + memory.bytes()}; }
    std::size_t bytes;
    Workspace memory;
    unsigned char* all;
  };

  std::string run_on_host(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
                          std::vector<float>& result) const {
    const HostBlock workspace(algorithm.workspace_bytes(problem_, direction));
    const HostBlock prepared(algorithm.prepared_size(problem_, direction));
    const std::vector<float> x = stored(x_, problem_.x_shape(), layout_of_x(problem_.layout));
    const std::vector<float> dy = stored(y_, problem_.y_shape(), layout_of_y(problem_.layout));
    const std::vector<float> w = kept(w_);
    Pointers at{x.data() + 1, w.data() + 1,     b_.data(), dy.data() + 1,
                nullptr,      workspace.data(), nullptr};
    if (prepared.bytes == 0)
      return call_on_host(algorithm, direction, extra, at, workspace, result);
    algorithm.prepare_weights(
        {problem_, direction, at.w, prepared.data(), workspace.data(), views(at.w, places_)});
    if (const char* where = workspace.damage())
      return cat("preparing wrote ", where, " the workspace");
    if (const char* where = prepared.damage()) return cat("wrote ", where, " the prepared weights");
    const std::vector<unsigned char> before = prepared.contents();
    const std::vector<float> nothing(w_.values.size(), std::numeric_limits<float>::quiet_NaN());
    at.w = nothing.data();
    at.prepared = prepared.data();
    std::string wrong = call_on_host(algorithm, direction, extra, at, workspace, result);
    std::vector<float> again;
    if (wrong.empty() && !extra) {
      wrong = call_on_host(algorithm, direction, extra, at, workspace, again);
    }
    if (prepared.contents() != before) return "wrote to the prepared weights";
    return wrong.empty() && !extra ? differ(algorithm, result, again) : wrong;
  }

  // The numbers of images as they lie in memory, behind one element that shifts them.
  static std::vector<float> stored(const Numbers& numbers, const Shape& shape,
                                   ActivationLayout layout) {
    if (layout == ActivationLayout::nchw) return numbers.values;
    const Tensor plain = Tensor::empty(shape);
    std::memcpy(plain.raw_data(), numbers.data(), static_cast<std::size_t>(plain.size_bytes()));
    const Tensor moved = stored_images(plain, layout);
    std::vector<float> out{0.0f};
    out.insert(out.end(), moved.data<float>(), moved.data<float>() + moved.numel());
    return out;
  }

  // Where the output is images: their shape.
  Shape output_shape(Direction direction) const {
    return direction == Direction::forward ? problem_.y_shape() : problem_.x_shape();
  }
  ActivationLayout output_layout(Direction direction) const {
    return direction == Direction::forward         ? layout_of_y(problem_.layout)
           : direction == Direction::backward_data ? layout_of_x(problem_.layout)
                                                   : ActivationLayout::nchw;
  }
  bool writes_blocks(Direction direction) const {
    return output_layout(direction) != ActivationLayout::nchw;
  }

  static std::string differ(const Conv2dAlgorithm& algorithm, const std::vector<float>& first,
                            const std::vector<float>& second) {
    if (!algorithm.deterministic || first.empty() ||
        std::memcmp(first.data(), second.data(), first.size() * sizeof(float)) == 0) {
      return "";
    }
    return "two calls with the same prepared weights gave different bits";
  }

  std::string call_on_host(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
                           Pointers at, const HostBlock& workspace,
                           std::vector<float>& result) const {
    const ActivationLayout layout = output_layout(direction);
    const auto count = static_cast<std::size_t>(
        writes_blocks(direction) ? stored_shape(output_shape(direction), layout).numel()
                                 : output_count(direction));
    std::vector<float> guarded(count + 2 * kGuard, kGuardValue);
    float* const output = guarded.data() + kGuard;
    const std::vector<float> before = kept(dw_before_);
    for (std::size_t i = 0; i < count; ++i) {
      output[i] = direction == Direction::backward_weight && extra
                      ? before[i + 1]
                      : std::numeric_limits<float>::quiet_NaN();
    }
    at.output = output;
    workspace.poison();
    call(algorithm, direction, extra, at);
    result.assign(output, output + count);
    if (writes_blocks(direction)) {
      const Shape shape = output_shape(direction);
      const Tensor blocks = Tensor::empty(stored_shape(shape, layout));
      std::memcpy(blocks.raw_data(), output, count * sizeof(float));
      if (!has_clean_lanes(blocks, shape, layout)) {
        return "left lanes behind the last channel that are not 0";
      }
      const Tensor plain = plain_images(blocks, shape, layout);
      result.assign(plain.data<float>(), plain.data<float>() + plain.numel());
    }
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (guarded[i] != kGuardValue) return "wrote in front of the output";
      if (guarded[kGuard + count + i] != kGuardValue) return "wrote behind the output";
    }
    if (const char* where = workspace.damage()) return cat("wrote ", where, " the workspace");
    return "";
  }

  std::string run_on_device(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
                            std::vector<float>& result) const {
    const Device device{algorithm.device, 0};
    const bool adds = direction == Direction::backward_weight && extra;
    const std::vector<float> nothing(static_cast<std::size_t>(output_count(direction)),
                                     std::numeric_limits<float>::quiet_NaN());
    const GuardedBlock x(device, problem_.dtype, x_.data(), x_.count(), shift_, 0);
    const std::vector<float> kept_w = kept(w_), dw_before = kept(dw_before_);
    const auto w_count = static_cast<std::int64_t>(kept_w.size()) - 1;
    const GuardedBlock w(device, problem_.dtype, kept_w.data() + 1, w_count, shift_, 0);
    const Operand places = is_sparse() ? places_.to(device) : Operand();
    const GuardedBlock b(device, problem_.dtype, b_.data(), b_.count(), shift_, 0);
    const GuardedBlock dy(device, problem_.dtype, y_.data(), y_.count(), shift_, 0);
    const auto bytes = static_cast<std::int64_t>(algorithm.workspace_bytes(problem_, direction));
    const auto prepared_bytes =
        static_cast<std::int64_t>(algorithm.prepared_size(problem_, direction));
    const GuardedBlock prepared(device, DType::u8, nullptr, prepared_bytes, 0, kCanaryBytes);
    std::vector<unsigned char> before;
    if (prepared_bytes > 0) {
      const GuardedBlock workspace(device, DType::u8, nullptr, bytes, 0, kCanaryBytes);
      algorithm.prepare_weights({problem_, direction, w.data(), prepared.data(), workspace.data(),
                                 views(w.data(), places)});
      before = prepared.bytes();
      if (const char* where = workspace.damage())
        return cat("preparing wrote ", where, " the workspace");
      if (const char* where = prepared.damage())
        return cat("wrote ", where, " the prepared weights");
    }
    const std::vector<float> no_w(w_.values.size(), std::numeric_limits<float>::quiet_NaN());
    const GuardedBlock unread(device, problem_.dtype, no_w.data(), w_count, shift_, 0);
    const auto once = [&](std::vector<float>& to) -> std::string {
      const GuardedBlock output(device, problem_.dtype,
                                adds ? dw_before.data() + 1 : nothing.data(),
                                output_count(direction), shift_, kCanaryBytes);
      const GuardedBlock workspace(device, DType::u8, nullptr, bytes, 0, kCanaryBytes);
      call(algorithm, direction, extra,
           {x.data(), prepared_bytes > 0 ? unread.data() : w.data(), b.data(), dy.data(),
            output.data(), workspace.data(), prepared_bytes > 0 ? prepared.data() : nullptr,
            &places});
      to = output.floats();
      if (const char* where = output.damage()) return cat("wrote ", where, " the output");
      if (const char* where = workspace.damage()) return cat("wrote ", where, " the workspace");
      return "";
    };
    std::string wrong = once(result);
    std::vector<float> again;
    const bool twice = prepared_bytes > 0 && !extra;
    if (wrong.empty() && twice) wrong = once(again);
    if (!wrong.empty()) return wrong;
    if (prepared_bytes > 0 && prepared.bytes() != before) return "wrote to the prepared weights";
    for (const GuardedBlock* input : {&x, &w, &b, &dy}) {
      if (!input->unchanged()) return "wrote to an input";
    }
    return twice ? differ(algorithm, result, again) : "";
  }

  std::string compare(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
                      const std::vector<float>& result) {
    const Expected& expected = expect(direction, extra);
    const double growth = algorithm.growth(static_cast<double>(sum_length(problem_, direction)));
    const char* with = extra ? " (with bias or accumulating)" : "";
    double errors = 0;
    double squares = 0;
    for (std::size_t i = 0; i < result.size(); ++i) {
      const double right = tier_ == Tier::exact && is_half(problem_.dtype)
                               ? rounded_to(problem_.dtype, static_cast<float>(expected.values[i]))
                               : expected.values[i];
      const double error = std::abs(static_cast<double>(result[i]) - right);
      const double bound =
          tier_ == Tier::exact ? 0.0 : allowed_error(problem_, growth, right, expected.largest);
      errors += error * error;
      squares += right * right;
      if (error <= bound) continue;  // false for NaN
      std::ostringstream text;
      text.precision(9);
      text << "first wrong element " << i << " of " << result.size() << ": got " << result[i]
           << ", expected " << right << ", error " << error << ", allowed " << bound << with;
      return text.str();
    }
    // Of a few elements all may be small by chance.
    if (algorithm.device == DeviceType::cpu || tier_ == Tier::exact || result.size() < 32 ||
        sum_length(problem_, direction) > 4608) {
      return "";
    }
    const double most = allowed_l2(problem_);
    if (std::sqrt(errors) <= most * std::sqrt(squares)) return "";
    std::ostringstream text;
    text << "relative L2 error " << std::sqrt(errors / squares) << ", allowed " << most << with;
    return text.str();
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
    problem.math = MathMode::f32;
    problem.layout = ActivationLayout::nchw;
    problem.weight_format = {};
    const std::vector<double> x = x_.doubles(magnitudes);
    const std::vector<double> w = dense_w(magnitudes);
    const std::vector<double> b = b_.doubles(magnitudes);
    const std::vector<double> y = y_.doubles(magnitudes);
    std::vector<double> out(static_cast<std::size_t>(output_numel(problem_, direction)));
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
    if (is_sparse() && direction == Direction::backward_weight) {
      std::vector<double> stored;
      for_each_stored([&](std::size_t, std::size_t at) { stored.push_back(out[at]); });
      return stored;
    }
    return out;
  }

  std::string report(const Conv2dAlgorithm& algorithm, Direction direction,
                     const std::string& what) const {
    const bool on_cpu = algorithm.device == DeviceType::cpu;
    const char* library = std::getenv("CONVSCOPE_CUDA_LIBRARY");
    return cat(
        algorithm.name, " on ", name_of(algorithm.device), ", ", name_of(direction), " of ",
        problem_.text(), ", ", name_of(tier_), ", ",
        on_cpu ? cat(name_of(current_isa()), ", ", num_threads(), " threads")
               : cat(shift_, " elements off alignment"),
        ": ", what, "\nto see it again: CONVSCOPE_TEST_PROBLEM='", problem_.text(),
        "' CONVSCOPE_TEST_ALGORITHM=", algorithm.name,
        on_cpu ? " test_layers --gtest_filter=Conv2dAlgorithms.PassTheProblemOfTheEnvironment"
               : cat(library == nullptr ? "" : cat(" CONVSCOPE_CUDA_LIBRARY=", library),
                     " test_cuda --gtest_filter=Conv2dOnCuda.PassesTheProblemOfTheEnvironment"));
  }

  Conv2dProblem problem_;
  const Tier tier_;
  std::int64_t shift_ = 1;
  const Numbers x_, w_, b_, y_, dw_before_;
  Operand places_;  // of sparse weights: where the blocks are kept
  Expected expected_[3][2];
};

}  // namespace convscope::testing
