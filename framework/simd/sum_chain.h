// SPDX-License-Identifier: Apache-2.0
// sum_chain.h: the maximum number of products that a kernel adds in one f32 sum before it starts
// another sum.
//
// Each addition rounds by up to half a unit in the last place of the partial sum: at most eps / 2
// times the partial sum, with eps = 2^-23. How these errors accumulate depends on the numbers:
//
// Errors of random sign occur with varying terms, as in trained weights and photographs. If m terms
// of one sign are added in sequence, the error is a random walk. The sum has a relative standard
// deviation of about 0.126 sqrt(m) eps (averaged over the positions of the sum between two powers
// of two). Five deviations, which one output in a million exceeds, are 8 eps for m = 160, 17 for
// 700 and 43 for 4608. So a sum is cut into chains of at most 160 terms. A chain stays in a
// register, and its total is added to a sum in memory. The sum in memory is a chain too, with at
// most 160 totals where a kernel can ensure it. Errors of different chains are independent, and
// each is a small part of the whole. So the error of all terms is that of one chain: 8 eps for up
// to 25,600 terms, a little more for longer sums. This error is expected, not guaranteed.
//
// Errors of one direction occur with equal terms, as for a black image and constant weights. While
// the sum is between two powers of two, every addition adds the same number to a multiple of the
// same unit, so every addition rounds in the same direction. Then the error is proportional to the
// number of terms. Let M be the sum of the magnitudes of the terms of a chain, and L the number of
// terms. For any numbers, the error of the chain is at most L eps / 2 times M, because no partial
// sum exceeds M in size. The errors of all chains together are at most L eps / 2 times the sum of
// all magnitudes. The chain of m = n / L totals adds m eps / 2. The rounding of the products and
// the addition of a bias add eps / 2 each. So the error of n terms is at most (L + m + 2) / 2 eps:
// 83 eps for 700 terms, 95 eps for 4608. In one chain, the error is at most (n / 2 + 1) eps: 81 eps
// for 160 terms. Equal terms have an error of 3/16 n eps instead of n / 2 eps, because the partial
// sums grow from 0: 30 eps for 160 terms. One large term before many small terms comes close to n /
// 2 eps.
//
// Chains of 160 terms add about 1 % to the instructions of a register tile (a load, an addition and
// a store per 160 FMAs). A sum of 150 terms, as in LeNet's second convolution, still is one chain.
#pragma once

namespace convscope {

inline constexpr int kSumChain = 160;

// The expected error of one chain of kSumChain terms, in eps, when errors have random signs.
inline constexpr double kExpectedChainGrowth = 8;

// Returns the bound for any numbers, as a multiple of eps times the sum of the magnitudes.
inline double worst_sum_growth(double terms, bool one_chain) {
  if (one_chain || terms <= kSumChain) return terms / 2 + 1;
  return (kSumChain + terms / kSumChain) / 2 + 1;
}

}  // namespace convscope
