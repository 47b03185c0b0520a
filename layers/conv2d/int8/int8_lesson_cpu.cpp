// SPDX-License-Identifier: Apache-2.0
// int8_lesson_cpu.cpp: a convolution of real numbers computed with integers, one product after the
// other.
//
// Formula    A code q stands for the real number s q: s is the step of its array, of w one for each
//            output channel. Then
//              y[n,k,p,q] = b[k] + sum s_x x s_w[k] w = b[k] + s_x s_w[k] (sum x w)
//            and the sum in brackets is one of integers: exact, in 32 bits. The next layer wants
//            codes of its own step s_y: round(y / s_y), clipped to what the bits hold.
// Textbook   for n, k, p, q:
//              sum = 0
//              for c, r, s: sum += int(x[n][c][h][w]) * int(w[k][c][r][s])
//              real = s_x * s_w[k] * sum + b[k]
//              y[n][k][p][q] = clip(round(real / s_y))
//
//              x codes     w codes        sum          real            y codes
//              [ 3 200]    [-1   2]    3*-1+200*2   0.02*0.01*397      round(0.079 / 0.01)
//                                        = 397         = 0.079             = 8
//
// Plan       seven loops; integers inside, a double for each y outside. A real network does the
//            inner loops billions of times and the outer line a thousand times less often: that is
//            why integers pay. Zeros around the image need no care: 0 has the code 0.
// Shapes     x u8 or i8 and y u8, i8 or f32 in blocks [N,C/16,H,W,16], w i8 [K,C/G,R,S], b f64 [K]
// Supports   forward; u8 and i8 codes; every stride, dilation, padding and number of groups
// Cost       FLOPs = 2 N K P Q (C/G) R S; bytes = a quarter of those of f32; no workspace
// Numerics   exact sums; one rounding of double at the end, half to even
// Backward   none: rounding has no slope. Training rounds real numbers instead (quant/lsq.h)
// Choices    none
// Source     B. Jacob et al., CVPR 2018, arXiv 1712.05877
// Read next  direct_lesson_cpu.cpp, the same loops for real numbers; cpu/int8_direct_cpu.cpp, four
//            products in one instruction
#include <algorithm>
#include <cmath>
#include <cstring>

#include "layers/conv2d/algorithm.h"

namespace convscope {
namespace {

using Index = std::int64_t;

// Where element (n,c,h,w) of images [N,C,H,W] lies in blocks of 16 channels.
Index place(Index channels, Index height, Index width, Index n, Index c, Index h, Index w) {
  const Index blocks = ceil_div(channels, kChannelBlock);
  return (((n * blocks + c / kChannelBlock) * height + h) * width + w) * kChannelBlock +
         c % kChannelBlock;
}

int code_at(const void* array, DType type, Index at) {
  if (type == DType::u8) return static_cast<const std::uint8_t*>(array)[at];
  return static_cast<const std::int8_t*>(array)[at];
}

// The exact sum of products of one y.
std::int32_t sum_of(const Conv2dForwardArgs& args, Index n, Index k, Index p, Index q) {
  const Conv2dProblem& z = args.problem;
  const auto* const w = static_cast<const std::int8_t*>(args.w);
  std::int32_t sum = 0;
  for (Index c = 0; c < z.c_per_group(); ++c) {
    for (Index r = 0; r < z.r; ++r) {
      const Index h = p * z.stride_h - z.pad_top + r * z.dilation_h;
      if (h < 0 || h >= z.h) continue;
      for (Index s = 0; s < z.s; ++s) {
        const Index v = q * z.stride_w - z.pad_left + s * z.dilation_w;
        if (v < 0 || v >= z.w) continue;
        const Index from = k / z.k_per_group() * z.c_per_group() + c;
        sum += code_at(args.x, z.types->x, place(z.c, z.h, z.w, n, from, h, v)) *
               w[((k * z.c_per_group() + c) * z.r + r) * z.s + s];
      }
    }
  }
  return sum;
}

// The real number that the residual adds.
double residual_at(const Conv2dForwardArgs& args, Index at) {
  const Conv2dEpilogue& behind = args.epilogue;
  if (behind.residual == nullptr) return 0;
  if (behind.residual_type == DType::f32) {
    return static_cast<double>(static_cast<const float*>(behind.residual)[at]);
  }
  return args.views.residual.scale(0) * code_at(behind.residual, behind.residual_type, at);
}

void store(const Conv2dForwardArgs& args, Index at, double real) {
  const DType type = args.problem.types->y;
  if (type == DType::f32) {
    static_cast<float*>(args.y)[at] = static_cast<float>(real);
    return;
  }
  const bool is_signed = type == DType::i8;
  const double low = std::max(args.views.y.low, is_signed ? -128 : 0);
  const double high = std::min(args.views.y.high, is_signed ? 127 : 255);
  const double code = std::nearbyint(std::clamp(real / args.views.y.scale(0), low, high));
  static_cast<std::uint8_t*>(args.y)[at] = static_cast<std::uint8_t>(static_cast<int>(code));
}

void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  const auto* const b = static_cast<const double*>(args.b);
  const Index lanes = round_up(z.k, kChannelBlock);
  std::memset(args.y, 0,  // the lanes behind the last channel
              static_cast<std::size_t>(z.n * lanes * z.p() * z.q()) * size_of(z.types->y));
  for (Index n = 0; n < z.n; ++n) {
    for (Index k = 0; k < z.k; ++k) {
      for (Index p = 0; p < z.p(); ++p) {
        for (Index q = 0; q < z.q(); ++q) {
          const Index at = place(z.k, z.p(), z.q(), n, k, p, q);
          double real = args.views.x.scale(0) * args.views.w.scale(k) * sum_of(args, n, k, p, q);
          real += (b == nullptr ? 0 : b[k]) + residual_at(args, at);
          if (args.epilogue.relu) {
            real = std::clamp(real, 0.0, static_cast<double>(args.epilogue.most));
          }
          store(args, at, real);
        }
      }
    }
  }
}

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  const auto is_code = [](DType type) { return type == DType::u8 || type == DType::i8; };
  if (!z.types || !is_code(z.types->x) || z.types->w != DType::i8 ||
      !(is_code(z.types->y) || z.types->y == DType::f32)) {
    return Conv2dSupport::no(cat("expects codes of u8 or i8 times i8, got ",
                                 z.types ? z.types->text() : std::string(name_of(z.dtype))));
  }
  if (z.layout != ActivationLayout::blocked) {
    return Conv2dSupport::no(cat("expects layout blocked, got ", name_of(z.layout)));
  }
  return {};
}

const Conv2dAlgorithm kCard{
    .name = "int8_lesson",
    .device = DeviceType::cpu,
    .idea = "lesson: integers inside, one real number and one rounding for each y",
    .paper =
        "Jacob et al. 2018: Quantization and training of neural networks for efficient "
        "integer-arithmetic-only inference, arXiv 1712.05877",
    .supports = supports,
    .cost = [](const Conv2dProblem& z, Direction) -> Conv2dCost {
      return {.flops = z.nominal_flops(), .bytes = z.nominal_bytes(), .peak_share = 0.01};
    },
    .workspace_bytes = [](const Conv2dProblem&, Direction) -> std::size_t { return 0; },
    .error_growth = 2,
    .exact_on_integers = true,
    .auto_ok = false,
    .fuses_epilogue = true,
    .takes_mixed_types = true,
    .takes_blocked_layout = true,
    .forward = forward,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kCard)
