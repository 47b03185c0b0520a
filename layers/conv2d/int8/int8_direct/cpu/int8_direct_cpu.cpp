// SPDX-License-Identifier: Apache-2.0
// int8_direct_cpu.cpp: convolution on int8 values: codes in blocks of 16 channels times int8
// weights, exact 32-bit sums, rounded to the codes of the next layer while in registers.
//
// Formula    sum[n,k,p,q] = sum over c < C/G, r, s of x[n, g C/G + c, h, w] w[k,c,r,s], integers
//            real = s_x s_w[k] sum + b[k] + s_r residual;  y = clip(round(real / s_y)), or real
//            with h = p stride_h - pad_top + r dilation_h, w = q stride_w - pad_left + s dilation_w
// Textbook   for n, k, p, q:
//              sum = 0
//              for c, r, s: sum += int(x[n][c][h][w]) * int(w[k][c][r][s])
//              y[n][k][p][q] = clip(round((s_x * s_w[k] * sum + b[k]) / s_y))
// Method     as direct_nchw16c: a tile of pixels x output channels stays in registers for the
//            whole reduction. Four input channels are adjacent, and one instruction adds their four
//            products (int8_vector.h). Taps outside the image are skipped. Threads divide blocks of
//            output channels, images and rows (int8_plan.h). For a 1x1 kernel the image is one line
//            of pixels. For a layer with one output per image (a linear layer), the images take the
//            place of pixels.
// Shapes     x u8 or i8 [N,C/16,H,W,16], or f32 [N,C,H,W] with fewer than 16 channels, which is
//            rounded on load; w i8 [K,C/G,R,S] with a scale for each k; b f64 [K]; y u8, i8 or f32
//            in NCHW16c. Sums i32.
// Supports   forward; see supports_types(); one group, or groups of whole blocks
// Cost       FLOPs = 2 N K P Q (C/G) R S; with VNNI a core does four times as many in a cycle as in
//            f32; bytes = x, w, y once: a quarter of the bytes in f32
// Numerics   sums are exact: |sum| < 2^31 for up to 65,793 terms. Codes are those of double
//            arithmetic (int8_outputs.h). Same bits on each run and on each instruction set.
// Backward   none: gradients are those of the fake quantiser (quant/lsq.h)
// Choices    tiles: int8_tiles_int8_simd.cpp; chunks: int8_plan.h
// Source     B. Jacob et al., CVPR 2018, arXiv 1712.05877 (integer-only inference); the layout and
//            the tiles: E. Georganas et al., SC 2018, arXiv 1808.05567
// Read next  int8_lesson_cpu.cpp; quant/integer_grid.h
#include "layers/conv2d/int8/shared/cpu/int8_pass.h"
#include "layers/dispatch/limits/workspace_limit.h"

namespace convscope {

constinit IsaTable<Int8Kernels> int8_kernels;

namespace int8 {
namespace {

Conv2dSupport supports(const Conv2dProblem& z, Direction direction) {
  const Conv2dSupport types = supports_types(z, direction);
  if (!types.yes) return types;
  return supports_shape(z);
}

// Empty quads and lanes are multiplied, too.
Conv2dCost cost(const Conv2dProblem& z, Direction) {
  const Int8Plan plan(z);
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes(),
          .issued = products_of(plan, number(plan.all_quads())),
          .loads = loads_of(plan, number(plan.all_quads())),
          .tiles = tiles_of(plan),
          .copied = number(static_cast<Index>(plan.copy_bytes())),
          .transformed = number(z.y_shape().numel()),  // scaled and rounded
          .listed = tiles_of(plan) * number(plan.taps),
          .prepared = number(z.w_shape().numel()),
          .chunks = chunks_of(plan),
          .schedule = uses_vnni() ? "vnni" : ""};
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction) { return pass_bytes(Int8Plan(z)); }

std::size_t prepared_bytes(const Conv2dProblem& z, Direction) { return packed_bytes(Int8Plan(z)); }

void prepare_weights(const Conv2dPrepareArgs& args) {
  pack_weights(Int8Plan(args.problem), static_cast<const std::int8_t*>(args.w),
               static_cast<std::int8_t*>(args.prepared));
}

void forward(const Conv2dForwardArgs& args) {
  const Int8Plan plan(args.problem);
  const auto* const packed = static_cast<const std::int8_t*>(args.prepared);
  run_pass(plan, args, {.totals = totals_of(plan, packed), .packed = packed});
}

const Conv2dAlgorithm kAlgorithm{
    .name = "int8_direct",
    .device = DeviceType::cpu,
    .idea = "four int8 products in one instruction; sums are exact and rounded when stored",
    .paper =
        "Jacob et al. 2018: Quantization and training of neural networks for efficient "
        "integer-arithmetic-only inference, arXiv 1712.05877",
    .supports = with_workspace_limit<supports, workspace_bytes>,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 2,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_mixed_types = true,
    .takes_nchw16c_layout = true,
    .takes_nchw_x = true,
    .forward = forward,
};

}  // namespace
}  // namespace int8
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::int8::kAlgorithm)
