// SPDX-License-Identifier: Apache-2.0
// update_cuda.cu: all parameters of a network in one launch.
//
// Method    The rows of the table are kernel parameters, 64 per launch, so nothing is copied to or
//           kept on the device. A block updates kChunk elements of one row and finds the row by
//           bisection. The scalars of a step are kernel parameters too. In a CUDA graph, kernels
//           read them from device memory when they run.
// Numerics  The formulas are those of update_simd.cpp with the same fused multiply-adds. So the
//           bits are those of the CPU with AVX2 or AVX-512, except where the compiler contracts
//           other operations to FMAs.
// Choices   kChunk = 2048: 8 elements per thread (256 threads), two 16-byte loads in flight for
//           each operand. LeNet-5 is 36 blocks.
#include <convscope/update_rules.h>

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
  void* state[kMaxUpdateStates];
  void* average;
  void* slow;
  std::int64_t count;
  unsigned first_block;
  bool wide;     // f64
  bool aligned;  // all pointers, to 16 bytes
};
struct DeviceRows {
  int count;
  double average_rate, alpha;  // of the slow weights
  DeviceRow row[kMaxRows];
};
struct GivenScalars {
  UpdateScalars row[kMaxRows];
  __device__ bool open() const { return true; }
  __device__ const UpdateScalars& of(int r) const { return row[r]; }
};
struct StoredScalars {
  const UpdateScalars* row;
  UpdateGate gate;
  __device__ bool open() const { return is_open(gate); }
  __device__ const UpdateScalars& of(int r) const { return row[r]; }
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
template <int kWidth, class T, class Rule>
__device__ void update_range(const DeviceStep<Rule, T>& step, bool open, const DeviceRow& row,
                             std::int64_t begin, std::int64_t end) {
  constexpr int kStates = Rule::kStates;
  constexpr int kHeld = 2;  // pieces whose loads are in flight together
  using P = Pack<T, kWidth>;
  T* const w = static_cast<T*>(row.w);
  const T* const dw = static_cast<const T*>(row.dw);
  T* state[kStates];
#pragma unroll
  for (int k = 0; k < kStates; ++k) state[k] = static_cast<T*>(row.state[k]);
  const std::int64_t all = blockDim.x * kWidth;
#pragma unroll 1
  for (std::int64_t first = begin + threadIdx.x * kWidth; first + kWidth <= end;
       first += kHeld * all) {
    P pw[kHeld], pdw[kHeld], ps[kHeld][kStates] = {};
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const std::int64_t i = first + j * all;
      if (i + kWidth > end) continue;
      pw[j] = *reinterpret_cast<const P*>(w + i);
      pdw[j] = *reinterpret_cast<const P*>(dw + i);
#pragma unroll
      for (int k = 0; k < kStates; ++k) {
        if (state[k] != nullptr) ps[j][k] = *reinterpret_cast<const P*>(state[k] + i);
      }
    }
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const std::int64_t i = first + j * all;
      if (i + kWidth > end || !open) continue;
#pragma unroll
      for (int l = 0; l < kWidth; ++l) {
        T s[kStates];
#pragma unroll
        for (int k = 0; k < kStates; ++k) s[k] = ps[j][k].v[l];
        step.run(pw[j].v[l], pdw[j].v[l], s);
#pragma unroll
        for (int k = 0; k < kStates; ++k) ps[j][k].v[l] = s[k];
      }
      *reinterpret_cast<P*>(w + i) = pw[j];
#pragma unroll
      for (int k = 0; k < kStates; ++k) {
        if (state[k] != nullptr) *reinterpret_cast<P*>(state[k] + i) = ps[j][k];
      }
    }
  }
}

template <class T, class Rule>
__device__ void update_chunk(const UpdateScalars& scalars, const Rule& rule, bool open,
                             const DeviceRow& row, std::int64_t begin, std::int64_t end) {
  constexpr int kWidth = kPackWidth<T>;
  const DeviceStep<Rule, T> step(scalars.as<typename Rule::Scalars>(), rule);
  if (!row.aligned) return update_range<1, T, Rule>(step, open, row, begin, end);
  const std::int64_t whole = begin + (end - begin) / kWidth * kWidth;
  update_range<kWidth, T, Rule>(step, open, row, begin, whole);
  update_range<1, T, Rule>(step, open, row, whole, end);
}

template <class T>
__device__ void follow(void* copy, void* weights, std::int64_t begin, std::int64_t end, double rate,
                       bool returns) {
  T* const to = static_cast<T*>(copy);
  T* const w = static_cast<T*>(weights);
  const T r = DeviceMath<T>::number(rate);
#pragma unroll 4
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const T x = to[i];
    const T moved = DeviceMath<T>::fma(r, w[i] - x, x);
    to[i] = moved;
    if (returns) w[i] = moved;
  }
}

// Moves the copies of the weights (slow_weights.h). The chunk's weights are still in the L1 or L2
// cache.
template <class T>
__device__ void move_slow_weights(const DeviceRows& rows, const DeviceRow& row,
                                  const UpdateScalars& scalars, std::int64_t begin,
                                  std::int64_t end) {
  __syncthreads();  // other threads may have written these weights
  if (row.slow != nullptr && scalars.value[kMovesSlowWeights] != 0) {
    follow<T>(row.slow, row.w, begin, end, rows.alpha, true);
  }
  if (row.average != nullptr) follow<T>(row.average, row.w, begin, end, rows.average_rate, false);
}

