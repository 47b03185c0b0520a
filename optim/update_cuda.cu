// SPDX-License-Identifier: Apache-2.0
// update_cuda.cu: all parameters of a network in one launch.
//
// Method    The rows of the table are kernel parameters, 64 per launch, so nothing is copied to or
//           kept on the device. A block updates kChunk elements of one row and finds the row by
//           bisection. The values of a step (learning rate, corrections of Adam) are kernel
//           parameters too. In a CUDA graph, kernels read these values from device memory when they
//           run.
// Numerics  The formulas are those of update_simd.cpp with the same fused multiply-adds. So the
//           bits are those of the CPU with AVX2 or AVX-512, except where the compiler contracts
//           other operations to FMAs.
// Choices   kChunk = 2048: 8 elements per thread (256 threads), two 16-byte loads in flight for
//           each operand. LeNet-5 is 36 blocks.
#include <algorithm>
#include <cmath>

#include "framework/cuda/carveout.cuh"
#include "framework/cuda/map.cuh"
#include "framework/cuda/scratch.cuh"
#include "framework/cuda/update_step.cuh"
#include "framework/memory/memory.h"
#include "optim/device_update.h"
#include "optim/loss_scale.h"
#include "optim/update.h"

namespace convscope {
namespace {

constexpr int kMaxRows = 64;
constexpr std::int64_t kChunk = 2048;
constexpr std::int64_t kSumChunk = 8192;  // for the norm: fewer partial sums

struct DeviceRow {
  void* w;
  void* dw;
  void* m;
  void* v;
  std::int64_t count;
  unsigned first_block;
  bool wide;     // f64
  bool aligned;  // all pointers, to 16 bytes
};
struct DeviceRows {
  int count;
  DeviceRow row[kMaxRows];
};
struct GivenFactors {
  UpdateFactors row[kMaxRows];
  __device__ bool open() const { return true; }
  __device__ const UpdateFactors& of(int r) const { return row[r]; }
};
struct StoredFactors {
  const UpdateFactors* row;
  UpdateGate gate;
  __device__ bool open() const { return is_open(gate); }
  __device__ const UpdateFactors& of(int r) const { return row[r]; }
};

__device__ int row_of_block(const DeviceRows& rows, unsigned block) {
  int low = 0;
  int high = rows.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (rows.row[middle].first_block <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Stores only if `open`, which is known when the loads have completed.
template <int kWidth, class T, class Step>
__device__ void update_range(const Step& step, bool open, const DeviceRow& row, std::int64_t begin,
                             std::int64_t end) {
  constexpr int kHeld = 2;  // pieces whose loads are in flight together
  using P = Pack<T, kWidth>;
  T* const w = static_cast<T*>(row.w);
  const T* const dw = static_cast<const T*>(row.dw);
  T* const m = static_cast<T*>(row.m);
  T* const v = static_cast<T*>(row.v);
  const bool has_m = m != nullptr;
  const std::int64_t all = blockDim.x * kWidth;
#pragma unroll 1
  for (std::int64_t first = begin + threadIdx.x * kWidth; first + kWidth <= end;
       first += kHeld * all) {
    P pw[kHeld], pdw[kHeld], pm[kHeld] = {}, pv[kHeld] = {};
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const std::int64_t i = first + j * all;
      if (i + kWidth > end) continue;
      pw[j] = *reinterpret_cast<const P*>(w + i);
      pdw[j] = *reinterpret_cast<const P*>(dw + i);
      if (has_m) pm[j] = *reinterpret_cast<const P*>(m + i);
      if constexpr (Step::kHasV) pv[j] = *reinterpret_cast<const P*>(v + i);
    }
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const std::int64_t i = first + j * all;
      if (i + kWidth > end || !open) continue;
#pragma unroll
      for (int l = 0; l < kWidth; ++l) {
        step.run(pw[j].v[l], pdw[j].v[l], pm[j].v[l], pv[j].v[l], has_m);
      }
      *reinterpret_cast<P*>(w + i) = pw[j];
      if (has_m) *reinterpret_cast<P*>(m + i) = pm[j];
      if constexpr (Step::kHasV) *reinterpret_cast<P*>(v + i) = pv[j];
    }
  }
}

template <class T, class Step>
__device__ void update_chunk(const Step& step, bool open, const DeviceRow& row, std::int64_t begin,
                             std::int64_t end) {
  constexpr int kWidth = kPackWidth<T>;
  if (!row.aligned) return update_range<1, T>(step, open, row, begin, end);
  const std::int64_t whole = begin + (end - begin) / kWidth * kWidth;
  update_range<kWidth, T>(step, open, row, begin, whole);
  update_range<1, T>(step, open, row, whole, end);
}

template <template <class> class Step, class Rule, class Factors>
__global__ void __launch_bounds__(kThreads)
    update_kernel(const DeviceRows rows, const Factors factors, const Rule rule) {
  const int r = row_of_block(rows, blockIdx.x);
  const DeviceRow& row = rows.row[r];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x - row.first_block) * kChunk;
  const std::int64_t end = begin + kChunk < row.count ? begin + kChunk : row.count;
  wait_for_previous_kernel();
  let_next_kernel_start();
  const bool open = factors.open();
  if (row.wide) {
    update_chunk<double>(Step<double>(factors.of(r), rule), open, row, begin, end);
  } else {
    update_chunk<float>(Step<float>(factors.of(r), rule), open, row, begin, end);
  }
}

// Calls body(rows, first row, blocks) for the rows of the table, at most kMaxRows at a time.
template <class Body>
void for_batches(const UpdateTable& table, const Body& body, std::int64_t chunk = kChunk) {
  const std::vector<UpdateRow>& all = table.rows();
  for (std::size_t first = 0; first < all.size(); first += kMaxRows) {
    DeviceRows rows{};
    unsigned blocks = 0;
    const std::size_t end = std::min(all.size(), first + kMaxRows);
    for (std::size_t i = first; i < end; ++i) {
      const UpdateRow& from = all[i];
      if (from.count == 0) continue;
      void* const dw = const_cast<void*>(from.dw);
      const bool aligned = is_aligned(from.w, 16) && is_aligned(dw, 16) && is_aligned(from.m, 16) &&
                           is_aligned(from.v, 16);
      // Empty rows stay in place, without blocks, so that row r uses `factors[r]`.
      rows.row[i - first] = {
          from.w, dw, from.m, from.v, from.count, blocks, from.dtype == DType::f64, aligned};
      blocks += static_cast<unsigned>(ceil_div(from.count, chunk));
    }
    // The bisection finds the last row that begins at or before a block. An empty row begins where
    // the next row begins, so the bisection never returns an empty row.
    rows.count = static_cast<int>(end - first);
    unsigned behind = blocks;
    for (int i = rows.count - 1; i >= 0; --i) {
      if (rows.row[i].count == 0) rows.row[i].first_block = behind;
      behind = rows.row[i].first_block;
    }
    body(rows, first, blocks);
  }
}

template <class Factors>
void queue(const DeviceRows& rows, unsigned blocks, const Factors& factors,
           const UpdateRule& rule) {
  const LaunchShape shape{.grid = dim3(blocks), .block = dim3(kThreads), .overlaps_previous = true};
  if (rule.adam) {
    launch_beside_others(update_kernel<AdamStep, AdamRule, Factors>, shape, rows, factors,
                         rule.adam_rule);
  } else {
    launch_beside_others(update_kernel<SgdStep, SgdRule, Factors>, shape, rows, factors, rule.sgd);
  }
}

void update_with_given(const UpdateTable& table, const UpdateRule& rule) {
  for_batches(table, [&](const DeviceRows& rows, std::size_t first, unsigned blocks) {
    GivenFactors factors{};
    for (int i = 0; i < rows.count; ++i) {
      const UpdateRow& row = table.rows()[first + static_cast<std::size_t>(i)];
      factors.row[i] = {row.rate, row.decay, row.shrink, row.keep, row.gain, row.v_scale};
    }
    queue(rows, blocks, factors, rule);
  });
}

void sgd_cuda(const UpdateTable& table, const SgdRule& rule) {
  update_with_given(table, {.adam = false, .sgd = rule, .adam_rule = {}});
}
void adam_cuda(const UpdateTable& table, const AdamRule& rule) {
  update_with_given(table, {.adam = true, .sgd = {}, .adam_rule = rule});
}
void recorded_update_cuda(const UpdateTable& table, const UpdateRule& rule,
                          const UpdateFactors* factors, const UpdateGate& gate) {
  for_batches(table, [&](const DeviceRows& rows, std::size_t first, unsigned blocks) {
    queue(rows, blocks, StoredFactors{factors + first, gate}, rule);
  });
}

// ---- the joint norm: partial sums per block, then one block adds them in order ----

template <int kWidth, class T>
__device__ double square_sum(const DeviceRow& row, std::int64_t begin, std::int64_t end) {
  const T* const dw = static_cast<const T*>(row.dw);
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = begin + threadIdx.x * kWidth; i + kWidth <= end; i += blockDim.x * kWidth) {
    const auto p = *reinterpret_cast<const Pack<T, kWidth>*>(dw + i);
#pragma unroll
    for (int l = 0; l < kWidth; ++l) {
      const auto value = static_cast<double>(p.v[l]);
      sum += value * value;
    }
  }
  return sum;
}
template <class T>
__device__ double square_sum_of_chunk(const DeviceRow& row, std::int64_t begin, std::int64_t end) {
  constexpr int kWidth = kPackWidth<T>;
  if (!row.aligned) return square_sum<1, T>(row, begin, end);
  const std::int64_t whole = begin + (end - begin) / kWidth * kWidth;
  return square_sum<kWidth, T>(row, begin, whole) + square_sum<1, T>(row, whole, end);
}

