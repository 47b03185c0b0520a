// SPDX-License-Identifier: Apache-2.0
// fft_depthwise_cuda.cu: depthwise convolution by FFT on the GPU. There is no sum over channels, so
// one block transforms a tile to its spectrum, multiplies, and transforms back to pixels.
//
// Formula    Y_f[n,c] = X_f[n,c] conj(W_f[c]) for each frequency f of the transforms of tiles
// Textbook   for each c: W = FFT2(w_c, then zeros)
//            for each tile of each plane: y_tile = FFT2^-1(FFT2(x_tile) * conj(W)), the first
//            L - R + 1 rows and columns; + b
// Method     w is real, so two planes a and b of one channel are transformed as a + i b and never
//            separated: the spectrum of a + i b times conj(W) is that of both results. A block
//            holds several such pairs in shared memory, transforms rows and columns
//            (fft_passes.cuh), multiplies by W, which is in L2, and transforms back. Tiles are as
//            in fft_cuda.cu. dw: a is a tile of x, and b is the tile of dy that reads it. Their
//            spectra are separated, and each thread adds up conj(DY) X of its frequencies over the
//            images of its block. A second kernel adds the sums of all blocks in order and
//            transforms them back, two channels at a time
// Shapes     x [N,C,H,W], w [C,1,R,S], y [N,C,P,Q], f32, f16 or bf16, row-major, any alignment;
//            spectra of w [C, L (L/2 + 1)] of complex f32; L = 16, 32 or 64; f32 accumulators
// Supports   one channel and one kernel in each group; kernels of 2 to 33 dilated taps in each
//            axis; stride 1; every padding
// Cost       FLOPs = 2 transforms of L x L complex points for two tiles, about 20 L^2 log2 L; bytes
//            = x, w, y once, and again where tiles overlap; workspace = dw's spectra of each slice
//            of the batch. Bound by shared memory: each transform accesses each number of a tile 4
//            times
// Numerics   errors of a transform grow like log L. They spread over the whole tile and to the
//            other tile of the pair (the next image): a small result near large results loses
//            digits, and a NaN spreads over both tiles. Same bits on each run
// Backward   DX_f = DY_f W_f, assigned; dw assigned or added to
// Choices    dw has as many slices as blocks can run at the same time, 3 on an SM; each further
//            slice would be one more spectrum to write and read
// Source     as fft_cuda.cu; RepLKNet: X. Ding et al. 2022, arXiv 2203.06717, for kernels of this
//            size; D. Y. Fu et al. 2023: FlashFFTConv, arXiv 2311.05908, the same fusion in 1-d
// Read next  fft_passes.cuh, the transforms; depthwise_large_cuda.cu, direct sums
#include "layers/conv2d/fft/cuda/fft_passes.cuh"
#include "layers/conv2d/shared/kept_plans.h"

namespace convscope::fft {

bool is_depthwise(const Conv2dProblem& z) {
  return z.groups > 1 && z.groups == z.c && z.groups == z.k;
}

namespace {

int chosen_length(const Conv2dProblem& z, Direction direction);

struct DepthwisePlan {
  DepthwisePlan(const Conv2dProblem& problem, Direction direction)
      : DepthwisePlan(problem, direction, chosen_length(problem, direction)) {}
  // Cuts an image into tiles for transforms of `transform` points. length is 0 if these are too
  // short.
  DepthwisePlan(const Conv2dProblem& problem, Direction direction, int transform)
      : z(problem),
        forward(direction != Direction::backward_data),
        down(Span::rows(z, forward)),
        across(Span::columns(z, forward)) {
    const Index rows = down.outputs(transform), columns = across.outputs(transform);
    if (rows == 0 || columns == 0) return;
    length = transform;
    read = {down.read(rows), across.read(columns), int(z.c), 0};
    made = {down.made(rows), across.made(columns), int(z.c), 0};
    read.planes = made.planes = z.n * tiles() * z.c;
  }

