// SPDX-License-Identifier: Apache-2.0
// convolution_case.cpp: the one check that every convolution algorithm has to pass.
#include "experiments/check/matrix/convolution_case.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <sstream>

#include "framework/memory/memory.h"

namespace convscope::matrix {
namespace {

constexpr std::size_t kGuard = 17;  // elements; odd, so that the output is not aligned
constexpr float kGuardValue = -12345.0f;
constexpr std::size_t kCanaryBytes = 256;
constexpr std::size_t kAround = Numbers::kAround;

void set_around(std::vector<float>& values, float around) {
  std::fill_n(values.begin(), kAround, around);
  std::fill_n(values.end() - kAround, kAround, around);
}

// Returns images as they are stored in the layout, with kAround elements of value `around` before
// and after them. kAround is odd, so the images are not aligned.
std::vector<float> stored(const Numbers& numbers, const Shape& shape, ActivationLayout layout,
                          float around) {
  std::vector<float> out = numbers.values;
  if (layout != ActivationLayout::nchw) {
    const Tensor plain = Tensor::empty(shape);
    std::memcpy(plain.raw_data(), numbers.data(), static_cast<std::size_t>(plain.size_bytes()));
    const Tensor moved = stored_images(plain, layout);
    out.resize(kAround);
    out.insert(out.end(), moved.data<float>(), moved.data<float>() + moved.numel());
    out.resize(out.size() + kAround);
  }
  set_around(out, around);
  return out;
}

// Makes row-major images of stored ones. Returns an error if a lane after the last channel is not
// 0.
std::string read_stored(const Shape& shape, ActivationLayout layout, std::vector<float>& values) {
  const Tensor blocks = Tensor::empty(stored_shape(shape, layout));
  std::memcpy(blocks.raw_data(), values.data(), values.size() * sizeof(float));
  if (!has_clean_lanes(blocks, shape, layout)) return "left nonzero lanes after the last channel";
  const Tensor plain = plain_images(blocks, shape, layout);
  values.assign(plain.data<float>(), plain.data<float>() + plain.numel());
  return "";
}

std::string differ(const Conv2dAlgorithm& algorithm, const std::vector<float>& first,
                   const std::vector<float>& second) {
  if (!algorithm.deterministic || first.empty() ||
      std::memcmp(first.data(), second.data(), first.size() * sizeof(float)) == 0) {
    return "";
  }
  return "two calls with the same prepared weights gave different bits";
}

}  // namespace

std::int64_t output_numel(const Conv2dProblem& z, Direction direction) {
  return direction == Direction::forward         ? z.y_shape().numel()
         : direction == Direction::backward_data ? z.x_shape().numel()
                                                 : z.w_shape().numel();
}

std::vector<Conv2dProblem> forms_of(const Conv2dProblem& problem) {
  if (problem.layout != ActivationLayout::nchw || problem.types) return {problem};
  std::vector<Conv2dProblem> out;
  for (const ImageLayouts& layout : kImageLayouts) {
    out.push_back(problem);
    out.back().layout = layout;
    if (layout != ActivationLayout::nhwc || !is_half(problem.dtype)) continue;
    out.back().types = OperandTypes{
        .x = problem.dtype, .w = DType::f32, .accumulator = DType::f32, .y = problem.dtype};
  }
  return out;
}

bool takes_some_form(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem,
                     Direction direction) {
  return std::ranges::any_of(forms_of(problem), [&](const Conv2dProblem& form) {
    return support_of(algorithm, form, direction).yes;
  });
}

Numbers::Numbers(std::int64_t count, Tier tier, std::uint64_t stream, DType dtype) {
  TierNumbers numbers(tier, Generator(11, stream));
  values.resize(static_cast<std::size_t>(count) + 2 * kAround);
  numbers.next();
  for (std::int64_t i = 0; i < count; ++i) {
    values[kAround + static_cast<std::size_t>(i)] = rounded_to(dtype, numbers.next());
  }
  set_around(values, Surroundings::kNaN);
}

std::vector<double> Numbers::doubles(bool magnitudes) const {
  std::vector<double> out(data(), data() + count());
  if (magnitudes) {
    for (double& value : out) value = std::abs(value);
  }
  return out;
}

// Host memory with guard bytes (canaries) on both sides. The memory is filled with f32 NaN before a
// call.
struct ConvolutionCase::HostBlock {
  explicit HostBlock(std::size_t count)
      : bytes(count), memory({}, count + 2 * kCanaryBytes), all(pointer()) {
    poison();
  }
  unsigned char* pointer() const { return static_cast<unsigned char*>(memory.data()); }
  unsigned char* data() const { return all + kCanaryBytes; }
  // Writes the canaries, and `inside` into each byte between the canaries.
  void poison(int inside = 0xff) const {
    std::memset(all, 0xff, memory.bytes());
    std::memset(data(), inside, bytes);
  }
  const char* damage() const {
    for (std::size_t i = 0; i < kCanaryBytes; ++i) {
      if (all[i] != 0xff) return "before the start of";
      if (all[kCanaryBytes + bytes + i] != 0xff) return "past the end of";
    }
    return nullptr;
  }
  std::vector<unsigned char> contents() const { return {all, all + memory.bytes()}; }
  std::size_t bytes;
  Workspace memory;
  unsigned char* all;
};

ConvolutionCase::ConvolutionCase(const Conv2dProblem& problem, Tier tier)
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

std::string ConvolutionCase::check(const Conv2dAlgorithm& algorithm, Direction direction,
                                   std::vector<float>* out) {
  fault_ = {};
  if (out != nullptr) out->clear();
  const Conv2dProblem asked = problem_;
  const bool takes_some = takes_some_form(algorithm, asked, direction);
  std::string wrong;
  for (const Conv2dProblem& form : forms_of(asked)) {
    problem_ = form;
    const bool takes =
        takes_some ? support_of(algorithm, form, direction).yes : form.layout == asked.layout;
    if (wrong.empty() && takes) wrong = check_layout(algorithm, direction, out);
  }
  problem_ = asked;
  return wrong;
}

std::string ConvolutionCase::check_layout(const Conv2dAlgorithm& algorithm, Direction direction,
                                          std::vector<float>* out) {
  for (const bool extra : {false, true}) {  // with bias, or accumulating
    if (extra && direction == Direction::backward_data) break;
    fault_.extra = extra;
    std::vector<float>& result = fault_.result;
    try {
      fault_.kind = Fault::Kind::memory;
      fault_.sentence = algorithm.device == DeviceType::cpu
                            ? run_on_host(algorithm, direction, extra, result, {})
                            : run_on_device(algorithm, direction, extra, result);
    } catch (const std::exception& error) {
      fault_.kind = Fault::Kind::exception;
      fault_.sentence = cat("ended with an exception: ", error.what());
    }
    if (!fault_.sentence.empty()) return report(algorithm, direction);
    fault_.kind = Fault::Kind::values;
    fault_.sentence = compare(algorithm, direction, extra, result);
    if (!fault_.sentence.empty()) return report(algorithm, direction);
    if (out != nullptr) out->insert(out->end(), result.begin(), result.end());
  }
  fault_ = {};
  return "";
}

std::string ConvolutionCase::check_everywhere(const Conv2dAlgorithm& algorithm, Direction direction,
                                              const Machines& machines) {
  const Isa before = current_isa();
  for (int i = 0; i < kIsaCount; ++i) {
    const Isa isa = static_cast<Isa>(i);
    if (machines.each_isa ? !supports_isa(isa) : isa != before) continue;
    set_isa(isa);
    std::vector<float> first, bits;
    for (std::size_t at = 0; at < machines.threads.size(); ++at) {
      set_num_threads(machines.threads[at]);
      std::string wrong = check(algorithm, direction, at == 0 ? &first : &bits);
      if (wrong.empty() && at > 0 && algorithm.deterministic && !first.empty() &&
          std::memcmp(first.data(), bits.data(), first.size() * sizeof(float)) != 0) {
        fault_.kind = Fault::Kind::bits;
        fault_.sentence = cat("other bits than with ", machines.threads[0],
                              machines.threads[0] == 1 ? " thread" : " threads");
        wrong = report(algorithm, direction);
      }
      if (!wrong.empty()) return wrong;
    }
  }
  set_isa(before);
  return "";
}

std::string ConvolutionCase::run(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
                                 std::vector<float>& result, const Surroundings& around) const {
  try {
    return run_on_host(algorithm, direction, extra, result, around);
  } catch (const std::exception& error) {
    return cat("ended with an exception: ", error.what());
  }
}

std::int64_t ConvolutionCase::output_count(Direction direction) const {
  return is_sparse() && direction == Direction::backward_weight
             ? problem_.weight_format.stored_elements()
             : output_numel(problem_, direction);
}

template <class Visit>
void ConvolutionCase::for_each_stored(const Visit& visit) const {
  convscope::for_each_stored(places_, problem_.operands(Direction::forward).inputs[1],
                             [&](std::int64_t stored, std::int64_t at) {
                               visit(static_cast<std::size_t>(stored),
                                     static_cast<std::size_t>(at));
                             });
}
// Returns the stored elements of a tensor with w's shape (all elements for dense weights), with
// kAround elements of value `around` before and after them.
std::vector<float> ConvolutionCase::kept(const Numbers& numbers, float around) const {
  std::vector<float> out = numbers.values;
  if (is_sparse()) {
    out.assign(kAround, around);
    for_each_stored([&](std::size_t, std::size_t at) { out.push_back(numbers.data()[at]); });
    out.resize(out.size() + kAround);
  }
  set_around(out, around);
  return out;
}

// Returns w in f64, with zeros for pruned weights.
std::vector<double> ConvolutionCase::dense_w(bool magnitudes) const {
  const std::vector<double> all = w_.doubles(magnitudes);
  if (!is_sparse()) return all;
  std::vector<double> out(all.size(), 0.0);
  for_each_stored([&](std::size_t, std::size_t at) { out[at] = all[at]; });
  return out;
}
// `places` is a copy of places_ on the device of w.
OperandViews ConvolutionCase::views(const void* w, const Operand& places) const {
  OperandViews out;
  if (!is_sparse()) return out;
  out.w_blocks = places.blocks();
  out.w_blocks.values = w;
  return out;
}

void ConvolutionCase::call(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
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

std::string ConvolutionCase::run_on_host(const Conv2dAlgorithm& algorithm, Direction direction,
                                         bool extra, std::vector<float>& result,
                                         const Surroundings& around) const {
  const HostBlock workspace(algorithm.workspace_bytes(problem_, direction));
  const HostBlock prepared(algorithm.prepared_size(problem_, direction));
  const std::vector<float> x = stored(x_, problem_.x_shape(), problem_.layout.x, around.x);
  const std::vector<float> dy = stored(y_, problem_.y_shape(), problem_.layout.y, around.dy);
  const std::vector<float> w = kept(w_, around.w);
  std::vector<float> b = b_.values;
  set_around(b, around.b);
  Pointers at{.x = x.data() + kAround,
              .w = w.data() + kAround,
              .b = b.data() + kAround,
              .dy = dy.data() + kAround,
              .output = nullptr,
              .workspace = workspace.data(),
              .prepared = nullptr};
  if (prepared.bytes == 0) {
    return call_on_host(algorithm, direction, extra, at, workspace, result, around);
  }
  algorithm.prepare_weights(
      {problem_, direction, at.w, prepared.data(), workspace.data(), views(at.w, places_)});
  if (const char* where = workspace.damage())
    return cat("preparing wrote ", where, " the workspace");
  if (const char* where = prepared.damage()) return cat("wrote ", where, " the prepared weights");
  const std::vector<unsigned char> before = prepared.contents();
  const std::vector<float> nothing(w_.values.size(), std::numeric_limits<float>::quiet_NaN());
  at.w = nothing.data();
  at.prepared = prepared.data();
  std::string wrong = call_on_host(algorithm, direction, extra, at, workspace, result, around);
  std::vector<float> again;
  if (wrong.empty() && !extra) {
    wrong = call_on_host(algorithm, direction, extra, at, workspace, again, around);
  }
  if (prepared.contents() != before) return "wrote to the prepared weights";
  return wrong.empty() && !extra ? differ(algorithm, result, again) : wrong;
}

DType ConvolutionCase::output_type(Direction direction) const {
  const OperandTypes types = problem_.operand_types();
  return direction == Direction::forward         ? types.y
         : direction == Direction::backward_data ? types.x
                                                 : types.w;
}

// Returns the shape of the output where the output is images.
Shape ConvolutionCase::output_shape(Direction direction) const {
  return direction == Direction::forward ? problem_.y_shape() : problem_.x_shape();
}
ActivationLayout ConvolutionCase::output_layout(Direction direction) const {
  return direction == Direction::forward         ? problem_.layout.y
         : direction == Direction::backward_data ? problem_.layout.x
                                                 : ActivationLayout::nchw;
}
bool ConvolutionCase::writes_blocks(Direction direction) const {
  return output_layout(direction) != ActivationLayout::nchw;
}

std::string ConvolutionCase::call_on_host(const Conv2dAlgorithm& algorithm, Direction direction,
                                          bool extra, Pointers at, const HostBlock& workspace,
                                          std::vector<float>& result,
                                          const Surroundings& around) const {
  const ActivationLayout layout = output_layout(direction);
  const auto count = static_cast<std::size_t>(
      writes_blocks(direction) ? stored_shape(output_shape(direction), layout).numel()
                               : output_count(direction));
  std::vector<float> guarded(count + 2 * kGuard, kGuardValue);
  float* const output = guarded.data() + kGuard;
  const std::vector<float> before = kept(dw_before_);
  for (std::size_t i = 0; i < count; ++i) {
    output[i] =
        direction == Direction::backward_weight && extra ? before[kAround + i] : around.output;
  }
  at.output = output;
  workspace.poison(around.dirty_workspace ? 0xff : 0);
  call(algorithm, direction, extra, at);
  result.assign(output, output + count);
  if (writes_blocks(direction)) {
    const std::string wrong = read_stored(output_shape(direction), layout, result);
    if (!wrong.empty()) return wrong;
  }
  for (std::size_t i = 0; i < kGuard; ++i) {
    if (guarded[i] != kGuardValue) return "wrote before the start of the output";
    if (guarded[kGuard + count + i] != kGuardValue) return "wrote past the end of the output";
  }
  if (const char* where = workspace.damage()) return cat("wrote ", where, " the workspace");
  return "";
}

std::string ConvolutionCase::run_on_device(const Conv2dAlgorithm& algorithm, Direction direction,
                                           bool extra, std::vector<float>& result) const {
  const Device device{algorithm.device, 0};
  const bool adds = direction == Direction::backward_weight && extra;
  const OperandTypes types = problem_.operand_types();
  const DType output_type = this->output_type(direction);
  const bool nhwc = problem_.layout == ActivationLayout::nhwc;
  const bool moved = writes_blocks(direction);
  const ActivationLayout layout = output_layout(direction);
  const std::int64_t shift = nhwc ? 0 : shift_;  // of images; then 16 divides addresses
  const std::int64_t count =
      moved ? stored_shape(output_shape(direction), layout).numel() : output_count(direction);
  const std::vector<float> nothing(static_cast<std::size_t>(count),
                                   std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> stored_x =
      stored(x_, problem_.x_shape(), problem_.layout.x, Surroundings::kNaN);
  const std::vector<float> stored_dy =
      stored(y_, problem_.y_shape(), problem_.layout.y, Surroundings::kNaN);
  const auto images = [&](const std::vector<float>& values, DType type) {
    return GuardedBlock(device, type, values.data() + kAround,
                        static_cast<std::int64_t>(values.size() - 2 * kAround), shift, 0);
  };
  const GuardedBlock x = images(stored_x, types.x);
  const std::vector<float> kept_w = kept(w_), dw_before = kept(dw_before_);
  const auto w_count = static_cast<std::int64_t>(kept_w.size() - 2 * kAround);
  const GuardedBlock w(device, types.w, kept_w.data() + kAround, w_count, shift_, 0);
  const Operand places = is_sparse() ? places_.to(device) : Operand();
  const GuardedBlock b(device, types.w, b_.data(), b_.count(), shift_, 0);
  const GuardedBlock dy = images(stored_dy, types.y);
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
    if (const char* where = prepared.damage()) return cat("wrote ", where, " the prepared weights");
  }
  const std::vector<float> no_w(w_.values.size(), std::numeric_limits<float>::quiet_NaN());
  const GuardedBlock unread(device, types.w, no_w.data(), w_count, shift_, 0);
  const auto once = [&](std::vector<float>& to) -> std::string {
    const GuardedBlock output(device, output_type,
                              adds ? dw_before.data() + kAround : nothing.data(), count,
                              moved ? 0 : shift_, kCanaryBytes);
    const GuardedBlock workspace(device, DType::u8, nullptr, bytes, 0, kCanaryBytes);
    call(
        algorithm, direction, extra,
        {x.data(), prepared_bytes > 0 ? unread.data() : w.data(), b.data(), dy.data(),
         output.data(), workspace.data(), prepared_bytes > 0 ? prepared.data() : nullptr, &places});
    to = output.floats();
    if (moved) {
      const std::string wrong = read_stored(output_shape(direction), layout, to);
      if (!wrong.empty()) return wrong;
    }
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

std::string ConvolutionCase::compare(const Conv2dAlgorithm& algorithm, Direction direction,
                                     bool extra, const std::vector<float>& result) {
  const Expected& expected = expect(direction, extra);
  const char* with = extra ? " (with bias or accumulating)" : "";
  double errors = 0;
  double squares = 0;
  double bound = allowed(algorithm, direction, extra, 0);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double right = tier_ == Tier::exact && is_half(output_type(direction))
                             ? rounded_to(problem_.dtype, static_cast<float>(expected.values[i]))
                             : expected.values[i];
    const double error = std::abs(static_cast<double>(result[i]) - right);
    if (is_half(problem_.dtype)) bound = allowed(algorithm, direction, extra, right);
    errors += error * error;
    squares += right * right;
    if (error <= bound) continue;  // false for NaN
    fault_.at = i;
    fault_.got = static_cast<double>(result[i]);
    fault_.expected = right;
    fault_.error = error;
    fault_.allowed = bound;
    std::ostringstream text;
    text.precision(9);
    text << "first wrong element " << i << " of " << result.size() << ": got " << result[i]
         << ", expected " << right << ", error " << error << ", allowed " << bound << with;
    return text.str();
  }
  // The L2 bound assumes many elements whose rounding errors have random signs. It does not apply
  // to few elements, or to errors of one sign, which do not cancel.
  if (algorithm.device == DeviceType::cpu || tier_ == Tier::exact || rounds_one_way(tier_) ||
      result.size() < 32 || problem_.sum_length(direction) > 4608) {
    return "";
  }
  const double most = allowed_l2(problem_);
  if (std::sqrt(errors) <= most * std::sqrt(squares)) return "";
  std::ostringstream text;
  text << "relative L2 error " << std::sqrt(errors / squares) << ", allowed " << most << with;
  return text.str();
}

const Expected& ConvolutionCase::expect(Direction direction, bool extra) {
  Expected& expected = expected_[static_cast<int>(direction)][extra ? 1 : 0];
  if (!expected.values.empty() || output_count(direction) == 0) return expected;
  expected.values = reference(direction, extra, false);
  for (const double value : reference(direction, extra, true)) {
    expected.largest = std::max(expected.largest, value);
  }
  return expected;
}

std::vector<double> ConvolutionCase::reference(Direction direction, bool extra,
                                               bool magnitudes) const {
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cpu).get("reference");
  Conv2dProblem problem = problem_;
  problem.dtype = DType::f64;
  problem.types.reset();
  problem.math = MathMode::f32;
  problem.layout = {};
  problem.weight_format = {};
  const std::vector<double> x = x_.doubles(magnitudes);
  const std::vector<double> w = dense_w(magnitudes);
  const std::vector<double> b = b_.doubles(magnitudes);
  const std::vector<double> y = y_.doubles(magnitudes);
  std::vector<double> out(static_cast<std::size_t>(output_numel(problem_, direction)));
  if (direction == Direction::backward_weight && extra) out = dw_before_.doubles(magnitudes);
  switch (direction) {
    case Direction::forward:
      algorithm.forward(
          {problem, x.data(), w.data(), extra ? b.data() : nullptr, out.data(), nullptr});
      break;
    case Direction::backward_data:
      algorithm.backward_data({problem, y.data(), w.data(), out.data(), nullptr});
      break;
    case Direction::backward_weight:
      algorithm.backward_weight({problem, x.data(), y.data(), out.data(), extra, nullptr});
      break;
  }
  if (is_sparse() && direction == Direction::backward_weight) {
    std::vector<double> stored;
    for_each_stored([&](std::size_t, std::size_t at) { stored.push_back(out[at]); });
    return stored;
  }
  return out;
}

std::string ConvolutionCase::report(const Conv2dAlgorithm& algorithm, Direction direction) {
  fault_.problem = problem_;
  fault_.direction = direction;
  fault_.tier = tier_;
  fault_.isa = current_isa();
  fault_.threads = num_threads();
  const bool on_cpu = algorithm.device == DeviceType::cpu;
  return cat(algorithm.name, " on ", name_of(algorithm.device), ", ", name_of(direction), " of ",
             problem_.text(), ", ", name_of(tier_), ", ",
             on_cpu ? cat(name_of(fault_.isa), ", ", fault_.threads, " threads")
                    : cat(shift_, " elements off alignment"),
             ": ", fault_.sentence);
}

}  // namespace convscope::matrix
