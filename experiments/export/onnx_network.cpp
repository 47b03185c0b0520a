// SPDX-License-Identifier: Apache-2.0
// onnx_network.cpp: converts a trained network to a graph of ONNX operators, layer by layer.
#include "experiments/export/onnx_network.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "layers/batch_norm2d/batch_norm2d.h"
#include "layers/channel_shuffle/channel_shuffle.h"
#include "layers/conv2d/conv2d.h"
#include "layers/conv_transpose2d/conv_transpose2d.h"
#include "layers/layer_graph/joins.h"
#include "layers/layer_graph/layer_graph.h"
#include "layers/norm/group_norm.h"
#include "layers/norm/layer_norm.h"
#include "layers/pool2d/pool2d.h"
#include "layers/residual.h"
#include "layers/softmax/softmax.h"
#include "layers/upsample/upsample.h"
#include "quant/quantized_file.h"

namespace convscope {
namespace {

constexpr const char* kOperation = "onnx";

using Integers = std::vector<std::int64_t>;

Tensor scalar(double value, DType dtype = DType::f32) { return Tensor::full({}, value, dtype); }

class Walk {
 public:
  Walk(Module& network, const Shape& sample, const OnnxOptions& options, OnnxGraph& graph)
      : options_(options), graph_(graph) {
    for (const NamedModule& part : network.modules()) names_.emplace(part.module, part.name);
    for (const NamedParameter& p : network.parameters()) tensors_[p.name] = p.variable.value();
    for (const NamedTensor& buffer : network.buffers()) tensors_[buffer.name] = buffer.tensor;
    for (const QuantizedTensor& tensor : quantized_tensors(network)) {
      quantizers_[joined(tensor.layer, tensor.tensor)] = tensor.quantizer;
    }
    shape_ = {1};
    for (const std::int64_t size : sample) shape_.push_back(size);
    for (const auto& [module, name] : names_) {
      if (name == "images" || name == "logits")
        refuse(name, "the name of an input or output of the network");
    }
    graph.input = {"images", shape_};
    value_ = graph.input.name;
    pass(network);
    CONVSCOPE_CHECK(!graph.nodes.empty(), kOperation, "expected a network with a layer, got none");
    if (graph.nodes.back().name != value_) node("Identity", "logits.copy", {value_});
    graph.nodes.back().outputs = {"logits"};
    graph.output = {"logits", shape_};
  }

 private:
  static std::string joined(const std::string& layer, const std::string& part) {
    return layer.empty() ? part : layer + "." + part;
  }

  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    fail(ErrorKind::kConfig, kOperation,
         cat("expected layers that ONNX, opset 17, can express, got '", name, "': ", what));
  }

  std::string constant(const std::string& name, const Tensor& tensor) {
    graph_.constants.push_back({name, tensor.to(Device{})});
    return name;
  }

  // Adds a node, whose output value has the node's name.
  void node(const std::string& op, const std::string& name, std::vector<std::string> inputs,
            std::vector<OnnxAttribute> attributes = {}) {
    graph_.nodes.push_back({op, name, std::move(inputs), {name}, std::move(attributes)});
    value_ = name;
  }

  // Adds a layer with a weight. If the weight is quantised, a separate Add node adds the bias
  // (onnx_network.h). The layer's output has `rank` axes with the channels second; the bias is
  // reshaped to broadcast to it.
  void node_with_bias(const std::string& op, const std::string& name,
                      std::vector<std::string> inputs, std::vector<OnnxAttribute> attributes,
                      int rank) {
    const std::string bias = joined(name, "bias");
    const bool apart = quantizers_.contains(joined(name, "weight")) && tensors_.contains(bias);
    if (!apart) add_if_there(inputs, bias);
    node(op, apart ? joined(name, "sums") : name, std::move(inputs), std::move(attributes));
    if (!apart) return;
    const Tensor value = tensors_.at(bias);
    const Shape shape = rank == 4 ? Shape{value.numel(), 1, 1} : value.shape();
    node("Add", name, {value_, constant(bias, value.reshape(shape))});
  }

