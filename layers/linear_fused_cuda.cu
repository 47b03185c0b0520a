// SPDX-License-Identifier: Apache-2.0
// linear_fused_cuda.cu: small linear layers in one launch each way.
//
// Formula    y = relu(x w^T + b);  g = dy where y > 0;  dx = g w,  dw = g^T x,  db = sum over n of g
// Textbook   for n, o: y[n,o] = relu(b[o] + sum over i of x[n,i] w[o,i])
// Plan       All three are products C[m,n] = sum over k of A[m,k] B[n,k]. A block has a tile of C; its
//            eight warps share k, so that even a tile of 16x16 has 256 threads and the longest chain
//            of additions is K / 8. A chunk of A and B lies in shared memory in the order in which
//            it lies in memory: k next to k ("rows") or m next to m ("columns"); a lane takes four k
//            at a time. The warps' sums meet in shared memory, in order. The gradient of the bias is
//            one more column of dw, whose x is 1. Blocks of dw and of dx are one launch.
// Shapes     x [N,I], w [O,I], b [O], y, dy [N,O], f32, accumulated in f32
// Supports   any sizes; layers of more than kLargestProduct multiplications go to cuBLAS, whose tiles
//            read each number less often, with separate passes for bias, ReLU and mask
// Cost       FLOPs = 2 N I O forward, 4 N I O backward; bound by latency: load, multiply, add up
// Numerics   sums of K / 8 numbers in order, then eight: error grows less than K / 8 eps. The order
//            depends on the sizes alone: two runs give the same bits
// Choices    16x16 tiles where bigger ones would leave multiprocessors without work: LeNet's first
//            layer at 64 images is 4 x 8 tiles; 32x32, four times fewer loads for each product, from
//            264 of them on, two for each multiprocessor
// Read next  linear_loss_cuda.cu: the last layer with the loss; framework/ops/matmul_cuda.cu
#include <algorithm>

#include "framework/cuda/blas.cuh"
#include "framework/cuda/map.cuh"
#include "framework/cuda/reduce.cuh"
#include "framework/ops/elementwise.h"
#include "framework/ops/matmul.h"
#include "layers/linear_fused.h"
#include "layers/linear_loss.cuh"

namespace convscope {
namespace {

constexpr unsigned kWarps = 8;
static_assert(kWarps * 32 == kThreads);

enum class Order { rows, columns };

// Element (m, k) of A lies at data[m ld + k] (rows) or data[k ld + m] (columns). Elements at or
// behind `extent` (of m) or the end of k count as 0; with `ones`, m == extent is a row of ones.
// `mask`, when given, lies as data does: elements count where mask > 0 or is NaN.
struct Factor {
  const float* data = nullptr;
  const float* mask = nullptr;
  int ld = 0;
  int extent = 0;
  bool ones = false;
};

// C[m][n] of a tile: + bias[n], + what is there, relu, stored where m and n are inside.
struct Result {
  float* data = nullptr;
  int ld = 0;
  int rows = 0, columns = 0;
  bool accumulate = false;
  bool relu = false;
  const float* bias = nullptr;  // [columns]
  float* behind = nullptr;      // the column behind the last one goes here, [rows]
  bool accumulate_behind = false;
};

struct Product {
  Factor a, b;
  Result c;
  int k = 0;
  int tiles_m = 0, tiles_n = 0;
};

// kSize rows of the factor times kChunk of k, padded so that the lanes of a warp meet other banks.
template <Order kOrder, int kSize, int kChunk>
struct Tile {
  static constexpr int kLd = kOrder == Order::rows ? kChunk + 4 : kSize;
  static constexpr int kFloats = kOrder == Order::rows ? kSize * kLd : kChunk * kLd;

