// SPDX-License-Identifier: Apache-2.0
// deform_case.h: the operands of a deformable convolution for tests, between guards, and what the
// reference says of them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "experiments/check/matrix/guarded_block.h"
#include "experiments/check/matrix/tiers.h"
#include "framework/random.h"
#include "layers/deform_conv2d/algorithm.h"
#include "layers/dispatch/run.h"

namespace convscope::testing {

inline Tensor deform_numbers(const Shape& shape, matrix::Tier tier, std::uint64_t stream) {
  Tensor out = Tensor::empty(shape, DType::f32);
  Generator random(7, stream);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    out.data<float>()[i] = matrix::draw(tier, random);
  }
  return out;
}

// Offsets of a pixel and a half or so, some of them far outside.
inline Tensor deform_offsets(const Shape& shape, std::uint64_t stream) {
  Tensor out = Tensor::empty(shape, DType::f32);
  Generator random(8, stream);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const float value = 1.5f * random.normal();
    out.data<float>()[i] = random.below(20) == 0 ? 8 * value : value;
  }
  return out;
}

inline DeformConv2dTensors deform_tensors(const DeformConv2dProblem& z, matrix::Tier tier,
                                          bool bias = true) {
  DeformConv2dTensors t{.x = deform_numbers(z.x_shape(), tier, 1),
                        .w = deform_numbers(z.w_shape(), tier, 2),
                        .offset = deform_offsets(z.offset_shape(), 3),
                        .mask = {},
                        .b = {},
                        .dy = deform_numbers(z.y_shape(), tier, 4)};
  if (z.mask) t.mask = deform_numbers(z.mask_shape(), tier, 5);
  if (bias) t.b = deform_numbers({z.k}, tier, 6);
  return t;
}

// The operands in the problem's layout, with outputs.
inline Operands deform_operands(const DeformConv2dProblem& z, Direction direction,
                                const DeformConv2dTensors& tensors, float before = NAN) {
  Operands out = deform_conv2d_operands(direction, tensors);
  const OperandSpecs specs = z.operands(direction);
  for (std::size_t i = 0; i < specs.inputs.size(); ++i) {
    out.in[i].values = stored_images(out.in[i].values, specs.inputs[i].layout);
  }
  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
    out.out[i].values =
        Tensor::full(stored_shape(specs.outputs[i].shape, specs.outputs[i].layout), before);
  }
  return out;
}

// Outputs as the problem speaks of them, row by row.
inline std::vector<Tensor> deform_outputs(const DeformConv2dProblem& z, Direction direction,
                                          const Operands& operands) {
  const OperandSpecs specs = z.operands(direction);
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
    out.push_back(
        plain_images(operands.out[i].values, specs.outputs[i].shape, specs.outputs[i].layout));
  }
  return out;
}

// Runs a card between guards of 0xff, in scratch memory that begins as NaN.
inline void run_guarded(const DeformConv2dAlgorithm& card, const DeformConv2dProblem& z,
                        Direction direction, const Operands& operands) {
  // Whole lines: the system aligns no other sizes.
  const auto block = [](std::size_t bytes) {
    const auto floats = static_cast<std::int64_t>(ScratchArena::round_up(bytes) / sizeof(float));
    return std::make_unique<matrix::GuardedBlock>(Device{}, DType::f32, nullptr, floats, 0, 256);
  };
  const auto workspace = block(card.workspace_bytes(z, direction));
  const auto prepared = block(card.prepared_size(z, direction));
  const bool prepares = card.prepared_size(z, direction) > 0;
  if (prepares) {
    card.prepare_weights(
        {z, direction, operands.input(1), prepared->data(), workspace->data(), {}});
  }
  HeavyLayer<DeformConv2dProblem>::run(
      {card, z, direction, operands, {}, workspace->data(), prepares ? prepared->data() : nullptr});
  EXPECT_EQ(workspace->damage(), nullptr) << "workspace of " << z.text();
  EXPECT_EQ(prepared->damage(), nullptr) << "prepared weights of " << z.text();
}

// Compares a card with the reference in one direction; the bound is that of its card, of the sums
// over magnitudes.
inline void expect_as_reference(const DeformConv2dAlgorithm& card, const DeformConv2dProblem& z,
                                Direction direction, matrix::Tier tier, bool accumulate = false) {
  if (!support_of(card, z, direction).yes) return;
  SCOPED_TRACE(cat(card.name, " ", name_of(direction), " ", z.text(), ", ", name_of(tier)));
  const DeformConv2dTensors tensors = deform_tensors(z, tier);
  Operands operands = deform_operands(z, direction, tensors, accumulate ? 0.5f : NAN);
  operands.accumulate = accumulate;
  DeformConv2dProblem plain = z;
  plain.layout = ActivationLayout::nchw;
  Operands expected = deform_operands(plain, direction, tensors, 0.5f);
  expected.accumulate = accumulate;
  const Operands sizes = HeavyLayer<DeformConv2dProblem>::magnitudes(plain, direction, expected);
  run_guarded(card, z, direction, operands);
  run_card(deform_conv2d_algorithms(DeviceType::cpu).get("reference"), plain, direction, expected);
  const std::vector<Tensor> got = deform_outputs(z, direction, operands);
  const std::vector<Tensor> right = deform_outputs(plain, direction, expected);
  for (std::size_t i = 0; i < got.size(); ++i) {
    double largest = 0;
    for (std::int64_t j = 0; j < got[i].numel(); ++j) {
      largest = std::max(largest, sizes.out[i].values.at(j));
    }
    const double terms = z.nominal_flops() / 2 / static_cast<double>(got[0].numel());
    const double bound = card.growth(terms) * eps_of(z.dtype, z.math) * largest;
    double worst = 0;
    for (std::int64_t j = 0; j < got[i].numel(); ++j) {
      const double difference = std::abs(got[i].at(j) - right[i].at(j));
      if (!(difference <= bound)) {
        ADD_FAILURE() << "output " << i << ", element " << j << ": expected " << right[i].at(j)
                      << ", got " << got[i].at(j) << ", bound " << bound;
        return;
      }
      worst = std::max(worst, difference);
    }
    ::testing::Test::RecordProperty(cat(card.name, "_", name_of(direction), "_", i),
                                    cat(worst / (eps_of(z.dtype, z.math) * largest)));
  }
}

}  // namespace convscope::testing
