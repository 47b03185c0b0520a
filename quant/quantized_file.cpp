// SPDX-License-Identifier: Apache-2.0
// quantized_file.cpp: a trained quantised network as integer codes and steps.
#include "quant/quantized_file.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "framework/int_math.h"
#include "framework/io/json_text.h"

namespace convscope {
namespace {

using Json = nlohmann::json;

constexpr const char* kOperation = "quantised model";
constexpr const char* kFormat = "convscope-quantised-1";

template <class... Words>
[[noreturn]] void damaged(const std::string& path, const Words&... words) {
  fail(ErrorKind::kData, kOperation, cat(path, ": ", words...));
}

int codes_in_a_byte(int bits) { return bits == 2 ? 4 : bits <= 4 ? 2 : 1; }

struct Packed {
  DType dtype;
  Shape shape;
};
Packed packed_form(int bits, const Shape& shape) {
  const int each = codes_in_a_byte(bits);
  if (each == 1) return {DType::i8, shape};
  return {DType::u8, {ceil_div(shape.numel(), std::int64_t{each})}};
}

// "c1.weight"; for a network that is one layer "weight".
std::string name_of(const QuantizedTensor& tensor) {
  return tensor.layer.empty() ? tensor.tensor : tensor.layer + "." + tensor.tensor;
}

struct Named {
  std::string name;
  QuantizedTensor tensor;
  Module* layer;  // of a weight
};
std::vector<Named> named_quantizers(Module& network) {
  std::map<std::string, Module*> modules;
  for (const NamedModule& part : network.modules()) modules.emplace(part.name, part.module);
  std::vector<Named> out;
  for (const QuantizedTensor& tensor : quantized_tensors(network)) {
    out.push_back({name_of(tensor), tensor, modules.at(tensor.layer)});
  }
  return out;
}

// Returns the parameters and buffers that the file stores unchanged.
NamedTensors other_tensors(const Module& network, const std::vector<Named>& quantizers) {
  NamedTensors all = network.buffers();
  for (const NamedParameter& p : network.parameters()) {
    all.push_back({p.name, p.variable.value()});
  }
  std::erase_if(all, [&](const NamedTensor& tensor) {
    if (belongs_to_quantizer(tensor.name)) return true;
    return std::ranges::any_of(quantizers, [&](const Named& one) {
      return one.tensor.is_weight && one.name == tensor.name;
    });
  });
  return all;
}

Json facts_of(const Named& one) {
  const QuantizerOptions& options = one.tensor.quantizer->options();
  Json out = {
      {"bits", options.bits}, {"signed", options.is_signed}, {"by_channel", options.channels > 0}};
  if (!one.tensor.is_weight) return out;
  const Shape& shape = one.layer->weight().shape();
  out["shape"] = std::vector<std::int64_t>(shape.begin(), shape.end());
  return out;
}

// Removes the tensor from the list and returns it.
Tensor taken(std::map<std::string, Tensor>& found, const std::string& path, const std::string& name,
             DType dtype, const Shape& shape) {
  const auto at = found.find(name);
  if (at == found.end()) damaged(path, "expected a tensor '", name, "', got none");
  const Tensor tensor = at->second;
  if (tensor.dtype() != dtype || !(tensor.shape() == shape)) {
    damaged(path, "expected '", name, "' to be ", convscope::name_of(dtype), shape,
            " because the config makes it so, got ", convscope::name_of(tensor.dtype()),
            tensor.shape());
  }
  found.erase(at);
  return tensor;
}

void check_facts(const SafetensorsFile& file, const std::string& path,
                 const std::vector<Named>& quantizers) {
  const auto text = file.metadata.find("quantisers");
  const Json facts =
      text == file.metadata.end() ? Json() : Json::parse(text->second, nullptr, false);
  if (!facts.is_object()) {
    damaged(path, "expected a JSON object 'quantisers' in the metadata, got ",
            text == file.metadata.end() ? "none" : "other text");
  }
  for (const Named& one : quantizers) {
    const Json wanted = facts_of(one);
    if (!facts.contains(one.name))
      damaged(path, "expected '", one.name, "' in 'quantisers', got ", "none");
    if (facts[one.name] == wanted) continue;
    const auto dumped = [](const Json& json) {
      return json.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 200);
    };
    damaged(path, "expected '", one.name, "' to be ", dumped(wanted),
            " because the config makes it so, got ", dumped(facts[one.name]));
  }
}

// ---- codes without zeros: a bit for each code says whether it is stored

std::int64_t bytes_of(int bits, const Shape& shape) {
  const Packed form = packed_form(bits, shape);
  return form.shape.numel();
}

// Adds the smaller of the two encodings.
void add_codes(const std::string& name, const QuantizedWeight& weight, int bits,
               SafetensorsFile& out) {
  std::vector<std::int8_t> kept;
  const auto count = static_cast<std::int64_t>(weight.codes.size());
  const Tensor places = Tensor::zeros({ceil_div(count, std::int64_t{8})}, DType::u8);
  auto* const bytes = static_cast<std::uint8_t*>(places.raw_data());
  for (std::size_t i = 0; i < weight.codes.size(); ++i) {
    if (weight.codes[i] == 0) continue;
    kept.push_back(weight.codes[i]);
    bytes[i / 8] = static_cast<std::uint8_t>(bytes[i / 8] | 1u << i % 8);
  }
  const Shape shape{static_cast<std::int64_t>(kept.size())};
  if (places.numel() + bytes_of(bits, shape) >= bytes_of(bits, weight.shape)) {
    out.tensors.push_back({name + ".codes", pack_codes(weight.codes, bits, weight.shape)});
    return;
  }
  out.tensors.push_back({name + ".kept", places});
  out.tensors.push_back({name + ".codes", pack_codes(kept, bits, shape)});
}

// Returns the codes from either encoding (all codes, or only those that `kept` marks), and removes
// the tensors from the list.
std::vector<std::int8_t> taken_codes(std::map<std::string, Tensor>& found, const std::string& path,
                                     const std::string& name, int bits, const Shape& shape) {
  std::vector<bool> is_kept(static_cast<std::size_t>(shape.numel()), true);
  std::int64_t kept = shape.numel();
  const bool has_places = found.contains(name + ".kept");
  if (has_places) {
    const Tensor places = taken(found, path, name + ".kept", DType::u8,
                                Shape{ceil_div(shape.numel(), std::int64_t{8})});
    const auto* const bytes = static_cast<const std::uint8_t*>(places.raw_data());
    const auto is_set = [&](std::int64_t i) { return (bytes[i / 8] >> i % 8 & 1) != 0; };
    kept = 0;
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      is_kept[static_cast<std::size_t>(i)] = is_set(i);
      kept += is_set(i) ? 1 : 0;
    }
    for (std::int64_t i = shape.numel(); i < 8 * places.numel(); ++i) {
      if (is_set(i)) {
        damaged(path, "expected zeros after the last of ", shape.numel(), " bits of '", name,
                ".kept', got a 1 at ", i);
      }
    }
  }
  const std::string code_name = name + ".codes";
  const auto packed = found.find(code_name);
  if (packed == found.end()) damaged(path, "expected a tensor '", code_name, "', got none");
  const std::vector<std::int8_t> codes = unpack_codes(
      packed->second, bits, has_places ? Shape{kept} : shape, cat(path, ", '", code_name, "'"));
  found.erase(packed);
  std::vector<std::int8_t> out(is_kept.size());
  auto next = codes.begin();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = is_kept[i] ? *next++ : std::int8_t{0};
  return out;
}

