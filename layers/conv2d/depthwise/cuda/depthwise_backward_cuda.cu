// SPDX-License-Identifier: Apache-2.0
// depthwise_backward_cuda.cu: both gradients of a depthwise convolution of stride 1 on the GPU in one
// pass: every number of dy that meets a tap for dx meets a pixel of x for dw at the same place.
//
// Formula    dx[n,c,h,w] = sum over r, s of w[c,0,r,s] dy[n,c,h + pad_top - r,w + pad_left - s]
//            dw[c,0,r,s] = sum over n, h, w of x[n,c,h,w] dy[n,c,h + pad_top - r,w + pad_left - s]
// Textbook   for n, c, h, w, r, s:
//              v = dy[n,c,h+pad-r,w+pad-s]
//              dx[n,c,h,w] += w[c,0,r,s] * v;  dw[c,0,r,s] += x[n,c,h,w] * v
// Plan       tiles of dy with a frame of zeros (depthwise_tiling.h); a thread owns 7 rows x 4 columns
//            of dx and the same pixels of x, which go straight into registers. Each row of the tile is
//            read once and serves both sums. The R S sums of dw stay in registers over all images of
//            the block's slice, and are added up in two stages (depthwise_slices.cuh)
// Shapes     x, dx [N,C,H,W], dy [N,C,P,Q], w, dw [C,1,R,S], f32 row-major, any alignment
// Supports   R = S of 3, 5; stride 1; no dilation, no multiplier; tile fits shared memory
// Cost       FLOPs = 4 N C P Q R S; bytes = x, dy, dx once: 3 tensors where two kernels move 4
// Numerics   as depthwise_forward_cuda.cu and depthwise_weight_cuda.cu, but Inf or NaN of x or dy also
//            reaches those taps of dw that would meet it outside of the image
// Backward   dx assigned; dw assigned or added to
// Choices    5x5: 25 taps + 25 sums + 20 of dx + 28 of x + 8 = 106 registers and addresses: 3 blocks of
//            128 threads. No 7x7: its two kernels are bound by FMAs, of which one pass saves none
// Source     as depthwise_forward_cuda.cu
// Read next  depthwise_forward_cuda.cu; depthwise_weight_cuda.cu
#include "layers/conv2d/depthwise/cuda/depthwise_backward.h"
#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_slices.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_tile.cuh"