template <class Rule, class Scalars>
__global__ void __launch_bounds__(kThreads)
    update_rows(const DeviceRows rows, const Scalars scalars, const Rule rule) {
  const int r = row_of_block(rows, blockIdx.x);
  const DeviceRow& row = rows.row[r];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x - row.first_block) * kChunk;
  const std::int64_t end = begin + kChunk < row.count ? begin + kChunk : row.count;
  wait_for_previous_kernel();
  let_next_kernel_start();
  const bool open = scalars.open();
  if (row.dw == nullptr) {  // only the average moves
  } else if (row.wide) {
    update_chunk<double>(scalars.of(r), rule, open, row, begin, end);
  } else {
    update_chunk<float>(scalars.of(r), rule, open, row, begin, end);
  }
  if (!open || (row.average == nullptr && row.slow == nullptr)) return;
  if (row.wide) {
    move_slow_weights<double>(rows, row, scalars.of(r), begin, end);
  } else {
    move_slow_weights<float>(rows, row, scalars.of(r), begin, end);
  }
}

// Returns the number of elements for which kernels start blocks; `gradients`: kernels that change
// gradients skip tensors without one.
std::int64_t elements_of(const UpdateRow& row, bool gradients) {
  return gradients && row.dw == nullptr ? 0 : row.count;
}

enum Rows : bool { kAllRows = false, kGradients = true };

// Calls body(rows, first row, blocks) for the rows of the table, at most kMaxRows at a time.
template <class Body>
void for_batches(const UpdateTable& table, Rows which, const Body& body,
                 std::int64_t chunk = kChunk) {
  const std::vector<UpdateRow>& all = table.rows();
  for (std::size_t first = 0; first < all.size(); first += kMaxRows) {
    DeviceRows rows{};
    rows.average_rate = table.average_rate();
    rows.alpha = table.alpha();
    unsigned blocks = 0;
    const std::size_t end = std::min(all.size(), first + kMaxRows);
    for (std::size_t i = first; i < end; ++i) {
      const UpdateRow& from = all[i];
      if (elements_of(from, which) == 0) continue;
      void* const dw = const_cast<void*>(from.dw);
      // Empty rows stay in place, without blocks, so that row r uses `scalars[r]`.
      DeviceRow& row = rows.row[i - first];
      row = {.w = from.w,
             .dw = dw,
             .state = {},
             .average = from.average,
             .slow = from.slow,
             .count = from.count,
             .first_block = blocks,
             .wide = from.dtype == DType::f64,
             .aligned = is_aligned(from.w, 16) && is_aligned(dw, 16)};
      for (int k = 0; k < kMaxUpdateStates; ++k) {
        row.state[k] = from.state[k];
        row.aligned = row.aligned && is_aligned(from.state[k], 16);
      }
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

template <class Scalars>
void queue(const DeviceRows& rows, unsigned blocks, const Scalars& scalars,
           const UpdateRule& rule) {
  const LaunchShape shape{.grid = dim3(blocks), .block = dim3(kThreads), .overlaps_previous = true};
  visit_rule(UpdateRules{}, rule, [&]<class Rule>(const Rule& settings) {
    launch_beside_others(update_rows<Rule, Scalars>, shape, rows, scalars, settings);
  });
}

void update_cuda(const UpdateTable& table) {
  for_batches(table, kAllRows, [&](const DeviceRows& rows, std::size_t first, unsigned blocks) {
    GivenScalars scalars{};
    for (int i = 0; i < rows.count; ++i) {
      scalars.row[i] = table.rows()[first + static_cast<std::size_t>(i)].scalars;
    }
    queue(rows, blocks, scalars, table.rule());
  });
}

void recorded_update_cuda(const UpdateTable& table, const UpdateScalars* scalars,
                          const UpdateGate& gate) {
  for_batches(table, kAllRows, [&](const DeviceRows& rows, std::size_t first, unsigned blocks) {
    queue(rows, blocks, StoredScalars{scalars + first, gate}, table.rule());
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
  for (const UpdateRow& row : table.rows()) {
    all += ceil_div(elements_of(row, kGradients), kSumChunk);
  }
  auto* const factor = cuda_scratch_of<double>(static_cast<std::size_t>(all) + 1);
  double* part = factor + 1;
  for_batches(
      table, kGradients,
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
  for_batches(table, kGradients, [&](const DeviceRows& rows, std::size_t, unsigned blocks) {
    launch(scale_kernel_of_rows, blocks_of(blocks), rows, nullptr, factor);
  });
}

void recorded_unscale_cuda(const UpdateTable& table, DeviceLossScale* scale) {
  for_batches(table, kGradients, [&](const DeviceRows& rows, std::size_t, unsigned blocks) {
    launch(unscale_kernel,
           {.grid = dim3(blocks), .block = dim3(kThreads), .overlaps_previous = true}, rows, scale);
  });
}

void recorded_clip_cuda(const UpdateTable& table, double max_norm, double* norm) {
  const double* const factor = queue_norm(table, max_norm, norm);
  for_batches(table, kGradients, [&](const DeviceRows& rows, std::size_t, unsigned blocks) {
    launch(scale_kernel_of_rows, blocks_of(blocks), rows, factor, 1.0);
  });
}

}  // namespace
CONVSCOPE_KERNEL(update_kernel, cuda, update_cuda)
CONVSCOPE_KERNEL(gradient_norm_kernel, cuda, gradient_norm_cuda)
CONVSCOPE_KERNEL(scale_gradients_kernel, cuda, scale_gradients_cuda)
CONVSCOPE_KERNEL(recorded_update_kernel, cuda, recorded_update_cuda)
CONVSCOPE_KERNEL(recorded_unscale_kernel, cuda, recorded_unscale_cuda)
CONVSCOPE_KERNEL(recorded_clip_kernel, cuda, recorded_clip_cuda)
}  // namespace convscope
