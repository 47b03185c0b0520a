// SPDX-License-Identifier: Apache-2.0
// block_sparse_lists_cuda.cu: makes the lists of block_sparse_lists.cuh in one launch with a block
// of threads for each list.
// Read next  block_sparse_lists.cuh, which defines them
#include "layers/conv2d/block_sparse/cuda/block_sparse_lists.cuh"

namespace convscope::block_sparse {
namespace {

// Grid: x = list.
__global__ __launch_bounds__(kListThreads) void write_lists_kernel(
    const __grid_constant__ MakeLists z) {
  auto* const marks = dynamic_shared<unsigned>();
  __shared__ int scratch[32];
  const int words = ceil_div(z.columns, 32);
  int* const before = reinterpret_cast<int*>(marks + words);
  const auto list = static_cast<int>(blockIdx.x);
  const auto thread = static_cast<int>(threadIdx.x);
  const int first = first_chunk_of(z, list, scratch);
  mark_columns(z, list, marks, words);
  const int count = count_marks(marks, words, before);
  const int chunks = ceil_div(count, kChunk);
  if (thread == 0) {
    z.to.begin[list] = first;
    z.to.end[list] = first + chunks;
  }
  Entry* const entries = z.to.entries + static_cast<std::int64_t>(first) * kChunk;
  for (int i = count + thread; i < chunks * kChunk; i += kListThreads) entries[i] = {0, -1};
  for (int i = thread; i < z.columns; i += kListThreads) {
    if ((marks[i / 32] & 1u << (i % 32)) == 0) continue;
    const int tap = i % z.taps;
    entries[entries_before(marks, before, i)] = {
        i / z.taps * z.plane + tap / z.taps_w * z.down + tap % z.taps_w * z.right, tap};
  }
  if (z.to.marks != nullptr) {
    const std::int64_t words_before = static_cast<std::int64_t>(list) * words;
    for (int i = thread; i < words; i += kListThreads) {
      z.to.marks[words_before + i] = marks[i];
      z.to.before[words_before + i] = before[i];
    }
  }
  if (z.to.values == nullptr) return;
  float* const values = z.to.values + static_cast<std::int64_t>(first) * kChunk * kRows;
  for (int i = thread; i < chunks * kChunk * kRows; i += kListThreads) values[i] = 0;
  __syncthreads();
  for_each_value(z, list, [&](int column, int row, float value) {
    values[value_place(entries_before(marks, before, column), row)] = value;
  });
}

}  // namespace

void make_lists(const Conv2dProblem& z, const BlockSparseView& w, const Lists& lists) {
  MakeLists make = lists_of(z, w);
  make.to = lists;
  make.plane = narrow(z.h * z.w);
  make.down = narrow(z.dilation_h * z.w);
  make.right = narrow(z.dilation_w);
  launch(write_lists_kernel, shape_of(make), make);
}

}  // namespace convscope::block_sparse
