// SPDX-License-Identifier: Apache-2.0
// winograd_f4x3_fp16x3_cuda.cu: 3x3 convolution by Winograd's F(4x4,3x3) whose 36 matrix products
// run on the tensor cores, each as three fp16 products that keep the digits of f32.
//
// Formula    y[k] = A^T [ sum over c of (G w[k,c] G^T) . (B^T x[c] B) ] A, tile by tile: 4x4
//            outputs from the 6x6 inputs around them, 0 outside the image; winograd_matrices.h
//            defines A, B, G
// Textbook   for each tile, c:  V[36] = split(B^T * x_tile[c] * B)       # high and low fp16
//            for each k, c:     U[36] = split(G * w[k,c] * G^T)          # high and low fp16
//            for each of the 36 points, one matrix product over c:
//              M[k][tile] = sum U_low V_high + U_high V_low + U_high V_high
//            y_tile[k] = A^T * M[36] * A + b[k]
// Method     One kernel finds the largest magnitude of x, the next makes V, the next computes all
//            36 products (winograd_fp16x3_product.cuh), the last makes y from M. U is made before
//            the call (prepare_weights). Each kernel starts while the previous one ends.
//            Transforms: a thread has one tile of one channel in registers, and the 32 tiles of a
//            warp are neighbours. High and low parts are two planes. Lanes exchange results, so
//            that each lane stores 4 bytes and a warp stores whole sectors.
//            backward_weight: D = A dy A^T is made like V. The products over tiles are computed in
//            parts; then one kernel adds the parts in order and makes dw.
// Shapes     x [N,C,H,W], w [K,C,3,3], y [N,K,P,Q], f32 row-major, any alignment; V
//            [2][36][C][tiles], U [2][36][K][C], D [2][36][K][tiles] fp16; M [36][K][tiles], S
//            [parts][36][K][C] f32
// Supports   f32; kernel 3x3, stride 1, dilation 1; one group; every padding; GPUs of compute
//            capability 9.0. A problem in tf32 is computed with the digits of f32
// Cost       FLOPs = 3 * 2 * 36 tiles K C on the tensor cores; bytes = V and M written and read, 9
//            bytes for each pixel of x and of y each way; workspace = V and M of one chunk of
//            tiles. Memory-bound up to about 256 channels
// Numerics   as winograd_f4x3, with three fp16 products in place of an f32 product (half_pieces.h):
//            22 bits of an operand. The tensor cores round sums towards zero, and restart from 0
//            after 256 terms. Each row of U has its own scale; V has one scale. README.md compares
//            the errors. Same bits on each run. Not exact on integers, because sqrt(2) is
//            irrational. An infinity gives NaN, and a NaN spreads over its tile
// Backward   dx = the same with dy, padding 2 - pad and w flipped and transposed, assigned;
//            dw = G^T [sum over tiles of (A dy A^T) . (B^T x B)] G, assigned or added to
// Choices    kChunkBytes 400 MiB: size of V and M of a chunk. Tiles of products: 128 x 128 with
//            three stages of 64 KiB fill shared memory; smaller tiles are used where these would
//            leave SMs idle. The cost model chooses the tile and the number of parts
//            (winograd_fp16x3_plan.cuh)
// Source     A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural Networks, 2015, arXiv
//            1509.09308; H. Ootomo, R. Yokota 2022: Recovering single precision accuracy from
//            Tensor Cores, arXiv 2203.03341 (there the low parts have separate sums)
// Read next  winograd_cuda.cu, the same with f32 products; winograd_fp16x3_transforms.cuh,
//            winograd_fp16x3_product.cuh
#include "layers/conv2d/winograd/fp16x3/cuda/winograd_fp16x3_plan.cuh"
#include "layers/conv2d/winograd/fp16x3/cuda/winograd_fp16x3_product.cuh"

