// SPDX-License-Identifier: Apache-2.0
// upsample_cpu.cpp: changes the size of images on the CPU. A thread processes whole planes, row by
// row: bilinear means are first taken of two rows, which vectors do well, then of two columns. The
// backward pass does the same in the opposite order, so that no two threads add to one pixel.
#include <algorithm>
#include <vector>

#include "framework/parallel.h"
#include "layers/upsample/upsample.h"

namespace convscope {
namespace {

template <class T>
std::vector<UpsampleTap<T>> taps_of(const UpsampleAxis& axis) {
  std::vector<UpsampleTap<T>> out;
  out.reserve(static_cast<std::size_t>(axis.out));
  for (std::int64_t at = 0; at < axis.out; ++at) out.push_back(axis.tap<T>(at));
  return out;
}

// Calls body(plane, a row of scratch memory of `row` elements) in parallel.
template <class T, class Body>
void for_planes(const UpsampleSizes& size, std::int64_t row, const Body& body) {
  const std::int64_t pixels = size.rows.out * size.columns.out * size.lanes;
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 14) / pixels);
  parallel_for(size.planes, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> scratch(static_cast<std::size_t>(row));
    for (std::int64_t plane = begin; plane < end; ++plane) body(plane, scratch.data());
  });
}

// The lanes of a pixel: a constant, so that the loops over them become vectors.
template <class Body>
void with_lanes(std::int64_t lanes, const Body& body) {
  if (lanes == 1) return body.template operator()<1>();
  CONVSCOPE_CHECK(lanes == 16, "upsample", "expected images in NCHW or NCHW16c, got ", lanes,
                  " lanes");
  body.template operator()<16>();
}

template <int kLanes, class T>
void copy_columns(const T* from, const std::vector<UpsampleTap<T>>& columns, bool doubles, T* to) {
  if (kLanes == 1 && doubles) {
    for (std::size_t j = 0; j < columns.size() / 2; ++j) to[2 * j] = to[2 * j + 1] = from[j];
    return;
  }
  for (const UpsampleTap<T>& tap : columns) {
    for (int l = 0; l < kLanes; ++l) to[l] = from[tap.first * kLanes + l];
    to += kLanes;
  }
}

bool doubles(const UpsampleAxis& axis) { return axis.ratio == 0.5 && axis.out == 2 * axis.in; }

template <int kLanes, class T>
void nearest(const UpsampleSizes& size, const T* x, T* y) {
  const auto rows = taps_of<T>(size.rows), columns = taps_of<T>(size.columns);
  const std::int64_t in = size.columns.in * kLanes, out = size.columns.out * kLanes;
  for_planes<T>(size, 0, [&](std::int64_t plane, T*) {
    const T* const from = x + plane * size.rows.in * in;
    T* to = y + plane * size.rows.out * out;
    for (std::size_t p = 0; p < rows.size(); ++p, to += out) {
      if (p > 0 && rows[p].first == rows[p - 1].first) {
        std::copy_n(to - out, out, to);
      } else {
        copy_columns<kLanes>(from + rows[p].first * in, columns, doubles(size.columns), to);
      }
    }
  });
}

// Each pixel of x adds its readers in reading order.
template <int kLanes, class T>
void nearest_gradient(const UpsampleSizes& size, const T* dy, T* dx) {
  const auto rows = taps_of<T>(size.rows), columns = taps_of<T>(size.columns);
  const std::int64_t in = size.columns.in * kLanes, out = size.columns.out * kLanes;
  const bool by_two = kLanes == 1 && doubles(size.rows) && doubles(size.columns);
  for_planes<T>(size, 0, [&](std::int64_t plane, T*) {
    const T* from = dy + plane * size.rows.out * out;
    T* to = dx + plane * size.rows.in * in;
    if (by_two) {
      for (std::int64_t i = 0; i < size.rows.in; ++i, from += 2 * out, to += in) {
        for (std::int64_t j = 0; j < in; ++j) {
          to[j] = from[2 * j] + from[2 * j + 1] + from[out + 2 * j] + from[out + 2 * j + 1];
        }
      }
      return;
    }
    std::fill_n(to, size.rows.in * in, T{0});
    for (std::size_t p = 0; p < rows.size(); ++p, from += out) {
      T* const row = to + rows[p].first * in;
      for (std::size_t q = 0; q < columns.size(); ++q) {
        for (int l = 0; l < kLanes; ++l) {
          row[columns[q].first * kLanes + l] += from[static_cast<std::int64_t>(q) * kLanes + l];
        }
      }
    }
  });
}

