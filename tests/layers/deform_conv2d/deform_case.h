// SPDX-License-Identifier: Apache-2.0
// deform_case.h: test cases for deformable convolutions: operands between guards, and the results
// of the reference. Operands are in host memory; an algorithm of another device gets copies on its
// device.
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

inline constexpr const char* kDeformProblems[] = {
    "n=1,c=1,h=1,w=1,k=1,r=1,s=1",
    "n=2,c=3,h=7,w=5,k=4,r=3,s=3,pad=1",
    "n=1,c=16,h=9,w=11,k=16,r=3,s=3,pad=1",
    "n=3,c=17,h=13,w=7,k=33,r=3,s=3,stride=2,pad=1",
    "n=2,c=24,h=10,w=9,k=20,r=3,s=3,pad=1,offset_groups=3",
    "n=2,c=32,h=8,w=8,k=48,r=3,s=3,pad=1,groups=2,offset_groups=4",
    "n=1,c=12,h=11,w=6,k=18,r=3,s=2,stride=2x1,pad=1x0,dilation=1x2,groups=3,offset_groups=2",
    "n=2,c=64,h=24,w=23,k=40,r=3,s=3,pad=1",
    "n=1,c=160,h=6,w=9,k=70,r=3,s=3,pad=1,offset_groups=2",
    "n=2,c=20,h=12,w=12,k=8,r=5,s=5,pad=2,mask=0",
    "n=1,c=32,h=31,w=29,k=16,r=1,s=1,mask=0",
    "n=1,c=48,h=5,w=5,k=32,r=5,s=5",
    "n=2,c=8,h=6,w=8,k=8,r=3,s=3,pad=1x2x0x3,groups=8,offset_groups=8",
    "n=2,c=3,h=61,w=53,k=2,r=2,s=2,stride=2x1",
    "n=7,c=32,h=6,w=5,k=17,r=3,s=3,pad=1",
};

// Returns random numbers of a tier (a kind of numbers). In f16, large numbers are divided by eight;
// otherwise a product of three of them would exceed the range.
inline Tensor deform_numbers(const Shape& shape, matrix::Tier tier, std::uint64_t stream,
                             DType dtype = DType::f32) {
  Tensor out = Tensor::empty(shape, DType::f32);
  matrix::TierNumbers numbers(tier, Generator(7, stream));
  const bool has_large = tier == matrix::Tier::heavy || tier == matrix::Tier::one_large;
  const float factor = dtype == DType::f16 && has_large ? 0.125f : 1.0f;
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    out.data<float>()[i] = factor * numbers.next();
  }
  return out.to(dtype);
}

// Returns offsets of about one and a half pixels; some lead far outside the image.
inline Tensor deform_offsets(const Shape& shape, std::uint64_t stream, DType dtype = DType::f32) {
  Tensor out = Tensor::empty(shape, DType::f32);
  Generator random(8, stream);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const float value = 1.5f * random.normal();
    out.data<float>()[i] = random.below(20) == 0 ? 8 * value : value;
  }
  return out.to(dtype);
}

// Returns tensors of the problem's type.
inline DeformConv2dTensors deform_tensors(const DeformConv2dProblem& z, matrix::Tier tier,
                                          bool bias = true) {
  DeformConv2dTensors t{.x = deform_numbers(z.x_shape(), tier, 1, z.dtype),
                        .w = deform_numbers(z.w_shape(), tier, 2, z.dtype),
                        .offset = deform_offsets(z.offset_shape(), 3, z.dtype),
                        .mask = {},
                        .b = {},
                        .dy = deform_numbers(z.y_shape(), tier, 4, z.dtype)};
  if (z.mask) t.mask = deform_numbers(z.mask_shape(), tier, 5, z.dtype);
  if (bias) t.b = deform_numbers({z.k}, tier, 6, z.dtype);
  return t;
}

inline DeformConv2dTensors as_type(const DeformConv2dTensors& t, DType dtype) {
  const auto to = [&](const Tensor& one) { return one.defined() ? one.to(dtype) : one; };
  return {to(t.x), to(t.w), to(t.offset), to(t.mask), to(t.b), to(t.dy)};
}

// Returns the operands in the problem's layout, with outputs.
inline Operands deform_operands(const DeformConv2dProblem& z, Direction direction,
                                const DeformConv2dTensors& tensors, float before = NAN) {
  Operands out = deform_conv2d_operands(direction, tensors);
  const OperandSpecs specs = z.operands(direction);
  for (std::size_t i = 0; i < specs.inputs.size(); ++i) {
    out.in[i].values = stored_images(out.in[i].values, specs.inputs[i].desc.layout);
  }
  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
    out.out[i].values = Tensor::full(
        stored_shape(specs.outputs[i].desc.shape, specs.outputs[i].desc.layout), before, z.dtype);
  }
  return out;
}

