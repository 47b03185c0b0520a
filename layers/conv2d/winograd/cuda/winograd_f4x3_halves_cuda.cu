// SPDX-License-Identifier: Apache-2.0
// winograd_f4x3_halves_cuda.cu: 3x3 convolution by Winograd's F(4x4,3x3) whose 36 matrix products
// are made by the tensor cores, each from three products of halves that keep the digits of f32.
#include "layers/conv2d/winograd/cuda/winograd_halves_plan.cuh"
#include "layers/conv2d/winograd/cuda/winograd_halves_product.cuh"

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

void find_maxima(const half_tiles::Maxima& of_a, const void* a, Index a_count, int b_blocks = 0,
                 const void* b = nullptr, Index b_count = 0) {
  launch(half_tiles::maxima_kernel<half_tiles::kMaximaThreads>,
         {.grid = dim3(static_cast<unsigned>(of_a.count + b_blocks)),
          .block = dim3(half_tiles::kMaximaThreads),
          .overlaps_previous = true},
         static_cast<const float*>(a), a_count, of_a.count, static_cast<const float*>(b), b_count,
         const_cast<unsigned*>(of_a.bits));
}

LaunchShape tiles_by_channels(const HalvesPlan& plan, Index channels) {
  return {.grid = dim3(static_cast<unsigned>(plan.chunk / 32),
                       static_cast<unsigned>(ceil_div(channels, Index{kChannelsOfBlock}))),
          .block = dim3(32, kChannelsOfBlock),
          .overlaps_previous = true};
}

template <class Matrix>
void transform_halves(const HalvesPlan& plan, HalvesTransform z) {
  const Planes& p = z.planes;
  const int first = (Matrix::kColumns - 4) / 2;
  z.aligned = p.in_w % 4 == 0 && p.left == -first && p.tiles_w * 4 == p.in_w &&
              reinterpret_cast<std::uintptr_t>(z.x) % 16 == 0;
  launch(transform_halves_kernel<Matrix>, tiles_by_channels(plan, z.planes.channels), z);
}

// [2][36][lines][pitch] halves, `inner` of each line: boxes of 64 x 64 when the depth is outer.
TensorMap factor_map(const unsigned* factor, Index inner, Index lines, Index pitch, bool outer,
                     int tile) {
  TensorMapShape shape{.sizes = {inner, lines, kHalvesPoints, 2, 1},
                       .strides = {1, pitch, lines * pitch, kHalvesPoints * lines * pitch, 8}};
  shape.box[1] = outer ? kDepthStep : tile;
  return encode_tensor_map(factor, shape);
}

// The products of the tiles from `first` on: to M, or to the next parts of S.
void multiply(const HalvesPlan& plan, const HalvesPrepared* weights, const HalvesWorkspace& at,
              Index first) {
  const Conv2dProblem& z = plan.z;
  const ProductShape& by = kProductShapes[plan.shape];
  const Kernels& kernels = kKernels[plan.shape];
  const Index count = std::min(plan.chunk, plan.in.tiles - first);
  const Index rows = plan.of_weights ? z.k : plan.channels;
  const Index columns = plan.of_weights ? z.c : plan.chunk;
  Product product;
  product.a = plan.of_weights
                  ? factor_map(at.d, count, z.k, plan.chunk, false, by.rows)
                  : factor_map(weights->u, plan.depth, rows, plan.weight_width, false, by.rows);
  product.b = factor_map(at.v, count, plan.in.channels, plan.chunk, !plan.of_weights, by.columns);
  product.out = at.m + (plan.of_weights ? first / plan.chunk * plan.parts * kHalvesPoints *
                                              plan.weight_numbers()
                                        : 0);
  product.exponent = at.exponent;
  if (!plan.of_weights) product.row_exponents = weights->exponents;
  product.rows = int(rows);
  product.columns = int(columns);
  product.pitch = int(columns);
  product.steps = int(ceil_div(plan.of_weights ? plan.chunk : plan.depth, Index{kDepthStep}));
  product.parts = plan.parts;
  product.tiles = int(plan.product_tiles);
  product.by_row_tiles = FastDivisor(int(ceil_div(rows, Index{by.rows})));
  product.by_column_tiles = FastDivisor(int(ceil_div(columns, Index{by.columns})));
  product.by_parts = FastDivisor(plan.parts);
  const int at_once = cuda_device_facts().multiprocessors * by.blocks;
  launch(plan.of_weights ? kernels.gradient : kernels.convolve,
         {.grid = dim3(static_cast<unsigned>(std::min(product.tiles, at_once))),
          .block = dim3(kernels.threads),
          .shared_bytes = kernels.shared_bytes,
          .overlaps_previous = true},
         product);
}

