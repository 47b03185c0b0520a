// SPDX-License-Identifier: Apache-2.0
// operands.cpp: the arrays of one call, as tensors.
#include "layers/dispatch/operands.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/random.h"

namespace convscope {
namespace {

// Rows and columns of the weights as a matrix (weight_format.h).
std::int64_t rows_of(const OperandSpec& spec) { return spec.desc.shape.at(0); }
std::int64_t columns_of(const OperandSpec& spec) {
  return spec.desc.shape.numel() / std::max<std::int64_t>(rows_of(spec), 1);
}

Tensor normal_numbers(const Shape& shape, std::uint64_t stream) {
  Tensor out = Tensor::empty(shape, DType::f32);
  Generator random(1, stream);
  float* const values = out.data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) values[i] = random.normal();
  return out;
}

// Returns random codes. i8 codes are -127 to 127, so that they can be negated; u8 codes are 0 to
// 255.
Tensor integers(const Shape& shape, DType type, std::uint64_t stream) {
  Tensor out = Tensor::empty(shape, type);
  Generator random(1, stream);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    if (type == DType::i8) {
      out.data<std::int8_t>()[i] =
          static_cast<std::int8_t>(static_cast<int>(random.below(255)) - 127);
    } else {
      out.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(random.below(256));
    }
  }
  return out;
}

// Weights get a scale for each row and no zero points, as integer kernels expect; other arrays get
// one scale and one zero point.
void add_scales(const OperandSpec& spec, std::uint64_t stream, OperandParts& parts) {
  parts.per_channel = spec.is_weights;
  const std::int64_t count = parts.per_channel ? rows_of(spec) : 1;
  parts.scales = Tensor::empty({count}, DType::f64);
  Generator random(2, stream);
  // The scale is a power of two. So the division by the scale is exact in f32 and f64, and rounding
  // has the same result in both types.
  parts.rounds = spec.is_rounded;
  if (parts.rounds) {
    parts.scales.data<double>()[0] = 0x1p-5;
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    parts.scales.data<double>()[i] = spec.size * (1.0 + 0.25 * random.below(5)) / 64.0;
  }
  if (parts.per_channel || !spec.has_zero_point) return;
  parts.zero_points = Tensor::empty({1}, DType::i32);
  parts.zero_points.data<std::int32_t>()[0] = spec.desc.dtype == DType::u8 ? 117 : -9;
}

// Draws `blocks` different positions at random and sorts them: rows first, then columns.
void add_places(const OperandSpec& spec, std::uint64_t stream, OperandParts& parts) {
  const WeightFormat& format = spec.desc.sparsity;
  const std::int64_t rows = rows_of(spec) / format.block_rows;
  const std::int64_t columns = columns_of(spec) / format.block_columns;
  std::vector<std::int64_t> places(static_cast<std::size_t>(rows * columns));
  std::iota(places.begin(), places.end(), 0);
  Generator random(3, stream);
  for (std::size_t i = 0; i < static_cast<std::size_t>(format.blocks); ++i) {
    std::swap(places[i], places[i + random.below(static_cast<std::uint32_t>(places.size() - i))]);
  }
  places.resize(static_cast<std::size_t>(format.blocks));
  std::ranges::sort(places);
  parts.block_rows = format.block_rows;
  parts.block_columns = format.block_columns;
  parts.row_begin = Tensor::zeros({rows + 1}, DType::i32);
  parts.columns = Tensor::empty({format.blocks}, DType::i32);
  auto* const begin = parts.row_begin.data<std::int32_t>();
  for (std::size_t i = 0; i < places.size(); ++i) {
    ++begin[places[i] / columns + 1];
    parts.columns.data<std::int32_t>()[i] = static_cast<std::int32_t>(places[i] % columns);
  }
  std::partial_sum(begin, begin + rows + 1, begin);
}

std::shared_ptr<const OperandParts> parts_of(const OperandSpec& spec, std::uint64_t stream) {
  const bool has_scales = is_code(spec.desc.dtype) || spec.is_rounded;
  if (!has_scales && spec.desc.sparsity.is_dense()) return nullptr;
  auto parts = std::make_shared<OperandParts>();
  if (has_scales) add_scales(spec, stream, *parts);
  if (!spec.desc.sparsity.is_dense()) add_places(spec, stream, *parts);
  return parts;
}

Shape stored_shape(const OperandSpec& spec) {
  if (spec.desc.sparsity.is_dense()) return stored_shape(spec.desc.shape, spec.desc.layout);
  return {spec.desc.sparsity.blocks, spec.desc.sparsity.block_rows,
          spec.desc.sparsity.block_columns};
}

template <class T>
const T* pointer(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

}  // namespace

Quantisation Operand::quantisation() const {
  if (is_plain()) return {};
  Quantisation out{.scales = pointer<double>(parts->scales),
                   .zero_points = pointer<std::int32_t>(parts->zero_points),
                   .per_channel = parts->per_channel};
  if (parts->rounds) {
    out.low = -128;
    out.high = 127;
  }
  return out;
}

BlockSparseView Operand::blocks() const {
  if (is_plain() || !parts->row_begin.defined()) return {};
  return {.block_rows = parts->block_rows,
          .block_columns = parts->block_columns,
          .row_begin = parts->row_begin.data<std::int32_t>(),
          .columns = parts->columns.data<std::int32_t>(),
          .values = values.raw_data()};
}