__global__ void __launch_bounds__(kThreads) square_kernel(const DeviceRows rows, double* part) {
  __shared__ double scratch[32];
  const DeviceRow& row = rows.row[row_of_block(rows, blockIdx.x)];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x - row.first_block) * kSumChunk;
  const std::int64_t end = begin + kSumChunk < row.count ? begin + kSumChunk : row.count;
  const double sum = row.wide ? square_sum_of_chunk<double>(row, begin, end)
                              : square_sum_of_chunk<float>(row, begin, end);
  const double total = block_sum(sum, scratch);
  if (threadIdx.x == 0) part[blockIdx.x] = total;
}

// Writes the joint norm of the gradients to norm[0], and the factor that scales the gradients to a
// norm of at most max_norm to factor[0]. The factor is 1 if the norm is small enough or not finite.
__global__ void norm_kernel(const double* part, unsigned count, double max_norm, double* norm,
                            double* factor) {
  __shared__ double scratch[32];
  double sum = 0;
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) sum += part[i];
  const double total = ::sqrt(block_sum(sum, scratch));
  if (threadIdx.x != 0) return;
  norm[0] = total;
  const bool clips = total > max_norm && total <= 1.7976931348623157e308;
  factor[0] = clips ? max_norm / total : 1.0;
}

__global__ void __launch_bounds__(kThreads)
    scale_kernel_of_rows(const DeviceRows rows, const double* factor, double given) {
  const double f = factor != nullptr ? *factor : given;
  if (f == 1.0) return;
  const DeviceRow& row = rows.row[row_of_block(rows, blockIdx.x)];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x - row.first_block) * kChunk;
  const std::int64_t end = begin + kChunk < row.count ? begin + kChunk : row.count;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    if (row.wide) {
      static_cast<double*>(row.dw)[i] *= f;
    } else {
      static_cast<float*>(row.dw)[i] *= static_cast<float>(f);
    }
  }
}

