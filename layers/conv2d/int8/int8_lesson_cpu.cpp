// SPDX-License-Identifier: Apache-2.0
// int8_lesson_cpu.cpp: a convolution of real numbers computed with integers, one product after the
// other.
//
// Formula    A code q represents the real number s q, where s is the step of its array; w has one
//            step for each output channel. Then
//              y[n,k,p,q] = b[k] + sum s_x x s_w[k] w = b[k] + s_x s_w[k] (sum x w)
//            The sum in brackets has integer terms, so it is exact in 32 bits. The next layer reads
//            codes with another step size s_y: round(y / s_y), clipped to the range of the code's
//            type.
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
// Method     seven loops: integers in the inner ones, one double for each y in the outer ones. A
//            real network runs the inner loops billions of times, and the outer statements a
//            thousand times less often. So fast integer arithmetic pays off. Zeros around the image
//            need no special case: 0 has the code 0.
// Shapes     x u8 or i8 and y u8, i8 or f32 in blocks [N,C/16,H,W,16], w i8 [K,C/G,R,S], b f64 [K]
// Supports   forward; u8 and i8 codes; every stride, dilation, padding and number of groups
// Cost       FLOPs = 2 N K P Q (C/G) R S; bytes = a quarter of those of f32; no workspace
// Numerics   exact sums; one rounding of double at the end, half to even
// Backward   none: rounding has no useful derivative. Training rounds real numbers (quant/lsq.h)
// Choices    none
// Source     B. Jacob et al., CVPR 2018, arXiv 1712.05877
// Read next  direct_lesson_cpu.cpp, the same loops for real numbers; cpu/int8_direct_cpu.cpp, four
//            products in one instruction
#include <algorithm>
#include <cmath>

#include "layers/conv2d/shared/lesson.h"

namespace convscope {
namespace {

using Index = std::int64_t;

// Returns the real number that the residual adds to element `at` of y.
double residual_at(const Conv2dForwardArgs& args, Index at) {
  const Conv2dEpilogue& behind = args.epilogue;
  if (behind.residual == nullptr) return 0;
  if (behind.residual_type == DType::f32) {
    return static_cast<double>(static_cast<const float*>(behind.residual)[at]);
  }
  const int code = behind.residual_type == DType::u8
                       ? static_cast<const std::uint8_t*>(behind.residual)[at]
                       : static_cast<const std::int8_t*>(behind.residual)[at];
  return args.views.residual.scale(0) * code;
}

// Returns what is stored in y for a real number: the number itself, or its code.
double stored(const Conv2dForwardArgs& args, double real) {
  if (args.epilogue.relu) real = std::clamp(real, 0.0, static_cast<double>(args.epilogue.most));
  const DType type = args.problem.types->y;
  if (type == DType::f32) return real;
  const bool is_signed = type == DType::i8;
  const double low = std::max(args.views.y.low, is_signed ? -128 : 0);
  const double high = std::min(args.views.y.high, is_signed ? 127 : 255);
  return std::nearbyint(std::clamp(real / args.views.y.scale(0), low, high));
}

// Views have four axes, so images [N,C/16,H,W,16] are [N C/16,H,W,16] here.
struct Lesson {
  static void forward(const Conv2dForwardArgs& args, auto x, auto w, auto b, auto y, auto& board) {
    const Conv2dProblem& z = args.problem;
    const Index x_blocks = ceil_div(z.c, kChannelBlock), y_blocks = ceil_div(z.k, kChannelBlock);
    board.step("y = 0");  // the lanes after the last channel stay 0
    y.fill(0);
    board.step("a sum of integers, then one rounding");
    for (Index n = 0; n < z.n; ++n) {
      for (Index k = 0; k < z.k; ++k) {
        const Index to = n * y_blocks + k / kChannelBlock, lane = k % kChannelBlock;
        for (Index p = 0; p < z.p(); ++p) {
          for (Index q = 0; q < z.q(); ++q) {
            const auto sum = sum_of(z, x, w, n * x_blocks, k, p, q);
            auto real = args.views.x.scale(0) * args.views.w.scale(k) * sum;
            const Index at = ((to * z.p() + p) * z.q() + q) * kChannelBlock + lane;
            real += b.or_zero(k) + residual_at(args, at);
            y(to, p, q, lane) = elements_of(y, stored(args, plain(real)));
          }
        }
      }
    }
  }