  // Adds the named tensor as a constant, when the network has such a tensor.
  void add_if_there(std::vector<std::string>& inputs, const std::string& name) {
    const auto at = tensors_.find(name);
    if (at != tensors_.end()) inputs.push_back(constant(name, at->second));
  }

  // Passes value_ through the quantiser called `key`, if that quantiser exists and is active.
  void round(const std::string& key) {
    const auto at = quantizers_.find(key);
    if (at == quantizers_.end()) return;
    check_calibrated(*at->second, key);
    Quantizer& quantizer = *at->second;
    const NoGrad no_grad;  // clips the step to its bounds
    quantizer.forward(Variable(Tensor::zeros({1}, DType::f32, quantizer.options().device)));
    const float s = quantizer.steps().data<float>()[0];
    const IntegerGrid& grid = quantizer.grid();
    if (quantizer.options().bits < 8) {
      node("Clip", key + ".clip",
           {value_, constant(key + ".least", scalar(-static_cast<double>(grid.qn) * s)),
            constant(key + ".most", scalar(static_cast<double>(grid.qp) * s))});
    }
    const std::string step = constant(key + ".step", scalar(s));
    const std::string zero =
        constant(key + ".zero", scalar(0, quantizer.options().is_signed ? DType::i8 : DType::u8));
    node("QuantizeLinear", key + ".codes", {value_, step, zero});
    node("DequantizeLinear", key, {value_, step, zero});
  }

  // Converts 8-bit weights to 7 bits: halves the integers (half to even), clips the few results
  // outside -64..63, and doubles the step size.
  static void halve(QuantizedWeight& weight) {
    for (std::int8_t& q : weight.codes) {
      q = static_cast<std::int8_t>(std::clamp(std::nearbyint(q / 2.0), -64.0, 63.0));
    }
    weight.steps = weight.steps.clone();
    for (std::int64_t i = 0; i < weight.steps.numel(); ++i) weight.steps.data<float>()[i] *= 2;
  }

  // Returns the layer's weight: a constant, or the output of DequantizeLinear.
  std::string weight_of(const std::string& name, Module& layer) {
    const NoGrad no_grad;
    const std::string key = joined(name, "weight");
    const auto at = quantizers_.find(key);
    if (at == quantizers_.end()) return constant(key, layer.used_weight().value());
    QuantizedWeight codes = quantized_weight(layer, *at->second, key);
    const bool wide = std::ranges::any_of(codes.codes, [](int q) { return q < -64 || q > 63; });
    if (wide && options_.reduce_range) {
      halve(codes);
      ++graph_.narrowed;
    } else if (wide) {
      ++graph_.wide;
    }
    const bool by_channel = at->second->options().channels > 0;
    const Shape shape = by_channel ? codes.steps.shape() : Shape{};
    const Tensor packed = Tensor::empty(codes.shape, DType::i8);
    std::copy(codes.codes.begin(), codes.codes.end(), static_cast<std::int8_t*>(packed.raw_data()));
    std::vector<OnnxAttribute> axis;
    if (by_channel) axis.push_back({"axis", std::int64_t{0}});
    graph_.nodes.push_back(
        {"DequantizeLinear",
         key,
         {constant(key + ".codes", packed), constant(key + ".step", codes.steps.reshape(shape)),
          constant(key + ".zero", Tensor::zeros(shape, DType::i8))},
         {key},
         axis});
    return key;
  }

