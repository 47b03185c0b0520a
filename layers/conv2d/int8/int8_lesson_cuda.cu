// SPDX-License-Identifier: Apache-2.0
// int8_lesson_cuda.cu: a convolution of real numbers computed with integers on a GPU: a thread for
// each y, one product after the other.
//
// Formula    y[n,k,p,q] = b[k] + s_x s_w[k] sum over c, r, s of x[n,c,h,w] w[k,c,r,s], where the
//            terms of the sum are integers. Then the residual is added, the activation applied, and
//            the code of the next layer is clip(round(y / s_y)). int8_lesson_cpu.cpp derives the
//            formula
// Textbook   for each element of y, including lanes after the last channel:      # a thread
//              sum = 0
//              for c, r, s: sum += int(x[n][c][h][w]) * int(w[k][c][r][s])
//              real = s_x * s_w[k] * sum + b[k] + residual
//              y = clip(round(real / s_y))
//
//              y in blocks:  [ k=0 1 2 .. 15 | k=0 1 2 .. 15 | .. ]   thread 0 1 2 .. 15 | 16 ..
//                              pixel (0,0)     pixel (0,1)            one warp: two pixels
//
// Method     A thread's index is the offset of its y, so a warp writes contiguous y. The 16 threads
//            of one pixel read the same x, which is one access; each of them reads another row of
//            w. The code is otherwise the loops of the textbook. It is slow, because each product
//            costs two loads and the arithmetic of two offsets.
// Shapes     x u8 or i8 and y u8, i8 or f32 in blocks [N,C/16,H,W,16], w i8 [K,C/G,R,S], b f64 [K],
//            scales f64; all of them on the device
// Supports   forward; u8 and i8 codes; every stride, dilation, padding and number of groups
// Cost       FLOPs = 2 N K P Q (C/G) R S; bytes = a quarter of those of f32; no workspace. Bound by
//            loads from the caches
// Numerics   exact sums; one rounding of double at the end, half to even. The same bits on each run
// Backward   none: rounding has no useful derivative
// Choices    256 threads in a block, as in all simple kernels here
// Source     B. Jacob et al., CVPR 2018, arXiv 1712.05877
// Read next  int8_lesson_cpu.cpp, the same without threads; cuda/int8_gemm_cuda.cu, tiles of bytes
//            on the tensor cores
#include "layers/conv2d/shared/lesson.cuh"

