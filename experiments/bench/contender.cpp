// SPDX-License-Identifier: Apache-2.0
// contender.cpp: a convolution algorithm in a benchmark: its tensors, its scratch memory, and
// whether its result is correct.
#include "experiments/bench/contender.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "framework/parallel.h"
#include "framework/random.h"

namespace convscope {
namespace {

// Returns normal numbers, the same for any number of threads.
Tensor random_tensor(const Shape& shape, std::uint64_t stream) {
  Tensor out = Tensor::empty(shape);
  float* const values = out.data<float>();
  constexpr std::int64_t kChunk = 1 << 15;
  parallel_for(out.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
    Generator random(stream, static_cast<std::uint64_t>(begin / kChunk));
    for (std::int64_t i = begin; i < end; ++i) values[i] = random.normal();
  });
  return out;
}

// Returns random numbers as f32, rounded to values that `dtype` can represent.
Tensor random_tensor(const Shape& shape, std::uint64_t stream, DType dtype) {
  return random_tensor(shape, stream).to(dtype).to(DType::f32);
}

// Returns the relative error of one rounding to the problem's type, in units of the eps of f32.
// Contender::check() multiplies error_growth, which counts these units, by this number.
double rounding_factor(const Conv2dProblem& problem) {
  if (problem.dtype == DType::bf16) return 0x1p-7 / 0x1p-23;
  if (problem.dtype == DType::f16 || problem.math == MathMode::tf32) {
    return 0x1p-10 / 0x1p-23;
  }
  return 1;
}

// Returns the real numbers that codes represent. f32 represents them exactly.
Tensor floats_of(const Operand& operand, const OperandSpec& spec) {
  const Operand host = operand.to(Device{});
  const Tensor out =
      plain_images(host.values, spec.desc.shape, spec.desc.layout).to(DType::f32).clone();
  const Quantisation meaning = host.quantisation();
  if (meaning.scales == nullptr) return out;
  const std::int64_t row = std::max<std::int64_t>(1, out.numel() / out.shape().at(0));
  float* const values = out.data<float>();
  const bool rounds = host.parts->rounds;
  parallel_for(out.numel(), 1 << 15, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const double scale = meaning.scale(i / row);
      double code = static_cast<double>(values[i]);
      if (rounds)
        code = std::clamp<double>(std::nearbyint(code / scale), meaning.low, meaning.high);
      values[i] = static_cast<float>(scale * (code - meaning.zero_point(i / row)));
    }
  });
  return out;
}

Conv2dProblem with_dense_weights(Conv2dProblem problem) {
  problem.weight_format = {};
  return problem;
}

}  // namespace

BenchData::BenchData(const Conv2dProblem& problem, Direction direction, Device on)
    : device(on),
      direction_(direction),
      sparse_spec_(problem.operands(Direction::forward).inputs[1]),
      places_(problem.weight_format.is_dense() ? Operand()
                                               : empty_operand(sparse_spec_, Device{}, 2)),
      specs_(with_dense_weights(problem).operands(direction)) {
  output_host_ = Tensor::empty(output_shape(problem, direction));
  if (holds_codes(problem)) {
    make_codes(problem, direction);
  } else {
    make_numbers(problem, direction);
  }
  places_there_ = places_.to(device);
}

void BenchData::make_numbers(const Conv2dProblem& z, Direction direction) {
  const bool data = direction == Direction::backward_data;
  const bool weight = direction == Direction::backward_weight;
  first_host_ = random_tensor(specs_.inputs[0].desc.shape, data ? 3 : 1, z.dtype);
  second_host_ = random_tensor(specs_.inputs[1].desc.shape, weight ? 3 : 2, z.dtype);
  if (!weight) second_host_ = weights_where_kept(z, second_host_);
  const auto stored = [&](const Tensor& host, const OperandSpec& spec) {
    return stored_images(host.to(spec.desc.dtype), spec.desc.layout).to(device);
  };
  operands_.in[0] = stored(first_host_, specs_.inputs[0]);
  operands_.in[1] = stored(second_host_, specs_.inputs[1]);
  operands_.out[0] = stored(output_host_, specs_.outputs[0]);
}

