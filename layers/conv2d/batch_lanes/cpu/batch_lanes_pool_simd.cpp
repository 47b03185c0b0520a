// SPDX-License-Identifier: Apache-2.0
// batch_lanes_pool_simd.cpp: 2x2 max-pool, ReLU and their gradients, with samples in the vector
// lanes. batch_lanes.h describes each function.
//
// Method     Rows are processed in vectors. When one vector holds Ratio pixels, two vectors are
//            split into even and odd pixels, pooled, and interleaved again. The rest of a row is
//            processed pixel by pixel.
// Read next  batch_lanes_simd.cpp, which convolves and pools in one pass;
//            batch_lanes_pooled_simd.cpp
#include "layers/conv2d/batch_lanes/cpu/batch_lanes_parts.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

// Pools one lane of one 2x2 window.
void pool_lane(const float* above, const float* below, Index lanes, bool relu, float* y,
               std::uint8_t* winner) {
  const float values[4] = {above[0], above[lanes], below[0], below[lanes]};
  int best = 0;
  for (int i = 1; i < 4; ++i) {
    if (values[i] > values[best] || values[i] != values[i]) best = i;
  }
  const bool cut = relu && values[best] <= 0.0f;
  *y = cut ? 0.0f : values[best];
  *winner = cut ? kNoWinner : static_cast<std::uint8_t>(best);
}

template <int Ratio>
void pool_rows(Index planes, Index h, Index w, Index lanes, bool relu, const float* x, float* y,
               std::uint8_t* winners) {
  const Index y_row = w / 2 * lanes;
  for (Index plane = 0; plane < planes; ++plane) {
    for (Index p = 0; p < h / 2; ++p, y += y_row, winners += y_row) {
      const float* const above = x + (plane * h + 2 * p) * w * lanes;
      const float* const below = above + w * lanes;
      Index i = 0;
      for (; i + kWide <= y_row; i += kWide) {
        // If a pixel has one or more vectors, `next` is the right neighbour of pixel `at`. If a
        // vector holds several pixels (Ratio > 1), `next` is the following vector.
        const Index at = Ratio > 1 ? 2 * i : i / lanes * 2 * lanes + i % lanes;
        const Index next = at + (Ratio > 1 ? kWide : lanes);
        const Wide a = wide::load(above + at), b = wide::load(above + next);
        const Wide c = wide::load(below + at), d = wide::load(below + next);
        store_largest(even_pixels<Ratio>(a, b), odd_pixels<Ratio>(a, b), even_pixels<Ratio>(c, d),
                      odd_pixels<Ratio>(c, d), relu, false, y + i, winners + i);
      }
      for (; i < y_row; ++i) {
        const Index at = i / lanes * 2 * lanes + i % lanes;
        pool_lane(above + at, below + at, lanes, relu, y + i, winners + i);
      }
    }
  }
}

// Computes dx of one plane. If `sum` is not null, adds to it the gradients of all windows whose
// ReLU output was not 0.
template <int Ratio>
CONVSCOPE_INLINE void unpool_plane(Index h, Index w, Index lanes, const float* dy,
                                   const std::uint8_t* winners, float* dx, Wide* sum) {
  const Index y_row = w / 2 * lanes;
  Wide all = no_wide();
  float rest[16] = {};
  for (Index p = 0; p < h / 2; ++p, dy += y_row, winners += y_row) {
    float* const above = dx + 2 * p * w * lanes;
    float* const below = above + w * lanes;
    Index i = 0;
    for (; i + kWide <= y_row; i += kWide) {
      const Index at = Ratio > 1 ? 2 * i : i / lanes * 2 * lanes + i % lanes;
      const Index next = at + (Ratio > 1 ? kWide : lanes);
      const Wide value = wide::load(dy + i);
      const wide::Taps winner = wide::load_taps(winners + i);
      const Wide a = keep(won(winner, 0), value), b = keep(won(winner, 1), value);
      const Wide c = keep(won(winner, 2), value), d = keep(won(winner, 3), value);
      store(above + at, weave_first<Ratio>(a, b));
      store(above + next, weave_second<Ratio>(a, b));
      store(below + at, weave_first<Ratio>(c, d));
      store(below + next, weave_second<Ratio>(c, d));
      all = all + choose(won(winner, kNoWinner), value, no_wide());
    }
    for (; i < y_row; ++i) {
      const Index at = i / lanes * 2 * lanes + i % lanes;
      const int winner = winners[i];
      above[at] = winner == 0 ? dy[i] : 0.0f;
      above[at + lanes] = winner == 1 ? dy[i] : 0.0f;
      below[at] = winner == 2 ? dy[i] : 0.0f;
      below[at + lanes] = winner == 3 ? dy[i] : 0.0f;
      rest[i % lanes] += winners[i] == kNoWinner ? 0.0f : dy[i];
    }
    if (w % 2 != 0) {
      clear(above + (w - 1) * lanes, lanes);
      clear(below + (w - 1) * lanes, lanes);
    }
  }
  if (h % 2 != 0) clear(dx + (h - 1) * w * lanes, w * lanes);
  for (Index i = 0; i < 16; i += kWide) all = all + wide::load(rest + i);
  *sum = all;
}

