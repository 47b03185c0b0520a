// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_lesson_cuda.cu: convolution as a matrix product whose matrix of columns is never
// stored: a block gathers the tile that it needs from x, uses each element 16 times, and discards
// it.
//
// Formula    Y[i,j] = sum over d of A[i,d] B[d,j]; forward: i = k, j = (n,p,q), d = (c,r,s),
//            A = w, B[(c,r,s),(n,p,q)] = x[n, g C/G + c, p stride_h - pad_top + r dilation_h,
//                                                q stride_w - pad_left + s dilation_w], or 0
// Textbook   for each tile of 16 x 16 elements of Y:          # a block; a thread for each element
//              for d0 = 0, 16, ..:
//                a = A[rows of the tile, d0 .. d0 + 16)       # 256 threads load one number each
//                b = B[d0 .. d0 + 16, columns of the tile]    # gathered: the index says which x
//                sum += a[my row] * b[my column]              # 16 products from 2 loads
//
//                         B   [ b ]               A and B are functions of their indices:
//                             [   ]  16 x 16      elements that im2col would write to memory
//              A              [   ]               and read again are computed on demand
//              [ a ][   ]     [ Y ]  <- a block
//
// Method     one kernel for all three directions: a struct defines A, B and where an element of Y
//            is stored. Two tiles in shared memory; between two barriers all threads read what all
//            have loaded.
// Shapes     x [N,C,H,W], w [K,C/G,R,S], b [K], y [N,K,P,Q], row-major, f32; sums in f32
// Supports   f32 (tf32 is computed as f32); every stride, dilation, padding; up to 65535 groups
//            and sums of up to 2^20 products
// Cost       FLOPs = 2 N K P Q (C/G) R S; bytes = x and w once for each 16 rows or columns of Y; no
//            workspace. 2 loads from shared memory for 2 FLOPs: bound by shared memory, and by the
//            divisions that turn d into (c,r,s)
// Numerics   all terms d are added one after the other: errors of random sign grow like the root of
//            the number of terms; same bits on each run; exact on integers below 2^24
// Backward   dx: i = c, j = (n,h,v), d = (k,r,s), B = dy of the output that tap (r,s) connects, or
//            0; assigned. dw: i = k, j = (c,r,s), d = (n,p,q), A = dy, B = x; assigned or added to
// Choices    16 x 16: 256 threads, and each loaded number is used 16 times
// Source     S. Chetlur et al.: cuDNN: Efficient Primitives for Deep Learning, 2014, arXiv
//            1410.0759
// Read next  im2col_gemm_lesson_cpu.cpp, the same product with a stored matrix;
//            implicit_gemm_cuda.cu, where the tensor cores multiply and copies run ahead
#include "layers/conv2d/shared/lesson.cuh"