Operand Operand::to(Device device) const {
  Operand out;
  if (defined()) out.values = values.to(device);
  if (is_plain()) return out;
  OperandParts moved = *parts;
  for (Tensor* one : {&moved.scales, &moved.zero_points, &moved.row_begin, &moved.columns}) {
    if (one->defined()) *one = one->to(device);
  }
  out.parts = std::make_shared<const OperandParts>(std::move(moved));
  return out;
}

Device Operands::device() const {
  const auto there = std::ranges::find_if(out, &Operand::defined);
  return (there == out.end() ? out[0] : *there).values.device();
}

OperandViews Operands::views(Direction direction) const {
  const Operand* const x = direction == Direction::backward_data ? out.data() : in.data();
  const Operand* const w = direction == Direction::backward_weight ? out.data() : &in[1];
  const Operand* const y = direction == Direction::forward         ? out.data()
                           : direction == Direction::backward_data ? in.data()
                                                                   : &in[1];
  if (x->is_plain() && w->is_plain() && y->is_plain()) return {};
  return {.x = x->quantisation(),
          .w = w->quantisation(),
          .y = y->quantisation(),
          .w_blocks = w->blocks()};
}

namespace {

Tensor random_values(const Shape& shape, DType dtype, std::uint64_t stream) {
  return is_code(dtype) ? integers(shape, dtype, stream) : normal_numbers(shape, stream).to(dtype);
}

// Returns an operand whose numbers repeat after the first kDifferent.
Operand repeated_operand(const OperandSpec& spec, Device device, std::uint64_t stream) {
  constexpr std::int64_t kDifferent = 1 << 18;
  const Shape stored = stored_shape(spec);
  if (device.type == DeviceType::cpu || stored.numel() <= kDifferent) {
    return random_operand(spec, device, stream);
  }
  const Tensor first = random_values({kDifferent}, spec.desc.dtype, stream).to(device);
  Operand out;
  out.parts = parts_of(spec, stream);
  out = out.to(device);
  out.values = Tensor::empty(stored, spec.desc.dtype, device);
  for (std::int64_t at = 0; at < out.values.size_bytes(); at += first.size_bytes()) {
    backend_of(device).copy_within(
        device.index, static_cast<std::byte*>(out.values.raw_data()) + at, first.raw_data(),
        static_cast<std::size_t>(std::min(first.size_bytes(), out.values.size_bytes() - at)));
  }
  return out;
}

}  // namespace

Operand random_operand(const OperandSpec& spec, Device device, std::uint64_t stream) {
  Operand out;
  const Shape shape = spec.desc.sparsity.is_dense() ? spec.desc.shape : stored_shape(spec);
  out.values = stored_images(random_values(shape, spec.desc.dtype, stream), spec.desc.layout);
  out.parts = parts_of(spec, stream);
  return out.to(device);
}

Operand empty_operand(const OperandSpec& spec, Device device, std::uint64_t stream) {
  Operand out;
  out.parts = parts_of(spec, stream);
  out = out.to(device);
  out.values = Tensor::empty(stored_shape(spec), spec.desc.dtype, device);
  return out;
}

namespace {

using MakeOperand = Operand (*)(const OperandSpec&, Device, std::uint64_t stream);
Operands operands_from(MakeOperand make, const OperandSpecs& specs, Device device) {
  Operands out;
  std::uint64_t stream = 1;
  for (std::size_t i = 0; i < specs.inputs.size(); ++i) {
    out.in.at(i) = make(specs.inputs[i], device, stream++);
  }
  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
    out.out.at(i) = empty_operand(specs.outputs[i], device, stream++);
  }
  return out;
}

}  // namespace

Operands random_operands(const OperandSpecs& specs, Device device) {
  return operands_from(random_operand, specs, device);
}

Operands repeated_operands(const OperandSpecs& specs, Device device) {
  return operands_from(repeated_operand, specs, device);
}

Tensor real_numbers(const Operand& operand, const OperandSpec& spec) {
  Operand host = operand.to(Device{});
  host.values = plain_images(host.values, spec.desc.shape, spec.desc.layout);
  const Tensor out = Tensor::zeros(spec.desc.shape, DType::f64);
  double* const numbers = out.data<double>();
  const std::int64_t columns = std::max<std::int64_t>(columns_of(spec), 1);
  const Quantisation meaning = host.quantisation();
  const auto number = [&](std::int64_t stored, std::int64_t row) {
    const double value = host.values.at(stored);
    if (meaning.scales == nullptr) return value;
    if (host.parts->rounds) {
      const double code = std::nearbyint(value / meaning.scale(row));
      return meaning.scale(row) * std::clamp<double>(code, meaning.low, meaning.high);
    }
    return meaning.scale(row) * (value - meaning.zero_point(row));
  };
  const BlockSparseView blocks = host.blocks();
  if (!blocks.defined()) {
    for (std::int64_t i = 0; i < out.numel(); ++i) numbers[i] = number(i, i / columns);
    return out;
  }
  for_each_stored(host, spec, [&](std::int64_t stored, std::int64_t at) {
    numbers[at] = number(stored, at / columns);
  });
  return out;
}

Tensor magnitudes(const Tensor& of) {
  const Tensor host = of.to(Device{}).to(DType::f64).clone();
  double* const values = host.data<double>();
  for (std::int64_t i = 0; i < host.numel(); ++i) values[i] = std::abs(values[i]);
  return host.to(of.dtype()).to(of.device());
}

}  // namespace convscope
