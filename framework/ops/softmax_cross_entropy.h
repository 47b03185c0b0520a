// SPDX-License-Identifier: Apache-2.0
// softmax_cross_entropy.h: softmax of logits, the kernels of the losses of a classifier
// (layers/losses/), and the number of correct predictions.
//
//   loss[n] = log sum_k exp(x[n,k]) - x[n, label[n]]
//
// The largest logit of a row is subtracted before exp, so exp does not overflow for finite logits.
#pragma once

#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// Throws an error of `operation` unless logits are [N,K], f32 or f64, and labels i32 [N], each in
// [0,K). Labels on a GPU are not read.
void check_labels(const Tensor& logits, const Tensor& labels, const char* operation);

CONVSCOPE_API Tensor softmax(const Tensor& logits);  // [N,K] -> [N,K], rows sum to 1
// Returns the index of each row's largest entry: [N,K] -> i32 [N]. Among equal entries, the first
// is chosen; a NaN counts as the largest.
CONVSCOPE_API Tensor argmax(const Tensor& logits);
// Returns the number of rows whose largest entry is the entry of the label.
CONVSCOPE_API std::int64_t count_correct(const Tensor& logits, const Tensor& labels);

// Computes y = softmax(x) by rows. `losses` [N] gets the loss of each row. If `losses` is
// undefined, only y is computed.
extern CONVSCOPE_API
    KernelSlot<void(const Tensor& x, const Tensor& labels, const Tensor& y, const Tensor& losses)>
        softmax_kernel;
// Computes dx = (y - onehot(labels)) factor.
extern CONVSCOPE_API
    KernelSlot<void(const Tensor& y, const Tensor& labels, double factor, const Tensor& dx)>
        softmax_gradient_kernel;
extern CONVSCOPE_API KernelSlot<void(const Tensor& x, const Tensor& y)> argmax_kernel;
// Sets out i32 [1] to the number of equal elements of predicted i32 [N] and labels i32 [N].
extern CONVSCOPE_API
    KernelSlot<void(const Tensor& predicted, const Tensor& labels, const Tensor& out)>
        count_equal_kernel;
// Multiplies x by *factor, a number on the device of x.
extern CONVSCOPE_API KernelSlot<void(const double* factor, const Tensor& x)> multiply_by_kernel;

}  // namespace convscope