  void pass(Module& module) {
    if (auto* sequence = dynamic_cast<Sequential*>(&module)) {
      for (std::size_t i = 0; i < sequence->size(); ++i) {
        if (i + 1 < sequence->size() && folds(sequence->layer(i), sequence->layer(i + 1))) {
          pass_folded(static_cast<Conv2d&>(sequence->layer(i)),
                      static_cast<BatchNorm2d&>(sequence->layer(i + 1)));
          ++i;
        } else {
          pass(sequence->layer(i));
        }
      }
      return;
    }
    if (auto* graph = dynamic_cast<LayerGraph*>(&module)) return pass_graph(*graph);
    if (auto* block = dynamic_cast<Residual*>(&module)) return pass_block(*block);
    const std::string& name = names_.at(&module);
    const std::string kind = module.kind();
    if (module.has_lists()) refuse(name, kind);
    const Shape after = module.output_shape(shape_);
    if (auto* conv = dynamic_cast<Conv2d*>(&module)) {
      pass_conv(name, *conv);
    } else if (auto* up = dynamic_cast<ConvTranspose2d*>(&module)) {
      pass_conv_transpose(name, *up);
    } else if (kind == "linear") {
      round(joined(name, "input"));
      const std::string x = value_;
      node_with_bias("Gemm", name, {x, weight_of(name, module)}, {{"transB", std::int64_t{1}}}, 2);
    } else if (auto* norm = dynamic_cast<BatchNorm2d*>(&module)) {
      std::vector<std::string> inputs{value_};
      for (const char* part : {"weight", "bias", "running_mean", "running_var"}) {
        add_if_there(inputs, joined(name, part));
      }
      node("BatchNormalization", name, std::move(inputs),
           {{"epsilon", static_cast<float>(norm->options().eps)}});
    } else if (auto* pool = dynamic_cast<Pool2d*>(&module)) {
      pass_pool(name, *pool, after);
    } else if (kind == "adaptive_avg_pool2d") {
      pass_adaptive_pool(name, after);
    } else if (kind == "flatten") {
      node("Flatten", name, {value_}, {{"axis", std::int64_t{1}}});
    } else if (kind == "relu" || kind == "tanh" || kind == "sigmoid") {
      node(kind == "relu" ? "Relu" : kind == "tanh" ? "Tanh" : "Sigmoid", name, {value_});
    } else if (kind == "relu6") {
      node("Clip", name,
           {value_, constant(name + ".least", scalar(0)), constant(name + ".most", scalar(6))});
    } else if (kind == "deform_conv2d") {
      refuse(name, "deform_conv2d, which ONNX has from opset 19 on");
    } else if (!pass_activation(kind, name) && !pass_norm(module, name) &&
               !pass_images(module, name, after) && kind != "dropout" &&
               kind != "stochastic_depth") {
      refuse(name, kind);
    }
    shape_ = after;
  }

  // The next three functions add a layer of their kind, and return false for any other layer.
  bool pass_activation(const std::string& kind, const std::string& name) {
    const std::string x = value_;
    if (kind == "hard_swish") {
      node("HardSwish", name, {x});
    } else if (kind == "silu") {
      node("Sigmoid", name + ".sigmoid", {x});
      node("Mul", name, {x, value_});
    } else if (kind == "gelu") {
      node("Mul", name + ".scaled", {x, constant(name + ".factor", scalar(std::sqrt(0.5)))});
      node("Erf", name + ".erf", {value_});
      node("Add", name + ".sum", {value_, constant(name + ".one", scalar(1))});
      node("Mul", name + ".twice", {x, value_});
      node("Mul", name, {value_, constant(name + ".half", scalar(0.5))});
    } else {
      return false;
    }
    return true;
  }

  // A tensor [C] as a constant that is broadcast along the pixels of images.
  std::string by_channel(const std::string& name) {
    const Tensor& tensor = tensors_.at(name);
    return constant(name, shape_.rank() == 4 ? tensor.reshape({tensor.numel(), 1, 1}) : tensor);
  }

