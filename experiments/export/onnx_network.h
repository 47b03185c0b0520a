// SPDX-License-Identifier: Apache-2.0
// onnx_network.h: a trained network in eval mode as a graph of ONNX operators.
//
//   conv2d      Conv, padded with zeros only
//   linear      Gemm
//   batch norm  BatchNormalization with the running statistics. It is a separate node,
//               so that the file holds the network's weights. With fold_batch_norm, a batch norm
//               after a convolution becomes part of the convolution's weight and bias. A batch norm
//               after a quantised weight is not folded, because its integers must not change
//   activations Relu, Clip (relu6), Tanh, Sigmoid, HardSwish, Softmax; silu and gelu by their
//               formulas
//   norms       LayerNormalization between transpositions; group norm as InstanceNormalization of
//               the groups; layer scale as Mul
//   pools       MaxPool, AveragePool, GlobalAveragePool, GlobalMaxPool; ceil_mode of a max pool as
//               end padding
//   others      Resize (upsample), Reshape and Transpose (channel shuffle); squeeze-and-excitation
//               by its formula
//   residual    Add, Relu where the block ends in one
//   branches    Add, Mul, Concat, Split. A batch norm is folded if only it reads the convolution
//   flatten     Flatten;  dropout and stochastic depth: nothing, because they have no effect in
//               eval mode
//   masks       pruned weights are 0 in the constants
//
// Quantised networks (QDQ): an activation quantiser becomes QuantizeLinear and DequantizeLinear,
// with i8 or u8 and zero point 0. ONNX and Convscope both round half to even. For fewer than 8
// bits, a Clip from -Qn s to Qp s comes first, because the ONNX integers have 8 bits (ONNX's 4-bit
// integers begin with opset 21). A weight is a constant of i8 integers before DequantizeLinear. Its
// step size is one number, or one number per output channel. Biases and batch norm stay f32, as in
// the network. The bias of a quantised layer is a separate Add. If the bias were an input of Conv
// or Gemm, ONNX Runtime would round it to multiples of (weight step x activation step), which
// visibly changes the output of networks with few bits.
//
// With reduce_range, weights have 7 bits. x64 CPUs without VNNI add two u8 x i8 products
// in saturating 16-bit arithmetic: 2 x 255 x 127 overflows, and 2 x 255 x 64 does not.
//
// Images      "images" [N,C,H,W], normalised as in the config; the result is "logits" [N,classes]
#pragma once

#include "experiments/export/onnx_file.h"
#include "layers/module.h"

namespace convscope {

struct OnnxOptions {
  bool fold_batch_norm = false;
  bool reduce_range =
      false;  // stores 8-bit weights as 7-bit integers, -64 to 63, with twice the step
};

// Converts a network; `sample` is [C,H,W]. Throws an error of kind kConfig that names a layer
// without an ONNX equivalent, or a quantiser that is not calibrated.
CONVSCOPE_API OnnxGraph onnx_network(Module& network, const Shape& sample, const std::string& name,
                                     const OnnxOptions& options = {});

}  // namespace convscope
