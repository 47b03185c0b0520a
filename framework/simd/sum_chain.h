// SPDX-License-Identifier: Apache-2.0
// sum_chain.h: how many products a kernel adds to one f32 sum before it starts another.
//
// Each addition rounds by up to half a unit of the sum so far, which is at most eps / 2 of it, with
// eps = 2^-23. How these errors add up depends on the numbers:
//
// Errors of random sign (terms that differ, as in trained weights and photographs). m terms of one
// sign, added one after the other, err like a random walk: the sum ends with a standard deviation
// of about 0.126 sqrt(m) eps of itself (the factor is the mean over where the sum ends between two
// powers of two). Five deviations, which one output in a million exceeds, are 8 eps for m = 160, 17
// for 700 and 43 for 4608. So a sum is cut into chains of at most 160 terms: a chain stays in a
// register, and its total is added to a sum in memory. That sum is a chain too, of at most 160
// totals where a kernel can see to it. The error of m terms is then that of one chain (the errors
// of the chains are independent and each is a small part): 8 eps for sums of up to 25,600 terms, a
// little more beyond. This is expected, and not guaranteed.
//
// Errors of one direction (equal terms, as of a black image and constant weights: while the sum is
// between two powers of two, the same number is added to a multiple of the same unit, and rounds
// the same way). Then errors add up like the terms. On any numbers, a chain of L terms errs by at
// most L eps / 2 of its sum over magnitudes M: each partial sum is at most M. The errors of all
// chains together are at most L eps / 2 of the whole M, because the magnitudes of the chains add up
// to it; the chain of m = n / L totals adds m eps / 2, and the rounding of the products and the
// addition of a bias eps / 2 each. So n terms err by at most (L + m + 2) / 2 eps: 83 for 700 terms,
// 95 for 4608; and n / 2 + 1 in one chain, 81 for 160. Equal terms reach 3/16 in place of 1/2,
// because the partial sums grow from 0: 30 for 160. One large term before many small ones comes
// near to 1/2.
//
// 160 costs about 1 % of a register tile's instructions (a load, an addition and a store for 160
// FMAs), and 150 terms, the second convolution of LeNet, still are one chain.
// Source: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed. 2002, chapter 4.
#pragma once

namespace convscope {

inline constexpr int kSumChain = 160;

// In eps, for one chain of kSumChain terms whose errors have random signs.
inline constexpr double kExpectedChainGrowth = 8;

// In eps of the sum over magnitudes, on any numbers.
inline double worst_sum_growth(double terms, bool one_chain) {
  if (one_chain || terms <= kSumChain) return terms / 2 + 1;
  return (kSumChain + terms / kSumChain) / 2 + 1;
}

}  // namespace convscope