namespace convscope {
namespace {

using namespace lesson;  // NOLINT(google-build-using-namespace): sizes and views of all lessons

// Arguments of a kernel in addition to the sizes. All pointers are on the device.
struct Arrays {
  const std::uint8_t* x;  // codes
  const std::int8_t* w;
  const double* b;       // null: none
  const void* residual;  // null: none
  void* y;
  const double *x_step, *w_steps, *y_step, *residual_step;
  bool x_is_signed, relu;
  DType y_type, residual_type;
  int low, high;  // bounds of the codes of y
  double most;    // upper bound of the activation
};

// Returns the offset of element (n,c,h,w) in blocks of 16 channels.
__device__ Index place(Index blocks, Index height, Index width, Index n, Index c, Index h,
                       Index w) {
  return (((n * blocks + c / kChannelBlock) * height + h) * width + w) * kChannelBlock +
         c % kChannelBlock;
}

__device__ int code_of(const void* codes, bool is_signed, Index at) {
  return is_signed ? static_cast<const std::int8_t*>(codes)[at]
                   : static_cast<const std::uint8_t*>(codes)[at];
}

// Returns the exact sum of products of one y.
__device__ int sum_of(const ConvShape& z, const Arrays& a, Index n, Index k, Index p, Index q) {
  const Index blocks = ceil_div(z.c, kChannelBlock);
  int sum = 0;
  for (Index c = 0; c < z.c_group; ++c) {
    const Index from = k / z.k_group * z.c_group + c;
    for (Index r = 0; r < z.r; ++r) {
      for (Index s = 0; s < z.s; ++s) {
        const Index h = z.row(p, r), v = z.column(q, s);
        if (h < 0 || h >= z.h || v < 0 || v >= z.w) continue;  // the code of 0 is 0
        sum += code_of(a.x, a.x_is_signed, place(blocks, z.h, z.w, n, from, h, v)) *
               a.w[((k * z.c_group + c) * z.r + r) * z.s + s];
      }
    }
  }
  return sum;
}

// Returns the real number that the residual adds.
__device__ double residual_at(const Arrays& a, Index at) {
  if (a.residual == nullptr) return 0;
  if (a.residual_type == DType::f32) return static_cast<const float*>(a.residual)[at];
  return *a.residual_step * code_of(a.residual, a.residual_type == DType::i8, at);
}

__device__ double clipped(double real, double low, double high) {
  return real < low ? low : real > high ? high : real;
}

__device__ void store(const Arrays& a, Index at, double real) {
  if (a.y_type == DType::f32) {
    static_cast<float*>(a.y)[at] = static_cast<float>(real);
    return;
  }
  const double code = ::rint(clipped(real / *a.y_step, a.low, a.high));  // half to even
  static_cast<std::uint8_t*>(a.y)[at] = static_cast<std::uint8_t>(static_cast<int>(code));
}

__global__ void __launch_bounds__(kThreads) forward_kernel(const ConvShape z, const Arrays a) {
  const Index blocks = ceil_div(z.k, kChannelBlock);
  const Index count = z.n * blocks * z.p * z.q * kChannelBlock;
  for (Index at = global_thread(); at < count; at += global_threads()) {
    const Index pixel = at / kChannelBlock, q = pixel % z.q, p = pixel / z.q % z.p;
    const Index block = pixel / z.q / z.p, n = block / blocks;
    const Index k = block % blocks * kChannelBlock + at % kChannelBlock;
    if (k >= z.k) {  // a lane after the last channel holds 0, whose code is 0
      store(a, at, 0);
      continue;
    }
    double real = *a.x_step * a.w_steps[k] * sum_of(z, a, n, k, p, q);
    real += (a.b == nullptr ? 0 : a.b[k]) + residual_at(a, at);
    if (a.relu) real = clipped(real, 0, a.most);
    store(a, at, real);
  }
}

void forward(const Conv2dForwardArgs& args) {
  const OperandTypes& types = *args.problem.types;
  const bool signed_y = types.y == DType::i8;
  const OperandViews& views = args.views;
  const Arrays arrays{.x = static_cast<const std::uint8_t*>(args.x),
                      .w = static_cast<const std::int8_t*>(args.w),
                      .b = static_cast<const double*>(args.b),
                      .residual = args.epilogue.residual,
                      .y = args.y,
                      .x_step = views.x.scales,
                      .w_steps = views.w.scales,
                      .y_step = views.y.scales,
                      .residual_step = views.residual.scales,
                      .x_is_signed = types.x == DType::i8,
                      .relu = args.epilogue.relu,
                      .y_type = types.y,
                      .residual_type = args.epilogue.residual_type,
                      .low = views.y.low > (signed_y ? -128 : 0) ? views.y.low
                             : signed_y                          ? -128
                                                                 : 0,
                      .high = views.y.high < (signed_y ? 127 : 255) ? views.y.high
                              : signed_y                            ? 127
                                                                    : 255,
                      .most = static_cast<double>(args.epilogue.most)};
  const ConvShape z(args.problem);
  launch(forward_kernel, grid_for(z.n * round_up(z.k, kChannelBlock) * z.p * z.q), z, arrays);
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
    .device = DeviceType::cuda,
    .idea = "lesson: integer sums, one thread and one rounding for each y",
    .paper =
        "Jacob et al. 2018: Quantization and training of neural networks for efficient "
        "integer-arithmetic-only inference, arXiv 1712.05877",
    .supports = supports,
    // Each product needs two loads of one byte.
    .cost = [](const Conv2dProblem& z, Direction) -> Conv2dCost {
      return {.flops = z.nominal_flops(),
              .bytes = z.nominal_bytes(),
              .issued = z.nominal_flops(),
              .cached = z.nominal_flops()};
    },
    .workspace_bytes = [](const Conv2dProblem&, Direction) -> std::size_t { return 0; },
    .error_growth = 2,
    .exact_on_integers = true,
    .auto_ok = false,
    .fuses_epilogue = true,
    .takes_mixed_types = true,
    .takes_nchw16c_layout = true,
    .forward = forward,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