// Returns the outputs in the problem's order, row by row.
inline std::vector<Tensor> deform_outputs(const DeformConv2dProblem& z, Direction direction,
                                          const Operands& operands) {
  const OperandSpecs specs = z.operands(direction);
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
    out.push_back(plain_images(operands.out[i].values, specs.outputs[i].desc.shape,
                               specs.outputs[i].desc.layout));
  }
  return out;
}

// A copy of a tensor on a device, between guards of 0xff bytes, and `shift` elements after an
// aligned address.
class GuardedTensor {
 public:
  GuardedTensor(const Tensor& from, Device device, std::int64_t shift)
      : front_(kGuard + static_cast<std::size_t>(shift) * size_of(from.dtype())),
        bytes_(static_cast<std::size_t>(from.size_bytes())),
        storage_(make_ref<Storage>(device, front_ + bytes_ + kGuard)),
        values_(Tensor::view(storage_, front_, from.shape(), from.dtype())) {
    backend_of(device).fill_bytes(device.index, storage_->data, 0xff, storage_->bytes);
    values_.copy_from(from);
  }
  const Tensor& values() const { return values_; }
  bool damaged() const {
    std::vector<unsigned char> now(storage_->bytes);
    const Device device = storage_->device;
    backend_of(device).copy_to_host(device.index, now.data(), storage_->data, now.size());
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (now[i] != 0xff && (i < front_ || i >= front_ + bytes_)) return true;
    }
    return false;
  }

 private:
  static constexpr std::size_t kGuard = 256;
  std::size_t front_, bytes_;
  Ref<Storage> storage_;
  Tensor values_;
};

// Runs the algorithm with a workspace that is filled with NaN and surrounded by guards. If an
// output tensor is undefined, the algorithm does not compute it.
inline void run_in_guarded_scratch(const DeformConv2dAlgorithm& algorithm,
                                   const DeformConv2dProblem& z, Direction direction,
                                   const Operands& operands) {
  // Sizes are rounded up to cache lines, as aligned allocation requires.
  const auto block = [&](std::size_t bytes) {
    const auto floats = static_cast<std::int64_t>(ScratchArena::round_up(bytes) / sizeof(float));
    return std::make_unique<matrix::GuardedBlock>(operands.device(), DType::f32, nullptr, floats, 0,
                                                  256);
  };
  const auto workspace = block(algorithm.workspace_bytes(z, direction));
  const auto prepared = block(algorithm.prepared_size(z, direction));
  const bool prepares = algorithm.prepared_size(z, direction) > 0;
  if (prepares) {
    algorithm.prepare_weights(
        {z, direction, operands.input(1), prepared->data(), workspace->data(), {}});
  }
  Operator<DeformConv2dProblem>::run({algorithm,
                                      z,
                                      direction,
                                      operands,
                                      {},
                                      workspace->data(),
                                      prepares ? prepared->data() : nullptr});
  EXPECT_EQ(workspace->damage(), nullptr) << "workspace of " << z.text();
  EXPECT_EQ(prepared->damage(), nullptr) << "prepared weights of " << z.text();
}

// Like run_in_guarded_scratch(), but on a device other than the CPU the operands are surrounded by
// guards, too.
inline void run_guarded(const DeformConv2dAlgorithm& algorithm, const DeformConv2dProblem& z,
                        Direction direction, const Operands& operands, std::int64_t shift = 0) {
  if (algorithm.device == DeviceType::cpu)
    return run_in_guarded_scratch(algorithm, z, direction, operands);
  std::vector<std::unique_ptr<GuardedTensor>> blocks;
  const auto there = [&](const Operand& one) -> Operand {
    if (!one.defined()) return {};
    blocks.push_back(
        std::make_unique<GuardedTensor>(one.values, Device{algorithm.device, 0}, shift));
    return blocks.back()->values();
  };
  Operands copies;
  copies.accumulate = operands.accumulate;
  for (std::size_t i = 0; i < operands.in.size(); ++i) copies.in[i] = there(operands.in[i]);
  for (std::size_t i = 0; i < operands.out.size(); ++i) copies.out[i] = there(operands.out[i]);
  run_in_guarded_scratch(algorithm, z, direction, copies);
  for (std::size_t i = 0; i < operands.out.size(); ++i) {
    if (operands.out[i].defined()) operands.out[i].values.copy_from(copies.out[i].values);
  }
  for (const auto& one : blocks) {
    EXPECT_FALSE(one->damaged()) << "beside " << one->values().str() << " of " << z.text();
  }
}

