// SPDX-License-Identifier: Apache-2.0
// pixel_readers.cuh: lists of the taps that read each pixel of x (its readers), so that dx can be
// gathered. A scatter to dx needs atomic additions of floats, whose order differs on each run. Here
// each pixel adds up its readers in the order of their numbers, so the bits are always the same.
//
//   A cell (h,w) is the square between pixels (h,w) and (h+1,w+1). A tap samples in one cell and
//   reads its four corners. So pixel (h,w) is read from the four cells around it, and is
//     corner 3 of (h-1,w-1)   corner 2 of (h-1,w)
//     corner 1 of (h,w-1)     corner 0 of (h,w)
//
// A lot is one image and one offset group. It has R S P Q taps, numbered t P Q + (pixel of y), in
// at most (H+1)(W+1) cells. Taps outside of the image are in no list. Four kernels make the lists:
//   count   how many taps each cell has                          integers: any order, same counts
//   begins  where the list of each cell begins: sums of counts   a block for each lot
//   fill    each tap goes into its list                          in a random order
//   rank    each tap counts lower numbers in its list: its position in the order
// The lists are short (about R S taps at stride 1). In the worst case all taps sample in one cell;
// then each tap compares its number with those of all R S P Q taps.
#pragma once

#include "layers/deform_conv2d/place.cuh"

namespace convscope::deform {

struct PixelReaders {
  Index lots;      // images * O
  int taps;        // of a lot: R S P Q
  int cells;       // of a lot: (H+1)(W+1), those of row -1 and of column -1 included
  int* cell;       // [lots,taps]  the cell of each tap, -1: outside
  int* end;        // [lots,cells] of each list, where the next one begins
  int* unordered;  // [lots,taps]
  int* tap;        // [lots,taps]  the lists, in order
  float* weight;   // [lots,taps,4]  for each entry of `tap`: mask * weight, for each corner

  // Places the arrays in memory of bytes(z, images).
  PixelReaders(const DeformConv2dProblem& z, Index images, void* memory)
      : lots(images * z.offset_groups),
        taps(int(z.taps() * z.p() * z.q())),
        cells(int((z.h + 1) * (z.w + 1))) {
    weight = static_cast<float*>(memory);
    tap = reinterpret_cast<int*>(weight + lots * taps * 4);
    cell = tap + lots * taps;
    unordered = cell + lots * taps;
    end = unordered + lots * taps;
  }
  static std::size_t bytes(const DeformConv2dProblem& z, Index images) {
    const Index tap_bytes = z.taps() * z.p() * z.q() * Index(4 * sizeof(float) + 3 * sizeof(int));
    const Index cell_bytes = (z.h + 1) * (z.w + 1) * Index(sizeof(int));
    return static_cast<std::size_t>(images * z.offset_groups * (tap_bytes + cell_bytes));
  }

