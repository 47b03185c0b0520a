// SPDX-License-Identifier: Apache-2.0
// depthwise_forward_cuda.cu: depthwise convolution of NCHW planes on the GPU: tiles of whole planes
// or bands in shared memory, and in each thread a window that slides down 4 columns.
//
// Formula    y[n,k,p,q] = relu(b[k] + sum over r, s of w[k,0,r,s] x[n,k,p stride - pad_top + r,
//            q stride - pad_left + s] + residual[n,k,p,q]), x = 0 outside
// Textbook   for n, k, p, q:
//              y[n,k,p,q] = b[k]
//              for r, s: y[n,k,p,q] += w[k,0,r,s] * x[n,k,p*stride+r-pad,q*stride+s-pad]
// Plan       a block copies its tile of x with a frame of zeros into shared memory
//            (depthwise_tiling.h); no pipeline inside the block: while it computes, the other blocks
//            of the multiprocessor load and store. A thread makes 7 rows x 4 columns of y: each row
//            of the tile is read once, as 16-byte units, and every tap of it is added to the R rows
//            of sums that it belongs to; all loops over rows, taps and columns are unrolled, so sums
//            and taps are registers. A finished row of 4 is stored at once; rows of y that are no
//            multiple of 16 bytes are gathered in shared memory and stored as one run
// Shapes     x [N,C,H,W], w [C,1,R,S], y [N,C,P,Q], f32 row-major; sums in f32. Any alignment;
//            16-byte copies without a register when W, Q are multiples of 4 and the bases aligned
// Supports   R = S of 3, 5, 7; stride 1 or 2; no dilation, no multiplier; tile fits shared memory
// Cost       FLOPs = 2 N C P Q R S; bytes = x, w, y once; workspace none. 3x3: 18 FLOPs for 8 bytes:
//            memory-bound; 7x7: 98 FLOPs for 8 bytes, above the ridge of f32 (51 TFLOP/s : 4.3 TB/s
//            = 12), so as many FMAs as the multiprocessors issue
// Numerics   one rounding per FMA, in the order b, r, s; same bits on each run; exact on integers
// Backward   stride 1: dx is this kernel over dy with the taps in reverse order (turned)
// Choices    7 rows: divides the maps of ImageNet; a strip reads (7 + R - 1) / 7 of its rows.
//            4 columns: one 16-byte store, and S + 3 floats read for 4 S products.
//            128 threads, 8/6/4 blocks wanted: 64, 80, 128 registers for 9 + 12, 25 + 20 and 49 + 28
//            taps and sums and a window of 6 to 10
// Source     W. Luo et al. 2019 (PyTorch's DepthwiseConv2d.cu: one thread for each output) is the
//            step before; G. Lu, W. Zhang, Z. Wang 2021: Optimizing Depthwise Separable Convolution
//            Operations on GPUs, IEEE TPDS
// Read next  depthwise_elements_cuda.cu; depthwise_weight_cuda.cu
#include "layers/conv2d/depthwise_kernels.h"
#include "layers/conv2d/depthwise_launch.cuh"
#include "layers/conv2d/depthwise_tile.cuh"