template <class T>
__device__ bool unscale_chunk(const DeviceRow& row, std::int64_t begin, std::int64_t end,
                              double factor) {
  T* const dw = static_cast<T*>(row.dw);
  bool finite = true;
#pragma unroll 4
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    finite = finite && isfinite(dw[i]);
    dw[i] *= static_cast<T>(factor);
  }
  return finite;
}

__global__ void __launch_bounds__(kThreads)
    unscale_kernel(const DeviceRows rows, DeviceLossScale* scale) {
  wait_for_previous_kernel();
  let_next_kernel_start();
  const DeviceRow& row = rows.row[row_of_block(rows, blockIdx.x)];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x - row.first_block) * kChunk;
  const std::int64_t end = begin + kChunk < row.count ? begin + kChunk : row.count;
  const double factor = 1 / scale->state.scale;
  const bool finite = row.wide ? unscale_chunk<double>(row, begin, end, factor)
                               : unscale_chunk<float>(row, begin, end, factor);
  const bool all_finite = __syncthreads_and(finite) != 0;
  if (!all_finite && threadIdx.x == 0) scale->overflow = 1;  // all writers write the same value
}

LaunchShape blocks_of(unsigned blocks) { return {.grid = dim3(blocks), .block = dim3(kThreads)}; }

// Queues the computation of norm[0] and returns a pointer to the clipping factor. The scratch
// memory holds the factor, then the partial sums.
const double* queue_norm(const UpdateTable& table, double max_norm, double* norm) {
  std::int64_t all = 0;
  for (const UpdateRow& row : table.rows()) all += ceil_div(row.count, kSumChunk);
  auto* const factor = cuda_scratch_of<double>(static_cast<std::size_t>(all) + 1);
  double* part = factor + 1;
  for_batches(
      table,
      [&](const DeviceRows& rows, std::size_t, unsigned blocks) {
        launch(square_kernel, blocks_of(blocks), rows, part);
        part += blocks;
      },
      kSumChunk);
  launch(norm_kernel, blocks_of(1), factor + 1, static_cast<unsigned>(all), max_norm, norm, factor);
  return factor;
}