  // Loads m0.. and k0.., all threads together. kWidth 4: data, ld and extents allow 16 bytes.
  template <int kWidth>
  static __device__ void load(float* tile, const Factor& f, int m0, int k0, int k_end) {
    using P = Pack<float, kWidth>;
    const int depth = k_end - k0;
    const int across = (kOrder == Order::rows ? (depth + 3) / 4 * 4 : kSize) / kWidth;
    const int lines = kOrder == Order::rows ? kSize : depth;
    constexpr int kBatch = 4;
    for (int first = static_cast<int>(threadIdx.x); first < lines * across;
         first += static_cast<int>(kThreads) * kBatch) {
      P values[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        const int index = first + u * static_cast<int>(kThreads);
        const int line = index / across;
        const int at = (index - line * across) * kWidth;
        const int m = m0 + (kOrder == Order::rows ? line : at);
        const int k = kOrder == Order::rows ? at : line;
        P p{};
        if (index < lines * across && m < f.extent && k < depth) {
          const std::int64_t place = kOrder == Order::rows
                                         ? static_cast<std::int64_t>(m) * f.ld + k0 + k
                                         : static_cast<std::int64_t>(k0 + k) * f.ld + m;
          p = *reinterpret_cast<const P*>(f.data + place);
          if (f.mask != nullptr) {
            const P y = *reinterpret_cast<const P*>(f.mask + place);
#pragma unroll
            for (int l = 0; l < kWidth; ++l) p.v[l] = y.v[l] <= 0.0f ? 0.0f : p.v[l];
          }
        }
        if (f.ones && kOrder == Order::columns) {
#pragma unroll
          for (int l = 0; l < kWidth; ++l) {
            if (m + l == f.extent) p.v[l] = 1.0f;
          }
        }
        values[u] = p;
      }
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        const int index = first + u * static_cast<int>(kThreads);
        if (index >= lines * across) break;
        const int line = index / across;
        *reinterpret_cast<P*>(tile + line * kLd + (index - line * across) * kWidth) = values[u];
      }
    }
  }

  // kCount rows of the lane `place` of kPlaces, four k from k on: out[i][0..3].
  template <int kCount, int kPlaces>
  static __device__ void take(const float* tile, int place, int k, float (&out)[kCount][4]) {
    if constexpr (kOrder == Order::rows) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const auto p =
            *reinterpret_cast<const Pack<float, 4>*>(tile + (place + i * kPlaces) * kLd + k);
#pragma unroll
        for (int l = 0; l < 4; ++l) out[i][l] = p.v[l];
      }
    } else {
#pragma unroll
      for (int l = 0; l < 4; ++l) {
        const auto p =
            *reinterpret_cast<const Pack<float, kCount>*>(tile + (k + l) * kLd + place * kCount);
#pragma unroll
        for (int i = 0; i < kCount; ++i) out[i][l] = p.v[i];
      }
    }
  }
  // Which row of the tile out[i] is.
  template <int kCount, int kPlaces>
  static __device__ int row(int place, int i) {
    return kOrder == Order::rows ? place + i * kPlaces : place * kCount + i;
  }
};

// A lane has kM x kN sums; a warp is 8 x 4 lanes.
template <Order kOrderA, Order kOrderB, int kM, int kN, int kChunk>
struct TileProduct {
  static constexpr int kRows = 8 * kM;
  static constexpr int kColumns = 4 * kN;
  using A = Tile<kOrderA, kRows, kChunk>;
  using B = Tile<kOrderB, kColumns, kChunk>;
  static constexpr int kSums = static_cast<int>(kWarps) * kRows * kColumns;
  static constexpr int kFloats = std::max(A::kFloats + B::kFloats, kSums);