// y or dx.
void convolve(const Conv2dProblem& z, Direction direction, const void* in, const void* prepared,
              void* workspace, const void* b, const Conv2dEpilogue& epilogue, void* out) {
  const HalvesPlan plan(z, direction);
  const HalvesWorkspace at(plan, workspace);
  const HalvesPrepared weights(plan, prepared);
  find_maxima(at.maxima, in, (plan.forward ? z.x_shape() : z.y_shape()).numel());
  Planes made = plan.in;
  made.channels = int(plan.channels);
  const bool aligned =
      made.out_w % 4 == 0 && reinterpret_cast<std::uintptr_t>(out) % (4 * sizeof(float)) == 0;
  for (Index first = 0; first < plan.in.tiles; first += plan.chunk) {
    transform_halves<MatrixB<4>>(plan, {.planes = plan.in,
                                        .first = first,
                                        .pitch = int(plan.chunk),
                                        .x = static_cast<const float*>(in),
                                        .v = at.v,
                                        .maxima = at.maxima,
                                        .bits = kBitsOfB,
                                        .exponent = at.exponent});
    multiply(plan, &weights, at, first);
    launch(output_kernel<4>, tiles_by_channels(plan, plan.channels), made, first, int(plan.chunk),
           int(plan.channels), 1, static_cast<const float*>(at.m), static_cast<const float*>(b),
           static_cast<const float*>(epilogue.residual), epilogue.relu, aligned,
           static_cast<float*>(out));
  }
}

// ---- what the card says ------------------------------------------------------------------------

std::size_t prepared_bytes(const Conv2dProblem& z, Direction direction) {
  return HalvesPrepared(HalvesPlan(z, direction), nullptr).bytes;
}

void prepare(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  const HalvesPlan plan(z, args.direction);
  const HalvesPrepared at(plan, args.prepared);
  launch(weights_halves_kernel,
         {.grid = dim3(static_cast<unsigned>(plan.channels)),
          .block = dim3(kWeightThreads),
          .overlaps_previous = true},
         static_cast<const float*>(args.w), int(plan.depth), int(plan.weight_width), !plan.forward,
         at.exponents, at.u);
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  return HalvesWorkspace(HalvesPlan(z, direction), nullptr).bytes;
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
  const HalvesPlan plan(z, Direction::backward_weight);
  const HalvesWorkspace at(plan, args.workspace);
  find_maxima(at.maxima, args.x, z.x_shape().numel(), at.of_dy.count, args.dy, z.y_shape().numel());
  for (Index first = 0; first < plan.in.tiles; first += plan.chunk) {
    transform_halves<MatrixB<4>>(plan, {.planes = plan.in,
                                        .first = first,
                                        .pitch = int(plan.chunk),
                                        .x = static_cast<const float*>(args.x),
                                        .v = at.v,
                                        .maxima = at.maxima,
                                        .bits = kBitsOfB});
    transform_halves<MatrixA<4>>(plan, {.planes = plan.of_dy,
                                        .first = first,
                                        .pitch = int(plan.chunk),
                                        .x = static_cast<const float*>(args.dy),
                                        .v = at.d,
                                        .maxima = at.of_dy,
                                        .other_maxima = at.maxima,
                                        .bits = kBitsOfA,
                                        .other_bits = kBitsOfB,
                                        .exponent = at.exponent});
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
  const Conv2dSupport of_transforms = supports_3x3(z, direction);
  if (!of_transforms.yes) return of_transforms;
  const auto no = [](const auto&... words) { return Conv2dSupport::no(cat(words...)); };
  if (z.groups != 1) return no("expects groups 1, got groups ", z.groups);
  const CudaDeviceFacts& facts = cuda_device_facts();
  if (facts.major != 9 || facts.minor != 0) {
    return no("expects a GPU of compute capability 9.0, for its copy engine and products of warp ",
              "groups, got ", facts.major, ".", facts.minor);
  }
  return {};
}

Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  using device_time::number;
  const HalvesPlan plan(z, direction);
  const double tiles = number(plan.chunks * plan.chunk);
  const double v = 4.0 * kHalvesPoints * tiles * number(plan.in.channels);
  const double d = plan.of_weights ? 4.0 * kHalvesPoints * tiles * number(z.k) : 0;
  const double m = 4 * number(plan.m_floats()) * (plan.of_weights ? 1 : number(plan.chunks));
  const double u = 4 * number(plan.u_words());
  const double flops = 2 * 1.5 * kHalvesPoints * tiles * number(plan.weight_numbers());
  const double peak = kUnmeasuredGpu.tf32_flops;
  const double read = 4 * number((plan.forward ? z.x_shape() : z.y_shape()).numel());
  constexpr double kLaunches = 0.76;
  const Conv2dCost cost{
      .flops = flops,
      .bytes = v + d + m + (plan.of_weights ? 0 : u),
      .peak_share = device_time::share_of(flops, std::max(number(plan.chunks) * plan.us, 1.0), peak),
      .pass_bytes = read + z.nominal_bytes() + v + d + m,
      .launches = kLaunches * (1 + (plan.of_weights ? 1 : 0) +
                               (plan.of_weights ? 3 : 3) * number(plan.chunks)),
      .tensor_cores = true};
  return plan.of_weights ? cost : device_time::with_preparation(cost, peak, u, kLaunches * 2);
}

const Conv2dAlgorithm kCard{
    .name = "winograd_f4x3_halves",
    .device = DeviceType::cuda,
    .idea = "4x4 outputs from 36 multiplications in place of 144, on the tensor cores by three "
            "products of halves",
    .paper =
        "Lavin, Gray 2015: Fast Algorithms for Convolutional Neural Networks, arXiv 1509.09308",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare,
    .error_growth = 48,
    .exact_on_integers = false,
    .fuses_epilogue = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kCard)
