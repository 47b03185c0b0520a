// SPDX-License-Identifier: Apache-2.0
// sparse_case.h: random sites and feature rows for tests of sparse convolution, and the same
// convolution on a dense array, computed from coordinates only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "framework/random.h"
#include "layers/dispatch/execute.h"
#include "layers/sparse_conv/algorithm.h"

namespace convscope::testing {

using Place = std::array<std::int64_t, 4>;  // batch, t, h, w

inline Tensor coordinates_of(const std::vector<Place>& places, int rank) {
  Tensor out =
      Tensor::empty({static_cast<std::int64_t>(places.size()), std::int64_t{1} + rank}, DType::i32);
  auto* to = out.data<std::int32_t>();
  for (const Place& place : places) {
    *to++ = static_cast<std::int32_t>(place[0]);
    for (int d = 3 - rank; d < 3; ++d) {
      *to++ = static_cast<std::int32_t>(place[static_cast<std::size_t>(1 + d)]);
    }
  }
  return out;
}

inline std::vector<Place> places_of(const SparseSites& sites) {
  std::vector<Place> out;
  for (std::int64_t i = 0; i < sites.count(); ++i) {
    const SitePlace at = sites.place(i);
    out.push_back({at.batch, at.at[0], at.at[1], at.at[2]});
  }
  return out;
}

// Returns sites along a random walk near the last positions of each axis, for grids that are too
// large to try every position.
inline std::vector<Place> walked_places(const SiteGrid& grid, std::uint64_t seed) {
  Generator random(seed, 2);
  std::set<Place> out;
  Place at = {grid.batch - 1, grid.extent[0] - 9, grid.extent[1] - 9, grid.extent[2] - 9};
  while (out.size() < 60) {
    out.insert(at);
    const std::size_t axis = 1 + static_cast<std::size_t>(random.below(3));
    at[axis] = std::clamp(at[axis] + (random.below(2) == 0 ? 1 : -1), grid.extent[axis - 1] - 12,
                          grid.extent[axis - 1] - 1);
  }
  return {out.rbegin(), out.rend()};
}

// Includes each position of the grid with a given probability, but at least one position. The order
// is random.
inline std::vector<Place> random_places(const SiteGrid& grid, double density, std::uint64_t seed) {
  Generator random(seed, 1);
  std::vector<Place> out;
  const auto whole = static_cast<std::int64_t>(grid.all_places());
  const auto place = [&](std::int64_t i) -> Place {
    const std::int64_t w = i % grid.extent[2], h = i / grid.extent[2] % grid.extent[1];
    const std::int64_t t = i / grid.extent[2] / grid.extent[1] % grid.extent[0];
    return {i / grid.extent[2] / grid.extent[1] / grid.extent[0], t, h, w};
  };
  for (std::int64_t i = 0; i < whole; ++i) {
    if (density >= 1 || static_cast<double>(random.below(1 << 20)) < density * (1 << 20)) {
      out.push_back(place(i));
    }
  }
  if (out.empty()) out.push_back(place(whole / 2));
  for (std::size_t i = out.size(); i > 1; --i) {
    std::swap(out[i - 1],
              out[static_cast<std::size_t>(random.below(static_cast<std::uint32_t>(i)))]);
  }
  return out;
}

struct SparseCase {
  const char* name;
  SiteGrid grid;
  double density;  // 0: see walked_places
  SparseKind kind;
  SparseKernel kernel;
  std::int64_t c, k;
};

inline const SparseCase kSparseCases[] = {
    {"one_site", {2, 1, {1, 1, 1}}, 1, SparseKind::submanifold, {.size = {1, 3, 3}}, 3, 5},
    {"plane", {2, 2, {1, 12, 17}}, 0.2, SparseKind::submanifold, {.size = {1, 3, 3}}, 4, 16},
    {"plane_full", {2, 1, {1, 9, 11}}, 1, SparseKind::submanifold, {.size = {1, 5, 3}}, 16, 48},
    {"plane_dilated",
     {2, 3, {1, 14, 13}},
     0.3,
     SparseKind::submanifold,
     {.size = {1, 3, 5}, .dilation = {1, 2, 3}},
     7,
     33},
    {"pointwise", {3, 2, {5, 5, 5}}, 0.4, SparseKind::submanifold, {}, 9, 17},
    {"volume", {3, 2, {9, 10, 11}}, 0.15, SparseKind::submanifold, {.size = {3, 3, 3}}, 16, 32},
    {"volume_thin",
     {3, 1, {30, 30, 30}},
     0.001,
     SparseKind::submanifold,
     {.size = {3, 3, 3}},
     8,
     8},
    {"volume_full", {3, 1, {6, 7, 8}}, 1, SparseKind::submanifold, {.size = {3, 3, 3}}, 12, 64},
    {"volume_five", {3, 2, {8, 7, 9}}, 0.3, SparseKind::submanifold, {.size = {5, 5, 5}}, 5, 70},
    {"volume_uneven",
     {3, 1, {10, 9, 12}},
     0.4,
     SparseKind::submanifold,
     {.size = {1, 5, 3}, .dilation = {1, 1, 2}},
     170,
     6},
    // Kernels with so many taps that their tables do not fit into the shared memory of a GPU
    // together with the largest tile.
    {"volume_seven", {3, 1, {4, 5, 6}}, 0.4, SparseKind::submanifold, {.size = {7, 7, 7}}, 3, 130},
    {"volume_five_dilated",
     {3, 1, {6, 5, 9}},
     0.2,
     SparseKind::submanifold,
     {.size = {5, 5, 5}, .dilation = {1, 1, 2}},
     4,
     130},
    // Tiles with a halo (the sites that a tile reads) of more than 640 sites. In the first case
    // the halo is cut into phases. In the second case 4 phases do not suffice, so the tile has
    // no halo (halo_table.h: scattered).
    {"volume_phases",
     {3, 1, {12, 11, 13}},
     1,
     SparseKind::submanifold,
     {.size = {3, 3, 3}, .dilation = {2, 2, 1}},
     3,
     18},
    {"volume_scattered",
     {3, 1, {12, 12, 12}},
     1,
     SparseKind::submanifold,
     {.size = {3, 3, 3}, .dilation = {4, 4, 4}},
     9,
     5},
    {"volume_far",
     {3, 3, {1000000, 1000000, 300000}},
     0,
     SparseKind::submanifold,
     {.size = {3, 3, 3}},
     4,
     6},
    {"volume_chunks",
     {3, 1, {20, 20, 20}},
     0.25,
     SparseKind::submanifold,
     {.size = {3, 3, 3}},
     6,
     9},
    {"strided_plane",
     {2, 2, {1, 13, 14}},
     0.2,
     SparseKind::strided,
     {.size = {1, 3, 3}, .stride = {1, 2, 2}, .padding = {0, 1, 1}},
     8,
     24},
    {"strided_volume",
     {3, 2, {9, 10, 11}},
     0.1,
     SparseKind::strided,
     {.size = {3, 3, 3}, .stride = {2, 2, 2}, .padding = {1, 1, 1}},
     16,
     16},
    {"strided_two",
     {3, 1, {9, 10, 11}},
     0.3,
     SparseKind::strided,
     {.size = {2, 2, 2}, .stride = {2, 2, 2}},
     12,
     20},
    {"strided_odd",
     {3, 1, {12, 11, 13}},
     0.2,
     SparseKind::strided,
     {.size = {1, 3, 5}, .stride = {2, 1, 3}, .padding = {0, 2, 1}, .dilation = {1, 2, 1}},
     5,
     7},
    {"strided_dilated",
     {3, 1, {9, 8, 13}},
     0.3,
     SparseKind::strided,
     {.size = {3, 3, 3}, .stride = {1, 2, 2}, .padding = {1, 1, 2}, .dilation = {1, 1, 2}},
     6,
     10},
    {"strided_with_gaps",
     {2, 1, {1, 20, 20}},
     0.05,
     SparseKind::strided,
     {.size = {1, 1, 2}, .stride = {1, 3, 4}},
     4,
     4},
    {"inverse_volume",
     {3, 2, {9, 10, 11}},
     0.1,
     SparseKind::inverse,
     {.size = {3, 3, 3}, .stride = {2, 2, 2}, .padding = {1, 1, 1}},
     16,
     24},
    {"inverse_plane",
     {2, 1, {1, 15, 16}},
     0.3,
     SparseKind::inverse,
     {.size = {1, 2, 3}, .stride = {1, 2, 3}, .dilation = {1, 1, 2}},
     9,
     5},
};

inline std::string case_name(const ::testing::TestParamInfo<SparseCase>& of) {
  return of.param.name;
}

inline SharedMap map_of(const SparseCase& of, const SharedSites& sites) {
  if (of.kind == SparseKind::submanifold) return SparseMap::submanifold(sites, of.kernel);
  const SharedMap strided = SparseMap::strided(sites, of.kernel);
  return of.kind == SparseKind::strided ? strided : SparseMap::inverse(strided);
}

inline std::vector<Place> places_of(const SparseCase& of) {
  return of.density == 0 ? walked_places(of.grid, 11) : random_places(of.grid, of.density, 11);
}

inline SharedSites sites_of(const SparseCase& of) {
  return std::make_shared<const SparseSites>(coordinates_of(places_of(of), of.grid.rank), of.grid);
}

inline SparseConvProblem problem_of(const SparseCase& of, DType dtype = DType::f32) {
  SparseConvProblem out{.map = map_of(of, sites_of(of)), .c = of.c, .k = of.k, .dtype = dtype};
  out.check();
  return out;
}

// Returns integers from -4 to 4, or normal numbers.
inline Tensor sparse_numbers(const Shape& shape, bool integers, std::uint64_t stream,
                             DType dtype = DType::f32) {
  Tensor out = Tensor::empty(shape, DType::f32);
  Generator random(5, stream);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    out.data<float>()[i] = integers ? static_cast<float>(random.below(9)) - 4.0f : random.normal();
  }
  return out.to(dtype);
}

