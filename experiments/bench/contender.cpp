// SPDX-License-Identifier: Apache-2.0
// contender.cpp: an algorithm that takes part in a benchmark: its tensors, its scratch memory, and
// whether its result is right.
#include "experiments/bench/contender.h"

#include <limits>

#include "framework/parallel.h"
#include "framework/random.h"

namespace convscope {
namespace {

// Normal numbers; the same for any number of threads.
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

// Half types: the numbers that they hold exactly, as f32.
Tensor random_tensor(const Shape& shape, std::uint64_t stream, DType dtype) {
  return random_tensor(shape, stream).to(dtype).to(DType::f32);
}

// What one rounding of a factor or of the result costs, relative to its size, in units of f32's
// eps:
// the cards' error_growth is stated for f32.
double rounding_factor(const Conv2dProblem& problem) {
  if (problem.dtype == DType::bf16) return 0x1p-7 / 0x1p-23;
  if (problem.dtype == DType::f16 || problem.math == MathMode::tf32) {
    return 0x1p-10 / 0x1p-23;
  }
  return 1;
}

}  // namespace

BenchData::BenchData(const Conv2dProblem& z, Direction direction, Device on)
    : device(on),
      sparse_spec_(z.operands(Direction::forward).inputs[1]),
      places_(z.weight_format.is_dense() ? Operand() : empty_operand(sparse_spec_, Device{}, 2)),
      first_host_(random_tensor(direction == Direction::backward_data ? z.y_shape() : z.x_shape(),
                                direction == Direction::backward_data ? 3 : 1, z.dtype)),
      second_host_(direction == Direction::backward_weight
                       ? random_tensor(z.y_shape(), 3, z.dtype)
                       : weights_where_kept(z, random_tensor(z.w_shape(), 2, z.dtype))),
      output_host_(Tensor::empty(output_shape(z, direction))),
      first_(stored_images(first_host_.to(z.dtype), direction == Direction::backward_data
                                                        ? layout_of_y(z.layout)
                                                        : layout_of_x(z.layout))
                 .to(on)),
      second_(stored_images(second_host_.to(z.dtype), direction == Direction::backward_weight
                                                          ? layout_of_y(z.layout)
                                                          : ActivationLayout::nchw)
                  .to(on)),
      direction_(direction),
      output_layout_(direction == Direction::backward_weight ? ActivationLayout::nchw
                     : direction == Direction::forward       ? layout_of_y(z.layout)
                                                             : layout_of_x(z.layout)),
      output_(stored_images(output_host_.to(z.dtype), output_layout_).to(on)) {}

// 0 in the other ones; the values of places_ are what stays.
Tensor BenchData::weights_where_kept(const Conv2dProblem& problem, Tensor dense) const {
  if (problem.weight_format.is_dense()) return dense;
  const Tensor out = Tensor::zeros(dense.shape());
  for_each_stored(places_, sparse_spec_, [&](std::int64_t stored, std::int64_t at) {
    out.data<float>()[at] = dense.data<float>()[at];
    places_.values.data<float>()[stored] = dense.data<float>()[at];
  });
  return out;
}

Operands BenchData::sparse_operands() const {
  Operands out = operands();
  (direction_ == Direction::backward_weight ? out.out[0] : out.in[1]) = places_;
  return out;
}

const float* BenchData::result(bool sparse) const {
  if (sparse && direction_ == Direction::backward_weight) {
    output_host_.fill(std::numeric_limits<double>::quiet_NaN());
    for_each_stored(places_, sparse_spec_, [&](std::int64_t stored, std::int64_t at) {
      output_host_.data<float>()[at] = places_.values.data<float>()[stored];
    });
  } else if (!output_.shares_memory_with(output_host_)) {
    output_host_.copy_from(
        plain_images(output_.to(Device{}), output_host_.shape(), output_layout_).to(DType::f32));
  }
  return output_host_.data<float>();
}

double Contender::check(const SampledReference& reference) {
  const bool sparse = !problem().weight_format.is_dense();
  const bool in_blocks = sparse && direction() == Direction::backward_weight;
  return BenchContender::check([&]() -> Judgement {
    const double growth = algorithm().error_growth * rounding_factor(problem());
    const auto verdict = reference.judge(data_.result(sparse), growth, in_blocks);
    return {verdict.error_ratio, verdict.wrong};
  });
}

}  // namespace convscope