  __device__ int begin_of(Index lot, int at) const {
    return at == 0 ? 0 : end[lot * cells + at - 1];
  }
};

__device__ inline int cell_of(const DeviceSizes& z, const DevicePlace& at) {
  return at.inside() ? (at.row() + 1) * (z.w + 1) + at.column() + 1 : -1;
}

template <class T>
__device__ DeviceTap<T> tap_of(const DeviceSizes& z, const T* offset, const T* mask, Index first,
                               Index lot, int number) {
  return DeviceTap<T>(z, offset, mask, first + lot / z.offset_groups,
                      static_cast<int>(lot % z.offset_groups), number / z.pixels,
                      number % z.pixels);
}

static __global__ void zero_cells_kernel(PixelReaders to) {
  for (Index i = global_thread(); i < to.lots * to.cells; i += global_threads()) to.end[i] = 0;
}

// `first`: the image of lot 0.
template <class T>
__global__ void count_kernel(DeviceSizes z, PixelReaders to, Index first, const T* offset,
                             const T* mask) {
  for (Index i = global_thread(); i < to.lots * to.taps; i += global_threads()) {
    const Index lot = i / to.taps;
    const int number = static_cast<int>(i % to.taps);
    const int cell = cell_of(z, tap_of(z, offset, mask, first, lot, number).place);
    to.cell[i] = cell;
    if (cell >= 0) atomicAdd(&to.end[lot * to.cells + cell], 1);
  }
}

constexpr int kCellsAtOnce = 4;  // of a thread

// Converts the counts of cells to the positions where their lists begin. A thread block processes
// one lot, kThreads * kCellsAtOnce cells at a time.
static __global__ void begins_kernel(PixelReaders to) {
  __shared__ int sums[kThreads];
  const int i = static_cast<int>(threadIdx.x);
  for (Index lot = blockIdx.x; lot < to.lots; lot += gridDim.x) {
    int* const count = to.end + lot * to.cells;
    int before = 0;
    for (int first = 0; first < to.cells; first += int(kThreads) * kCellsAtOnce) {
      const int begin = min(first + i * kCellsAtOnce, to.cells);
      const int behind = min(begin + kCellsAtOnce, to.cells);
      int own = 0;
      for (int at = begin; at < behind; ++at) own += count[at];
      sums[i] = own;
      __syncthreads();
      for (int step = 1; step < int(kThreads); step *= 2) {  // sums of threads 0 to i
        const int more = i >= step ? sums[i - step] : 0;
        __syncthreads();
        sums[i] += more;
        __syncthreads();
      }
      int at_cell = before + sums[i] - own;
      before += sums[kThreads - 1];
      for (int at = begin; at < behind; ++at) {
        const int taps = count[at];
        count[at] = at_cell;
        at_cell += taps;
      }
      __syncthreads();  // the sums are written over next
    }
  }
}

// Adds each tap to its list. The begin of a list thereby advances to the end of the list.
static __global__ void fill_kernel(PixelReaders to) {
  for (Index i = global_thread(); i < to.lots * to.taps; i += global_threads()) {
    if (to.cell[i] < 0) continue;
    const Index lot = i / to.taps;
    const int at = atomicAdd(&to.end[lot * to.cells + to.cell[i]], 1);
    to.unordered[lot * to.taps + at] = static_cast<int>(i % to.taps);
  }
}

template <class T>
__global__ void rank_kernel(DeviceSizes z, PixelReaders to, Index first, const T* offset,
                            const T* mask) {
  for (Index i = global_thread(); i < to.lots * to.taps; i += global_threads()) {
    const int cell = to.cell[i];
    if (cell < 0) continue;
    const Index lot = i / to.taps;
    const int number = static_cast<int>(i % to.taps);
    const int begin = to.begin_of(lot, cell), end = to.end[lot * to.cells + cell];
    int before = 0;
    for (int at = begin; at < end; ++at) before += to.unordered[lot * to.taps + at] < number;
    const DeviceTap<T> tap = tap_of(z, offset, mask, first, lot, number);
    const Index at = lot * to.taps + begin + before;
    to.tap[at] = number;
#pragma unroll
    for (int corner = 0; corner < 4; ++corner) {
      to.weight[at * 4 + corner] = tap.factor * tap.place.weight(corner);
    }
  }
}

// Makes the lists of `images` images from `first` on.
template <class T>
void find_readers(const DeformConv2dProblem& problem, const PixelReaders& to, Index first,
                  const T* offset, const T* mask) {
  const DeviceSizes z(problem);
  const LaunchShape taps = grid_for(to.lots * to.taps);
  launch(zero_cells_kernel, grid_for(to.lots * to.cells), to);
  launch(count_kernel<T>, taps, z, to, first, offset, mask);
  launch(begins_kernel,
         {.grid = dim3(static_cast<unsigned>(to.lots < 65535 ? to.lots : 65535)),
          .block = dim3(kThreads)},
         to);
  launch(fill_kernel, taps, to);
  launch(rank_kernel<T>, taps, z, to, first, offset, mask);
}

// Calls visit(tap, weight) for the readers of pixel (h,w) of a lot, in an order that never changes.
template <class Visit>
__device__ void for_each_reader(const DeviceSizes& z, const PixelReaders& from, Index lot, int h,
                                int w, const Visit& visit) {
#pragma unroll
  for (int corner = 3; corner >= 0; --corner) {
    const int cell = (h + 1 - corner / 2) * (z.w + 1) + w + 1 - corner % 2;
    const Index list = lot * from.taps;
    const int end = from.end[lot * from.cells + cell];
    for (int at = from.begin_of(lot, cell); at < end; ++at) {
      visit(from.tap[list + at], from.weight[(list + at) * 4 + corner]);
    }
  }
}

}  // namespace convscope::deform