void check_steps(const Tensor& steps, const std::string& path, const std::string& name) {
  for (std::int64_t i = 0; i < steps.numel(); ++i) {
    const float s = steps.data<float>()[i];
    if (std::isnormal(s) && s > 0 && std::isfinite(s * 256)) continue;
    damaged(path, "expected finite steps above 0 in '", name, "', got ", s);
  }
}

}  // namespace

Tensor pack_codes(const std::vector<std::int8_t>& codes, int bits, const Shape& shape) {
  CONVSCOPE_CHECK(static_cast<std::int64_t>(codes.size()) == shape.numel(), kOperation,
                  "expected a code for each element of ", shape, ", got ", codes.size());
  const Packed form = packed_form(bits, shape);
  const Tensor out = Tensor::zeros(form.shape, form.dtype);
  auto* const bytes = static_cast<std::uint8_t*>(out.raw_data());
  const auto each = static_cast<std::size_t>(codes_in_a_byte(bits));
  const std::size_t width = 8 / each;
  const unsigned mask = (1u << width) - 1;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const unsigned code = static_cast<unsigned>(static_cast<int>(codes[i])) & mask;
    bytes[i / each] = static_cast<std::uint8_t>(bytes[i / each] | code << i % each * width);
  }
  return out;
}

std::vector<std::int8_t> unpack_codes(const Tensor& packed, int bits, const Shape& shape,
                                      const std::string& name) {
  const Packed form = packed_form(bits, shape);
  const IntegerGrid grid = integer_grid(bits, /*is_signed=*/true);
  if (packed.dtype() != form.dtype || !(packed.shape() == form.shape)) {
    fail(ErrorKind::kData, kOperation,
         cat(name, ": expected ", convscope::name_of(form.dtype), form.shape, " because ", bits,
             "-bit codes of ", shape, " take as many bytes, got ",
             convscope::name_of(packed.dtype()), packed.shape()));
  }
  const auto each = static_cast<std::size_t>(codes_in_a_byte(bits));
  const unsigned width = 8 / static_cast<unsigned>(each);
  const auto* const bytes = static_cast<const std::uint8_t*>(packed.raw_data());
  std::vector<std::int8_t> out(static_cast<std::size_t>(shape.numel()));
  const auto code_at = [&](std::size_t i) {
    // Shifts the code to the top of the byte and back, which extends the sign of the code.
    const unsigned raised = static_cast<unsigned>(bytes[i / each])
                            << (8 - width - i % each * width);
    return static_cast<int>(static_cast<std::int8_t>(raised & 0xffu)) >> (8 - width);
  };
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int code = code_at(i);
    if (code < -grid.qn || code > grid.qp) {
      fail(ErrorKind::kData, kOperation,
           cat(name, ": expected codes from ", -grid.qn, " to ", grid.qp, " because they have ",
               bits, " bits, got ", code, " at ", i));
    }
    out[i] = static_cast<std::int8_t>(code);
  }
  const std::size_t room = static_cast<std::size_t>(packed.numel()) * each;
  for (std::size_t i = out.size(); i < room; ++i) {
    if (code_at(i) == 0) continue;
    fail(ErrorKind::kData, kOperation,
         cat(name, ": expected zeros after the last of ", out.size(), " codes, got ", code_at(i)));
  }
  return out;
}

