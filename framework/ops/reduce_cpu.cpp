// SPDX-License-Identifier: Apache-2.0
// reduce_cpu.cpp: sums over a set of axes. In f32, such a sum consists of sums of rows or columns
// (reduce_simd.cpp); f64 uses plain loops. Chunks depend only on the sizes, so any number of
// threads gives the same bits.
#include <algorithm>

#include "framework/int_math.h"
#include "framework/memory/memory.h"
#include "framework/ops/broadcast.h"
#include "framework/ops/reduce.h"
#include "framework/ops/reduce_simd.h"
#include "framework/parallel.h"

namespace convscope {

constinit IsaTable<ReduceKernels> reduce_kernels;

namespace {

constexpr std::int64_t kGrain = 1 << 15;

// A group consists of adjacent axes that are all kept or all summed. Groups alternate between kept
// and summed.
struct Groups {
  int count = 0;
  std::int64_t size[Shape::kMaxRank] = {};
  std::int64_t stride[Shape::kMaxRank] = {};
  bool summed[Shape::kMaxRank] = {};

  Groups(const Shape& shape, unsigned mask) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape[axis] == 1) continue;
      const bool is_summed = (mask >> axis & 1u) != 0;
      if (count > 0 && summed[count - 1] == is_summed) {
        size[count - 1] *= shape[axis];
      } else {
        size[count] = shape[axis];
        summed[count++] = is_summed;
      }
      stride[count - 1] = shape.stride(axis);
    }
  }
};

// Several groups, treated as one index.
struct Part {
  int count = 0;
  std::int64_t size[Shape::kMaxRank] = {};
  std::int64_t stride[Shape::kMaxRank] = {};
  std::int64_t total = 1;

  void add(std::int64_t n, std::int64_t step) {
    size[count] = n;
    stride[count++] = step;
    total *= n;
  }
  std::int64_t offset(std::int64_t index) const {
    std::int64_t out = 0;
    for (int i = count - 1; i >= 0; --i) {
      out += index % size[i] * stride[i];
      index /= size[i];
    }
    return out;
  }
};

void sum_everything(const float* x, std::int64_t n, float* y) {
  const auto row_sum = reduce_kernels.get().row_sum;
  const std::int64_t chunks = ceil_div(n, kGrain);
  const Workspace workspace(Device{}, static_cast<std::size_t>(chunks) * sizeof(double));
  auto* const parts = static_cast<double*>(workspace.data());
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    parts[begin / kGrain] = row_sum(x + begin, end - begin);
  });
  double total = 0;
  for (std::int64_t i = 0; i < chunks; ++i) total += parts[i];
  *y = static_cast<float>(total);
}

void sum_f32(const Shape& shape, unsigned mask, const float* x, float* y) {
  const Groups groups(shape, mask);
  const int last = groups.count - 1;
  if (groups.count <= 1 && (groups.count == 0 || groups.summed[0])) {
    return sum_everything(x, shape.numel(), y);
  }
  const ReduceKernels& kernels = reduce_kernels.get();
  Part kept;
  Part summed;  // the innermost summed group is missing: the kernels loop over it
  const int inner = groups.summed[last] ? last : last - 1;
  for (int i = 0; i < last; ++i) {
    if (i == inner) continue;
    (groups.summed[i] ? summed : kept).add(groups.size[i], groups.stride[i]);
  }
  if (groups.summed[last]) {
    const std::int64_t row = groups.size[last];
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / (row * summed.total));
    parallel_for(kept.total, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; ++k) {
        const float* from = x + kept.offset(k);
        double total = 0;
        for (std::int64_t s = 0; s < summed.total; ++s) {
          total += kernels.row_sum(from + summed.offset(s), row);
        }
        y[k] = static_cast<float>(total);
      }
    });
    return;
  }
  const std::int64_t columns = groups.size[last];
  if (inner < 0) {  // nothing is summed
    std::copy(x, x + columns, y);
    return;
  }
  const std::int64_t rows = groups.size[inner];
  // Each chunk sums a tile of adjacent columns, at least one cache line wide.
  const std::int64_t width =
      std::min(columns, std::max<std::int64_t>(64, kGrain / (rows * summed.total) / 64 * 64));
  const std::int64_t tiles = ceil_div(columns, width);
  parallel_chunks(kept.total * tiles, [&](std::int64_t chunk, int) {
    const std::int64_t k = chunk / tiles;
    const std::int64_t begin = chunk % tiles * width;
    const float* from = x + kept.offset(k) + begin;
    for (std::int64_t s = 0; s < summed.total; ++s) {
      kernels.column_sum(from + summed.offset(s), rows, groups.stride[inner],
                         std::min(width, columns - begin), y + k * columns + begin, s > 0);
    }
  });
}