  template <bool kPacked>
  static __device__ void run(const Product& p, int tile, float* shared) {
    constexpr int kWidth = kPacked ? 4 : 1;
    const int m0 = tile / p.tiles_n * kRows;
    const int n0 = tile % p.tiles_n * kColumns;
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int place_m = lane / 4;
    const int place_n = lane % 4;
    float* const tile_a = shared;
    float* const tile_b = shared + A::kFloats;
    float sums[kM][kN] = {};
    for (int k0 = 0; k0 < p.k; k0 += kChunk) {
      const int k_end = k0 + kChunk < p.k ? k0 + kChunk : p.k;
      if (k0 > 0) __syncthreads();
      A::template load<kWidth>(tile_a, p.a, m0, k0, k_end);
      B::template load<kWidth>(tile_b, p.b, n0, k0, k_end);
      const int quads = (k_end - k0 + 3) / 4;
      fill_last_quad(tile_a, tile_b, k_end - k0, quads * 4);
      __syncthreads();
      for (int quad = warp; quad < quads; quad += static_cast<int>(kWarps)) {
        float a[kM][4], b[kN][4];
        A::template take<kM, 8>(tile_a, place_m, quad * 4, a);
        B::template take<kN, 4>(tile_b, place_n, quad * 4, b);
#pragma unroll
        for (int l = 0; l < 4; ++l) {
#pragma unroll
          for (int i = 0; i < kM; ++i) {
#pragma unroll
            for (int j = 0; j < kN; ++j) sums[i][j] += a[i][l] * b[j][l];
          }
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const int m = A::template row<kM, 8>(place_m, i);
        const int n = B::template row<kN, 4>(place_n, j);
        shared[(warp * kRows + m) * kColumns + n] = sums[i][j];
      }
    }
    __syncthreads();
    for (int at = static_cast<int>(threadIdx.x); at < kRows * kColumns;
         at += static_cast<int>(kThreads)) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < static_cast<int>(kWarps); ++w) sum += shared[w * kRows * kColumns + at];
      store(p.c, m0 + at / kColumns, n0 + at % kColumns, sum);
    }
  }

 private:
  // The last four k may reach behind the end: what columns order has not written there becomes 0.
  // (Rows order has: it loads whole lines.)
  static __device__ void fill_last_quad(float* tile_a, float* tile_b, int begin, int end) {
    if constexpr (kOrderA == Order::columns) fill<A::kLd>(tile_a, begin, end);
    if constexpr (kOrderB == Order::columns) fill<B::kLd>(tile_b, begin, end);
  }
  template <int kLd>
  static __device__ void fill(float* tile, int begin, int end) {
    for (int at = begin * kLd + static_cast<int>(threadIdx.x); at < end * kLd;
         at += static_cast<int>(kThreads)) {
      tile[at] = 0;
    }
  }
  static __device__ void store(const Result& c, int m, int n, float sum) {
    if (m >= c.rows) return;
    if (n == c.columns && c.behind != nullptr) {
      c.behind[m] = c.accumulate_behind ? c.behind[m] + sum : sum;
    }
    if (n >= c.columns) return;
    float* const to = c.data + static_cast<std::int64_t>(m) * c.ld + n;
    if (c.accumulate) sum += *to;
    if (c.bias != nullptr) sum += c.bias[n];
    *to = c.relu && sum <= 0.0f ? 0.0f : sum;  // NaN passes
  }
};

template <int kM, int kN, int kChunk>
using ForwardTile = TileProduct<Order::rows, Order::rows, kM, kN, kChunk>;
template <int kM, int kN, int kChunk>
using WeightTile = TileProduct<Order::columns, Order::columns, kM, kN, kChunk>;
template <int kM, int kN, int kChunk>
using InputTile = TileProduct<Order::rows, Order::columns, kM, kN, kChunk>;

template <bool kPacked, int kM, int kN, int kChunk>
__global__ void __launch_bounds__(kThreads) forward_tiles(const Product y) {
  auto* const shared = dynamic_shared<float>();
  wait_for_previous_kernel();
  let_next_kernel_start();
  ForwardTile<kM, kN, kChunk>::template run<kPacked>(y, static_cast<int>(blockIdx.x), shared);
}

// Blocks of dw first, then those of dx.
template <bool kPacked, int kM, int kN, int kChunk>
__global__ void __launch_bounds__(kThreads) backward_tiles(const Product dw, const Product dx) {
  auto* const shared = dynamic_shared<float>();
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int block = static_cast<int>(blockIdx.x);
  const int of_dw = dw.tiles_m * dw.tiles_n;
  if (block < of_dw) {
    WeightTile<kM, kN, kChunk>::template run<kPacked>(dw, block, shared);
  } else {
    InputTile<kM, kN, kChunk>::template run<kPacked>(dx, block - of_dw, shared);
  }
}