void check_calibrated(const Quantizer& quantizer, const std::string& name) {
  if (quantizer.is_active() && quantizer.is_calibrated()) return;
  fail(ErrorKind::kConfig, kOperation,
       cat("expected calibrated steps, because codes are counted in them, got '", name,
           "' whose quantiser has not begun; train further"));
}

QuantizedWeight quantized_weight(Module& layer, const Quantizer& quantizer,
                                 const std::string& name) {
  const NoGrad no_grad;
  check_calibrated(quantizer, name);
  // Rounding bounds the steps, so it comes first.
  const Tensor rounded = layer.used_weight().value().to(Device{});
  const Tensor steps = quantizer.steps();
  const std::int64_t inner = rounded.numel() / std::max<std::int64_t>(steps.numel(), 1);
  std::vector<std::int8_t> codes(static_cast<std::size_t>(rounded.numel()));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const float v = rounded.data<float>()[i];
    const float code =
        round_half_even(v / steps.data<float>()[static_cast<std::int64_t>(i) / inner]);
    if (!std::isfinite(code)) {
      fail(ErrorKind::kConfig, kOperation,
           cat("expected finite numbers in '", name, "', got ", v, " at ", i));
    }
    codes[i] = static_cast<std::int8_t>(code);
  }
  return {std::move(codes), steps, rounded.shape()};
}

