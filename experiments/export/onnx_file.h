// SPDX-License-Identifier: Apache-2.0
// onnx_file.h: a graph of ONNX operators and its bytes: a ModelProto of IR version 8, opset 17.
//
// The project has its own writer. An ONNX file is a protobuf message with four kinds of fields:
// varints, 32-bit floats, byte strings, and nested messages. Writing them takes the hundred lines
// of onnx_file.cpp. A library (libonnx-dev and libprotobuf-dev, 20 MB and a code generator) would
// be a dependency of every build.
//
// Format      https://github.com/onnx/onnx/blob/main/onnx/onnx.proto (field numbers),
//             https://protobuf.dev/programming-guides/encoding
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "framework/io/bytes.h"

namespace convscope {

struct OnnxAttribute {
  std::string name;
  std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>> value;
};

struct OnnxNode {
  std::string op, name;  // "Conv", "layer1.0.conv1"
  std::vector<std::string> inputs, outputs;
  std::vector<OnnxAttribute> attributes = {};
};

// A float tensor that is an input or output of the graph. Its first axis is the batch, which has no
// fixed size.
struct OnnxValue {
  std::string name;
  Shape shape;
};

struct OnnxGraph {
  std::string name;
  OnnxValue input, output;
  std::vector<OnnxNode> nodes;  // in topological order
  NamedTensors constants;       // f32, i8 or u8
  int folded = 0;               // batch norms that became part of a convolution
  int wide = 0;                 // weights with codes beyond 7 bits
  int narrowed = 0;             // weights whose codes were rounded to 7 bits
};

// Returns the bytes of the file. Throws an error of kind kRun above 2 GiB, protobuf's limit.
CONVSCOPE_API std::string onnx_bytes(const OnnxGraph& graph);

}  // namespace convscope