  Index tiles() const { return Index{read.rows.tiles} * read.columns.tiles; }
  Index items() const { return z.n * tiles(); }  // tiles of a channel
  Index spectrum() const { return frequencies(length); }
  Index slots() const { return 128 / length; }  // pairs that a block holds
  // Returns the slices of dw. A slice is a range of a channel's tiles, computed by one pair of a
  // block.
  Index slices() const {
    const Index wanted = Index{cuda_device_facts().multiprocessors} * 3 * slots();
    return std::clamp<Index>(wanted / z.c, 1, items());
  }
  int shift(const Span& span) const { return forward ? 0 : int(span.taps - 1); }

  const Conv2dProblem& z;
  bool forward;
  Span down, across;
  int length = 0;
  PlaneSet read = {}, made = {};
};

// Counts the kernel that transforms images. In backward_weight, a second kernel adds the spectra of
// all slices one after another; else it makes the spectra of w before the call.
Cost counts_of(const DepthwisePlan& plan, Direction direction) {
  constexpr const char* kNames[] = {"depthwise 16", "depthwise 32", "depthwise 64"};
  const Conv2dProblem& z = plan.z;
  const bool weight = direction == Direction::backward_weight;
  const double length = plan.length, spectrum = 8 * number(z.c * plan.spectrum());  // bytes
  const double line = 5 * length * (plan.length == 16 ? 4 : plan.length == 32 ? 5 : 6);
  const double weights = number(static_cast<Index>(size_of(z.dtype))) * number(z.w_shape().numel());
  const Index pairs = weight ? plan.slices() : ceil_div(plan.items(), Index{2});  // of a channel
  const double blocks = number(ceil_div(z.c * pairs, plan.slots()));
  // Tiles of a pair one after another, and lines of a transform: rows and columns, and back.
  const double tiles = weight ? number(ceil_div(plan.items(), plan.slices())) : 1;
  const double written = number(plan.made.rows.limit);
  const double lines = weight ? 2 * length : 3 * length + written;
  Cost cost{.flops = tiles * number(z.c * pairs) * (lines * line + 8 * length * length),
            .bytes = z.nominal_bytes(),
            .schedule = kNames[plan.length / 32],
            .blocks = blocks,
            .resident = 3,
            .chain = tiles * lines};
  cost.issued = tiles * blocks * number(plan.slots()) * (lines * line + 8 * length * length);
  if (weight) {
    cost.waits = number(plan.slices());
    cost.pass_bytes = 2 * spectrum * number(plan.slices()) + weights;
    cost.launches = 2;
  } else {
    cost.cached = blocks * number(plan.slots()) * 8 * number(plan.spectrum());  // of w
    cost.stored = number(z.n * z.c) * number(plan.made.rows.tiles) * written *
                  number(plan.made.columns.tiles) * number(plan.made.columns.limit);
    cost.prepared_bytes = weights + spectrum;
    cost.prepare_launches = 1;
  }
  return cost;
}

int chosen_length(const Conv2dProblem& z, Direction direction) {
  static KeptPlans<int> kept;
  return *kept.get(z, direction, [&] {
    Cheapest<int> best({"conv2d", "fft", direction}, DeviceType::cuda, z.dtype);
    for (const int length : kLengths) {
      const DepthwisePlan plan(z, direction, length);
      if (plan.length > 0) best.offer(length, counts_of(plan, direction));
    }
    return best.found();
  });
}

// Returns the position of tile `item` of a channel; the tile is in image item / tiles.
__device__ inline Place place_of_item(const PlaneSet& z, Index item, Index channel, bool real) {
  const Index columns = z.columns.tiles, rows = z.rows.tiles;
  const Index row = item / columns;
  const Index image = row / rows;
  return place_of(z, image, static_cast<int>(channel), static_cast<int>(row - image * rows),
                  static_cast<int>(item - row * columns), real);
}

template <class T>
struct DepthwiseWork {
  PlaneSet read = {}, made = {};
  Index items = 0, pairs = 0;  // counts for a channel
  const T* from = nullptr;
  const float2* weights = nullptr;  // [C, frequencies]
  int shift_rows = 0, shift_columns = 0;
  bool conjugate = true;
  Finish<T> finish = {};
  T* to = nullptr;
};

template <int L, class T>
__global__ void __launch_bounds__(kBlockThreads, 3)
    depthwise_spectra_kernel(const __grid_constant__ DepthwiseWork<T> work) {
  using Z = Lines<L>;
  auto* const shared = dynamic_shared<float2>();
  float2* const roots = shared + Z::kPairs * Z::kPlane;
  __shared__ Place read[Z::kPlanes];
  __shared__ Place made[Z::kPlanes];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < Z::kPlanes) {
    const Index pair = static_cast<Index>(blockIdx.x) * Z::kPairs + thread / 2;
    const Index channel = pair / work.pairs;
    const Index item = 2 * (pair - channel * work.pairs) + thread % 2;
    const bool real = channel < work.read.channels && item < work.items;
    read[thread] = place_of_item(work.read, real ? item : 0, real ? channel : 0, real);
    made[thread] = place_of_item(work.made, real ? item : 0, real ? channel : 0, real);
  }
  make_roots<L>(roots);
  __syncthreads();
  read_planes<L>(work.read, work.from, work.read, work.from, read, roots, shared);
  __syncthreads();
  transform_lines<L, false, false>(shared, roots);
  __syncthreads();
  constexpr int kHalf = L / 2 + 1;
#pragma unroll 4
  for (int i = thread; i < frequencies(L) * Z::kPairs; i += kBlockThreads) {
    const int pair = i / frequencies(L);
    const int f = i - pair * frequencies(L);
    const int row = f / kHalf;
    const int column = f - row * kHalf;
    const Index channel = read[2 * pair].channel;
    float2 w = work.weights[channel * frequencies(L) + f];
    if (work.conjugate) w.y = -w.y;
    float2* const plane = shared + pair * Z::kPlane;
    float2& here = plane[row * Z::kPitch + column];
    here = times(here, w);
    if (column != 0 && column != L / 2) {  // else another thread computes -f
      float2& there = plane[(L - row) % L * Z::kPitch + L - column];
      there = times(there, make_float2(w.x, -w.y));
    }
  }
  __syncthreads();
  transform_lines<L, true, false>(shared, roots);
  __syncthreads();
  transform_lines<L, true, true>(shared, roots, work.shift_rows % L, work.made.rows.limit);
  __syncthreads();
  write_pixels<L>(work.made, made, work.shift_rows, work.shift_columns, work.finish, shared,
                  work.to);
}

// The spectra of planes a and b at one frequency, separated from the spectrum of a + i b.
struct Parted {
  float2 a, b;
};
template <int L>
__device__ inline Parted parted(const float2* plane, int row, int column) {
  using Z = Lines<L>;
  const float2 here = plane[row * Z::kPitch + column];
  const float2 there = plane[(L - row) % L * Z::kPitch + (L - column) % L];
  // A = (Z(f) + conj Z(-f)) / 2, B = (Z(f) - conj Z(-f)) / 2i
  return {make_float2(0.5f * (here.x + there.x), 0.5f * (here.y - there.y)),
          make_float2(0.5f * (here.y + there.y), 0.5f * (there.x - here.x))};
}

// Transforms kernels to spectra [C, frequencies].
template <int L, class T>
__global__ void __launch_bounds__(kBlockThreads, 3)
    depthwise_weights_kernel(PlaneSet z, const T* w, float2* spectra) {
  using Z = Lines<L>;
  auto* const shared = dynamic_shared<float2>();
  float2* const roots = shared + Z::kPairs * Z::kPlane;
  __shared__ Place places[Z::kPlanes];
  const Index first = static_cast<Index>(blockIdx.x) * Z::kPlanes;
  find_places(z, first, Z::kPlanes, places);
  make_roots<L>(roots);
  __syncthreads();
  read_planes<L>(z, w, z, w, places, roots, shared);
  __syncthreads();
  transform_lines<L, false, false>(shared, roots);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < frequencies(L) * Z::kPairs; i += kBlockThreads) {
    const int pair = i / frequencies(L);
    const int f = i - pair * frequencies(L);
    const int row = f / (L / 2 + 1);
    const Parted both = parted<L>(shared + pair * Z::kPlane, row, f - row * (L / 2 + 1));
    const Index plane = first + 2 * pair;
    if (plane < z.planes) spectra[plane * frequencies(L) + f] = both.a;
    if (plane + 1 < z.planes) spectra[(plane + 1) * frequencies(L) + f] = both.b;
  }
}

