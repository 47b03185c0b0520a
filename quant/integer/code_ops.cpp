// SPDX-License-Identifier: Apache-2.0
// code_ops.cpp: round f32 to codes, turn codes back, the largest code of each window; in a plan.
#include "quant/integer/code_ops.h"

#include <algorithm>
#include <cstring>

#include "framework/ops/codes/codes.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

constexpr std::int64_t kPiece = 4096;  // numbers that a thread rounds at once

// [count] codes of [count] numbers that lie side by side.
void round_all(RoundedRow row, std::int64_t count) {
  const CodeKernels kernels = code_kernels.get();
  parallel_for(count, kPiece, [&](std::int64_t begin, std::int64_t end) {
    RoundedRow piece = row;
    piece.from += begin;
    piece.to += begin;
    piece.pixels = end - begin;
    kernels.round(piece);
  });
}

// images [N,C,H,W] -> codes [N,C/16,H,W,16].
void round_planes(const RoundedRow& row, const Shape& images) {
  const CodeKernels kernels = code_kernels.get();
  const std::int64_t pixels = images[2] * images[3], blocks = ceil_div(images[1], kChannelBlock);
  parallel_for(images[0] * blocks, 1, [&](std::int64_t at, std::int64_t) {
    const std::int64_t n = at / blocks, c = at % blocks * kChannelBlock;
    RoundedRow block = row;
    block.channels = static_cast<int>(std::min(kChannelBlock, images[1] - c));
    block.lanes = kChannelBlock;
    block.pixels = block.plane = pixels;
    block.pixel = kChannelBlock;
    block.from += (n * images[1] + c) * pixels;
    block.to += at * pixels * kChannelBlock;
    kernels.round(block);
  });
}

// One pixel each: rows [N,C] -> [N,C rounded up to 16].
void round_rows(const RoundedRow& row, std::int64_t rows, std::int64_t channels) {
  const CodeKernels kernels = code_kernels.get();
  const std::int64_t padded = round_up(channels, kChannelBlock);
  parallel_for(rows, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      RoundedRow one = row;
      one.pixels = channels;
      one.from += n * channels;
      one.to += n * padded;
      kernels.round(one);
      std::memset(one.to + channels, 0, static_cast<std::size_t>(padded - channels));
    }
  });
}

}  // namespace

Shape code_shape(const Shape& shape) {
  return shape.rank() == 2 ? Shape{shape[0], shape[1], 1, 1} : shape;
}

void QuantizeOp::forward(PlanBuilder& builder) {
  Slot step = kNoSlot;
  builder.prologue([&] { step = emit_steps(builder, format_); });
  const ValueId x = inputs[0];
  const bool in_blocks = builder.graph().layout(x) != ActivationLayout::nchw;
  builder.call([images = builder.images(), is_input = x == PlanGraph::input(),
                from = x == PlanGraph::input() ? Tensor() : builder.value(x),
                to = builder.value(output), shape = builder.shape(output), in_blocks,
                step = builder.use(step), low = format_.low(), high = format_.high()] {
    const void* const numbers = is_input ? *images : from.raw_data();
    const RoundedRow row{.from = static_cast<const float*>(numbers),
                         .step = *step.data<double>(),
                         .low = low,
                         .high = high,
                         .to = static_cast<std::uint8_t*>(to.raw_data())};
    if (in_blocks) {
      round_all(row, to.numel());
    } else if (shape[2] * shape[3] == 1) {
      round_rows(row, shape[0], shape[1]);
    } else {
      round_planes(row, shape);
    }
  });
}

void DequantizeOp::forward(PlanBuilder& builder) {
  Slot step = kNoSlot;
  builder.prologue([&] { step = emit_steps(builder, format_); });
  const Tensor from = builder.value(inputs[0]), to = builder.value(output);
  const bool in_blocks = builder.graph().layout(output) != ActivationLayout::nchw;
  const Tensor stored = in_blocks ? to : builder.use(builder.slot(from.shape(), DType::f32));
  builder.call([from, to, stored, images = builder.shape(inputs[0]), in_blocks,
                step = builder.use(step), is_signed = format_.dtype() == DType::i8] {
    const CodeKernels kernels = code_kernels.get();
    const auto* const codes = static_cast<const std::uint8_t*>(from.raw_data());
    parallel_for(from.numel(), kPiece, [&](std::int64_t begin, std::int64_t end) {
      kernels.real_numbers(codes + begin, is_signed, *step.data<double>(), end - begin,
                           stored.data<float>() + begin);
    });
    if (!in_blocks) convert_layout(stored, images, to.reshape(images));
  });
}

void CodesPoolOp::forward(PlanBuilder& builder) {
  const Shape& from = builder.shape(inputs[0]);
  const Shape& to = builder.shape(output);
  const CodesPool pool{.planes = from[0] * ceil_div(from[1], kChannelBlock),
                       .h = from[2],
                       .w = from[3],
                       .p = to[2],
                       .q = to[3],
                       .kernel_h = window_.kernel_h,
                       .kernel_w = window_.kernel_w,
                       .stride_h = window_.stride_h,
                       .stride_w = window_.stride_w,
                       .pad_h = window_.pad_h,
                       .pad_w = window_.pad_w,
                       .is_signed = type_ == DType::i8};
  builder.call([pool, x = builder.value(inputs[0]), y = builder.value(output)] {
    CodesPool now = pool;
    now.from = static_cast<const std::uint8_t*>(x.raw_data());
    now.to = static_cast<std::uint8_t*>(y.raw_data());
    max_pool_codes(now);
  });
}

}  // namespace convscope
