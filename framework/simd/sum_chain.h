// SPDX-License-Identifier: Apache-2.0
// sum_chain.h: how many products a kernel adds to one f32 sum before it starts another.
//
// m terms of one sign, added one after the other, err like a random walk: each addition rounds by
// up to half a unit of the sum so far, and the sum ends with a standard deviation of about 0.126
// sqrt(m) eps of itself (eps = 2^-23; the factor is the mean over where the sum ends between two
// powers of two). Five deviations, which one output in a million exceeds, are 8 eps for m = 160, 17
// for 700 and 43 for 4608. So a sum is cut into chains of at most 160 terms: a chain stays in a
// register, and its total is added to a sum that lies in memory. That sum is a chain too, of at
// most 160 totals where a kernel can see to it. The error of m terms is then that of one chain (the
// errors of the chains are independent and each is a small part): 8 eps for sums of up to 25,600
// terms, a little more beyond.
//
// 160 costs about 1 % of a register tile's instructions (a load, an addition and a store for 160
// FMAs), and 150 terms, the second convolution of LeNet, still are one chain.
// Source: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed. 2002, chapter 4.
#pragma once

namespace convscope {

inline constexpr int kSumChain = 160;

}  // namespace convscope