// The results of the reference, and for each output the largest sum over the magnitudes of its
// terms. fp16/bf16 operands are converted to f32.
struct DeformExpected {
  DeformExpected(const DeformConv2dProblem& problem, Direction direction,
                 DeformConv2dTensors operands, bool add = false)
      : tensors(std::move(operands)), accumulate(add) {
    DeformConv2dProblem plain = problem;
    plain.layout = ActivationLayout::nchw;
    plain.dtype = DType::f32;
    plain.math = MathMode::f32;
    Operands at = deform_operands(plain, direction, as_type(tensors, DType::f32), 0.5f);
    at.accumulate = accumulate;
    const Operands sizes = Operator<DeformConv2dProblem>::magnitudes(plain, direction, at);
    run_algorithm(deform_conv2d_algorithms(DeviceType::cpu).get("reference"), plain, direction, at);
    right = deform_outputs(plain, direction, at);
    for (std::size_t i = 0; i < right.size(); ++i) {
      largest.push_back(0);
      for (std::int64_t j = 0; j < right[i].numel(); ++j) {
        largest[i] = std::max(largest[i], sizes.out[i].values.at(j));  // NaN: unchanged
      }
    }
  }
  DeformConv2dTensors tensors;
  bool accumulate;
  bool rounds_one_way = false;  // the numbers
  std::vector<Tensor> right;
  std::vector<double> largest;
};

// Compares an algorithm with the reference in one direction. The bound is the algorithm's declared
// error times the sum over magnitudes. NaN must occur exactly where the reference has NaN.
inline void expect_as_reference(const DeformConv2dAlgorithm& algorithm,
                                const DeformConv2dProblem& z, Direction direction,
                                const DeformExpected& expected, std::int64_t shift = 0) {
  if (!support_of(algorithm, z, direction).yes) return;
  Operands operands =
      deform_operands(z, direction, expected.tensors, expected.accumulate ? 0.5f : NAN);
  operands.accumulate = expected.accumulate;
  run_guarded(algorithm, z, direction, operands, shift);
  const std::vector<Tensor> got = deform_outputs(z, direction, operands);
  const auto terms = static_cast<double>(z.sum_length(direction));
  const double growth =
      expected.rounds_one_way ? algorithm.worst_growth(terms) : algorithm.growth(terms);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double unit = eps_of(z.dtype, z.math) * expected.largest[i];
    // Below 2^-14 the steps of f16 stay 2^-24.
    const double bound = growth * unit + (z.dtype == DType::f16 ? 0x1p-24 : 0);
    double worst = 0;
    for (std::int64_t j = 0; j < got[i].numel(); ++j) {
      const double value = got[i].at(j), right = expected.right[i].at(j);
      const double difference = std::abs(value - right);
      const bool agrees = std::isnan(right) ? std::isnan(value) : difference <= bound;
      if (!agrees) {
        ADD_FAILURE() << "output " << i << ", element " << j << ": expected " << right << ", got "
                      << value << ", bound " << bound;
        return;
      }
      if (!std::isnan(right)) worst = std::max(worst, difference);
    }
    ::testing::Test::RecordProperty(cat(algorithm.name, "_", name_of(direction), "_", i),
                                    cat(worst / unit));
  }
}

inline void expect_as_reference(const DeformConv2dAlgorithm& algorithm,
                                const DeformConv2dProblem& z, Direction direction,
                                matrix::Tier tier, bool accumulate = false) {
  if (!support_of(algorithm, z, direction).yes) return;
  SCOPED_TRACE(cat(algorithm.name, " ", name_of(direction), " ", z.text(), ", ", name_of(tier)));
  DeformExpected expected(z, direction, deform_tensors(z, tier), accumulate);
  expected.rounds_one_way = matrix::rounds_one_way(tier);
  expect_as_reference(algorithm, z, direction, expected);
}

// Tests masks that contain NaN or infinities. They must affect the same outputs as in the
// reference. This includes samples outside the image: such a sample has the value 0, and 0 times
// NaN or infinity is NaN.
inline void expect_masks_of_no_number(const DeformConv2dAlgorithm& algorithm,
                                      const DeformConv2dProblem& z) {
  DeformConv2dTensors t = deform_tensors(z, matrix::Tier::bounded);
  for (std::int64_t i = 3; i < t.mask.numel(); i += 23) {
    t.mask.data<float>()[i] = i % 2 == 0 ? NAN : INFINITY;
  }
  for (std::int64_t i = 0; i < t.offset.numel(); i += 3) t.offset.data<float>()[i] = 1e4f;
  for (const Direction direction :
       {Direction::forward, Direction::backward_data, Direction::backward_weight}) {
    if (!support_of(algorithm, z, direction).yes) continue;
    SCOPED_TRACE(cat(algorithm.name, " ", name_of(direction), " ", z.text()));
    const Operands got = deform_operands(z, direction, t);
    Operands right = deform_operands(z, direction, t);
    run_guarded(algorithm, z, direction, got);
    run_algorithm(deform_conv2d_algorithms(DeviceType::cpu).get("reference"), z, direction, right);
    for (std::size_t o = 0; o < z.operands(direction).outputs.size(); ++o) {
      const Tensor& mine = got.out[o].values;
      for (std::int64_t i = 0; i < mine.numel(); ++i) {
        ASSERT_EQ(std::isfinite(mine.at(i)), std::isfinite(right.out[o].values.at(i)))
            << "output " << o << ", element " << i << ": expected " << right.out[o].values.at(i)
            << ", got " << mine.at(i);
      }
    }
  }
}

}  // namespace convscope::testing