  // ONNX normalises the last axes, so images are transposed before and after a layer norm.
  // GroupNormalization begins with opset 18: the groups are the channels of an instance norm.
  bool pass_norm(Module& module, const std::string& name) {
    if (const auto* norm = dynamic_cast<LayerNorm*>(&module)) {
      const bool is_image = shape_.rank() == 4;
      if (is_image) node("Transpose", name + ".nhwc", {value_}, {{"perm", Integers{0, 2, 3, 1}}});
      std::vector<std::string> inputs{value_};
      for (const char* part : {"weight", "bias"}) add_if_there(inputs, joined(name, part));
      node("LayerNormalization", is_image ? name + ".norm" : name, std::move(inputs),
           {{"axis", std::int64_t{-1}}, {"epsilon", static_cast<float>(norm->eps())}});
      if (is_image) node("Transpose", name, {value_}, {{"perm", Integers{0, 3, 1, 2}}});
    } else if (const auto* groups = dynamic_cast<GroupNorm*>(&module)) {
      reshape(name + ".groups", {0, groups->groups(), -1});
      const Shape count{groups->groups()};
      node("InstanceNormalization", name + ".norm",
           {value_, constant(name + ".ones", Tensor::full(count, 1.0)),
            constant(name + ".zeros", Tensor::zeros(count))},
           {{"epsilon", static_cast<float>(groups->eps())}});
      reshape(name + ".channels", sizes(shape_));
      node("Mul", name + ".scaled", {value_, by_channel(joined(name, "weight"))});
      node("Add", name, {value_, by_channel(joined(name, "bias"))});
    } else if (module.kind() == "layer_scale") {
      node("Mul", name, {value_, by_channel(joined(name, "weight"))});
    } else {
      return false;
    }
    return true;
  }

  // Returns the sizes of a Reshape to images of this shape; 0 keeps the size of the batch.
  static Integers sizes(const Shape& shape) {
    Integers out{0};
    for (int axis = 1; axis < shape.rank(); ++axis) out.push_back(shape[axis]);
    return out;
  }

  std::string integers(const std::string& name, const Integers& values) {
    graph_.nodes.push_back({"Constant", name, {}, {name}, {{"value_ints", values}}});
    return name;
  }

  void reshape(const std::string& name, const Integers& to) {
    const std::string x = value_;
    node("Reshape", name, {x, integers(name + ".sizes", to)});
  }

  bool pass_images(Module& module, const std::string& name, const Shape& after) {
    const std::string kind = module.kind();
    if (kind == "global_avg_pool2d" || kind == "global_max_pool2d") {
      node(kind == "global_avg_pool2d" ? "GlobalAveragePool" : "GlobalMaxPool", name, {value_});
    } else if (kind == "adaptive_max_pool2d") {
      if (shape_[2] % after[2] != 0 || shape_[3] % after[3] != 0) {
        refuse(name, cat(kind, " with windows of several sizes, ", shape_, " to ", after));
      }
      const Integers window{shape_[2] / after[2], shape_[3] / after[3]};
      node("MaxPool", name, {value_}, {{"kernel_shape", window}, {"strides", window}});
    } else if (const auto* softmax = dynamic_cast<Softmax*>(&module)) {
      node("Softmax", name, {value_}, {{"axis", std::int64_t{softmax->axis()}}});
    } else if (const auto* shuffle = dynamic_cast<ChannelShuffle*>(&module)) {
      reshape(name + ".groups", {0, shuffle->groups(), shape_[1] / shuffle->groups(), -1});
      node("Transpose", name + ".turns", {value_}, {{"perm", Integers{0, 2, 1, 3}}});
      reshape(name, sizes(shape_));
    } else if (const auto* upsample = dynamic_cast<Upsample*>(&module)) {
      pass_upsample(name, upsample->options(), after);
    } else if (kind == "squeeze_excitation") {
      pass_squeeze_excitation(name, module);
    } else {
      return false;
    }
    return true;
  }

  void pass_upsample(const std::string& name, const UpsampleOptions& options, const Shape& after) {
    const bool is_nearest = options.mode == UpsampleMode::nearest;
    // A list of sizes would fix the batch, so a size becomes two scales.
    const auto factor = [&](int axis) {
      const auto in = static_cast<double>(shape_[axis]), out = static_cast<double>(after[axis]);
      const auto exact = static_cast<float>(options.scale > 0 ? options.scale : out / in);
      const bool rounds_up = options.scale > 0 || in * static_cast<double>(exact) >= out;
      if (is_nearest && options.scale <= 0 && in * static_cast<double>(exact) != out) {
        refuse(name,
               cat("upsample to a size whose factor is not exact in f32, ", shape_, " to ", after));
      }
      return rounds_up ? exact : std::nextafter(exact, INFINITY);
    };
    const std::string factors =
        constant(name + ".factors", Tensor::from({1.0f, 1.0f, factor(2), factor(3)}, {4}));
    std::vector<std::string> inputs{value_, "", factors};  // without a region
    node("Resize", name, std::move(inputs),
         {{"mode", std::string(is_nearest ? "nearest" : "linear")},
          {"nearest_mode", std::string("floor")},
          {"coordinate_transformation_mode", std::string(options.align_corners ? "align_corners"
                                                         : is_nearest          ? "asymmetric"
                                                                               : "half_pixel")}});
  }

