// SPDX-License-Identifier: Apache-2.0
// int8_outputs.cpp: prepares the epilogue from sums to y (Int8Outputs) from the scales of a call.
#include <algorithm>
#include <cmath>
#include <limits>

#include "layers/conv2d/int8/shared/cpu/int8_pass.h"

namespace convscope::int8 {
namespace {

using Residual = Int8Outputs::Residual;

Residual residual_of(const Conv2dEpilogue& epilogue) {
  if (epilogue.residual == nullptr) return Residual::none;
  return epilogue.residual_type == DType::u8   ? Residual::codes
         : epilogue.residual_type == DType::i8 ? Residual::signed_codes
                                               : Residual::floats;
}

// Sets the bounds of codes: those of the type, of the caller, and of an activation after the sum.
void set_codes(const Conv2dForwardArgs& args, Int8Outputs& out) {
  const bool is_signed = args.problem.operand_types().y == DType::i8;
  out.low = std::max(args.views.y.low, is_signed ? -128 : 0);
  out.high = std::min(args.views.y.high, is_signed ? 127 : 255);
  if (!args.epilogue.relu) return;
  out.low = std::max(out.low, 0);
  const double most = static_cast<double>(args.epilogue.most) / args.views.y.scale(0);
  if (most < out.high) out.high = static_cast<std::int32_t>(std::nearbyint(most));
}

}  // namespace

Conv2dSupport supports_types(const Conv2dProblem& z, Direction direction) {
  (void)direction;  // the algorithms support only the forward pass
  if (!z.types) {
    return Conv2dSupport::no(cat("expects integers, as u8:i8:i32:u8, got ", name_of(z.dtype)));
  }
  const OperandTypes& t = *z.types;
  const auto is_code = [](DType type) { return type == DType::u8 || type == DType::i8; };
  if (!(is_code(t.x) || t.x == DType::f32) || t.w != DType::i8 || t.accumulator != DType::i32 ||
      !(is_code(t.y) || t.y == DType::f32)) {
    return Conv2dSupport::no(
        cat("expects x of u8, i8 or f32, w of i8, sums of i32 and y of u8, i8 "
            "or f32, got ",
            t.text()));
  }
  const bool first = t.x == DType::f32;
  if (first && (z.layout != kNchwToNchw16c || z.c >= kChannelBlock || z.groups > 1)) {
    return Conv2dSupport::no(
        cat("expects x of f32 in layout nchw:nchw16c only, with fewer than 16 "
            "channels and one group, got layout ",
            name_of(z.layout), ", ", z.c, " channels and ", z.groups, " groups"));
  }
  if (!first && z.layout != ActivationLayout::nchw16c) {
    return Conv2dSupport::no(
        cat("expects codes in layout nchw16c, got layout ", name_of(z.layout)));
  }
  // 255 * 128 * terms < 2^31.
  constexpr std::int64_t kMaxTerms = 65793;
  const std::int64_t terms = z.c_per_group() * z.r * z.s;
  if (terms > kMaxTerms) {
    return Conv2dSupport::no(
        cat("expects at most ", kMaxTerms, " terms of a sum, because it has 32 bits, got ", terms));
  }
  return {};
}

std::size_t OutputFactors::bytes(Index channels) {
  return 2 * ScratchArena::round_up(static_cast<std::size_t>(channels) * sizeof(double)) +
         2 * ScratchArena::round_up(static_cast<std::size_t>(channels) * sizeof(float));
}

// Returns the largest error of `fixed` in f32: its distance from 2^16 (real + bias + 1/2), in units
// of 2^-16 of a code. With this bound no code is wrong. With u = 2^-24, f32 rounds:
//   the sum (by u |product|; not at all below 2^24) and the factor (u |product|),
//   the product, where a CPU multiplies and adds in two steps (u |product|),
//   the shift (u |shift|), and the result (u |result|).
//   With a residual: its factor, its product and the sum without it, in the same way.
// The last step, to integers, adds one half. A code that is not clipped has |result| <= top = 257,
// including bias and half, so |product| <= top + |shift| + |residual|. 5 % cover the omitted terms:
// products of two errors, and the double arithmetic itself.
//
// Let E be this bound, rounded up, and V the true value. The code adds E to `fixed`, so `fixed` is
// between V and V + 2 E. If the low half of `fixed` is above 2 E, no multiple of 2^16 is between V
// and `fixed`, and V itself is not a multiple of 2^16 (a tie). Then V and `fixed` have the same
// high half.
//
// Beyond top all errors are below 5 u |result| + 5 u (|shift| + |residual|). While E < 2^14, this
// is less than half a code, so values that must be clipped are clipped. Values beyond 32 bits and
// NaN become -2^31 (round_to_ints). Their low half is 0, so double arithmetic computes their codes.
double error_of_fixed(bool exact_sums, double shift, double residual) {
  const double top = 257, product = top + shift + residual;
  const bool two_steps = current_isa() < Isa::avx2;  // no FMA
  double wrong = ((exact_sums ? 1 : 2) + (two_steps ? 1 : 0)) * product + shift + top;
  if (residual > 0) wrong += (two_steps ? 2 : 1) * residual + (top + residual);
  return 1.05 * 0x1p-8 * wrong + 0.5;
}

OutputFactors::OutputFactors(const Conv2dForwardArgs& args, Index group_stride, Index channels,
                             void* memory) {
  const Conv2dProblem& z = args.problem;
  const OperandViews& views = args.views;
  outputs_.codes = z.operand_types().y != DType::f32;
  outputs_.residual_type = residual_of(args.epilogue);
  const auto doubles = static_cast<Index>(
      ScratchArena::round_up(static_cast<std::size_t>(channels) * sizeof(double)) / sizeof(double));
  const auto floats = static_cast<Index>(
      ScratchArena::round_up(static_cast<std::size_t>(channels) * sizeof(float)) / sizeof(float));
  auto* const exact_scale = static_cast<double*>(memory);
  double* const exact_shift = exact_scale + doubles;
  auto* const scale = reinterpret_cast<float*>(exact_shift + doubles);
  float* const shift = scale + floats;
  std::fill_n(exact_scale, 2 * doubles, 0.0);
  const double inverse = outputs_.codes ? 1 / views.y.scale(0) : 1;
  const double x_scale = views.x.scale(0) * inverse;
  const auto* const b = static_cast<const double*>(args.b);
  double largest_shift = 0;
  for (Index k = 0; k < z.k; ++k) {
    const Index at = k / z.k_per_group() * group_stride + k % z.k_per_group();
    exact_scale[at] = x_scale * views.w.scale(k);
    exact_shift[at] = b == nullptr ? 0 : b[k] * inverse;
    largest_shift = std::max(largest_shift, std::abs(exact_shift[at]));
  }
  outputs_.scale = scale;
  outputs_.shift = shift;
  outputs_.exact_scale = exact_scale;
  outputs_.exact_shift = exact_shift;
  if (outputs_.residual_type != Residual::none) {
    const bool is_codes = outputs_.residual_type != Residual::floats;
    outputs_.exact_residual_scale = (is_codes ? views.residual.scale(0) : 1) * inverse;
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  outputs_.least = args.epilogue.relu ? 0 : -kInfinity;
  outputs_.most = args.epilogue.relu ? args.epilogue.most : kInfinity;
  double unit = 1, zero = 0;  // unit and zero of scale and shift
  if (outputs_.codes) {
    set_codes(args, outputs_);
    outputs_.bias = 255 - outputs_.high;
    double beside = 0;
    if (outputs_.residual_type == Residual::floats) {
      beside = 256;  // larger residuals are computed in double
      outputs_.residual_sure = static_cast<float>(beside / std::abs(outputs_.exact_residual_scale));
    } else if (outputs_.residual_type != Residual::none) {
      beside = 255 * std::abs(outputs_.exact_residual_scale);
    }
    const bool exact_sums = 255 * 128 * z.c_per_group() * z.r * z.s <= 1 << 24;
    const double wrong =
        std::ceil(error_of_fixed(exact_sums, largest_shift + outputs_.bias + 1, beside));
    outputs_.unsure = wrong < 0x1p14 ? 2 * static_cast<std::int32_t>(wrong) : 0xffff;
    unit = 0x1p16;
    zero = unit * (outputs_.bias + 0.5) + wrong;
  }
  outputs_.residual_scale = static_cast<float>(unit * outputs_.exact_residual_scale);
  for (Index at = 0; at < channels; ++at) {
    scale[at] = static_cast<float>(unit * exact_scale[at]);
    shift[at] = static_cast<float>(unit * exact_shift[at] + zero);
  }
}

std::int32_t offset_of(const Conv2dForwardArgs& args) {
  const DType x = args.problem.operand_types().x;
  return x == DType::i8 || (x == DType::f32 && args.views.x.low < 0) ? 128 : 0;
}

}  // namespace convscope::int8
