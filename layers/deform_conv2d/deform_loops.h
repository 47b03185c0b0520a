// SPDX-License-Identifier: Apache-2.0
// deform_loops.h: deformable convolution in plain loops with double sums, in all directions. The
// algorithm `reference` uses these loops. With `Sign::magnitudes` they compute the sums to which
// error bounds are relative: x, w, dy, the mask and the derivatives of the bilinear weights are
// replaced by their magnitudes. The sampling positions do not change.
#pragma once

#include <cmath>
#include <vector>

#include "framework/parallel.h"
#include "layers/deform_conv2d/algorithm.h"
#include "layers/deform_conv2d/place.h"

namespace convscope::deform {

enum class Sign { values, magnitudes };

template <Sign kSign, class T>
double number(T x) {
  const auto value = static_cast<double>(x);
  return kSign == Sign::magnitudes ? std::abs(value) : value;
}

// Calls visit(c, r, s, tap) for the taps of output pixel (p,q) and the channels of weight group g.
template <class T, class Visit>
void for_each_tap(const DeformConv2dProblem& z, const T* offset, const T* mask, std::int64_t n,
                  std::int64_t g, std::int64_t p, std::int64_t q, const Visit& visit) {
  for (std::int64_t c = g * z.c_per_group(); c < (g + 1) * z.c_per_group(); ++c) {
    for (std::int64_t r = 0; r < z.r; ++r) {
      for (std::int64_t s = 0; s < z.s; ++s) {
        visit(c, r, s, DeformTap<T>(z, offset, mask, n, c / z.c_per_offset_group(), r, s, p, q));
      }
    }
  }
}

template <Sign kSign, class T>
double sample(const T* plane, const DeformPlace<T>& place) {
  double sum = 0;
  for (int i = 0; i < 4; ++i) {
    if (place.has(i)) sum += place.weight(i) * number<kSign>(plane[place.pixel(i)]);
  }
  return sum;
}

template <Sign kSign, class T>
void forward(const DeformConv2dProblem& z, const T* x, const T* w, const T* offset, const T* mask,
             const T* b, T* y) {
  parallel_for(z.n * z.p(), 1, [&](std::int64_t line, std::int64_t) {
    const std::int64_t n = line / z.p(), p = line % z.p();
    std::vector<double> sums(static_cast<std::size_t>(z.k_per_group()));
    for (std::int64_t q = 0; q < z.q(); ++q) {
      for (std::int64_t g = 0; g < z.groups; ++g) {
        const std::int64_t first = g * z.k_per_group();
        for (std::int64_t k = 0; k < z.k_per_group(); ++k) {
          sums[static_cast<std::size_t>(k)] = b == nullptr ? 0.0 : number<kSign>(b[first + k]);
        }
        for_each_tap(z, offset, mask, n, g, p, q, [&](auto c, auto r, auto s, const auto& tap) {
          const double value =
              number<kSign>(tap.factor) * sample<kSign>(x + (n * z.c + c) * z.h * z.w, tap.place);
          for (std::int64_t k = 0; k < z.k_per_group(); ++k) {
            const std::int64_t row = (first + k) * z.c_per_group() + c - g * z.c_per_group();
            sums[static_cast<std::size_t>(k)] +=
                value * number<kSign>(w[(row * z.r + r) * z.s + s]);
          }
        });
        for (std::int64_t k = 0; k < z.k_per_group(); ++k) {
          y[((n * z.k + first + k) * z.p() + p) * z.q() + q] =
              static_cast<T>(sums[static_cast<std::size_t>(k)]);
        }
      }
    }
  });
}

// Computes the gradients whose pointers are not null.
template <Sign kSign, class T>
void backward_data(const DeformConv2dProblem& z, const T* dy, const T* w, const T* x,
                   const T* offset, const T* mask, T* dx, T* doffset, T* dmask) {
  parallel_for(z.n, 1, [&](std::int64_t n, std::int64_t) {
    const std::int64_t plane = z.h * z.w, pixels = z.p() * z.q();
    const std::int64_t taps = z.offset_groups * z.taps();
    std::vector<double> to_x(static_cast<std::size_t>(z.c * plane));
    std::vector<double> to_places(static_cast<std::size_t>(3 * taps * pixels));  // v, u, mask
    for (std::int64_t p = 0; p < z.p(); ++p) {
      for (std::int64_t q = 0; q < z.q(); ++q) {
        for (std::int64_t g = 0; g < z.groups; ++g) {
          for_each_tap(z, offset, mask, n, g, p, q, [&](auto c, auto r, auto s, const auto& tap) {
            double column = 0;
            for (std::int64_t k = g * z.k_per_group(); k < (g + 1) * z.k_per_group(); ++k) {
              const std::int64_t row = k * z.c_per_group() + c - g * z.c_per_group();
              column += number<kSign>(dy[((n * z.k + k) * z.p() + p) * z.q() + q]) *
                        number<kSign>(w[(row * z.r + r) * z.s + s]);
            }
            const double factor = number<kSign>(tap.factor);
            double by_v = 0, by_u = 0, by_mask = 0;
            for (int i = 0; i < 4; ++i) {
              if (!tap.place.has(i)) continue;
              const std::int64_t pixel = c * plane + tap.place.pixel(i);
              const double value = number<kSign>(x[n * z.c * plane + pixel]);
              to_x[static_cast<std::size_t>(pixel)] += column * factor * tap.place.weight(i);
              by_mask += tap.place.weight(i) * value;
              by_v += number<kSign>(tap.place.weight_by_v(i)) * value;
              by_u += number<kSign>(tap.place.weight_by_u(i)) * value;
            }
            double* const to = to_places.data() + (tap.at - n * taps * pixels) * 3;
            to[0] += column * factor * by_v;
            to[1] += column * factor * by_u;
            to[2] += column * by_mask;
          });
        }
      }
    }
    for (std::int64_t i = 0; dx != nullptr && i < z.c * plane; ++i) {
      dx[n * z.c * plane + i] = static_cast<T>(to_x[static_cast<std::size_t>(i)]);
    }
    for (std::int64_t i = 0; i < taps * pixels; ++i) {
      const double* const from = to_places.data() + i * 3;
      const std::int64_t v = (2 * (n * taps + i / pixels)) * pixels + i % pixels;
      if (doffset != nullptr) {
        doffset[v] = static_cast<T>(from[0]);
        doffset[v + pixels] = static_cast<T>(from[1]);
      }
      if (dmask != nullptr) dmask[n * taps * pixels + i] = static_cast<T>(from[2]);
    }
  });
}

template <Sign kSign, class T>
void backward_weight(const DeformConv2dProblem& z, const T* x, const T* dy, const T* offset,
                     const T* mask, T* dw, bool accumulate) {
  parallel_for(z.c, 1, [&](std::int64_t c, std::int64_t) {
    const std::int64_t g = c / z.c_per_group();
    std::vector<double> sums(static_cast<std::size_t>(z.k_per_group()));
    for (std::int64_t r = 0; r < z.r; ++r) {
      for (std::int64_t s = 0; s < z.s; ++s) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (std::int64_t n = 0; n < z.n; ++n) {
          for (std::int64_t p = 0; p < z.p(); ++p) {
            for (std::int64_t q = 0; q < z.q(); ++q) {
              const DeformTap<T> tap(z, offset, mask, n, c / z.c_per_offset_group(), r, s, p, q);
              const double value = number<kSign>(tap.factor) *
                                   sample<kSign>(x + (n * z.c + c) * z.h * z.w, tap.place);
              for (std::int64_t k = 0; k < z.k_per_group(); ++k) {
                const std::int64_t row = (n * z.k + g * z.k_per_group() + k) * z.p() + p;
                sums[static_cast<std::size_t>(k)] += value * number<kSign>(dy[row * z.q() + q]);
              }
            }
          }
        }
        for (std::int64_t k = 0; k < z.k_per_group(); ++k) {
          const std::int64_t row =
              (g * z.k_per_group() + k) * z.c_per_group() + c - g * z.c_per_group();
          T& to = dw[(row * z.r + r) * z.s + s];
          const double before = accumulate ? number<kSign>(to) : 0.0;
          to = static_cast<T>(before + sums[static_cast<std::size_t>(k)]);
        }
      }
    }
  });
}

// Computes one direction on the operands of a call (problem.h), with T the problem's type.
template <Sign kSign, class T>
void run_loops(const DeformConv2dProblem& z, Direction direction, const Operands& at) {
  const auto in = [&](int i) { return static_cast<const T*>(at.input(i)); };
  const auto out = [&](int i) { return static_cast<T*>(at.output(i)); };
  switch (direction) {
    case Direction::forward:
      return forward<kSign>(z, in(0), in(1), in(2), in(3), in(4), out(0));
    case Direction::backward_data:
      return backward_data<kSign>(z, in(0), in(1), in(2), in(3), in(4), out(0), out(1), out(2));
    case Direction::backward_weight:
      return backward_weight<kSign>(z, in(0), in(1), in(2), in(3), out(0), at.accumulate);
  }
}

}  // namespace convscope::deform