SafetensorsFile to_quantized_file(Module& network,
                                  const std::function<bool(std::string_view)>& leave_out) {
  const NoGrad no_grad;
  const bool was_training = network.is_training();
  network.eval();
  const std::vector<Named> quantizers = named_quantizers(network);
  SafetensorsFile out;
  Json facts = Json::object();
  for (const Named& one : quantizers) {
    Quantizer& quantizer = *one.tensor.quantizer;
    if (one.tensor.is_weight) {
      const QuantizedWeight weight = quantized_weight(*one.layer, quantizer, one.name);
      const int bits = quantizer.options().bits;
      out.tensors.push_back({one.name + ".step", weight.steps});
      add_codes(one.name, weight, bits, out);
    } else {
      check_calibrated(quantizer, one.name);
      // As above: bound the step first.
      quantizer.forward(Variable(Tensor::zeros({1}, DType::f32, quantizer.options().device)));
      out.tensors.push_back({one.name + ".step", quantizer.steps()});
    }
    facts[one.name] = facts_of(one);
  }
  for (const NamedTensor& tensor : other_tensors(network, quantizers)) {
    if (!leave_out(tensor.name)) out.tensors.push_back({tensor.name, tensor.tensor.to(Device{})});
  }
  network.train(was_training);
  out.metadata = {{"format", kFormat}, {"quantisers", facts.dump()}};
  return out;
}

bool is_quantized_file(const SafetensorsFile& file) {
  const auto format = file.metadata.find("format");
  return format != file.metadata.end() && format->second.starts_with(kQuantizedFormats);
}

void load_quantized_file(const SafetensorsFile& file, const std::string& path, Module& network) {
  const auto format = file.metadata.find("format");
  if (format == file.metadata.end() || format->second != kFormat) {
    damaged(path, "expected the format ", kFormat, ", got ",
            format == file.metadata.end() ? "none" : format->second.substr(0, 40),
            ", which this version does not read");
  }
  const std::vector<Named> quantizers = named_quantizers(network);
  if (quantizers.empty()) damaged(path, "expected a config with a block 'quant', got one without");
  check_facts(file, path, quantizers);
  std::map<std::string, Tensor> found;
  for (const NamedTensor& tensor : file.tensors) found.emplace(tensor.name, tensor.tensor);
  for (const Named& one : quantizers) {
    Quantizer& quantizer = *one.tensor.quantizer;
    const std::string step_name = one.name + ".step";
    const Tensor steps =
        taken(found, path, step_name, DType::f32, Shape{quantizer.steps().numel()});
    check_steps(steps, path, step_name);
    quantizer.set_steps(steps);
    if (!one.tensor.is_weight) continue;
    const Shape& shape = one.layer->weight().shape();
    const int bits = quantizer.options().bits;
    const std::vector<std::int8_t> codes = taken_codes(found, path, one.name, bits, shape);
    const Tensor own = quantizer.steps();
    const Tensor weight = Tensor::empty(shape);
    const std::int64_t inner = shape.numel() / std::max<std::int64_t>(own.numel(), 1);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      weight.data<float>()[i] =
          own.data<float>()[static_cast<std::int64_t>(i) / inner] * static_cast<float>(codes[i]);
    }
    one.layer->weight().value().copy_from(weight);
  }
  for (const NamedTensor& to : other_tensors(network, quantizers)) {
    to.tensor.copy_from(taken(found, path, to.name, to.tensor.dtype(), to.tensor.shape()));
  }
  if (!found.empty()) {
    damaged(path, "expected no tensor '", found.begin()->first,
            "' because the config has none, got ", found.begin()->second.str());
  }
}

}  // namespace convscope