Shape with_ones(const Shape& shape, unsigned mask) {
  Shape out = shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if ((mask >> axis & 1u) != 0) out.set(axis, 1);
  }
  return out;
}

void sum_f64(const Shape& shape, unsigned mask, const double* x, double* y) {
  const BroadcastWalk walk(with_ones(shape, mask), shape, shape);
  const std::int64_t step = walk.stride_a[walk.rank - 1];
  walk.run(0, shape.numel(), [&](std::int64_t oy, std::int64_t, std::int64_t ox, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) y[oy + i * step] += x[ox + i];
  });
}

void sum_cpu(const Tensor& x, unsigned mask, const Tensor& y) {
  if (x.numel() == 0 || x.dtype() == DType::f64) y.zero();
  if (x.numel() == 0) return;
  if (x.dtype() == DType::f64) {
    return sum_f64(x.shape(), mask, x.data<double>(), y.data<double>());
  }
  sum_f32(x.shape(), mask, x.data<float>(), y.data<float>());
}

template <class T>
void max_typed(const Tensor& x, unsigned mask, const Tensor& y, const Tensor& places) {
  const T* const px = x.data<T>();
  T* const py = y.data<T>();
  auto* const place = places.data<std::int32_t>();
  std::fill(place, place + places.numel(), -1);
  const BroadcastWalk walk(with_ones(x.shape(), mask), x.shape(), x.shape());
  const std::int64_t step = walk.stride_a[walk.rank - 1];
  walk.run(0, x.numel(), [&](std::int64_t oy, std::int64_t, std::int64_t ox, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t to = oy + i * step;
      const T value = px[ox + i];
      const bool first_nan = value != value && !(py[to] != py[to]);
      if (place[to] >= 0 && !(value > py[to]) && !first_nan) continue;
      py[to] = value;
      place[to] = static_cast<std::int32_t>(ox + i);
    }
  });
}

void max_cpu(const Tensor& x, unsigned mask, const Tensor& y, const Tensor& places) {
  if (x.dtype() == DType::f64) return max_typed<double>(x, mask, y, places);
  max_typed<float>(x, mask, y, places);
}

template <class T>
void scatter_typed(const Tensor& dy, const Tensor& places, const Tensor& dx) {
  const T* const from = dy.data<T>();
  const auto* const place = places.data<std::int32_t>();
  T* const to = dx.data<T>();
  dx.zero();
  for (std::int64_t i = 0; i < dy.numel(); ++i) to[place[i]] = from[i];
}

void scatter_cpu(const Tensor& dy, const Tensor& places, const Tensor& dx) {
  if (dy.dtype() == DType::f64) return scatter_typed<double>(dy, places, dx);
  scatter_typed<float>(dy, places, dx);
}

}  // namespace
CONVSCOPE_KERNEL(sum_kernel, cpu, sum_cpu)
CONVSCOPE_KERNEL(max_kernel, cpu, max_cpu)
CONVSCOPE_KERNEL(max_gradient_kernel, cpu, scatter_cpu)
}  // namespace convscope
