// SPDX-License-Identifier: Apache-2.0
// cases.h: convolution problems for tests: those of experiments/shapes, made small, and random
// ones.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "framework/random.h"
#include "layers/conv2d/problem.h"

namespace convscope::testing {

inline std::int64_t number_from_environment(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::atoll(text);
}

// The repository; a program that was carried to another machine is told where it is there.
inline std::string source_folder() {
  const char* text = std::getenv("CONVSCOPE_SOURCE_DIR");
  return text == nullptr ? CONVSCOPE_SOURCE_DIR : text;
}

// The problems of experiments/shapes/<name>.txt.
inline std::vector<Conv2dProblem> shapes_of(const std::string& name) {
  std::vector<Conv2dProblem> out;
  const std::string path = source_folder() + "/experiments/shapes/" + name + ".txt";
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    out.push_back(Conv2dProblem::parse(line));
  }
  CONVSCOPE_CHECK(!out.empty(), "tests", "expected problems in ", path, ", got none");
  return out;
}

// A 3x3, a 1x1 and a depthwise convolution of N images: every card takes one of them.
inline std::vector<Conv2dProblem> small_problems(std::int64_t n) {
  std::vector<Conv2dProblem> out;
  for (const char* text : {"c=4,h=9,w=8,k=8,r=3,s=3,pad=1", "c=8,h=7,w=6,k=12",
                           "c=6,h=9,w=8,k=6,r=3,s=3,pad=1,groups=6"}) {
    out.push_back(Conv2dProblem::parse(text));
    out.back().n = n;
  }
  return out;
}

// Formats of block-sparse weights that fit a problem: blocks that are and are not of whole vectors,
// from nothing to everything.
inline std::vector<Conv2dProblem> sparse_problems(const Conv2dProblem& dense, std::size_t turn,
                                                  std::size_t most) {
  constexpr std::int64_t kBlocks[][2] = {{16, 1}, {4, 1}, {1, 4}, {1, 1}, {2, 3}, {32, 1},
                                         {8, 2},  {3, 1}, {1, 9}, {5, 5}, {24, 1}};
  constexpr double kKept[] = {0.1, 0.5, 1.0, 0.25, 0.0};
  const std::int64_t columns = dense.c_per_group() * dense.r * dense.s;
  std::vector<Conv2dProblem> out;
  for (std::size_t i = 0; i < std::size(kBlocks) && out.size() < most; ++i) {
    const auto [rows, wide] = kBlocks[(i + turn) % std::size(kBlocks)];
    if (dense.k % rows != 0 || columns % wide != 0) continue;
    Conv2dProblem sparse = dense;
    const double all = static_cast<double>((dense.k / rows) * (columns / wide));
    sparse.weight_format = {
        .kind = WeightFormat::Kind::block_sparse,
        .block_rows = rows,
        .block_columns = wide,
        .blocks = static_cast<std::int64_t>(kKept[(turn + out.size()) % std::size(kKept)] * all)};
    out.push_back(sparse);
  }
  return out;
}

// The same kind of problem, small enough for the double reference: fewer images, then smaller
// images, then fewer channels.
inline Conv2dProblem shrunk(Conv2dProblem problem, double most_flops = 2e6) {
  problem.n = std::min<std::int64_t>(problem.n, problem.n == 0 || problem.h > 4 ? 3 : 20);
  const auto large = [&] { return problem.nominal_flops() > most_flops; };
  while (large() && problem.n > 2) --problem.n;
  const std::int64_t reach_h = problem.dilation_h * (problem.r - 1) + 1;
  const std::int64_t reach_w = problem.dilation_w * (problem.s - 1) + 1;
  while (large() && problem.h > 14 && problem.w > 14) {
    const std::int64_t h = (problem.h + 1) / 2;
    const std::int64_t w = (problem.w + 1) / 2;
    if (h < reach_h || w < reach_w) break;  // the kernel must still fit without padding
    problem.h = h;
    problem.w = w;
  }
  while (large() && problem.c % 2 == 0 && problem.k % 2 == 0 &&
         (problem.groups == 1 || problem.groups % 2 == 0)) {
    problem.c /= 2;
    problem.k /= 2;
    if (problem.groups > 1) problem.groups /= 2;
  }
  if (large()) problem.n = 1;
  problem.check();
  return problem;
}

// Problem number `index` of a seed: every option, sizes around the vector widths, always valid.
inline Conv2dProblem random_problem(std::uint64_t seed, std::uint64_t index) {
  Generator random(seed, index);
  const auto pick = [&](std::initializer_list<std::int64_t> from) {
    return from.begin()[random.below(static_cast<std::uint32_t>(from.size()))];
  };
  const auto up_to = [&](std::uint32_t most) { return 1 + std::int64_t{random.below(most)}; };
  Conv2dProblem z;
  z.groups = pick({1, 1, 1, 2, 3});
  const bool depthwise = random.below(6) == 0;
  z.c = z.groups * up_to(6);
  z.k = z.groups * up_to(random.below(4) == 0 ? 40 : 8);
  if (depthwise) {
    z.groups = z.c;
    z.k = z.c * up_to(2);
  }
  z.n = pick({1, 1, 2, 3, 7});
  z.r = pick({1, 2, 3, 3, 5, 7});
  z.s = pick({1, 2, 3, 3, 5, 7});
  z.stride_h = pick({1, 1, 1, 2, 3});
  z.stride_w = pick({1, 1, 1, 2, 3});
  z.dilation_h = pick({1, 1, 1, 2, 3});
  z.dilation_w = pick({1, 1, 1, 2, 3});
  z.pad_top = pick({0, 0, 1, 2, 4});
  z.pad_bottom = pick({0, 0, 1, 2, 4});
  z.pad_left = pick({0, 0, 1, 2, 4});
  z.pad_right = pick({0, 0, 1, 2, 4});
  z.h = std::max<std::int64_t>(1, z.dilation_h * (z.r - 1) + 1 - z.pad_top - z.pad_bottom) +
        random.below(12);
  z.w = std::max<std::int64_t>(1, z.dilation_w * (z.s - 1) + 1 - z.pad_left - z.pad_right) +
        random.below(36);
  z.check();
  return z;
}

}  // namespace convscope::testing