namespace convscope::depthwise {
namespace {

constexpr int kRows = 7;  // of dx in a strip

struct BackwardWork {
  DepthwiseTiling tiling = {};  // from dy to dx
  Slices slices = {};
  const float* dy = nullptr;
  const float* x = nullptr;
  const float* w = nullptr;
  float* dx = nullptr;
};

constexpr int blocks_wanted(int size) { return size == 3 ? 5 : 3; }

template <int kSize, int kUnit>
__global__ void __launch_bounds__(DepthwiseTiling::kThreads, blocks_wanted(kSize))
    depthwise_backward_kernel(const __grid_constant__ BackwardWork work) {
  constexpr bool kAligned = kUnit > 0;
  constexpr int kOffset = kAligned ? DepthwiseTiling::kLeftMargin - (kSize - 1) / 2 : 0;
  constexpr int kTaps = kSize * kSize;
  const DepthwiseTiling& t = work.tiling;
  float* const tile = dynamic_shared<float>();   // [planes, rows, pitch], then the threads' sums
  float* const staged = tile + t.tile_floats();  // the run of dx
  let_next_kernel_start();
  wait_for_previous_kernel();
  const SlicePart part = slice_part(t, work.slices);

  // More items than threads only with one plane: then all have the same channel.
  float taps[kTaps] = {};
  float sums[kTaps] = {};
  const int plane = depthwise_item(t, static_cast<int>(threadIdx.x)).plane;
  const int channel = static_cast<int>(blockIdx.x) * t.planes + plane;
  if (plane < t.planes && channel < work.slices.channels) {
    const float* const w = work.w + channel * kTaps;
#pragma unroll
    for (int i = 0; i < kTaps; ++i) taps[i] = w[i];
  }
  for (int at = part.begin; at < part.end; ++at) {
    const DepthwiseJob job = slice_job(t, work.slices, at);
    const TargetRun run = target_run(t, job, work.dx);
    if (at > part.begin) __syncthreads();  // all have read the tile and the run before
    if constexpr (kAligned) {
      start_aligned_tile<kUnit>(t, job, work.dy, tile);
    } else {
      if (at == part.begin || t.bands > 1) zero_tile(t.tile_floats(), tile);
      __syncthreads();
      scatter_tile(t, job, work.dy, tile);
    }
    bool waiting = true;
    for (int index = static_cast<int>(threadIdx.x); waiting || index < t.items();
         index += static_cast<int>(blockDim.x)) {
      const DepthwiseItem item = depthwise_item(t, index);
      const int h0 = job.out_row + item.strip * kRows;
      const int rows = item.plane < job.planes && index < t.items() ? t.out_h - h0 : 0;
      const int place = (item.plane * t.out_h + h0 - run.first_row) * t.out_w + 4 * item.group;
      float* const dx = run.to + place;
      float* const stage = staged + phase_of(run.to) + place;
      const int columns = t.out_w - 4 * item.group;
      float pixels[kRows][4] = {};  // of x
      if (rows > 0) {
        const float* const x = work.x + (dx - work.dx);
#pragma unroll
        for (int o = 0; o < kRows; ++o) {
          if (o < rows) load_group<kUnit>(x + o * t.out_w, columns, pixels[o]);
        }
      }
      if (waiting) wait_for_tile();
      waiting = false;
      if (rows <= 0) continue;
      const float* const from =
          tile + (item.plane * t.rows + item.strip * kRows) * t.pitch + 4 * item.group;
      float out[kRows][4] = {};
#pragma unroll
      for (int i = 0; i < kRows - 1 + kSize; ++i) {
        float v[3 + kSize];
        load_window<kOffset, 4>(from + i * t.pitch, v);
#pragma unroll
        for (int r = 0; r < kSize; ++r) {  // of the turned kernel
          const int o = i - r;
          if (o < 0 || o >= kRows) continue;
#pragma unroll
          for (int j = 0; j < 4; ++j) {
#pragma unroll
            for (int s = 0; s < kSize; ++s) {
              const int tap = kTaps - 1 - (r * kSize + s);
              out[o][j] = fmaf(v[j + s], taps[tap], out[o][j]);
              sums[tap] = fmaf(v[j + s], pixels[o][j], sums[tap]);
            }
          }
        }
        const int done = i - kSize + 1;
        if (done < 0 || done >= rows) continue;
        store_group<kUnit>((kAligned ? dx : stage) + done * t.out_w, columns, out[done]);
      }
    }
    if constexpr (!kAligned) {
      __syncthreads();
      store_run(run, staged);
    }
  }
  __syncthreads();
  write_partial(t, work.slices, part.slice, sums, tile);
}

// ---- launchers ---------------------------------------------------------------------------------

// The number of slices is decided by the shape alone: workspace_bytes() knows no pointers.
int slices_by_shape(const Conv2dProblem& z) {
  const PlaneMap map = turned(plane_map(z));
  return slice_count(forward_tiling(map, kRows, unit_of(map), z.c, 1), z);
}

bool supports(const Conv2dProblem& z) {
  return z.dtype == DType::f32 && z.stride_h == 1 && z.n > 0 && z.r < 7 &&
         fits_tiles(z, Direction::backward_data);
}

std::size_t workspace_bytes(const Conv2dProblem& z) {
  return static_cast<std::size_t>(z.k * z.r * z.s * slices_by_shape(z)) * sizeof(float);
}

template <int kSize, int kUnit>
void launch_backward(const BackwardWork& work) {
  const DepthwiseTiling& t = work.tiling;
  const int floats =
      std::max(t.tile_floats() + (kUnit > 0 ? 0 : t.staged_floats()), kSize * kSize * t.threads());
  launch(depthwise_backward_kernel<kSize, kUnit>, shape_of(t, work.slices, floats), work);
}

void run(const DepthwiseBackwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  const PlaneMap map = turned(plane_map(z));
  BackwardWork work{.dy = static_cast<const float*>(args.dy),
                    .x = static_cast<const float*>(args.x),
                    .w = static_cast<const float*>(args.w),
                    .dx = static_cast<float*>(args.dx)};
  int unit = unit_of(map);
  for (const float* const p : {work.dy, work.x, static_cast<const float*>(work.dx)}) {
    if (!is_aligned(p, unit)) unit = 0;
  }
  const int slices = slices_by_shape(z);
  work.tiling = forward_tiling(map, kRows, unit, z.c, /*wanted_tiles=*/1);
  work.slices = slices_of(work.tiling, z, slices, args.workspace);
  for_size_stride_unit<1>(map.size, 1, unit, [&](auto size, auto, auto unit_of_rows) {
    if constexpr (size() < 7) launch_backward<size(), unit_of_rows()>(work);
  });
  sum_slices({z, args.x, args.dy, args.dw, args.accumulate, args.workspace}, slices);
}

const DepthwiseBackward& kernel() {
  static constexpr DepthwiseBackward kKernel{
      .supports = supports, .workspace_bytes = workspace_bytes, .run = run};
  return kKernel;
}

}  // namespace
}  // namespace convscope::depthwise

namespace convscope {
CONVSCOPE_KERNEL(depthwise_backward_kernel, cuda, depthwise::kernel)
}  // namespace convscope