// ---- launches ----

constexpr std::int64_t kLargestProduct = std::int64_t{1} << 29;

int narrow(std::int64_t size) { return static_cast<int>(size); }

struct Sizes {
  std::int64_t n, i, o;
};
Sizes sizes_of(const Tensor& x, const Tensor& w) { return {x.dim(0), x.dim(1), w.dim(0)}; }

bool is_small(const Sizes& s) {
  constexpr std::int64_t kMost = 1 << 24;  // index arithmetic in 32 bits
  return s.n < kMost && s.i < kMost && s.o < kMost && s.n * s.i * s.o <= kLargestProduct;
}

void tile(Product& p, int rows, int columns) {
  p.tiles_m = narrow(ceil_div(p.c.rows, rows));
  p.tiles_n = narrow(ceil_div(p.c.columns + (p.c.behind != nullptr ? 1 : 0), columns));
}

constexpr std::int64_t kEnoughTiles = 264;

const float* floats(const Tensor& t) { return t.defined() ? t.data<float>() : nullptr; }

template <bool kPacked, int kM, int kN, int kChunk>
void queue_forward(Product y) {
  using T = ForwardTile<kM, kN, kChunk>;
  tile(y, T::kRows, T::kColumns);
  launch(forward_tiles<kPacked, kM, kN, kChunk>,
         {.grid = dim3(static_cast<unsigned>(y.tiles_m * y.tiles_n)),
          .block = dim3(kThreads),
          .shared_bytes = T::kFloats * sizeof(float),
          .overlaps_previous = true},
         y);
}

void forward_by_blas(const LinearForwardArgs& args) {
  const Device device = args.x.device();
  if (args.b.defined()) fill_rows_kernel.get(device)(args.b, args.y);
  matmul_kernel.get(device)({.a = args.x,
                             .b = args.w,
                             .c = args.y,
                             .transpose_b = Transpose::yes,
                             .accumulate = args.b.defined()});
  if (args.relu) unary_kernel.get(device)(UnaryOp::relu, args.y, args.y);
}

void forward_cuda(const LinearForwardArgs& args) {
  const Sizes s = sizes_of(args.x, args.w);
  if (s.n == 0 || s.o == 0) return;
  if (!is_small(s)) return forward_by_blas(args);
  const Product y{.a = {.data = args.x.data<float>(), .ld = narrow(s.i), .extent = narrow(s.n)},
                  .b = {.data = args.w.data<float>(), .ld = narrow(s.i), .extent = narrow(s.o)},
                  .c = {.data = args.y.data<float>(),
                        .ld = narrow(s.o),
                        .rows = narrow(s.n),
                        .columns = narrow(s.o),
                        .relu = args.relu,
                        .bias = floats(args.b)},
                  .k = narrow(s.i)};
  const bool packed = s.i % 4 == 0 && is_aligned(y.a.data, 16) && is_aligned(y.b.data, 16);
  const bool big = ceil_div(s.n, 32) * ceil_div(s.o, 32) >= kEnoughTiles;
  if (big) return packed ? queue_forward<true, 4, 8, 128>(y) : queue_forward<false, 4, 8, 128>(y);
  packed ? queue_forward<true, 2, 4, 416>(y) : queue_forward<false, 2, 4, 416>(y);
}

template <bool kPacked, int kM, int kN, int kChunk>
void queue_backward(Product dw, Product dx, bool wants_dw, bool wants_dx) {
  using Weight = WeightTile<kM, kN, kChunk>;
  using Input = InputTile<kM, kN, kChunk>;
  if (wants_dw) tile(dw, Weight::kRows, Weight::kColumns);
  if (wants_dx) tile(dx, Input::kRows, Input::kColumns);
  launch(backward_tiles<kPacked, kM, kN, kChunk>,
         {.grid = dim3(static_cast<unsigned>(dw.tiles_m * dw.tiles_n + dx.tiles_m * dx.tiles_n)),
          .block = dim3(kThreads),
          .shared_bytes = std::max(Weight::kFloats, Input::kFloats) * sizeof(float),
          .overlaps_previous = true},
         dw, dx);
}