  void pass_squeeze_excitation(const std::string& name, Module& module) {
    const std::string x = value_;
    const Shape images = shape_;
    node("GlobalAveragePool", name + ".means", {x});
    shape_ = {images[0], images[1], 1, 1};
    for (const NamedModule& part : module.modules()) {
      const bool is_child = !part.name.empty() && part.name.find('.') == std::string::npos;
      if (is_child) pass(*part.module);  // not the quantisers and masks of a child
    }
    node("Sigmoid", name + ".sigmoid", {value_});
    shape_ = images;
    node("Mul", name, {x, value_});
  }

  // Returns the batch norm of each convolution that it folds into, because nothing else reads the
  // convolution. Such a batch norm itself has the value null.
  std::map<const Module*, BatchNorm2d*> folded_norms(const LayerGraph& graph) const {
    const std::vector<LayerGraph::Entry>& entries = graph.entries();
    std::vector<int> readers(entries.size() + 1);  // of the input, then of each layer
    for (const LayerGraph::Entry& entry : entries) {
      for (const LayerSource& source : entry.sources) ++readers[source.value];
    }
    std::map<const Module*, BatchNorm2d*> out;
    for (const LayerGraph::Entry& entry : entries) {
      const std::size_t read = entry.sources[0].value;
      if (read == 0 || readers[read] != 1) continue;
      Module& before = *entries[read - 1].layer;
      if (!folds(before, *entry.layer)) continue;
      out[&before] = static_cast<BatchNorm2d*>(entry.layer.get());
      out[entry.layer.get()] = nullptr;
    }
    return out;
  }

  void pass_graph(const LayerGraph& graph) {
    struct Result {
      std::string value;
      Shape shape;
    };
    const auto folded = folded_norms(graph);
    graph.pass<Result>({{value_, shape_}}, [&](const auto& entry, std::vector<Result> inputs) {
      Module& layer = *entry.layer;
      value_ = inputs[0].value;
      shape_ = inputs[0].shape;
      if (layer.kind() == "split") return pass_split<Result>(layer);
      const auto norm = folded.find(&layer);
      if (norm == folded.end()) {
        inputs.size() == 1 ? pass(layer) : pass_join(layer, inputs);
      } else if (norm->second != nullptr) {
        pass_folded(static_cast<Conv2d&>(layer), *norm->second);
      }
      return std::vector<Result>{{value_, shape_}};
    });
  }

  template <class Result>
  std::vector<Result> pass_split(Module& layer) {
    const std::string& name = names_.at(&layer);
    std::vector<Result> out;
    std::vector<std::string> values;
    Integers channels;
    for (const Shape& shape : layer.output_shapes({shape_})) {
      values.push_back(cat(name, ".", out.size()));
      channels.push_back(shape[1]);
      out.push_back({values.back(), shape});
    }
    const std::string x = value_;
    graph_.nodes.push_back({"Split",
                            name,
                            {x, integers(name + ".sizes", channels)},
                            std::move(values),
                            {{"axis", std::int64_t{1}}}});
    value_ = out[0].value;
    shape_ = out[0].shape;
    return out;
  }