double gradient_norm_cuda(const UpdateTable& table) {
  const Device device = table.device();
  const Workspace norm(device, sizeof(double));
  queue_norm(table, 0, static_cast<double*>(norm.data()));
  double out = 0;
  backend_of(device).copy_to_host(device.index, &out, norm.data(), sizeof(out));
  return out;
}

void scale_gradients_cuda(const UpdateTable& table, double factor) {
  for_batches(table, [&](const DeviceRows& rows, std::size_t, unsigned blocks) {
    launch(scale_kernel_of_rows, blocks_of(blocks), rows, nullptr, factor);
  });
}

void recorded_unscale_cuda(const UpdateTable& table, DeviceLossScale* scale) {
  for_batches(table, [&](const DeviceRows& rows, std::size_t, unsigned blocks) {
    launch(unscale_kernel,
           {.grid = dim3(blocks), .block = dim3(kThreads), .overlaps_previous = true}, rows, scale);
  });
}

void recorded_clip_cuda(const UpdateTable& table, double max_norm, double* norm) {
  const double* const factor = queue_norm(table, max_norm, norm);
  for_batches(table, [&](const DeviceRows& rows, std::size_t, unsigned blocks) {
    launch(scale_kernel_of_rows, blocks_of(blocks), rows, factor, 1.0);
  });
}

}  // namespace
CONVSCOPE_KERNEL(sgd_update_kernel, cuda, sgd_cuda)
CONVSCOPE_KERNEL(adam_update_kernel, cuda, adam_cuda)
CONVSCOPE_KERNEL(gradient_norm_kernel, cuda, gradient_norm_cuda)
CONVSCOPE_KERNEL(scale_gradients_kernel, cuda, scale_gradients_cuda)
CONVSCOPE_KERNEL(recorded_update_kernel, cuda, recorded_update_cuda)
CONVSCOPE_KERNEL(recorded_unscale_kernel, cuda, recorded_unscale_cuda)
CONVSCOPE_KERNEL(recorded_clip_kernel, cuda, recorded_clip_cuda)
}  // namespace convscope