void BenchData::make_codes(const Conv2dProblem& z, Direction direction) {
  operands_ = random_operands(specs_, device);
  if (direction != Direction::backward_weight) {
    Operand& w = operands_.in[1];
    w.values = weights_where_kept(z, w.values.to(Device{})).to(device);
  }
  first_host_ = floats_of(operands_.in[0], specs_.inputs[0]);
  second_host_ = floats_of(operands_.in[1], specs_.inputs[1]);
  const OperandSpec& out = specs_.outputs[0];
  const Operand host = operands_.out[0].to(Device{});
  const Quantisation meaning = host.quantisation();
  double middle = 0, spread = out.size / 16;
  if (is_code(out.desc.dtype) && !meaning.per_channel) {
    const CodeRange codes = code_range(out.desc.dtype, meaning);
    behind_.step = meaning.scale(0);
    behind_.low = behind_.step * codes.low;
    behind_.high = behind_.step * codes.high;
    middle = 0.5 * (behind_.low + behind_.high);
    spread = 8 * behind_.step;
  }
  if (direction != Direction::forward) return;
  const Tensor bias = Tensor::empty({z.k}, DType::f64);
  Generator random(1, 9);
  for (std::int64_t k = 0; k < z.k; ++k) {
    // The bias values are representable in f32, so that another library gets the same values.
    bias.data<double>()[k] = static_cast<double>(
        static_cast<float>(middle + spread * static_cast<double>(random.normal())));
  }
  operands_.in[2] = bias.to(device);
  operands_.epilogue.relu = out.desc.dtype == DType::u8;
  behind_.bias = bias.data<double>();
  behind_.relu = operands_.epilogue.relu;
  bias_host_ = bias;
}

// Returns `dense` with pruned weights set to 0. Copies the kept weights into places_, the operand
// of the sparse algorithms.
Tensor BenchData::weights_where_kept(const Conv2dProblem& problem, const Tensor& dense) const {
  if (problem.weight_format.is_dense()) return dense;
  const Tensor out = Tensor::zeros(dense.shape(), dense.dtype());
  const auto bytes = static_cast<std::int64_t>(size_of(dense.dtype()));
  const auto* const from = static_cast<const std::byte*>(dense.raw_data());
  auto* const to = static_cast<std::byte*>(out.raw_data());
  auto* const kept = static_cast<std::byte*>(places_.values.raw_data());
  CONVSCOPE_CHECK(places_.values.dtype() == dense.dtype(), "bench",
                  "expected weights of one type, got ", name_of(dense.dtype()));
  for_each_stored(places_, sparse_spec_, [&](std::int64_t stored, std::int64_t at) {
    std::copy_n(from + at * bytes, bytes, to + at * bytes);
    std::copy_n(from + at * bytes, bytes, kept + stored * bytes);
  });
  return out;
}

Operands BenchData::sparse_operands() const {
  Operands out = operands();
  (direction_ == Direction::backward_weight ? out.out[0] : out.in[1]) = places_there_;
  return out;
}

void BenchData::take_result(const Tensor& images) const {
  Operand plain = operands_.out[0];
  plain.values = images;
  OperandSpec spec = specs_.outputs[0];
  spec.desc.layout = ActivationLayout::nchw;
  output_host_.copy_from(floats_of(plain, spec));
}