template <class T>
struct DepthwiseGradientWork {
  PlaneSet read, made;  // tiles of x and of dy
  Index items = 0, slices = 1;
  const T* x = nullptr;
  const T* dy = nullptr;
  float2* sums = nullptr;  // [C, slices, frequencies]
};

template <int L, class T>
__global__ void __launch_bounds__(kBlockThreads, 3)
    depthwise_gradient_kernel(const __grid_constant__ DepthwiseGradientWork<T> work) {
  using Z = Lines<L>;
  auto* const shared = dynamic_shared<float2>();
  float2* const roots = shared + Z::kPairs * Z::kPlane;
  __shared__ Place places[Z::kPlanes];
  constexpr int kCount = frequencies(L) * Z::kPairs;
  constexpr int kEach = ceil_div(kCount, kBlockThreads);
  const int thread = static_cast<int>(threadIdx.x);
  make_roots<L>(roots);
  float2 sums[kEach] = {};
  const Index most = ceil_div(work.items, work.slices);
  for (Index step = 0; step < most; ++step) {
    if (thread < Z::kPlanes) {
      const Index slot = static_cast<Index>(blockIdx.x) * Z::kPairs + thread / 2;
      const Index channel = slot / work.slices;
      const Index slice = slot - channel * work.slices;
      const Index item = work.items * slice / work.slices + step;
      const bool real =
          channel < work.read.channels && item < work.items * (slice + 1) / work.slices;
      const PlaneSet& z = thread % 2 == 0 ? work.read : work.made;
      places[thread] = place_of_item(z, real ? item : 0, real ? channel : 0, real);
    }
    __syncthreads();
    read_planes<L>(work.read, work.x, work.made, work.dy, places, roots, shared);
    __syncthreads();
    transform_lines<L, false, false>(shared, roots);
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const int i = thread + u * kBlockThreads;
      if (i >= kCount) break;
      const int pair = i / frequencies(L);
      const int f = i - pair * frequencies(L);
      const int row = f / (L / 2 + 1);
      const Parted both = parted<L>(shared + pair * Z::kPlane, row, f - row * (L / 2 + 1));
      sums[u] = sums[u] + times(both.a, make_float2(both.b.x, -both.b.y));
    }
    __syncthreads();
  }
  const Index slots = static_cast<Index>(work.read.channels) * work.slices;
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const int i = thread + u * kBlockThreads;
    if (i >= kCount) break;
    const Index slot = static_cast<Index>(blockIdx.x) * Z::kPairs + i / frequencies(L);
    if (slot < slots) work.sums[slot * frequencies(L) + i % frequencies(L)] = sums[u];
  }
}

