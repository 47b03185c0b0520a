// SPDX-License-Identifier: Apache-2.0
// onnx_network.h: a trained network, as it computes in eval mode, as a graph of ONNX operators.
//
//   conv2d      Conv, with zeros around the image alone
//   linear      Gemm
//   batch norm  BatchNormalization with the running statistics, a node of its own: the file holds
//               the network's weights. With fold_batch_norm one behind a convolution becomes part
//               of its weight and bias; not behind a quantised weight: its codes stay the network's
//   curves      Relu, Clip (relu6), Tanh, Sigmoid
//   pools       MaxPool, AveragePool, GlobalAveragePool; ceil_mode of a max pool as padding behind
//   residual    Add, Relu where the block ends in one
//   flatten     Flatten;  dropout: nothing, it does nothing in eval mode
//   masks       the constants are the weights that are left
//
// Quantised (QDQ): what a quantiser rounds passes QuantizeLinear and DequantizeLinear, i8 or u8
// with zero point 0. Rounding is half to even in both systems. With fewer than 8 bits Clip stands
// in front, from -Qn s to Qp s, because the integers themselves have 8 bits (ONNX's own 4-bit
// integers begin with opset 21). A weight is a constant of i8 codes behind DequantizeLinear, with
// its step for each output channel where it has one. Biases and batch norm stay f32, as in the
// network; the bias of a quantised layer is an Add of its own, because ONNX Runtime rounds the bias
// inside such a Conv or Gemm to multiples of the product of both steps, which with few bits is
// another network.
//
// With reduce_range weights have 7 bits. x64 CPUs without VNNI add two products of u8 and i8 codes
// in 16 bits that saturate: 2 x 255 x 127 does not fit, 2 x 255 x 64 does.
//
// Images      "images" [N,C,H,W], normalised as the config says; the result is "logits" [N,classes]
#pragma once

#include "experiments/export/onnx_file.h"
#include "layers/module.h"

namespace convscope {

struct OnnxOptions {
  bool fold_batch_norm = false;
  bool reduce_range =
      false;  // weights of 8 bits as codes of 7 bits, -64 to 63, with twice the step
};

// `sample` is [C,H,W]. Errors of kind kConfig name the layer that has no such form, or a quantiser
// that is not calibrated.
CONVSCOPE_API OnnxGraph onnx_network(Module& network, const Shape& sample, const std::string& name,
                                     const OnnxOptions& options = {});

}  // namespace convscope
