// SPDX-License-Identifier: Apache-2.0
// check_problems.cpp: the problems that algorithms are checked on.
#include "experiments/check/matrix/check_problems.h"

#include <algorithm>
#include <iterator>

#include "framework/random.h"

namespace convscope::matrix {

std::vector<Conv2dProblem> small_problems(std::int64_t n) {
  std::vector<Conv2dProblem> out;
  for (const char* text :
       {"c=4,h=9,w=8,k=8,r=3,s=3,pad=1", "c=8,h=7,w=6,k=12",
        "c=6,h=9,w=8,k=6,r=3,s=3,pad=1,groups=6", "c=8,h=7,w=6,k=8,r=3,s=3,pad=1,groups=2"}) {
    out.push_back(Conv2dProblem::parse(text));
    out.back().n = n;
  }
  return out;
}

std::vector<Conv2dProblem> sparse_problems(const Conv2dProblem& dense, std::size_t turn,
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

Conv2dProblem shrunk(Conv2dProblem problem, double most_flops) {
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

std::vector<Conv2dProblem> long_sum_problems() {
  const char* const kTexts[] = {
      "n=1,c=8,h=24,w=24,k=8,r=13,s=13,pad=6",            // 1352 terms
      "n=1,c=512,h=6,w=8,k=16,r=3,s=3,pad=1",             // 4608
      "n=2,c=160,h=12,w=12,k=24,r=3,s=3,pad=1",           // Winograd and FFT: one full chain
      "n=2,c=1024,h=7,w=7,k=32",                          // 1x1
      "n=16,c=4,h=40,w=40,k=8,r=3,s=3,pad=1",             // dw: 25,600
      "n=4,c=20,h=30,w=30,k=40,r=3,s=3,pad=1,stride=2",   //
      "n=8,c=8,h=64,w=64,k=8",                            // dw: 32,768
      "n=128,c=8,h=14,w=14,k=20,r=3,s=3,pad=1",           // dw: many images
      "n=700,c=2,h=4,w=4,k=256,r=3,s=3,pad=1",            // dw: many images and kernels
      "n=8,c=8,h=56,w=56,k=8,r=3,s=3,pad=1,groups=8",     // depthwise
      "n=1,c=2,h=40,w=40,k=2,r=31,s=31,pad=15,groups=2",  // 961 taps
      "n=1,c=8,h=6,w=300,k=8,r=3,s=3,pad=1",              // rows longer than a chain
  };
  std::vector<Conv2dProblem> out;
  for (const char* text : kTexts) out.push_back(Conv2dProblem::parse(text));
  return out;
}

std::vector<Conv2dProblem> one_way_problems() {
  std::vector<Conv2dProblem> out;
  for (const char* text : {"n=1,c=16,h=12,w=12,k=4,r=11,s=11,pad=5",  // 1936 terms
                           "n=1,c=400,h=6,w=6,k=8,r=3,s=3,pad=1",     // many channels
                           "n=1,c=8,h=6,w=6,k=400,r=3,s=3,pad=1",     // dx: many channels
                           "n=1,c=1500,h=4,w=5,k=8",                  // 1x1
                           "n=2,c=8,h=24,w=24,k=8,r=13,s=13,pad=6,groups=8",
                           "n=8,c=4,h=21,w=20,k=4,r=3,s=3,pad=1",   // dw: 3360 terms
                           "n=60,c=2,h=4,w=4,k=16,r=3,s=3,pad=1"})  // dw: many images
  {
    out.push_back(Conv2dProblem::parse(text));
  }
  return out;
}

Conv2dProblem random_problem(std::uint64_t seed, std::uint64_t index) {
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

}  // namespace convscope::matrix