const float* BenchData::result(bool sparse) const {
  if (sparse && direction_ == Direction::backward_weight) {
    const Tensor values = places_there_.values.to(Device{});
    output_host_.fill(std::numeric_limits<double>::quiet_NaN());
    for_each_stored(places_, sparse_spec_, [&](std::int64_t stored, std::int64_t at) {
      output_host_.data<float>()[at] = values.data<float>()[stored];
    });
    return output_host_.data<float>();
  }
  const Tensor& output = operands_.out[0].values;
  if (!output.shares_memory_with(output_host_)) {
    take_result(
        plain_images(output.to(Device{}), output_host_.shape(), specs_.outputs[0].desc.layout));
  }
  return output_host_.data<float>();
}

const BenchData::Plain& BenchData::plain() const {
  if (plain_.first.defined()) return plain_;
  const auto plain = [](const Operand& operand, const OperandSpec& spec, const Tensor& numbers) {
    if (!is_code(spec.desc.dtype) && !spec.is_rounded) return numbers;
    return plain_images(operand.values.to(Device{}), spec.desc.shape, spec.desc.layout);
  };
  plain_.first = plain(operands_.in[0], specs_.inputs[0], first_host_);
  plain_.second = plain(operands_.in[1], specs_.inputs[1], second_host_);
  const OperandSpec& out = specs_.outputs[0];
  plain_.output =
      Tensor::empty(out.desc.shape, is_code(out.desc.dtype) ? out.desc.dtype : DType::f32);
  return plain_;
}

const float* BenchData::result_of_plain() const {
  take_result(plain_.output);
  return output_host_.data<float>();
}

double Contender::check(const SampledReference& reference) {
  const bool sparse = !problem().weight_format.is_dense();
  const bool in_blocks = sparse && direction() == Direction::backward_weight;
  return BenchContender::check([&]() -> Judgement {
    const double growth = algorithm().error_growth * rounding_factor(problem());
    const auto verdict = reference.judge(data_.result(sparse), growth, in_blocks);
    if (!verdict.wrong.empty() || !data_.has_codes()) return {verdict.error_ratio, verdict.wrong};
    return {verdict.error_ratio, not_written()};
  });
}

// The bound contains M, the largest magnitude in the sample (sampled_reference.h). This sample is
// smaller than that of the first check, so its M may be smaller. The bound is doubled to make up
// for this.
std::string Contender::look() {
  constexpr double kProducts = 1e6, kSlack = 2;
  const Conv2dProblem& z = problem();
  const bool sparse = !z.weight_format.is_dense();
  Tensor numbers[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const OperandSpec spec = z.operands(direction()).inputs[i];
    const Operand& one = operands().in.at(i);
    const bool as_it_is = spec.desc.dtype == DType::f32 && spec.is_plain();
    numbers[i] = as_it_is ? one.values : real_numbers(one, spec).to(DType::f32);
  }
  const Conv2dInputs inputs{numbers[0].data<float>(), numbers[1].data<float>(),
                            data_.inputs().behind};
  const SampledReference now(z, direction(), inputs, kProducts, std::random_device()());
  const double growth = kSlack * algorithm().error_growth * rounding_factor(z);
  const bool in_blocks = sparse && direction() == Direction::backward_weight;
  return now.judge(data_.result(sparse), growth, in_blocks).wrong;
}

// NaN cannot mark unwritten integers, because every byte is a valid value. The algorithm therefore
// runs on memory filled with different bytes: an element that differs between two runs was not
// written.
std::string Contender::not_written() {
  const Tensor& output = data_.operands().out[0].values;
  const Tensor first = output.to(Device{}).clone();
  poison_with(0x2a);
  prepare();
  run();
  const Tensor second = output.to(Device{});
  const auto* const a = static_cast<const std::uint8_t*>(first.raw_data());
  const auto* const b = static_cast<const std::uint8_t*>(second.raw_data());
  for (std::int64_t i = 0; i < first.numel(); ++i) {
    if (a[i] != b[i]) {
      return cat("code ", i, " of ", first.numel(), " in memory is ", static_cast<int>(a[i]),
                 " and then ", static_cast<int>(b[i]), ", or was not written");
    }
  }
  return "";
}

}  // namespace convscope