template <int Ratio>
void unpool(Index planes, Index h, Index w, Index lanes, const float* dy,
            const std::uint8_t* winners, float* dx, float* sums) {
  for (Index plane = 0; plane < planes; ++plane) {
    const Index at = plane * (h / 2) * (w / 2) * lanes;
    Wide sum;
    unpool_plane<Ratio>(h, w, lanes, dy + at, winners + at, dx + plane * h * w * lanes, &sum);
    if (sums != nullptr) {
      float* const to = sums + plane * kWide;
      store(to, wide::load(to) + sum);
    }
  }
}

void unpool(Index planes, Index h, Index w, Index lanes, const float* dy,
            const std::uint8_t* winners, float* dx, float* sums) {
  switch (kWide / lanes) {
    case 2:
      return unpool<2>(planes, h, w, lanes, dy, winners, dx, sums);
    case 4:
      return unpool<4>(planes, h, w, lanes, dy, winners, dx, sums);
    default:
      return unpool<1>(planes, h, w, lanes, dy, winners, dx, sums);
  }
}

}  // namespace

void max_pool2x2(Index planes, Index h, Index w, int lanes, bool relu, const float* x, float* y,
                 std::uint8_t* winners) {
  switch (kWide / lanes) {
    case 2:
      return pool_rows<2>(planes, h, w, lanes, relu, x, y, winners);
    case 4:
      return pool_rows<4>(planes, h, w, lanes, relu, x, y, winners);
    default:
      return pool_rows<1>(planes, h, w, lanes, relu, x, y, winners);
  }
}

namespace {

void relu_backward(const float* dy, const float* y, Index count, float* dx) {
  Index i = 0;
  for (; i + kWide <= count; i += kWide) {
    store(dx + i, keep(passes_relu(wide::load(y + i)), wide::load(dy + i)));
  }
  for (; i < count; ++i) dx[i] = y[i] <= 0.0f ? 0.0f : dy[i];
}

}  // namespace

void output_gradient(const LanesConv& z, const float* dy, const float* y,
                     const std::uint8_t* winners, float* dz, float* sums) {
  float* const bias = sums == nullptr ? nullptr : sums + z.k * z.c * z.r * z.s * kWide;
  if (z.pool2x2) {
    unpool(z.k, z.conv_p, z.conv_q, z.lanes, dy, winners, dz, bias);
    return;
  }
  const Index plane = z.conv_p * z.conv_q * z.lanes;
  if (z.relu) {
    relu_backward(dy, y, z.k * plane, dz);
    dy = dz;
  }
  if (bias == nullptr) return;
  for (Index k = 0; k < z.k; ++k) {
    const float* const from = dy + k * plane;
    Wide all = wide::load(bias + k * kWide);
    Index i = 0;
    for (; i + kWide <= plane; i += kWide) all = all + wide::load(from + i);
    if (i < plane) all = all + wide::load_first(from + i, static_cast<int>(plane - i));
    store(bias + k * kWide, all);
  }
}

}  // namespace convscope::CONVSCOPE_ISA
