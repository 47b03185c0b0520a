// SPDX-License-Identifier: Apache-2.0
// onnx_file.cpp: the bytes of an ONNX file, message by message.
#include "experiments/export/onnx_file.h"

#include <bit>
#include <limits>

#include "framework/io/bytes.h"

namespace convscope {
namespace {

constexpr std::int64_t kIrVersion = 8;
constexpr std::int64_t kOpset = 17;

// One protobuf message: fields with their numbers.
class Message {
 public:
  void number(int field, std::int64_t value) {
    tag(field, 0);
    varint(static_cast<std::uint64_t>(value));
  }
  void real(int field, float value) {
    tag(field, 5);
    append_little_endian(bytes_, std::bit_cast<std::uint32_t>(value), 4);
  }
  void text(int field, const std::string& value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const Message& value) { text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void tag(int field, unsigned type) { varint(static_cast<unsigned>(field) << 3 | type); }
  // A varint stores 7 bits per byte, lowest first; the highest bit says that more bytes follow.
  void varint(std::uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

// TensorProto.DataType
std::int64_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 1;
    case DType::u8:
      return 2;
    case DType::i8:
      return 3;
    default:
      fail("onnx", cat("expected constants of type f32, i8 or u8, got ", name_of(dtype)));
  }
}

Message tensor_of(const NamedTensor& constant) {
  const Tensor host = constant.tensor.to(Device{});
  Message out;
  for (const std::int64_t size : host.shape()) out.number(1, size);
  out.number(2, type_of(host.dtype()));
  out.text(8, constant.name);
  out.text(9, {static_cast<const char*>(host.raw_data()),
               static_cast<std::size_t>(host.size_bytes())});  // little-endian, row-major
  return out;
}

Message attribute_of(const OnnxAttribute& attribute) {
  constexpr std::int64_t kFloat = 1, kInt = 2, kString = 3, kInts = 7;  // AttributeType
  Message out;
  out.text(1, attribute.name);
  if (const auto* const whole = std::get_if<std::int64_t>(&attribute.value)) {
    out.number(3, *whole);
    out.number(20, kInt);
  } else if (const auto* const real = std::get_if<float>(&attribute.value)) {
    out.real(2, *real);
    out.number(20, kFloat);
  } else if (const auto* const text = std::get_if<std::string>(&attribute.value)) {
    out.text(4, *text);
    out.number(20, kString);
  } else {
    for (const std::int64_t one : std::get<std::vector<std::int64_t>>(attribute.value)) {
      out.number(8, one);
    }
    out.number(20, kInts);
  }
  return out;
}

Message node_of(const OnnxNode& node) {
  Message out;
  for (const std::string& name : node.inputs) out.text(1, name);
  for (const std::string& name : node.outputs) out.text(2, name);
  out.text(3, node.name);
  out.text(4, node.op);
  for (const OnnxAttribute& attribute : node.attributes) out.message(5, attribute_of(attribute));
  return out;
}

// ValueInfoProto
Message value_of(const OnnxValue& value) {
  Message shape;
  for (int axis = 0; axis < value.shape.rank(); ++axis) {
    Message size;
    if (axis == 0) {
      size.text(2, "N");
    } else {
      size.number(1, value.shape[axis]);
    }
    shape.message(1, size);
  }
  Message tensor, type, out;
  tensor.number(1, type_of(DType::f32));
  tensor.message(2, shape);
  type.message(1, tensor);
  out.text(1, value.name);
  out.message(2, type);
  return out;
}

}  // namespace

std::string onnx_bytes(const OnnxGraph& graph) {
  Message inner;
  for (const OnnxNode& node : graph.nodes) inner.message(1, node_of(node));
  inner.text(2, graph.name);
  for (const NamedTensor& constant : graph.constants) inner.message(5, tensor_of(constant));
  inner.message(11, value_of(graph.input));
  inner.message(12, value_of(graph.output));
  Message opset;
  opset.text(1, "");  // ONNX's standard operators
  opset.number(2, kOpset);
  Message model;
  model.number(1, kIrVersion);
  model.text(2, "convscope");
  model.text(3, CONVSCOPE_VERSION);
  model.message(7, inner);
  model.message(8, opset);
  if (model.bytes().size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    fail(ErrorKind::kRun, "onnx",
         cat("expected a network of less than 2 GiB because protobuf holds no more, got ",
             model.bytes().size(), " bytes"));
  }
  return model.bytes();
}

}  // namespace convscope