namespace convscope::depthwise {
namespace {

constexpr int kRows = kForwardRows;  // of y in a strip

struct ForwardWork {
  DepthwiseTiling tiling = {};
  std::int64_t planes = 0;  // N C
  int channels = 1;
  const float* x = nullptr;
  const float* w = nullptr;
  const float* b = nullptr;
  const float* residual = nullptr;
  float* y = nullptr;
  bool relu = false;
  bool turned = false;  // taps in reverse order
};

__device__ inline float finished(float sum, bool relu) { return relu && sum <= 0 ? 0.0f : sum; }

constexpr int blocks_wanted(int size) { return size == 3 ? 8 : size == 5 ? 6 : 4; }

template <int kSize, int kStride, bool kAligned>
__global__ void __launch_bounds__(DepthwiseTiling::kThreads, blocks_wanted(kSize))
    depthwise_forward_kernel(const __grid_constant__ ForwardWork work) {
  constexpr int kOffset = kAligned ? DepthwiseTiling::kLeftMargin - (kSize - 1) / 2 : 0;
  constexpr int kWindow = 3 * kStride + kSize;
  const DepthwiseTiling& t = work.tiling;
  float* const tile = dynamic_shared<float>();   // [planes, rows, pitch]
  float* const staged = tile + t.tile_floats();  // the run of y
  const DepthwiseJob job = depthwise_job(t, blockIdx.x, work.planes);
  const TargetRun run = target_run(t, job, work.y);
  if constexpr (kAligned) start_aligned_tile(t, job, work.x, tile);

  // More items than threads only with one plane: then all have the same channel.
  int index = static_cast<int>(threadIdx.x);
  DepthwiseItem item = depthwise_item(t, index);
  float taps[kSize * kSize];
  float bias = 0;
  if (item.plane < job.planes) {
    const std::int64_t channel = (job.plane + item.plane) % work.channels;
    const float* const w = work.w + channel * (kSize * kSize);
#pragma unroll
    for (int i = 0; i < kSize * kSize; ++i) taps[i] = w[work.turned ? kSize * kSize - 1 - i : i];
    if (work.b != nullptr) bias = work.b[channel];
  }
  if constexpr (kAligned) {
    wait_for_tile();
  } else {
    load_tile<false>(t, job, work.x, tile);
  }

  for (; index < t.items(); index += static_cast<int>(blockDim.x)) {
    item = depthwise_item(t, index);
    if (item.plane >= job.planes) break;
    const float* const from = tile +
                              (item.plane * t.rows + item.strip * kRows * kStride) * t.pitch +
                              4 * kStride * item.group;
    const int p0 = job.out_row + item.strip * kRows;
    const int at = (item.plane * t.out_h + p0 - run.first_row) * t.out_w + 4 * item.group;
    const int rows = t.out_h - p0;
    float* const y = run.to + at;
    const float* const residual = work.residual == nullptr ? nullptr : work.residual + (y - work.y);
    float* const stage = staged + phase_of(run.to) + at;
    float sums[kRows][4];
#pragma unroll
    for (int i = 0; i < (kRows - 1) * kStride + kSize; ++i) {
      float v[kWindow];
      load_window<kOffset, 4>(from + i * t.pitch, v);
#pragma unroll
      for (int r = 0; r < kSize; ++r) {
        const int o = (i - r) / kStride;
        if (i < r || (i - r) % kStride != 0 || o >= kRows) continue;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (r == 0) sums[o][j] = bias;
#pragma unroll
          for (int s = 0; s < kSize; ++s) {
            sums[o][j] = fmaf(v[j * kStride + s], taps[r * kSize + s], sums[o][j]);
          }
        }
      }
      const int done = (i - kSize + 1) / kStride;
      if (i < kSize - 1 || (i - kSize + 1) % kStride != 0 || done >= rows) continue;
      if constexpr (kAligned) {
        float4 out = make_float4(sums[done][0], sums[done][1], sums[done][2], sums[done][3]);
        if (residual != nullptr) {
          const float4 more = *reinterpret_cast<const float4*>(residual + done * t.out_w);
          out.x += more.x, out.y += more.y, out.z += more.z, out.w += more.w;
        }
        if (work.relu) {
          out = make_float4(finished(out.x, true), finished(out.y, true), finished(out.z, true),
                            finished(out.w, true));
        }
        *reinterpret_cast<float4*>(y + done * t.out_w) = out;
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (4 * item.group + j >= t.out_w) continue;
          float out = sums[done][j];
          if (residual != nullptr) out += residual[done * t.out_w + j];
          stage[done * t.out_w + j] = finished(out, work.relu);
        }
      }
    }
  }
  if constexpr (!kAligned) {
    __syncthreads();
    store_run(run, staged);
  }
}

// ---- launchers ---------------------------------------------------------------------------------

template <int kSize, int kStride, bool kAligned>
void launch_forward(const ForwardWork& work) {
  const DepthwiseTiling& t = work.tiling;
  const int floats = t.tile_floats() + (kAligned ? 0 : t.staged_floats());
  launch(depthwise_forward_kernel<kSize, kStride, kAligned>,
         {.grid = dim3(static_cast<unsigned>(t.tiles(work.planes))),
          .block = dim3(static_cast<unsigned>(t.threads())),
          .shared_bytes = static_cast<std::size_t>(floats) * sizeof(float)},
         work);
}

void forward_planes(ForwardWork work, const PlaneMap& map) {
  const bool aligned = is_aligned(map, work.x, work.y) && is_aligned(work.residual);
  work.tiling = forward_tiling(map, aligned, work.planes, tiles_to_fill_device());
  for_size_and_stride(map.size, map.stride, aligned, [&](auto size, auto stride, auto is_aligned) {
    launch_forward<size(), stride(), is_aligned()>(work);
  });
}

}  // namespace

void forward_by_tiles(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  forward_planes({.planes = z.n * z.c,
                  .channels = static_cast<int>(z.c),
                  .x = static_cast<const float*>(args.x),
                  .w = static_cast<const float*>(args.w),
                  .b = static_cast<const float*>(args.b),
                  .residual = static_cast<const float*>(args.epilogue.residual),
                  .y = static_cast<float*>(args.y),
                  .relu = args.epilogue.relu},
                 plane_map(z));
}

void backward_data_as_forward(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  forward_planes({.planes = z.n * z.c,
                  .channels = static_cast<int>(z.c),
                  .x = static_cast<const float*>(args.dy),
                  .w = static_cast<const float*>(args.w),
                  .y = static_cast<float*>(args.dx),
                  .turned = true},
                 turned(plane_map(z)));
}

}  // namespace convscope::depthwise
