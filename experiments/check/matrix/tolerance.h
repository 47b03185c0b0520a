// SPDX-License-Identifier: Apache-2.0
// tolerance.h: the largest error bound that a convolution algorithm may state for itself.
//
// An algorithm states error_growth (layers/dispatch/algorithm.h), and the checks require |error| <=
// error_growth * eps * M, where M is the largest sum of the absolute values of the products. A
// plug-in could pass with any error if it stated a large error_growth, so there is a limit.
//
// kMaxErrorGrowth: the limit is twice the largest value in use. Among the transforms that are
// common in f32, those of Winograd's F(6x6, 3x3) have the largest constants, and winograd_f6x3
// states 128. The limit is an error of 2^8 * 2^-23 = 2^-15 of M: an algorithm that needs more has
// lost more than a third of the digits of f32.
//
// kMaxChainGrowth: the limit for an algorithm that states one_chain; its bound grows by sqrt(terms
// / 160). The standard deviation of a chain of m terms of one sign is 0.126 sqrt(m) eps (N. J.
// Higham, T. Mary: A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput.
// 41, 2019), which is 1.6 eps at 160 terms; the limit of 16 eps is ten times that.
#pragma once

namespace convscope {

inline constexpr double kMaxErrorGrowth = 256;
inline constexpr double kMaxChainGrowth = 16;

}  // namespace convscope