  template <class Result>
  void pass_join(Module& join, const std::vector<Result>& inputs) {
    const std::string& name = names_.at(&join);
    std::vector<std::string> values;
    Shapes shapes;
    for (const Result& input : inputs) {
      values.push_back(input.value);
      shapes.push_back(input.shape);
    }
    const std::string kind = join.kind();
    const Shape after = join.output_shapes(shapes).at(0);
    if (const auto* concat = dynamic_cast<Concat*>(&join)) {
      node("Concat", name, values, {{"axis", std::int64_t{concat->axis()}}});
    } else if (kind == "add" || kind == "mul") {
      const char* const op = kind == "add" ? "Add" : "Mul";
      for (std::size_t i = 1; i < values.size(); ++i) {  // ONNX's operators have two inputs
        const bool is_last = i + 1 == values.size();
        node(op, is_last ? name : cat(name, ".", i), {value_, values[i]});
      }
    } else {
      refuse(name, kind);
    }
    shape_ = after;
  }

  void pass_block(Residual& block) {
    const std::string& name = names_.at(&block);
    const Shape before = shape_;
    round(joined(name, "input"));
    const std::string rounded = value_;
    pass(block.body());
    const std::string sum = value_;
    const Shape after = shape_;
    value_ = rounded;
    if (block.shortcut() != nullptr) {
      shape_ = before;
      pass(*block.shortcut());
      round(joined(name, "shortcut"));
    }
    node("Add", joined(name, "sum"), {sum, value_});
    if (block.end() == Residual::End::relu) node("Relu", joined(name, "relu"), {value_});
    shape_ = after;
  }

  // Folding would change the quantised integers, so a batch norm after a quantised weight is not
  // folded.
  bool folds(Module& first, Module& second) const {
    return options_.fold_batch_norm && dynamic_cast<Conv2d*>(&first) != nullptr &&
           dynamic_cast<BatchNorm2d*>(&second) != nullptr &&
           !quantizers_.contains(joined(names_.at(&first), "weight"));
  }

  // Adds the convolution with folded batch norm: its weight is w a[k] and its bias (b - mean[k])
  // a[k] + shift[k], where a = scale / sqrt(var + eps); computed in double.
  void pass_folded(Conv2d& conv, BatchNorm2d& norm) {
    const std::string& name = names_.at(&conv);
    const auto part = [&](const std::string& of, const char* what) {
      const auto at = tensors_.find(joined(of, what));
      return at == tensors_.end() ? Tensor() : at->second.to(Device{});
    };
    const auto value = [](const Tensor& tensor, std::int64_t k, double otherwise) {
      return tensor.defined() ? tensor.at(k) : otherwise;
    };
    const std::string& norm_name = names_.at(&norm);
    const Tensor mean = part(norm_name, "running_mean"), var = part(norm_name, "running_var");
    const Tensor scale = part(norm_name, "weight"), shift = part(norm_name, "bias");
    const Tensor before = part(name, "bias");
    const NoGrad no_grad;
    Tensor w = conv.used_weight().value().to(Device{}).clone();
    const std::int64_t kernels = w.dim(0), taps = w.numel() / kernels;
    Tensor b = Tensor::empty({kernels});
    for (std::int64_t k = 0; k < kernels; ++k) {
      const double a = value(scale, k, 1) / std::sqrt(var.at(k) + norm.options().eps);
      float* const row = w.data<float>() + k * taps;
      for (std::int64_t i = 0; i < taps; ++i) row[i] = static_cast<float>(row[i] * a);
      b.data<float>()[k] =
          static_cast<float>((value(before, k, 0) - mean.at(k)) * a + value(shift, k, 0));
    }
    folded_ = {constant(joined(name, "weight"), w), constant(joined(name, "bias"), b)};
    const Shape after = norm.output_shape(conv.output_shape(shape_));
    pass_conv(name, conv);
    folded_.clear();
    shape_ = after;
    ++graph_.folded;
  }

  static std::vector<OnnxAttribute> conv_attributes(const Shape& kernel,
                                                    const Conv2dParams& params) {
    const Padding2d& padding = params.padding;
    return {
        {"kernel_shape", Integers{kernel[0], kernel[1]}},
        {"strides", Integers{params.stride_h, params.stride_w}},
        {"pads", Integers{padding.top, padding.left, padding.bottom, padding.right}},
        {"dilations", Integers{params.dilation_h, params.dilation_w}},
        {"group", params.groups},
    };
  }