template <int kLanes, class T>
void bilinear(const UpsampleSizes& size, const T* x, T* y) {
  const auto rows = taps_of<T>(size.rows), columns = taps_of<T>(size.columns);
  const std::int64_t in = size.columns.in * kLanes, out = size.columns.out * kLanes;
  for_planes<T>(size, in, [&](std::int64_t plane, T* blend) {
    const T* const from = x + plane * size.rows.in * in;
    T* to = y + plane * size.rows.out * out;
    for (const UpsampleTap<T>& row : rows) {
      const T *const a = from + row.first * in, *const b = from + row.second * in;
      const T rest = T{1} - row.weight;
      for (std::int64_t j = 0; j < in; ++j) blend[j] = rest * a[j] + row.weight * b[j];
      for (const UpsampleTap<T>& column : columns) {
        const T* const left = blend + column.first * kLanes;
        const T* const right = blend + column.second * kLanes;
        for (int l = 0; l < kLanes; ++l) {
          to[l] = (T{1} - column.weight) * left[l] + column.weight * right[l];
        }
        to += kLanes;
      }
    }
  });
}

template <int kLanes, class T>
void bilinear_gradient(const UpsampleSizes& size, const T* dy, T* dx) {
  const auto rows = taps_of<T>(size.rows), columns = taps_of<T>(size.columns);
  const std::int64_t in = size.columns.in * kLanes, out = size.columns.out * kLanes;
  for_planes<T>(size, in, [&](std::int64_t plane, T* blend) {
    const T* from = dy + plane * size.rows.out * out;
    T* const to = dx + plane * size.rows.in * in;
    std::fill_n(to, size.rows.in * in, T{0});
    for (const UpsampleTap<T>& row : rows) {
      std::fill_n(blend, in, T{0});
      for (const UpsampleTap<T>& column : columns) {
        T *const left = blend + column.first * kLanes, *const right =
                                                           blend + column.second * kLanes;
        for (int l = 0; l < kLanes; ++l) {
          left[l] += (T{1} - column.weight) * from[l];
          right[l] += column.weight * from[l];
        }
        from += kLanes;
      }
      T *const a = to + row.first * in, *const b = to + row.second * in;
      const T rest = T{1} - row.weight;
      for (std::int64_t j = 0; j < in; ++j) a[j] += rest * blend[j];
      for (std::int64_t j = 0; j < in; ++j) b[j] += row.weight * blend[j];
    }
  });
}

template <class T>
void upsample_typed(const UpsampleSizes& size, const Tensor& from, const Tensor& to,
                    bool is_gradient) {
  with_lanes(size.lanes, [&]<int kLanes>() {
    const T* const in = from.data<T>();
    T* const out = to.data<T>();
    if (size.rows.mode == UpsampleMode::nearest) {
      return is_gradient ? nearest_gradient<kLanes>(size, in, out) : nearest<kLanes>(size, in, out);
    }
    is_gradient ? bilinear_gradient<kLanes>(size, in, out) : bilinear<kLanes>(size, in, out);
  });
}

void upsample_cpu(const UpsampleSizes& size, const Tensor& x, const Tensor& y) {
  x.dtype() == DType::f64 ? upsample_typed<double>(size, x, y, false)
                          : upsample_typed<float>(size, x, y, false);
}

void upsample_gradient_cpu(const UpsampleSizes& size, const Tensor& dy, const Tensor& dx) {
  dy.dtype() == DType::f64 ? upsample_typed<double>(size, dy, dx, true)
                           : upsample_typed<float>(size, dy, dx, true);
}

}  // namespace
CONVSCOPE_KERNEL(upsample_kernel, cpu, upsample_cpu)
CONVSCOPE_KERNEL(upsample_gradient_kernel, cpu, upsample_gradient_cpu)
}  // namespace convscope