  // Returns the exact sum of products of one y. The channels of x begin at block `first`.
  static auto sum_of(const Conv2dProblem& z, auto x, auto w, Index first, Index k, Index p,
                     Index q) {
    auto sum = x.zero() * w.zero();  // an int, as the product of two bytes
    for (Index c = 0; c < z.c_per_group(); ++c) {
      const Index from = k / z.k_per_group() * z.c_per_group() + c;
      const Index block = first + from / kChannelBlock, lane = from % kChannelBlock;
      for (Index r = 0; r < z.r; ++r) {
        const Index h = p * z.stride_h - z.pad_top + r * z.dilation_h;
        if (h < 0 || h >= z.h) continue;
        for (Index s = 0; s < z.s; ++s) {
          const Index v = q * z.stride_w - z.pad_left + s * z.dilation_w;
          if (v >= 0 && v < z.w) sum += x(block, h, v, lane) * w(k, c, r, s);
        }
      }
    }
    return sum;
  }

  static auto elements_of(auto array, double value) {
    return static_cast<typename decltype(array)::Value>(value);
  }
};

// Runs the lesson with views of the types that the problem names.
void run(const Conv2dForwardArgs& args, auto& watch) {
  const Conv2dProblem& z = args.problem;
  const Index x_blocks = z.n * ceil_div(z.c, kChannelBlock);
  const Index y_blocks = z.n * ceil_div(z.k, kChannelBlock);
  Blackboard<float, std::remove_reference_t<decltype(watch)>> board(watch, nullptr, {});
  const auto with_types = [&]<class X, class Y>(X, Y) {
    const auto* const codes = static_cast<const std::int8_t*>(args.w);
    const auto* const bias = static_cast<const double*>(args.b);
    const auto x =
        watch.view("x", static_cast<const X*>(args.x), x_blocks, z.h, z.w, kChannelBlock);
    const auto w = watch.view("w", codes, z.k, z.c_per_group(), z.r, z.s);
    const auto b = watch.view("b", bias, bias == nullptr ? 0 : z.k);
    const auto y = watch.view("y", static_cast<Y*>(args.y), y_blocks, z.p(), z.q(), kChannelBlock);
    Lesson::forward(args, x, w, b, y, board);
  };
  const auto with_x = [&]<class X>(X number) {
    if (z.types->y == DType::f32) return with_types(number, float{});
    if (z.types->y == DType::u8) return with_types(number, std::uint8_t{});
    with_types(number, std::int8_t{});
  };
  if (z.types->x == DType::u8) return with_x(std::uint8_t{});
  with_x(std::int8_t{});
}

void forward(const Conv2dForwardArgs& args) {
  Unwatched nobody;
  run(args, nobody);
}
[[gnu::cold]] void watched_forward(const Conv2dForwardArgs& args, Recorder& recorder) {
  run(args, recorder);
}

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  const auto is_code = [](DType type) { return type == DType::u8 || type == DType::i8; };
  if (!z.types || !is_code(z.types->x) || z.types->w != DType::i8 ||
      !(is_code(z.types->y) || z.types->y == DType::f32)) {
    return Conv2dSupport::no(cat("expects codes of u8 or i8 times i8, got ",
                                 z.types ? z.types->text() : std::string(name_of(z.dtype))));
  }
  if (z.layout != ActivationLayout::nchw16c) {
    return Conv2dSupport::no(cat("expects layout nchw16c, got ", name_of(z.layout)));
  }
  return {};
}

const Conv2dAlgorithm kAlgorithm{
    .name = "int8_lesson",
    .device = DeviceType::cpu,
    .idea = "lesson: integer sums, then one scaling to a real number and one rounding for each y",
    .paper =
        "Jacob et al. 2018: Quantization and training of neural networks for efficient "
        "integer-arithmetic-only inference, arXiv 1712.05877",
    .supports = supports,
    .cost = [](const Conv2dProblem& z, Direction) -> Conv2dCost {
      return {.flops = z.nominal_flops(), .bytes = z.nominal_bytes(), .issued = z.nominal_flops()};
    },
    .workspace_bytes = empty_blackboard,
    .error_growth = 2,
    .exact_on_integers = true,
    .auto_ok = false,
    .fuses_epilogue = true,
    .takes_mixed_types = true,
    .takes_nchw16c_layout = true,
    .forward = forward,
};

const bool registered_lesson = register_conv2d_lesson(
    kAlgorithm,
    {.small_problem = "n=1,c=3,h=4,w=4,k=2,r=3,s=3,pad=1,types=u8:i8:i32:i8,layout=nchw16c",
     .forward = watched_forward},
    __FILE__);

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