  void pass_conv(const std::string& name, Conv2d& conv) {
    const Conv2dOptions& options = conv.options();
    const Conv2dParams& params = options.params;
    const Padding2d& padding = params.padding;
    if (options.padding_mode != PadMode::zeros && !(padding == Padding2d{})) {
      refuse(name, cat("conv2d with padding_mode ", convscope::name_of(options.padding_mode)));
    }
    round(joined(name, "input"));
    const std::string x = value_;
    const auto attributes = conv_attributes({options.kernel_h, options.kernel_w}, params);
    if (!folded_.empty()) return node("Conv", name, {x, folded_[0], folded_[1]}, attributes);
    node_with_bias("Conv", name, {x, weight_of(name, conv)}, attributes, 4);
  }

  void pass_conv_transpose(const std::string& name, ConvTranspose2d& layer) {
    const ConvTranspose2dParams& params = layer.params();
    round(joined(name, "input"));
    const std::string x = value_;
    std::vector<OnnxAttribute> attributes = conv_attributes(layer.kernel(), params.conv);
    attributes.push_back(
        {"output_padding", Integers{params.output_padding_h, params.output_padding_w}});
    node_with_bias("ConvTranspose", name, {x, weight_of(name, layer)}, std::move(attributes), 4);
  }

  void pass_pool(const std::string& name, const Pool2d& pool, const Shape& after) {
    const Pool2dWindow& window = pool.window();
    // Returns the rows or columns that the last window reads after the end of the image.
    const auto behind = [](std::int64_t out, std::int64_t size, std::int64_t kernel,
                           std::int64_t stride, std::int64_t pad) {
      return std::max(pad, (out - 1) * stride + kernel - size - pad);
    };
    const std::int64_t bottom =
        behind(after[2], shape_[2], window.kernel_h, window.stride_h, window.pad_h);
    const std::int64_t right =
        behind(after[3], shape_[3], window.kernel_w, window.stride_w, window.pad_w);
    std::vector<OnnxAttribute> attributes = {
        {"kernel_shape", Integers{window.kernel_h, window.kernel_w}},
        {"strides", Integers{window.stride_h, window.stride_w}},
        {"pads", Integers{window.pad_h, window.pad_w, bottom, right}}};
    if (pool.pool() == PoolKind::max) return node("MaxPool", name, {value_}, attributes);
    if (bottom != window.pad_h || right != window.pad_w) {
      refuse(name, "avg_pool2d whose last window reaches beyond the padding (ceil_mode)");
    }
    attributes.push_back({"count_include_pad", std::int64_t{window.count_include_pad ? 1 : 0}});
    node("AveragePool", name, {value_}, attributes);
  }

  void pass_adaptive_pool(const std::string& name, const Shape& after) {
    if (after[2] == 1 && after[3] == 1) return node("GlobalAveragePool", name, {value_});
    if (shape_[2] % after[2] != 0 || shape_[3] % after[3] != 0) {
      refuse(name,
             cat("adaptive_avg_pool2d with windows of several sizes, ", shape_, " to ", after));
    }
    const Integers window{shape_[2] / after[2], shape_[3] / after[3]};
    node("AveragePool", name, {value_}, {{"kernel_shape", window}, {"strides", window}});
  }

  const OnnxOptions options_;
  OnnxGraph& graph_;
  std::vector<std::string> folded_;  // weight and bias of the convolution that is being folded
  std::map<const Module*, std::string> names_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, Quantizer*> quantizers_;
  std::string value_;  // the input of the next layer
  Shape shape_;        // its shape, for one image
};

}  // namespace

OnnxGraph onnx_network(Module& network, const Shape& sample, const std::string& name,
                       const OnnxOptions& options) {
  const bool was_training = network.is_training();
  network.eval();
  OnnxGraph out;
  out.name = name;
  Walk(network, sample, options, out);
  network.train(was_training);
  return out;
}

}  // namespace convscope