inline SparseConvTensors sparse_tensors(const SparseConvProblem& z, bool integers) {
  return {.x = sparse_numbers(z.x_shape(), integers, 1, z.dtype),
          .w = sparse_numbers(z.w_shape(), integers, 2, z.dtype),
          .b = sparse_numbers({z.k}, integers, 3, z.dtype),
          .dy = sparse_numbers(z.y_shape(), integers, 4, z.dtype)};
}

// Returns an algorithm's result for one direction.
inline Tensor sparse_result(const SparseConvAlgorithm& algorithm, const SparseConvProblem& z,
                            Direction direction, const SparseConvTensors& tensors) {
  Operands operands = sparse_conv_operands(direction, tensors);
  operands.out[0] = Tensor::full(z.operands(direction).outputs[0].desc.shape, NAN, z.dtype);
  run_algorithm(algorithm, z, direction, operands);
  return operands.out[0].values;
}

// A pair (output, input, tap) found by coordinates: the output at o reads the input at o stride -
// padding + t dilation.
struct Pair {
  std::int64_t out, in, tap;
};
inline std::vector<Pair> all_pairs(const SparseConvProblem& z) {
  const bool inverse = z.map->kind() == SparseKind::inverse;
  const std::vector<Place> coarse = places_of(inverse ? *z.map->in_sites() : *z.map->out_sites());
  const std::vector<Place> fine = places_of(inverse ? *z.map->out_sites() : *z.map->in_sites());
  std::map<Place, std::int64_t> fine_at;
  for (std::size_t i = 0; i < fine.size(); ++i) fine_at[fine[i]] = static_cast<std::int64_t>(i);
  const SparseKernel& kernel = z.map->kernel();
  std::vector<Pair> out;
  for (std::size_t o = 0; o < coarse.size(); ++o) {
    for (std::int64_t tap = 0; tap < kernel.taps(); ++tap) {
      const std::array<std::int64_t, 3> t = {tap / kernel.size[2] / kernel.size[1],
                                             tap / kernel.size[2] % kernel.size[1],
                                             tap % kernel.size[2]};
      Place at = coarse[o];
      for (std::size_t d = 0; d < 3; ++d) {
        at[1 + d] = at[1 + d] * kernel.stride[d] - kernel.padding[d] + t[d] * kernel.dilation[d];
      }
      const auto found = fine_at.find(at);
      if (found == fine_at.end()) continue;
      const auto coarse_site = static_cast<std::int64_t>(o);
      out.push_back(inverse ? Pair{found->second, coarse_site, tap}
                            : Pair{coarse_site, found->second, tap});
    }
  }
  return out;
}

