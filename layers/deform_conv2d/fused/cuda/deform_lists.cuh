// SPDX-License-Identifier: Apache-2.0
// deform_lists.cuh: lists of the samples that read each pixel of x. The lists turn the scatter to
// dx into a gather, so one thread owns each element of dx and no addition is atomic.
//
//   sampling    y[m] += w_tap sample, a weighted sum of the four pixels around a place
//   dx          dx[h] = sum over taps of w_tap^T (sum over the samples around h of dy[m] weight)
//
// A cell is the square between four pixels, or between fewer pixels at the border. There are (H +
// 1) x (W + 1) cells. Each tap has a list for each cell, with the samples in this cell in the order
// of m, so that two runs give the same bits. A pixel reads the lists of the four cells around it;
// where H W = P Q these lists have about four samples in total.
//
// Steps       count    how long each list is                         integers, atomic
//             scan     where it begins                               [O R S][N][H + 1][W + 1] + 1
//             fill     its samples, in any order                     atomic places
//             order    each sample finds its rank in its list, and writes its entry there
// Memory      16 bytes for each sample and 4 bytes for each list; 8 more bytes while the lists are
//             made. These are about 20 bytes for each (tap, m). The columns of the textbook method
//             take 4 C bytes for each (tap, m)
#pragma once

#include <cstdint>

#include "layers/deform_conv2d/fused/cuda/deform_sampler.cuh"

namespace convscope::deform_cuda {

struct Lists {
  Places places;
  DeformShape sizes;
  int* begin = nullptr;      // [lists]: first counts, then list starts; the last list is empty
  int* place = nullptr;      // [lists]: the position of the next entry
  int* unordered = nullptr;  // [samples]
  Entry* entries = nullptr;  // [samples]
  int* sums = nullptr;       // of blocks of the scan
  unsigned* most = nullptr;  // the longest list
  std::int64_t lists = 0;    // multiple of 4, with at least one more than there are cells
};

inline constexpr int kScanItems = 16;  // of a thread
inline constexpr int kScanBlock = kScanItems * static_cast<int>(kThreads);

// Calls visit(list, place, factor, m) for all samples that read x. Grid: x counts pixels of y, y
// counts keys (pairs of an offset group and a tap).
template <class Half, class Visit>
__device__ inline void for_each_sample(const Lists& z, const Visit& visit) {
  const DeformShape& s = z.sizes;
  const auto key = static_cast<int>(blockIdx.y);
  const int tap = key % s.taps;
  const int step = static_cast<int>(global_threads());
  for (auto m = static_cast<int>(global_thread()); m < s.out_pixels(); m += step) {
    const OutPixel pixel = out_pixel(s, m);
    const Offset offset = read_offset<Half>(z.places, s, pixel, key);
    const Place place = place_of(s, pixel, tap, offset);
    if (place.inside()) {
      const std::int64_t row =
          (static_cast<std::int64_t>(key) * s.images + pixel.image) * (s.in_h + 1) + place.h + 1;
      visit(row * (s.in_w + 1) + place.w + 1, place, offset.factor, m);
    }
    if (m > s.out_pixels() - step) break;  // no overflow of m
  }
}

template <class Half>
__global__ __launch_bounds__(kThreads) void count_samples_kernel(const __grid_constant__ Lists z) {
  for_each_sample<Half>(
      z, [&](std::int64_t list, const Place&, float, int) { atomicAdd(z.begin + list, 1); });
}

template <class Half>
__global__ __launch_bounds__(kThreads) void fill_lists_kernel(const __grid_constant__ Lists z) {
  for_each_sample<Half>(z, [&](std::int64_t list, const Place&, float, int m) {
    z.unordered[atomicAdd(z.place + list, 1)] = m;
  });
}

template <class Half>
__global__ __launch_bounds__(kThreads) void order_lists_kernel(const __grid_constant__ Lists z) {
  for_each_sample<Half>(z, [&](std::int64_t list, const Place& place, float factor, int m) {
    const int begin = z.begin[list];
    const int end = z.begin[list + 1];
    int rank = begin;
    for (int i = begin; i < end; ++i) rank += z.unordered[i] < m ? 1 : 0;
    z.entries[rank] = {m, place.down, place.right, factor};
  });
}

// Loads the counts of this thread in a block of the scan; returns the sum of these counts.
__device__ inline int scan_items(const Lists& z, std::int64_t first, int (&items)[kScanItems]) {
  int sum = 0;
#pragma unroll
  for (int i = 0; i < kScanItems; i += 4) {  // the memory of counts is a multiple of 4
    const int4 four = first + i < z.lists ? *reinterpret_cast<const int4*>(z.begin + first + i)
                                          : make_int4(0, 0, 0, 0);
    items[i] = four.x;
    items[i + 1] = four.y;
    items[i + 2] = four.z;
    items[i + 3] = four.w;
    sum += four.x + four.y + four.z + four.w;
  }
  return sum;
}

// Returns the sum over the threads before this one. `all` receives the sum over the thread block.
__device__ inline int sum_before(int own, int* scratch, int& all) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  int sum = own;
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(offset));
    if (lane >= offset) sum += other;
  }
  __syncthreads();
  if (lane == 31) scratch[warp] = sum;
  __syncthreads();
  int before = 0;
  all = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) {
    if (i < warp) before += scratch[i];
    all += scratch[i];
  }
  return before + sum - own;
}

static __global__ __launch_bounds__(kThreads) void sum_counts_kernel(
    const __grid_constant__ Lists z) {
  __shared__ int scratch[32];
  int items[kScanItems];
  const int own = scan_items(
      z, static_cast<std::int64_t>(blockIdx.x) * kScanBlock + threadIdx.x * kScanItems, items);
  int most = 0;
#pragma unroll
  for (const int item : items) most = max(most, item);
  for (int offset = 16; offset > 0; offset /= 2) {
    most = max(most, __shfl_xor_sync(kAllLanes, most, offset));
  }
  if (threadIdx.x % 32 == 0) atomicMax(z.most, static_cast<unsigned>(most));
  int all = 0;
  sum_before(own, scratch, all);
  if (threadIdx.x == 0) z.sums[blockIdx.x] = all;
}

// One thread block converts the sums of all scan blocks to the positions where these blocks begin.
static __global__ __launch_bounds__(kThreads) void scan_sums_kernel(const __grid_constant__ Lists z,
                                                                    int blocks) {
  __shared__ int scratch[32];
  int begin = 0;
  for (int first = 0; first < blocks; first += static_cast<int>(kThreads)) {
    const int i = first + static_cast<int>(threadIdx.x);
    const int own = i < blocks ? z.sums[i] : 0;
    int all = 0;
    const int before = sum_before(own, scratch, all);
    if (i < blocks) z.sums[i] = begin + before;
    begin += all;
  }
}

static __global__ __launch_bounds__(kThreads) void begin_lists_kernel(
    const __grid_constant__ Lists z) {
  __shared__ int scratch[32];
  int items[kScanItems];
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * kScanBlock + threadIdx.x * kScanItems;
  const int own = scan_items(z, first, items);
  int all = 0;
  int at = z.sums[blockIdx.x] + sum_before(own, scratch, all);
#pragma unroll
  for (int i = 0; i < kScanItems; i += 4) {
    if (first + i >= z.lists) return;
    int four[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      four[j] = at;
      at += items[i + j];
    }
    const int4 out = make_int4(four[0], four[1], four[2], four[3]);
    *reinterpret_cast<int4*>(z.begin + first + i) = out;
    *reinterpret_cast<int4*>(z.place + first + i) = out;
  }
}

}  // namespace convscope::deform_cuda
