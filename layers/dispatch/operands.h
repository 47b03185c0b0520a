// SPDX-License-Identifier: Apache-2.0
// operands.h: the arrays of one call, as tensors. Timing, checks and benchmarks create, copy and
// compare them without knowing the operator.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/tensor.h"
#include "layers/dispatch/algorithm.h"
#include "layers/dispatch/layout/half_operands.h"
#include "layers/dispatch/operand_specs.h"

namespace convscope {

// The data that a quantised or block-sparse array needs besides its elements.
struct OperandParts {
  Tensor scales;       // f64; integer types only
  Tensor zero_points;  // i32; undefined: 0
  bool per_channel = false;
  bool rounds = false;        // elements are not codes, but kernels round them to i8 codes
  Tensor row_begin, columns;  // i32; block-sparse weights only
  std::int64_t block_rows = 0, block_columns = 0;
};

struct CONVSCOPE_API Operand {
  Tensor values;  // for sparse weights the kept blocks
  std::shared_ptr<const OperandParts> parts;
  // Not null: the elements are at *address, which is known when the call runs (the images of a
  // compiled step); `values` is undefined.
  const void* const* address = nullptr;

  Operand() = default;
  Operand(Tensor plain) : values(std::move(plain)) {}  // NOLINT: a tensor is an operand

  bool defined() const { return values.defined() || address != nullptr; }
  bool is_plain() const { return parts == nullptr; }
  Quantisation quantisation() const;
  BlockSparseView blocks() const;
  Operand to(Device device) const;
};

struct CONVSCOPE_API Operands {
  std::array<Operand, 5> in;
  std::array<Operand, 3> out;
  bool accumulate = false;  // add to the outputs (backward_weight)
  Epilogue epilogue = {};   // forward
  // fp16 operands made from the images in[0] and in[1]; for takes_half_operands.
  std::array<HalfOperands, 2> fp16 = {};

  Device device() const;  // of the first defined output
  const void* input(int i) const {
    const Operand& operand = in[static_cast<std::size_t>(i)];
    return operand.address != nullptr ? *operand.address : raw(operand.values);
  }
  void* output(int i) const { return raw(out[static_cast<std::size_t>(i)].values); }
  // Returns an empty struct for plain arrays.
  OperandViews views(Direction direction) const;

 private:
  static void* raw(const Tensor& tensor) { return tensor.defined() ? tensor.raw_data() : nullptr; }
};

// Returns random values. They depend only on `stream`, the number of a random stream. Floating
// point values are normally distributed; if kernels round them to integers, they have a scale.
// Integers cover the whole range of their type and have scales. The kept blocks of sparse weights
// have random positions.
CONVSCOPE_API Operand random_operand(const OperandSpec& spec, Device device, std::uint64_t stream);
// Returns uninitialised elements with the scales and positions that random_operand() has for the
// same stream.
CONVSCOPE_API Operand empty_operand(const OperandSpec& spec, Device device, std::uint64_t stream);
CONVSCOPE_API Operands random_operands(const OperandSpecs& specs, Device device);
// Returns operands for timing only: a large plain array on a device repeats its first 2^18
// numbers, which takes milliseconds instead of a second.
CONVSCOPE_API Operands repeated_operands(const OperandSpecs& specs, Device device);

// Calls visit(stored element, element of the dense matrix) for block-sparse weights on the host.
template <class Visit>
void for_each_stored(const Operand& w, const OperandSpec& spec, const Visit& visit) {
  const BlockSparseView blocks = w.blocks();
  const std::int64_t columns = spec.desc.shape.numel() / spec.desc.shape.at(0);
  std::int64_t stored = 0;
  for (std::int64_t row = 0; row < spec.desc.shape.at(0) / blocks.block_rows; ++row) {
    for (std::int32_t i = blocks.row_begin[row]; i < blocks.row_begin[row + 1]; ++i) {
      for (std::int64_t r = row * blocks.block_rows; r < (row + 1) * blocks.block_rows; ++r) {
        for (std::int64_t c = 0; c < blocks.block_columns; ++c) {
          visit(stored++, r * columns + blocks.columns[i] * blocks.block_columns + c);
        }
      }
    }
  }
}

// Returns the real numbers that an operand represents, as a dense f64 tensor on the host. If
// kernels round the operand to integers, these integers determine the result.
CONVSCOPE_API Tensor real_numbers(const Operand& operand, const OperandSpec& spec);
CONVSCOPE_API Tensor magnitudes(const Tensor& of);  // |.|, same type and device

}  // namespace convscope
