// SPDX-License-Identifier: Apache-2.0
// update_cpu.cpp: processes the table of parameters in chunks. f32 rows use the kernels of the
// instruction set (update_simd.cpp). f64 rows use the plain loops here, which also serve as the
// lesson.
#include <convscope/update_rules.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "framework/int_math.h"
#include "framework/memory/memory.h"
#include "framework/parallel.h"
#include "optim/update.h"

namespace convscope {
namespace {

// A chunk is a few microseconds of work, about the time to wake a second thread: 64 Ki elements x
// 20 bytes (w, dw, m read; w, m written) = 1.3 MB. LeNet-5 (44,426 elements) is one chunk.
constexpr std::int64_t kChunkElements = std::int64_t{1} << 16;

std::int64_t chunk_count(const UpdateTable& table) {
  return ceil_div(table.elements(), kChunkElements);
}

// Calls piece(row, begin, count) in order for each row that overlaps the chunk, with the range of
// the row's elements that is inside the chunk.
template <class Piece>
void for_each_piece(const UpdateTable& table, std::int64_t chunk, Piece&& piece) {
  const std::int64_t begin = chunk * kChunkElements;
  const std::int64_t end = std::min(begin + kChunkElements, table.elements());
  const std::vector<UpdateRow>& rows = table.rows();
  auto row = std::upper_bound(rows.begin(), rows.end(), begin,
                              [](std::int64_t at, const UpdateRow& r) { return at < r.begin; });
  for (--row; row != rows.end() && row->begin < end; ++row) {
    const std::int64_t from = std::max(begin, row->begin) - row->begin;
    const std::int64_t to = std::min(end, row->begin + row->count) - row->begin;
    if (to > from) piece(*row, from, to - from);
  }
}

template <class T>
T* at(void* data, std::int64_t offset) {
  return data == nullptr ? nullptr : static_cast<T*>(data) + offset;
}

struct DoubleMath {
  using Value = double;
  static double number(double x) { return x; }
  static double fma(double a, double b, double c) { return a * b + c; }
  static double mul_sub(double a, double b, double c) { return a * b - c; }
  static double sqrt(double x) { return std::sqrt(x); }
  static double sign(double x) { return (x > 0) - (x < 0); }
};

template <class Rule>
void update_f64(const UpdateRow& row, std::int64_t begin, std::int64_t count, const Rule& rule) {
  const typename Rule::template Step<DoubleMath> step(row.scalars.as<typename Rule::Scalars>(),
                                                      rule);
  double* w = at<double>(row.w, begin);
  const double* dw = static_cast<const double*>(row.dw) + begin;
  const bool has_states = row.state[0] != nullptr;
  for (std::int64_t i = 0; i < count; ++i) {
    double state[Rule::kStates];
    for (int k = 0; k < Rule::kStates; ++k) {
      state[k] = has_states ? at<double>(row.state[k], begin)[i] : 0.0;
    }
    step.run(w[i], dw[i], state);
    for (int k = 0; k < Rule::kStates && has_states; ++k) {
      at<double>(row.state[k], begin)[i] = state[k];
    }
  }
}

void follow(const UpdateRow& row, void* to, std::int64_t begin, std::int64_t count, double rate) {
  if (row.dtype != DType::f64) {
    return update_kernels.get().follow(at<float>(to, begin), at<float>(row.w, begin), count, rate);
  }
  double* const x = at<double>(to, begin);
  const double* const w = at<double>(row.w, begin);
  for (std::int64_t i = 0; i < count; ++i) x[i] += rate * (w[i] - x[i]);
}

// Moves the copies of the weights. The chunk's weights are still in the cache.
void move_slow_weights(const UpdateTable& table, const UpdateRow& row, std::int64_t begin,
                       std::int64_t count) {
  if (row.slow != nullptr && row.scalars.value[kMovesSlowWeights] != 0) {
    follow(row, row.slow, begin, count, table.alpha());
    const auto bytes = static_cast<std::size_t>(size_of(row.dtype));
    const auto offset = static_cast<std::size_t>(begin) * bytes;
    std::memcpy(static_cast<char*>(row.w) + offset, static_cast<char*>(row.slow) + offset,
                static_cast<std::size_t>(count) * bytes);
  }
  if (row.average != nullptr) follow(row, row.average, begin, count, table.average_rate());
}

void update_cpu(const UpdateTable& table) {
  visit_rule(UpdateRules{}, table.rule(), [&]<class Rule>(const Rule& rule) {
    UpdateLoop* const loop = update_kernels.get().update[table.rule().index];
    parallel_chunks(chunk_count(table), [&](std::int64_t chunk, int) {
      for_each_piece(table, chunk,
                     [&](const UpdateRow& row, std::int64_t begin, std::int64_t count) {
                       if (row.dw == nullptr) {
                       } else if (row.dtype == DType::f64) {
                         update_f64(row, begin, count, rule);
                       } else {
                         loop(row, begin, count, &rule);
                       }
                       move_slow_weights(table, row, begin, count);
                     });
    });
  });
}

double gradient_norm_cpu(const UpdateTable& table) {
  const std::int64_t chunks = chunk_count(table);
  const Workspace workspace(Device{}, static_cast<std::size_t>(chunks) * sizeof(double));
  double* const sums = static_cast<double*>(workspace.data());
  const auto kernel = update_kernels.get().square_sum;
  parallel_chunks(chunks, [&](std::int64_t chunk, int) {
    double sum = 0;
    for_each_piece(table, chunk, [&](const UpdateRow& row, std::int64_t begin, std::int64_t count) {
      if (row.dtype == DType::f64) {
        const double* dw = static_cast<const double*>(row.dw) + begin;
        for (std::int64_t i = 0; i < count; ++i) sum += dw[i] * dw[i];
      } else {
        sum += kernel(static_cast<const float*>(row.dw) + begin, count);
      }
    });
    sums[chunk] = sum;
  });
  double total = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) total += sums[chunk];
  return std::sqrt(total);
}

void scale_gradients_cpu(const UpdateTable& table, double factor) {
  const auto kernel = update_kernels.get().scale;
  parallel_chunks(chunk_count(table), [&](std::int64_t chunk, int) {
    for_each_piece(table, chunk, [&](const UpdateRow& row, std::int64_t begin, std::int64_t count) {
      void* dw = const_cast<void*>(row.dw);
      if (row.dtype == DType::f64) {
        double* x = at<double>(dw, begin);
        for (std::int64_t i = 0; i < count; ++i) x[i] *= factor;
      } else {
        kernel(at<float>(dw, begin), count, static_cast<float>(factor));
      }
    });
  });
}

}  // namespace
CONVSCOPE_KERNEL(update_kernel, cpu, update_cpu)
CONVSCOPE_KERNEL(gradient_norm_kernel, cpu, gradient_norm_cpu)
CONVSCOPE_KERNEL(scale_gradients_kernel, cpu, scale_gradients_cpu)
}  // namespace convscope