// Adds up the spectra of all slices and transforms the sums to dw, two channels at a time.
template <int L, class T>
__global__ void __launch_bounds__(kBlockThreads, 3)
    depthwise_taps_kernel(PlaneSet z, const float2* sums, Index slices, Finish<T> finish, T* dw) {
  using Z = Lines<L>;
  auto* const shared = dynamic_shared<float2>();
  float2* const roots = shared + Z::kPairs * Z::kPlane;
  __shared__ Place places[Z::kPlanes];
  const Index first = static_cast<Index>(blockIdx.x) * Z::kPlanes;
  find_places(z, first, Z::kPlanes, places);
  make_roots<L>(roots);
  for (int i = static_cast<int>(threadIdx.x); i < frequencies(L) * Z::kPairs; i += kBlockThreads) {
    const int pair = i / frequencies(L);
    const int f = i - pair * frequencies(L);
    const int row = f / (L / 2 + 1);
    const int column = f - row * (L / 2 + 1);
    float2 both[2] = {};
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const Index channel = first + 2 * pair + part;
      if (channel >= z.planes) continue;
      const float2* const from = sums + channel * slices * frequencies(L) + f;
      for (Index slice = 0; slice < slices; ++slice) {
        both[part] = both[part] + from[slice * frequencies(L)];
      }
    }
    const float2 a = both[0], b = both[1];
    float2* const plane = shared + pair * Z::kPlane;
    plane[row * Z::kPitch + column] = make_float2(a.x - b.y, a.y + b.x);
    if (column != 0 && column != L / 2) {
      plane[(L - row) % L * Z::kPitch + L - column] = make_float2(a.x + b.y, b.x - a.y);
    }
  }
  __syncthreads();
  transform_lines<L, true, false>(shared, roots);
  __syncthreads();
  transform_lines<L, true, true>(shared, roots, 0, z.rows.limit);
  __syncthreads();
  write_pixels<L>(z, places, 0, 0, finish, shared, dw);
}