namespace convscope {
namespace {

using namespace winograd;  // NOLINT(google-build-using-namespace): this file's own parts

struct Kernels {
  void (*convolve)(Product);
  void (*gradient)(Product);
  unsigned threads;
  std::size_t shared_bytes;
};
template <class V>
constexpr Kernels kernels_of() {
  return {product_kernel<V, true>, product_kernel<V, false>, V::kThreads, V::kSharedBytes};
}
// In the order of kProductShapes.
constexpr Kernels kKernels[kProductTiles] = {
    kernels_of<ProductTile<2, 1, 128, 3, 1>>(), kernels_of<ProductTile<1, 2, 64, 2, 2>>(),
    kernels_of<ProductTile<2, 1, 64, 2, 2>>(), kernels_of<ProductTile<1, 1, 64, 3, 2>>()};

// ---- launches ----------------------------------------------------------------------------------

void find_maxima(const half_tiles::Maxima& a_maxima, const void* a, Index a_count, int b_blocks = 0,
                 const void* b = nullptr, Index b_count = 0) {
  launch(half_tiles::maxima_kernel<half_tiles::kMaximaThreads>,
         {.grid = dim3(static_cast<unsigned>(a_maxima.count + b_blocks)),
          .block = dim3(half_tiles::kMaximaThreads),
          .overlaps_previous = true},
         static_cast<const float*>(a), a_count, a_maxima.count, static_cast<const float*>(b),
         b_count, const_cast<unsigned*>(a_maxima.bits));
}

LaunchShape tiles_by_channels(const Fp16x3Plan& plan, Index channels, unsigned both = 1) {
  return {.grid = dim3(static_cast<unsigned>(plan.chunk / 32),
                       static_cast<unsigned>(ceil_div(channels, Index{kChannelsOfBlock})), both),
          .block = dim3(32, kChannelsOfBlock),
          .overlaps_previous = true};
}

// `side`: pixels of the tile that is read, 6 or 4.
Fp16x3Transform transform_of(const Fp16x3Plan& plan, const Planes& p, int side, Index first,
                             const void* x, unsigned* v, const half_tiles::Maxima& maxima) {
  return {.planes = p,
          .first = first,
          .pitch = int(plan.chunk),
          .x = static_cast<const float*>(x),
          .v = v,
          .maxima = maxima,
          .bits = side == 6 ? kBitsOfB : kBitsOfA,
          .aligned = p.in_w % 4 == 0 && p.left == (4 - side) / 2 && p.tiles_w * 4 == p.in_w &&
                     reinterpret_cast<std::uintptr_t>(x) % 16 == 0};
}

// Describes an fp16 operand [2][36][lines][pitch]; the first `inner` elements of each line are
// used. If the reduction is the outer dimension, boxes are 64 x 64.
TensorMap factor_map(const unsigned* factor, Index inner, Index lines, Index pitch, bool outer,
                     int tile) {
  TensorMapShape shape{.sizes = {inner, lines, kFp16x3Points, 2, 1},
                       .strides = {1, pitch, lines * pitch, kFp16x3Points * lines * pitch, 8}};
  shape.box[1] = outer ? kDepthStep : tile;
  return encode_tensor_map(factor, shape);
}

// Computes the products of the tiles from `first` on, into M or into the next parts of S.
void multiply(const Fp16x3Plan& plan, const Fp16x3Prepared* weights, const Fp16x3Workspace& at,
              Index first) {
  const Conv2dProblem& z = plan.z;
  const ProductShape& by = kProductShapes[plan.shape];
  const Kernels& kernels = kKernels[plan.shape];
  const Index count = std::min(plan.chunk, plan.in.tiles - first);
  const Index rows = plan.rows(), columns = plan.columns();
  Product product;
  product.a = plan.for_dw
                  ? factor_map(at.d, count, z.k, plan.chunk, false, by.rows)
                  : factor_map(weights->u, plan.depth, rows, plan.weight_width, false, by.rows);
  product.b = factor_map(at.v, count, plan.in.channels, plan.chunk, !plan.for_dw, by.columns);
  product.out = at.m + (plan.for_dw ? first / plan.chunk * plan.parts * kFp16x3Points *
                                              plan.weight_numbers()
                                        : 0);
  product.exponent = at.exponent;
  if (!plan.for_dw) product.row_exponents = weights->exponents;
  product.rows = int(rows);
  product.columns = int(columns);
  product.pitch = int(columns);
  product.steps = plan.steps();
  product.parts = plan.parts;
  product.tiles = int(plan.product_tiles());
  product.by_row_tiles = FastDivisor(int(ceil_div(rows, Index{by.rows})));
  product.by_column_tiles = FastDivisor(int(ceil_div(columns, Index{by.columns})));
  product.by_parts = FastDivisor(plan.parts);
  const int at_once = cuda_device_facts().multiprocessors * by.blocks;
  launch(plan.for_dw ? kernels.gradient : kernels.convolve,
         {.grid = dim3(static_cast<unsigned>(std::min(product.tiles, at_once))),
          .block = dim3(kernels.threads),
          .shared_bytes = kernels.shared_bytes,
          .overlaps_previous = true},
         product);
}

// Computes y or dx.
void convolve(const Conv2dProblem& z, Direction direction, const void* in, const void* prepared,
              void* workspace, const void* b, const Conv2dEpilogue& epilogue, void* out) {
  const Fp16x3Plan plan(z, direction);
  const Fp16x3Workspace at(plan, workspace);
  const Fp16x3Prepared weights(plan, prepared);
  find_maxima(at.maxima, in, (plan.forward ? z.x_shape() : z.y_shape()).numel());
  Fp16x3Output output{
      .planes = plan.in,
      .pitch = int(plan.chunk),
      .m = at.m,
      .bias = static_cast<const float*>(b),
      .residual = static_cast<const float*>(epilogue.residual),
      .relu = epilogue.relu,
      .aligned = plan.in.out_w % 4 == 0 && reinterpret_cast<std::uintptr_t>(out) % 16 == 0,
      .y = static_cast<float*>(out)};
  output.planes.channels = int(plan.channels);
  for (Index first = 0; first < plan.in.tiles; first += plan.chunk) {
    Fp16x3Transform transform = transform_of(plan, plan.in, 6, first, in, at.v, at.maxima);
    transform.exponent = at.exponent;
    launch(transform_x_kernel, tiles_by_channels(plan, plan.depth), transform);
    multiply(plan, &weights, at, first);
    output.first = first;
    launch(output_fp16x3_kernel, tiles_by_channels(plan, plan.channels), output);
  }
}

// ---- for the algorithm --------------------------------------------------------------------------

std::size_t prepared_bytes(const Conv2dProblem& z, Direction direction) {
  return Fp16x3Prepared(Fp16x3Plan(z, direction), nullptr).bytes;
}

void prepare(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  const Fp16x3Plan plan(z, args.direction);
  const Fp16x3Prepared at(plan, args.prepared);
  launch(weights_fp16x3_kernel,
         {.grid = dim3(static_cast<unsigned>(plan.channels)),
          .block = dim3(kWeightThreads),
          .overlaps_previous = true},
         static_cast<const float*>(args.w), int(plan.depth), int(plan.weight_width), !plan.forward,
         at.exponents, at.u);
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  return Fp16x3Workspace(Fp16x3Plan(z, direction), nullptr).bytes;
}

void forward(const Conv2dForwardArgs& args) {
  convolve(args.problem, Direction::forward, args.x, args.prepared, args.workspace, args.b,
           args.epilogue, args.y);
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  convolve(args.problem, Direction::backward_data, args.dy, args.prepared, args.workspace, nullptr,
           {}, args.dx);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const Fp16x3Plan plan(z, Direction::backward_weight);
  const Fp16x3Workspace at(plan, args.workspace);
  find_maxima(at.maxima, args.x, z.x_shape().numel(), at.dy_maxima.count, args.dy,
              z.y_shape().numel());
  for (Index first = 0; first < plan.in.tiles; first += plan.chunk) {
    const Fp16x3Transform x_transform =
        transform_of(plan, plan.in, 6, first, args.x, at.v, at.maxima);
    Fp16x3Transform dy_transform =
        transform_of(plan, plan.dy_planes, 4, first, args.dy, at.d, at.dy_maxima);
    dy_transform.other_maxima = at.maxima;
    dy_transform.other_bits = kBitsOfB;
    dy_transform.exponent = at.exponent;
    launch(transform_both_kernel, tiles_by_channels(plan, std::max(z.c, z.k), 2), x_transform,
           dy_transform);
    multiply(plan, nullptr, at, first);
  }
  const Index weights = plan.weight_numbers();
  const int slots = int(plan.chunks * plan.parts);
  if (weights >= kManyWeights) {
    launch(gradient_of_many_kernel<4>,
           {.grid = dim3(static_cast<unsigned>(ceil_div(weights, Index{128}))),
            .block = dim3(128),
            .overlaps_previous = true},
           static_cast<const float*>(at.m), slots, weights, args.accumulate,
           static_cast<float*>(args.dw));
  } else {
    launch(gradient_kernel<4>,
           {.grid = dim3(static_cast<unsigned>(ceil_div(weights, Index{32}))),
            .block = dim3(32, kGradientWarps),
            .overlaps_previous = true},
           static_cast<const float*>(at.m), slots, weights, args.accumulate,
           static_cast<float*>(args.dw));
  }
}

Conv2dSupport supports(const Conv2dProblem& z, Direction direction) {
  const Conv2dSupport transform_support = supports_3x3(z, direction);
  if (!transform_support.yes) return transform_support;
  const auto no = [](const auto&... words) { return Conv2dSupport::no(cat(words...)); };
  if (z.groups != 1) return no("expects groups 1, got groups ", z.groups);
  const CudaDeviceFacts& facts = cuda_device_facts();
  if (facts.major != 9 || facts.minor != 0) {
    return no("expects a GPU of compute capability 9.0, for TMA and products of warp ",
              "groups, got ", facts.major, ".", facts.minor);
  }
  return {};
}

// Counts the products and the kernels around them. Products read V with U or D, and write M. One
// kernel finds maxima, one makes V (and D), the last one transforms M. The first two read images.
Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  const Fp16x3Plan plan(z, direction);
  const double chunks = number(plan.chunks), tiles = chunks * number(plan.chunk);
  const double operands =
      4.0 * kFp16x3Points * tiles * number(plan.for_dw ? z.c + z.k : plan.in.channels);
  const double sums = 4 * number(plan.m_floats()) * (plan.for_dw ? 1 : chunks);
  const double u = plan.for_dw ? 0 : 4 * number(plan.u_words());
  const double weights = 4 * number(z.w_shape().numel());
  const auto bytes_of = [](const Shape& shape) { return 4 * number(shape.numel()); };
  const double x = bytes_of(z.x_shape()), y = bytes_of(z.y_shape());
  Cost cost = plan.cost;
  cost.flops = 2 * kFp16x3Points * tiles * number(plan.weight_numbers());
  cost.bytes = operands + sums + u;
  // The choice already counts that the last kernel of backward_weight reads `sums`.
  cost.pass_bytes += operands + (plan.for_dw    ? 2 * (x + y) + weights
                                 : plan.forward ? 2 * x + y + sums
                                                : x + 2 * y + sums);
  cost.launches = 1 + 3 * chunks;
  if (plan.for_dw) {  // one launch transforms both images, and the last kernel runs once
    cost.launches = 2 + 2 * chunks;
  } else {
    cost.prepared_bytes = weights + u;
    cost.prepare_launches = 1;
  }
  return cost;
}

const Conv2dAlgorithm kAlgorithm{
    .name = "winograd_f4x3_fp16x3",
    .device = DeviceType::cuda,
    .idea =
        "4x4 outputs from 36 multiplications in place of 144, on the tensor cores by three "
        "fp16 products",
    .paper =
        "Lavin, Gray 2015: Fast Algorithms for Convolutional Neural Networks, arXiv 1509.09308",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare,
    .error_growth = 48,  // `bound` in README.md: at most 26 (terms of one sign, towards zero)
    .exact_on_integers = false,
    .fuses_epilogue = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