// Computes one direction from the pairs in double. With `magnitudes`, uses |x|, |w| and |dy|
// instead.
inline std::vector<double> from_pairs(const SparseConvProblem& z, Direction direction,
                                      const SparseConvTensors& t, bool magnitudes = false) {
  const auto values = [&](const Tensor& of) {
    std::vector<double> out;
    for (std::int64_t i = 0; of.defined() && i < of.numel(); ++i) {
      out.push_back(magnitudes ? std::abs(of.at(i)) : of.at(i));
    }
    return out;
  };
  const std::vector<double> x = values(t.x), w = values(t.w), b = values(t.b), dy = values(t.dy);
  std::vector<double> out(
      static_cast<std::size_t>(z.operands(direction).outputs[0].desc.shape.numel()), 0.0);
  if (direction == Direction::forward && !b.empty()) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = b[i % b.size()];
  }
  const auto c_count = static_cast<std::size_t>(z.c), taps = static_cast<std::size_t>(z.taps());
  for (const Pair& pair : all_pairs(z)) {
    const double* const x_row = x.data() + pair.in * z.c;
    const double* const dy_row = dy.data() + pair.out * z.k;
    for (std::size_t k = 0; k < static_cast<std::size_t>(z.k); ++k) {
      for (std::size_t c = 0; c < c_count; ++c) {
        const std::size_t at = (k * c_count + c) * taps + static_cast<std::size_t>(pair.tap);
        if (direction == Direction::forward) {
          out[static_cast<std::size_t>(pair.out * z.k) + k] += w[at] * x_row[c];
        } else if (direction == Direction::backward_data) {
          out[static_cast<std::size_t>(pair.in * z.c) + c] += w[at] * dy_row[k];
        } else {
          out[at] += x_row[c] * dy_row[k];
        }
      }
    }
  }
  return out;
}

}  // namespace convscope::testing