// ---- launchers ---------------------------------------------------------------------------------

template <class T>
void convolve(const DepthwisePlan& plan, const void* from, const void* weights,
              const Finish<T>& finish, void* to) {
  DepthwiseWork<T> work{.read = plan.read,
                        .made = plan.made,
                        .items = plan.items(),
                        .pairs = ceil_div(plan.items(), Index{2}),
                        .from = static_cast<const T*>(from),
                        .weights = static_cast<const float2*>(weights),
                        .shift_rows = plan.shift(plan.down),
                        .shift_columns = plan.shift(plan.across),
                        .conjugate = plan.forward,
                        .finish = finish,
                        .to = static_cast<T*>(to)};
  with_length(plan.length, [&](auto length) {
    launch(depthwise_spectra_kernel<length(), T>, blocks_of<length()>(2 * work.pairs * plan.z.c),
           work);
  });
}

}  // namespace

std::size_t depthwise_prepared_bytes(const Conv2dProblem& z, Direction direction) {
  const DepthwisePlan plan(z, direction);
  return static_cast<std::size_t>(z.c * plan.spectrum()) * sizeof(float2);
}

void depthwise_prepare(const Conv2dPrepareArgs& args) {
  const DepthwisePlan plan(args.problem, args.direction);
  const PlaneSet kernels = kernel_planes(args.problem, args.problem.c);
  with_float_type(args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_length(plan.length, [&](auto length) {
      launch(depthwise_weights_kernel<length(), T>, blocks_of<length()>(kernels.planes), kernels,
             static_cast<const T*>(args.w), static_cast<float2*>(args.prepared));
    });
  });
}

void depthwise_forward(const Conv2dForwardArgs& args) {
  with_float_type(args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    convolve<T>(DepthwisePlan(args.problem, Direction::forward), args.x, args.prepared,
                {static_cast<const T*>(args.b), static_cast<const T*>(args.epilogue.residual),
                 args.epilogue.relu, false},
                args.y);
  });
}

void depthwise_backward_data(const Conv2dBackwardDataArgs& args) {
  with_float_type(args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    convolve<T>(DepthwisePlan(args.problem, Direction::backward_data), args.dy, args.prepared,
                {nullptr, nullptr, false, false}, args.dx);
  });
}

void depthwise_backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const DepthwisePlan plan(z, Direction::backward_weight);
  const PlaneSet kernels = kernel_planes(z, z.c);
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    const DepthwiseGradientWork<T> work{.read = plan.read,
                                        .made = plan.made,
                                        .items = plan.items(),
                                        .slices = plan.slices(),
                                        .x = static_cast<const T*>(args.x),
                                        .dy = static_cast<const T*>(args.dy),
                                        .sums = static_cast<float2*>(args.workspace)};
    with_length(plan.length, [&](auto length) {
      launch(depthwise_gradient_kernel<length(), T>, blocks_of<length()>(2 * z.c * work.slices),
             work);
      launch(depthwise_taps_kernel<length(), T>, blocks_of<length()>(z.c), kernels,
             static_cast<const float2*>(work.sums), work.slices,
             Finish<T>{nullptr, nullptr, false, args.accumulate}, static_cast<T*>(args.dw));
    });
  });
}

std::size_t depthwise_workspace_bytes(const Conv2dProblem& z, Direction direction) {
  if (direction != Direction::backward_weight) return 0;
  const DepthwisePlan plan(z, direction);
  return static_cast<std::size_t>(z.c * plan.slices() * plan.spectrum()) * sizeof(float2);
}

Conv2dCost depthwise_cost(const Conv2dProblem& z, Direction direction) {
  return counts_of(DepthwisePlan(z, direction), direction);
}

}  // namespace convscope::fft
