// SPDX-License-Identifier: Apache-2.0
// tile_table.cuh: a table of tiles inside kernels, and the steps that make a table.
// Read next  tile_table.h; tile_table_cuda.cu, which makes it; tile_products.cuh, which reads it
#pragma once

#include <cstdint>

#include "framework/cuda/launch.cuh"
#include "layers/sparse_conv/shared/cuda/tile_table.h"

namespace convscope::sparse_cuda {

inline Device current_device() {
  int index = 0;
  CONVSCOPE_CUDA(cudaGetDevice(&index));
  return {DeviceType::cuda, static_cast<std::uint8_t>(index)};
}

// Returns the 64-bit count stored in two 32-bit words on a GPU; waits for the GPU.
std::int64_t count_on_host(const Tensor& words);

template <class T>
T* data_of(const Tensor& tensor) {
  return static_cast<T*>(tensor.raw_data());
}

struct TableView {
  const unsigned* entries = nullptr;
  const unsigned* unit_words = nullptr;
  const int* order = nullptr;
  int slots = 0, taps = 0, run = 1;
  int first_tap = 0, end_tap = 0, first_row = 0, rows = 0, words = 1, centre = -1;
  bool descending = false, mirrored = false;

  TableView(const TileTable& t, bool mirror)
      : entries(reinterpret_cast<const unsigned*>(t.entries.data<std::int32_t>())),
        unit_words(reinterpret_cast<const unsigned*>(t.unit_words.data<std::int32_t>())),
        order(t.order.defined() ? t.order.data<std::int32_t>() : nullptr),
        slots(static_cast<int>(t.slots)),
        taps(t.taps),
        run(t.run),
        first_tap(t.part.first),
        end_tap(t.part.end),
        first_row(t.part.first_row),
        rows(t.part.rows),
        words(t.words),
        centre(t.centre),
        descending(t.descending),
        mirrored(mirror) {}

  // Returns the tap whose weights tap t has.
  __device__ int weight_tap(int t) const { return mirrored ? taps - 1 - t : t; }
};

// One tap inside an entry: its row of entries, its bit, and the mask of the bits before it.
struct TapPlace {
  int row = 0;
  unsigned bit = 0, before = 0;
};
__device__ inline TapPlace tap_place(const TableView& z, int tap) {
  const int row = tap / z.run;
  const unsigned bit = 1u << (tap - row * z.run);
  const unsigned all = (1u << z.run) - 1;
  return {row - z.first_row, bit, z.descending ? all & ~(2 * bit - 1) : bit - 1};
}

// Returns the neighbour of an entry at a tap, or -1.
__device__ inline int neighbour(const TableView& z, unsigned entry, const TapPlace& tap) {
  if ((entry & tap.bit) == 0) return -1;
  return static_cast<int>(entry >> z.run) + __popc(entry & tap.before);
}

// The first step of making a table: returns the entries of a map (map.h) for the taps of `part`, on
// the current GPU. The result is i32 [rows of taps, sites of look.here], in the order of the sites.
// Does not wait for the GPU.
Tensor find_entries(const SparseLook& look, const SparseKernel& kernel, const PartTaps& part);

// Sorts 32-bit keys with their values. The sort is stable, so the result is the same on each run.
// All keys must be below 2^bits, and n below 2^31. Does not wait for the GPU.
void sort_by_key(const std::uint32_t* keys, std::uint32_t* sorted_keys, const std::int32_t* values,
                 std::int32_t* sorted_values, std::int64_t n, int bits);

}  // namespace convscope::sparse_cuda