void backward_by_blas(const LinearBackwardArgs& args) {
  const Device device = args.x.device();
  if (args.y.defined()) gradient_kernel.get(device)(GradientOp::relu, args.y, args.dy, args.dy);
  if (args.db.defined()) sum_on_cuda(args.dy, 1u, args.db, args.accumulate_db);
  if (args.dw.defined()) {
    matmul_kernel.get(device)({.a = args.dy,
                               .b = args.x,
                               .c = args.dw,
                               .transpose_a = Transpose::yes,
                               .accumulate = args.accumulate_dw});
  }
  if (args.dx.defined()) {
    matmul_kernel.get(device)(
        {.a = args.dy, .b = args.w, .c = args.dx, .accumulate = args.accumulate_dx});
  }
}

void backward_cuda(const LinearBackwardArgs& args) {
  const Sizes s = sizes_of(args.x, args.w);
  // A bias without its weight, a row without an image: rare, left to the separate passes.
  const bool usual = s.n > 0 && s.o > 0 && s.i > 0 && (args.dw.defined() || !args.db.defined());
  if (!usual || !is_small(s)) return backward_by_blas(args);
  const float* const mask = floats(args.y);
  const float* const dy = args.dy.data<float>();
  Product dw, dx;
  if (args.dw.defined()) {
    dw = {.a = {.data = dy, .mask = mask, .ld = narrow(s.o), .extent = narrow(s.o)},
          .b = {.data = args.x.data<float>(),
                .ld = narrow(s.i),
                .extent = narrow(s.i),
                .ones = args.db.defined()},
          .c = {.data = args.dw.data<float>(),
                .ld = narrow(s.i),
                .rows = narrow(s.o),
                .columns = narrow(s.i),
                .accumulate = args.accumulate_dw,
                .behind = args.db.defined() ? args.db.data<float>() : nullptr,
                .accumulate_behind = args.accumulate_db},
          .k = narrow(s.n)};
  }
  if (args.dx.defined()) {
    dx = {.a = {.data = dy, .mask = mask, .ld = narrow(s.o), .extent = narrow(s.n)},
          .b = {.data = args.w.data<float>(), .ld = narrow(s.i), .extent = narrow(s.i)},
          .c = {.data = args.dx.data<float>(),
                .ld = narrow(s.i),
                .rows = narrow(s.n),
                .columns = narrow(s.i),
                .accumulate = args.accumulate_dx},
          .k = narrow(s.o)};
  }
  const bool packed = s.i % 4 == 0 && s.o % 4 == 0 && is_aligned(dy, 16) && is_aligned(mask, 16) &&
                      is_aligned(args.x.raw_data(), 16) && is_aligned(args.w.raw_data(), 16);
  const bool big = ceil_div(s.n, 32) * ceil_div(s.i, 32) >= kEnoughTiles;
  const bool wants_dw = args.dw.defined();
  const bool wants_dx = args.dx.defined();
  if (big) {
    return packed ? queue_backward<true, 4, 8, 128>(dw, dx, wants_dw, wants_dx)
                  : queue_backward<false, 4, 8, 128>(dw, dx, wants_dw, wants_dx);
  }
  packed ? queue_backward<true, 2, 4, 256>(dw, dx, wants_dw, wants_dx)
         : queue_backward<false, 2, 4, 256>(dw, dx, wants_dw, wants_dx);
}

[[maybe_unused]] const bool kRegistered = register_linear_fused(
    DeviceType::cuda, {.forward = {.workspace_bytes = nullptr, .run = forward_cuda},
                       .backward = {.workspace_bytes = nullptr, .run = backward_cuda},
                       .loss = linear_loss_on_cuda()});

}  // namespace
}  // namespace convscope