namespace convscope {
namespace {

using namespace lesson;  // NOLINT(google-build-using-namespace): sizes and views of all lessons

constexpr int kTile = 16;

// Each of the three structs defines the matrix product of a direction: its sizes `rows`, `columns`
// and `depth`, and its elements in group g.
struct Forward {
  ConvShape z;
  In x, w, bias;
  Out y;
  __host__ __device__ Index rows() const { return z.k_group; }
  __host__ __device__ Index columns() const { return z.n * z.p * z.q; }
  __device__ Index depth() const { return z.c_group * z.r * z.s; }
  __device__ float a(Index g, Index k, Index d) const {
    return w.as(z.k, z.c_group * z.r * z.s)(g * z.k_group + k, d);
  }
  __device__ float b(Index g, Index d, Index pixel) const {
    const Index c = d / z.s / z.r, r = d / z.s % z.r, s = d % z.s;
    const Index n = pixel / z.q / z.p, p = pixel / z.q % z.p, q = pixel % z.q;
    return x.or_zero(n, g * z.c_group + c, z.row(p, r), z.column(q, s));
  }
  __device__ void put(Index g, Index row, Index pixel, float sum) const {
    const Index k = g * z.k_group + row, n = pixel / z.q / z.p;
    y.as(z.n, z.k, z.p * z.q)(n, k, pixel % (z.p * z.q)) = sum + bias.or_zero(k);
  }
};

struct BackwardData {
  ConvShape z;
  In dy, w;
  Out dx;
  __host__ __device__ Index rows() const { return z.c_group; }
  __host__ __device__ Index columns() const { return z.n * z.h * z.w; }
  __device__ Index depth() const { return z.k_group * z.r * z.s; }
  __device__ float a(Index g, Index c, Index d) const {
    return w(g * z.k_group + d / z.s / z.r, c, d / z.s % z.r, d % z.s);
  }
  __device__ float b(Index g, Index d, Index pixel) const {
    const Index k = d / z.s / z.r, r = d / z.s % z.r, s = d % z.s;
    const Index n = pixel / z.w / z.h, h = pixel / z.w % z.h, v = pixel % z.w;
    return dy.or_zero(n, g * z.k_group + k, z.output_row(h, r), z.output_column(v, s));
  }
  __device__ void put(Index g, Index c, Index pixel, float sum) const {
    const Index n = pixel / z.w / z.h;
    dx.as(z.n, z.c, z.h * z.w)(n, g * z.c_group + c, pixel % (z.h * z.w)) = sum;
  }
};

struct BackwardWeight {
  ConvShape z;
  In x, dy;
  bool accumulate;
  Out dw;
  __host__ __device__ Index rows() const { return z.k_group; }
  __host__ __device__ Index columns() const { return z.c_group * z.r * z.s; }
  __device__ Index depth() const { return z.n * z.p * z.q; }
  __device__ float a(Index g, Index k, Index pixel) const {
    const Index plane = z.p * z.q;
    return dy.as(z.n, z.k, plane)(pixel / plane, g * z.k_group + k, pixel % plane);
  }
  __device__ float b(Index g, Index pixel, Index tap) const {
    const Index c = tap / z.s / z.r, r = tap / z.s % z.r, s = tap % z.s;
    const Index n = pixel / z.q / z.p, p = pixel / z.q % z.p, q = pixel % z.q;
    return x.or_zero(n, g * z.c_group + c, z.row(p, r), z.column(q, s));
  }
  __device__ void put(Index g, Index k, Index tap, float sum) const {
    float& to = dw.as(z.k, columns())(g * z.k_group + k, tap);
    to = accumulate ? to + sum : sum;
  }
};

template <class Product>
__global__ void product_kernel(const Product at) {
  __shared__ float a[kTile][kTile];  // [row, d]
  __shared__ float b[kTile][kTile];  // [d, column]
  const int i = static_cast<int>(threadIdx.y), j = static_cast<int>(threadIdx.x);
  const Index g = blockIdx.z;
  const Index row = Index{blockIdx.y} * kTile + i, column = Index{blockIdx.x} * kTile + j;
  float sum = 0;
  for (Index d = 0; d < at.depth(); d += kTile) {
    // Elements beyond the edges of A and B are zeros, so that all threads run the same code.
    a[i][j] = row < at.rows() && d + j < at.depth() ? at.a(g, row, d + j) : 0.0f;
    b[i][j] = d + i < at.depth() && column < at.columns() ? at.b(g, d + i, column) : 0.0f;
    __syncthreads();  // both tiles are complete
    for (int t = 0; t < kTile; ++t) sum += a[i][t] * b[t][j];
    __syncthreads();  // no thread reads them any more
  }
  if (row < at.rows() && column < at.columns()) at.put(g, row, column, sum);
}

template <class Product>
void run(const Product& product) {
  const auto tiles = [](Index size) { return static_cast<unsigned>(ceil_div(size, kTile)); };
  launch(product_kernel<Product>,
         {.grid = dim3(tiles(product.columns()), tiles(product.rows()),
                       static_cast<unsigned>(product.z.groups)),
          .block = dim3(kTile, kTile)},
         product);
}

// Each product is rounded to the last bit of the sum so far. After 2^20 products of one sign that
// bit is 20 places above the last bit of a product, so a product keeps 4 of its 24 bits.
constexpr std::int64_t kMaxTerms = std::int64_t{1} << 20;

std::int64_t terms_of(const Conv2dProblem& z, Direction direction) {
  if (direction == Direction::backward_weight) return z.n * z.p() * z.q();
  return (direction == Direction::forward ? z.c_per_group() : z.k_per_group()) * z.r * z.s;
}

Conv2dSupport supports(const Conv2dProblem& z, Direction direction) {
  if (terms_of(z, direction) > kMaxTerms) {
    return Conv2dSupport::no(cat("expects sums of at most ", kMaxTerms,
                                 " products, because it adds them one after ",
                                 "the other in f32, got ", terms_of(z, direction)));
  }
  if (z.groups <= 65535 && z.k <= 65535 * kTile && z.c <= 65535 * kTile) return takes(z.dtype);
  return Conv2dSupport::no(
      cat("expects at most 65535 groups and 1048560 channels, got ", z.text()));
}

// In a step of 16 terms, a block loads two tiles of 16 x 16, between two barriers.
Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  const bool data = direction == Direction::backward_data;
  const bool weight = direction == Direction::backward_weight;
  const Index rows = data ? z.c_per_group() : z.k_per_group();
  const Index columns = weight ? z.c_per_group() * z.r * z.s
                               : z.n * (data ? z.h * z.w : z.p() * z.q());
  const double blocks =
      number(ceil_div(rows, Index{kTile}) * ceil_div(columns, Index{kTile}) * z.groups);
  const double steps = number(ceil_div(terms_of(z, direction), std::int64_t{kTile}));
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes(),
          .issued = blocks * steps * 2 * kTile * kTile * kTile,
          .cached = blocks * steps * 2 * kTile * kTile * 4,
          .blocks = blocks,
          .resident = 8,  // 2048 threads of an SM
          .chain = steps,
          .waits = 2 * steps};
}

const Conv2dAlgorithm kAlgorithm{
    .name = "implicit_gemm_lesson",
    .device = DeviceType::cuda,
    .idea = "lesson: a matrix product whose columns are gathered into shared memory, tile by tile",
    .paper = "Chetlur et al. 2014: cuDNN: Efficient Primitives for Deep Learning, arXiv 1410.0759",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = [](const Conv2dProblem&, Direction) { return std::size_t{0}; },
    .error_growth = 8,
    .one_chain = true,
    .exact_on_integers = true,
    .auto_ok = false,
    .forward =
        [](const Conv2dForwardArgs& a) {
          const ConvShape z(a.problem);
          run(Forward{z, z.x(a.x), z.weights(a.w), z.bias(a.b), z.y(a.y)});
        },
    .backward_data =
        [](const Conv2dBackwardDataArgs& a) {
          const ConvShape z(a.problem);
          run(BackwardData{z, z.y(a.dy), z.weights(a.w), z.x(a.dx)});
        },
    .backward_weight =
        [](const Conv2dBackwardWeightArgs& a) {
          const ConvShape z(a.problem);
          run(BackwardWeight{z, z.x(a.x), z.y(a.dy), a.accumulate, z.weights(a.dw)});
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
