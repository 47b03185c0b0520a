// SPDX-License-Identifier: Apache-2.0
// integer_plan.cpp: rewrites the inference graph of a fake-quantised network so that it computes
// with integer codes.
//
//   images -> quantise -> conv (w quantised) -> relu -> max-pool -> flatten -> quantise -> linear
//   -> conv on integers [rounds images on the way in, y to the linear layer's codes on the way out]
//      -> max-pool on codes -> linear on integers
//
// Idea       A layer with quantised input and weight multiplies two arrays of codes and then scales
//            by two steps. Rounding keeps the order of numbers, so a quantiser after a max-pool may
//            move before the max-pool. Then the preceding layer rounds its accumulators. A value
//            with other readers stays f32, and a separate operation rounds it.
// Same       steps, grids and rounding are those of the fake quantiser: the codes are those that it
// numbers    would give in double arithmetic (layers/conv2d/int8).
// Algorithm  the integer algorithm that the layer's policy names ("int8_lesson,auto"), else the one
//            with the lowest estimated time. If the policy selects an algorithm that is not for
//            integers, the layer stays unchanged.
// On a GPU   a separate operation rounds the images.
// f32        without VNNI (int8 multiplication), a CPU uses f32 for a network whose integer layers
//            are estimated to take longer in total. LeNet is an example: its few channels fill
//            neither lanes nor groups of four. IntegerUse::always, or an integer algorithm in a
//            policy, selects integers all the same.
// Pruned     a layer with a block mask (sparsity.execute: sparse) runs from the codes of the blocks
//            where that is estimated to be faster
// Not here   layers that no integer algorithm supports: they stay unchanged, and `explain` says so.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "framework/ops/codes/quantize_op.h"
#include "framework/simd/cpu_isa.h"
#include "layers/conv2d/conv2d_op.h"
#include "layers/linear/linear.h"
#include "layers/plan/fused_relu.h"
#include "layers/plan/pipeline.h"
#include "layers/pool2d/pool2d.h"
#include "quant/integer/integer_constants.h"

namespace convscope {
namespace {

// Returns the rule and the bounds of a quantiser that inference may compute with codes, and null
// for all other operations.
const LsqParts* integer_parts(const Operation* op) {
  const LsqParts* const parts = lsq_parts(op);
  return parts != nullptr && parts->rule.integers != IntegerUse::never ? parts : nullptr;
}

// The codes of a quantised value.
struct CodeFormat {
  LsqParts lsq;
  ValueId step = kNoValue;  // a parameter of the graph: s, or log s

  DType dtype() const { return lsq.rule.grid.qn == 0 ? DType::u8 : DType::i8; }
};

// The part of a layer's policy that is about integer algorithms.
struct IntegerPolicy {
  std::vector<std::string> named = {};  // algorithms, in order: "int8_lesson,auto"
  bool finds_itself = true;             // any other algorithm is allowed
};

IntegerPolicy integer_policy(const Conv2dOp& conv) {
  IntegerPolicy out{.finds_itself = finds_itself(conv.choice(Direction::forward).word)};
  for (const std::string& word : parse_policy("integers", conv.policy(Direction::forward)).words) {
    if (word.starts_with("int8")) out.named.push_back(word);
  }
  return out;
}

// Returns the first algorithm that the policy names and that supports the integer problem. If there
// is none, and the policy also allows a choice by estimate (finds_itself), returns the supporting
// algorithm with the lowest estimated time. Otherwise returns null.
const Conv2dAlgorithm* integer_algorithm(const Conv2dProblem& problem, DeviceType device,
                                         const IntegerPolicy& policy) {
  const auto takes = [&](const Conv2dAlgorithm& algorithm) {
    return support_of(algorithm, problem, Direction::forward).yes;
  };
  for (const std::string& name : policy.named) {
    const Conv2dAlgorithm* const algorithm = conv2d_algorithms(device).find(name);
    if (algorithm != nullptr && takes(*algorithm)) return algorithm;
  }
  if (!policy.finds_itself) return nullptr;
  const Conv2dAlgorithm* best = nullptr;
  double least = 0;
  for (const auto& [name, algorithm] : conv2d_algorithms(device).entries()) {
    if (!algorithm.auto_ok || !takes(algorithm)) continue;
    const double ms = estimated_ms(algorithm, problem, Direction::forward, WeightUse::often);
    if (best != nullptr && ms >= least) continue;
    best = &algorithm;
    least = ms;
  }
  return best;
}

class IntegerRewrite {
 public:
  explicit IntegerRewrite(Graph& graph) : graph_(graph) {
    for (const auto& op : graph_.ops()) producers_[op->output()] = op.get();
    for (const auto& op : graph_.ops()) {
      if (auto found = find_quantised(*op)) quantised_.emplace(op->output(), std::move(*found));
    }
  }

  void run() {
    find_layers();
    drop_layers_without_algorithm();
    if (layers_.empty()) return;
    for (auto& [op, layer] : layers_) choose_output(layer);
    if (is_slower()) return;
    emit();
  }

 private:
  struct Quantised {  // a value after an activation's quantiser
    CodeFormat format;
    ValueId from = kNoValue;  // the f32 value before the quantiser and all operations in `past`
    std::vector<Operation*>
        past;                 // max-pools and reshapes between `from` and the quantiser, in order
    Operation* op = nullptr;  // the quantiser
  };
  struct Layer {
    Conv2dOnCodes codes;
    Quantised x;
    ValueId w = kNoValue;  // f32, of parameters
    CodeFormat w_format;
    ValueId b = kNoValue, residual = kNoValue;
    std::optional<BatchNormFold> norm = {};
    std::optional<Quantised> y = {};  // the layer performs this rounding
    bool from_images = false;         // rounds the images itself
    ValueId old_output = kNoValue;
    IntegerPolicy policy = {};
    const Operation* activation = nullptr;  // the activation that the layer absorbs
  };

  Operation* producer(ValueId value) const {
    const auto at = producers_.find(value);
    return at == producers_.end() ? nullptr : at->second;
  }

  // If an activation's quantiser produces `value`, returns its description, else null.
  const Quantised* quantised(ValueId value) const {
    const auto at = quantised_.find(value);
    return at == quantised_.end() ? nullptr : &at->second;
  }

  std::optional<Quantised> find_quantised(Operation& op) const {
    const LsqParts* const lsq = integer_parts(&op);
    if (lsq == nullptr || graph_.is_of_parameters(op.output())) return std::nullopt;
    if (graph_.shape(op.inputs[1]).numel() != 1) return std::nullopt;
    Quantised out;
    out.op = &op;
    out.format = {*lsq, op.inputs[1]};
    out.from = op.inputs[0];
    for (Operation* before = producer(out.from);
         before != nullptr && graph_.readers(out.from) == 1 && passes(*before);
         before = producer(out.from)) {
      out.past.insert(out.past.begin(), before);
      out.from = before->inputs[0];
    }
    const Shape& shape = graph_.shape(out.from);
    if (shape.rank() != 4 && shape.rank() != 2) return std::nullopt;
    return out;
  }

  // Returns whether the operation is a max-pool, or a flatten [N,C,H,W] -> [N,F].
  bool passes(const Operation& op) const {
    if (op.kind() == MaxPool::kKind) return true;
    return graph_.is_shared(op) && op.inputs.size() == 1 && graph_.shape(op.output()).rank() == 2 &&
           graph_.shape(op.inputs[0]).rank() == 4;
  }

  // Sets the fields of `layer` for a quantised weight: its f32 value and the format of its codes.
  // Returns false if `value` is not a quantised weight.
  bool take_weight(ValueId value, Layer& layer) const {
    const Operation* const op = producer(value);
    const LsqParts* const lsq = integer_parts(op);
    if (lsq == nullptr || !graph_.is_of_parameters(op->inputs[0])) return false;
    layer.w = op->inputs[0];
    layer.w_format = {*lsq, op->inputs[1]};
    return true;
  }

  // Returns the shape of the image whose codes a layer reads: after the max-pools, but before a
  // flatten layer.
  Shape image_of(const Quantised& x) const {
    Shape image = graph_.shape(x.from);
    for (const Operation* op : x.past) {
      if (graph_.shape(op->output()).rank() == 4) image = graph_.shape(op->output());
    }
    return code_shape(image);
  }

  void find_layers() {
    for (const auto& op : graph_.ops()) {
      Layer layer;
      bool found = false;
      if (const auto* const conv = as<Conv2dOp>(op.get())) {
        found = take_conv(*conv, layer);
      } else if (const auto linear = linear_parts(*op)) {
        found = take_linear(*linear, layer);
      }
      if (!found) continue;
      layer.old_output = op->output();
      take_activation(layer);
      layers_.emplace_back(op.get(), std::move(layer));
    }
  }

  bool take_conv(const Conv2dOp& conv, Layer& layer) const {
    layer.policy = integer_policy(conv);
    if (!layer.policy.finds_itself && layer.policy.named.empty()) return false;
    const Quantised* const x = quantised(conv.x());
    if (x == nullptr || graph_.shape(conv.x()).rank() != 4 || !take_weight(conv.weight(), layer))
      return false;
    layer.x = *x;
    layer.b = conv.bias();
    layer.norm = conv.norm();
    layer.residual = conv.residual();
    layer.codes.blocks = conv.sparse();
    Conv2dOnCodes& codes = layer.codes;
    codes.problem = conv.problem();
    codes.problem.math = MathMode::f32;
    codes.problem.layout = ActivationLayout::nchw;
    codes.folds_norm = layer.norm.has_value();
    codes.relu = conv.relu();
    codes.most = conv.most();
    return true;
  }

  // A linear layer is a convolution with a kernel as large as the image: y[n,k] = sum x[n,c,p,q]
  // w[k,(c,p,q)].
  bool take_linear(const LinearParts& linear, Layer& layer) const {
    const Quantised* const x = quantised(linear.x);
    if (is_half(linear.operand_type))
      return false;  // fp16/bf16 was requested; codes are more exact
    if (x == nullptr || !take_weight(linear.weight, layer)) return false;
    layer.x = *x;
    layer.b = linear.bias;
    layer.codes.blocks = linear.sparse;
    layer.codes.layer_kind = "linear";
    layer.codes.relu = linear.relu;
    const Shape image = image_of(*x);
    Conv2dProblem& z = layer.codes.problem;
    z.n = image[0];
    z.c = image[1];
    z.h = z.r = image[2];
    z.w = z.s = image[3];
    z.k = graph_.shape(linear.weight)[0];
    return true;
  }

  const Conv2dAlgorithm* algorithm_of(const Layer& layer) const {
    return integer_algorithm(layer.codes.problem, graph_.device().type, layer.policy);
  }

  // Returns whether this is a first layer with few channels on a CPU. The integer kernel of such a
  // layer reads f32 images and rounds them itself.
  bool reads_images(const Layer& layer) const {
    return graph_.device().type == DeviceType::cpu && layer.x.from == Graph::input() &&
           layer.x.past.empty() && graph_.readers(layer.x.op->output()) == 1 &&
           layer.codes.problem.c < kChannelBlock && layer.codes.problem.groups == 1 &&
           layer.codes.layer_kind == "conv2d";
  }

  static void set_types(Layer& layer, DType y) {
    const DType x = layer.from_images ? DType::f32 : layer.x.format.dtype();
    layer.codes.problem.set_integer_types(
        {.x = x, .w = DType::i8, .accumulator = DType::i32, .y = y});
  }

  // Returns false if the layer does not read the images, or if its policy names an algorithm that
  // accepts only codes.
  bool takes_images(Layer& layer) const {
    if (!reads_images(layer)) return false;
    set_types(layer, DType::f32);
    const Conv2dAlgorithm* const codes = algorithm_of(layer);
    layer.from_images = true;
    set_types(layer, DType::f32);
    const Conv2dAlgorithm* const images = algorithm_of(layer);
    layer.from_images = false;
    return images != nullptr && (is_named(layer, images) || !is_named(layer, codes));
  }
  static bool is_named(const Layer& layer, const Conv2dAlgorithm* algorithm) {
    return algorithm != nullptr && std::ranges::count(layer.policy.named, algorithm->name) > 0;
  }

  void drop_layers_without_algorithm() {
    for (auto& [op, layer] : layers_) {
      layer.from_images = takes_images(layer);
      set_types(layer, DType::f32);
    }
    std::erase_if(layers_, [&](const auto& one) { return algorithm_of(one.second) == nullptr; });
  }

  // Lets the layer absorb a following ReLU with an upper bound. f32 kernels of a GPU do not absorb
  // it (fused_relu.h), so it still is a separate operation here.
  void take_activation(Layer& layer) {
    if (layer.codes.relu || graph_.readers(layer.old_output) != 1) return;
    for (const auto& op : graph_.ops()) {
      const auto most = relu_bound(*op);
      if (!most || op->inputs[0] != layer.old_output) continue;
      layer.codes.relu = true;
      layer.codes.most = *most;
      layer.old_output = op->output();
      layer.activation = op.get();
    }
  }

  // Finds the quantiser that rounds the layer's result. If it is the only reader, the layer
  // performs this rounding itself.
  void choose_output(Layer& layer) {
    if (graph_.readers(layer.old_output) == 1) {
      for (const auto& other : graph_.ops()) {
        if (integer_parts(other.get()) == nullptr) continue;
        const Quantised* const y = quantised(other->output());
        if (y == nullptr || y->from != layer.old_output || !is_read_as_codes(other->output()))
          continue;
        layer.y = *y;
      }
    }
    set_types(layer, layer.y ? layer.y->format.dtype() : DType::f32);
    layer.codes.form.choice.algorithm = algorithm_of(layer);
    layer.codes.is_named = !layer.policy.named.empty() || !layer.policy.finds_itself;
    if (layer.codes.blocks) choose_blocks(layer);
  }

  bool is_slower() const {
    if (graph_.device().type != DeviceType::cpu || uses_vnni()) return false;
    double codes_ms = 0, real_ms = 0;
    std::set<const Operation*> rounded;
    for (const auto& [op, layer] : layers_) {
      const Conv2dProblem& problem = layer.codes.problem;
      const bool always = layer.x.format.lsq.rule.integers == IntegerUse::always;
      if (always || !layer.policy.named.empty()) return false;
      codes_ms += estimated_ms(*layer.codes.form.choice.algorithm, problem, Direction::forward,
                               WeightUse::often);
      real_ms += real_numbers_ms(problem);
      if (rounded.insert(layer.x.op).second) {
        real_ms += rounding_ms(graph_.shape(layer.x.op->output()).numel());
      }
    }
    return codes_ms > real_ms;
  }

  // Returns the milliseconds of the same layer on real numbers.
  static double real_numbers_ms(Conv2dProblem problem) {
    problem.types.reset();
    problem.dtype = DType::f32;
    problem.layout = ActivationLayout::nchw;
    problem.weight_format = {};
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [name, algorithm] : conv2d_algorithms(DeviceType::cpu).entries()) {
      if (!algorithm.auto_ok || !support_of(algorithm, problem, Direction::forward).yes) continue;
      least =
          std::min(least, estimated_ms(algorithm, problem, Direction::forward, WeightUse::often));
    }
    return least;
  }

  // Returns the milliseconds of a separate pass that rounds a value to f32 multiples of the step
  // size: it reads, divides and writes each number.
  static double rounding_ms(std::int64_t elements) {
    const auto count = static_cast<double>(elements);
    return estimated_ms(Cost{.flops = 16 * count, .bytes = 8 * count, .issued = 32 * count},
                        DeviceType::cpu, DType::f32);
  }

  // Selects, by estimate, the faster of the dense algorithm and the block-sparse one.
  void choose_blocks(Layer& layer) const {
    Conv2dForm& form = layer.codes.form;
    form.why_dense = layer.codes.blocks->obstacle();
    if (!form.why_dense.empty()) return;
    Conv2dProblem blocks = layer.codes.problem;
    blocks.weight_format = layer.codes.blocks->format();
    const Conv2dAlgorithm* const algorithm =
        integer_algorithm(blocks, graph_.device().type, layer.policy);
    if (algorithm == nullptr) {
      form.why_dense = "no int8 algorithm accepts block-sparse weights here";
      return;
    }
    if (!is_named(layer, algorithm)) {
      if (is_named(layer, form.choice.algorithm)) {
        form.why_dense = "the config says so";
        return;
      }
      const auto ms = [](const Conv2dAlgorithm& of, const Conv2dProblem& problem) {
        return estimated_ms(of, problem, Direction::forward, WeightUse::often);
      };
      const double share = ms(*algorithm, blocks) / ms(*form.choice.algorithm, layer.codes.problem);
      if (share >= 1) {
        form.why_dense = fmt::format("at density {:.2f} {} is estimated at {:.2f} of its time",
                                     layer.codes.blocks->density(), algorithm->name, share);
        return;
      }
    }
    layer.codes.problem = blocks;
    form.choice.algorithm = algorithm;
    form.in_blocks = true;
  }

  // Whether an integer layer reads the codes.
  bool is_read_as_codes(ValueId value) const {
    return std::ranges::any_of(layers_, [&](const auto& one) {
      return one.second.x.op->output() == value || one.second.residual == value;
    });
  }

  // ---- the new list of operations

  // Returns the codes of a quantised value, after its max-pools.
  ValueId codes_of(const Quantised& value) {
    const auto known = codes_.find(value.op);
    if (known != codes_.end()) return known->second;
    const auto at = rounded_.find(value.op);  // by the layer that performs the rounding
    ValueId codes = at != rounded_.end() ? at->second : kNoValue;
    if (codes == kNoValue) {
      dequantize(value.from);
      const QuantParams params = params_of(value.format, *value.op);
      codes = add(std::make_unique<QuantizeOp>(params.low, params.high), *value.op,
                  {value.from, params.scale});
    }
    for (Operation* op : value.past) {
      const auto* const pool = as<MaxPool>(op);
      if (pool == nullptr) continue;  // a flatten: the layer reads the image
      codes = add(std::make_unique<MaxPool>(pool->window()), *op, {codes});
    }
    codes_[value.op] = codes;
    return codes;
  }

  // Returns the value with the step sizes of a quantiser, computed once.
  ValueId step_sizes(const CodeFormat& format, const Operation& reader) {
    const auto [at, is_new] = step_sizes_.try_emplace(format.step, kNoValue);
    if (is_new) at->second = add(std::make_unique<StepSizesOp>(format.lsq), reader, {format.step});
    return at->second;
  }
  QuantParams params_of(const CodeFormat& format, const Operation& reader) {
    const IntegerGrid& grid = format.lsq.rule.grid;
    return {.scale = step_sizes(format, reader), .low = -grid.qn, .high = grid.qp};
  }

  // Adds an operation, of the layer of `instead`.
  ValueId add(std::unique_ptr<Operation> op, const Operation& instead,
              std::vector<ValueId> inputs) {
    const ValueId out = graph_.add(std::move(op), std::move(inputs));
    graph_.ops().back()->layer = instead.layer;
    graph_.ops().back()->all_layers = instead.all_layers;
    return out;
  }

  void emit() {
    std::map<const Operation*, Layer*> by_op;
    for (auto& [op, layer] : layers_) {
      by_op[op] = &layer;
      gone_.insert(layer.x.op);
      if (layer.activation != nullptr) gone_.insert(layer.activation);
      gone_.insert(layer.x.past.begin(), layer.x.past.end());
      if (quantised(layer.residual) != nullptr) gone_.insert(producer(layer.residual));
      if (graph_.readers(weight_of(*op)) == 1) gone_.insert(producer(weight_of(*op)));
    }
    std::vector<std::unique_ptr<Operation>> old = std::exchange(graph_.ops(), {});
    for (std::unique_ptr<Operation>& op : old) {
      const auto layer = by_op.find(op.get());
      if (layer != by_op.end()) {
        emit_layer(std::move(op), *layer->second);
        continue;
      }
      if (gone_.contains(op.get())) continue;
      // All other operations read f32. If the rewrite has replaced one of their inputs by codes,
      // the codes are converted back.
      for (const ValueId input : op->inputs) dequantize(input);
      graph_.ops().push_back(std::move(op));
    }
    dequantize(graph_.result());
  }

  static ValueId weight_of(const Operation& op) { return op.inputs[1]; }

  // If the rewrite has removed the quantiser that produced `value`, adds an operation that computes
  // these f32 numbers from the codes.
  void dequantize(ValueId value) {
    const Quantised* const known = quantised(value);
    if (known == nullptr || !gone_.contains(known->op) || dequantized_.contains(value)) return;
    dequantized_.insert(value);
    const ValueId codes = codes_of(*known);
    auto back = std::make_unique<DequantizeOp>(graph_.dtype(codes));
    back->layer = known->op->layer;
    back->all_layers = known->op->all_layers;
    back->inputs = {codes, graph_.desc(codes).quantization->scale};
    back->outputs = {value};
    graph_.ops().push_back(std::move(back));
  }

  // Returns the values of the weight's codes and of the bias, which contain the batch norm.
  std::pair<ValueId, ValueId> weight_on_codes(const Layer& layer, const Operation& old) {
    const ValueId steps = step_sizes(layer.w_format, old);
    std::vector<ValueId> inputs{steps};
    if (layer.b != kNoValue) inputs.push_back(layer.b);
    const ValueId scales =
        add(std::make_unique<ChannelScalesOp>(layer.codes.problem.k, layer.norm), old, inputs);
    const std::vector<ValueId>& outputs = graph_.ops().back()->outputs;
    const ValueId b = outputs.size() > 1 ? outputs[1] : kNoValue;
    const ValueId w =
        add(std::make_unique<WeightCodesOp>(
                layer.w_format.lsq.rule.grid, scales,
                layer.codes.form.in_blocks ? layer.codes.blocks : Ref<SparseWeights>()),
            old, {layer.w, steps});
    return {w, b};
  }

  void emit_layer(std::unique_ptr<Operation> op, Layer& layer) {
    if (layer.from_images) layer.codes.x = params_of(layer.x.format, *op);
    const ValueId x = layer.from_images ? layer.x.from : codes_of(layer.x);
    ValueId residual = layer.residual;
    if (const Quantised* const of = quantised(residual)) residual = codes_of(*of);
    const auto [w, b] = weight_on_codes(layer, *op);
    TensorDesc y{.shape = code_shape(graph_.shape(layer.old_output)),
                 .layout = ActivationLayout::nchw16c};
    if (layer.y) {
      y.dtype = layer.y->format.dtype();
      y.quantization = params_of(layer.y->format, *op);
    }
    if (as<Conv2dOp>(op.get()) == nullptr) {  // a linear layer
      auto conv = std::make_unique<Conv2dOp>(Conv2dParams{}, false, Ref<Conv2dChoices>());
      conv->layer = op->layer;
      conv->all_layers = op->all_layers;
      op = std::move(conv);
    }
    as<Conv2dOp>(op.get())->compute_on(std::move(layer.codes), x, w, b, residual);
    op->outputs = {layer.y ? graph_.add_value(y) : layer.old_output};
    if (layer.y) rounded_[layer.y->op] = op->output();
    graph_.ops().push_back(std::move(op));
  }

  Graph& graph_;
  std::map<ValueId, Operation*> producers_;
  std::map<ValueId, Quantised> quantised_;
  std::vector<std::pair<Operation*, Layer>> layers_;
  std::set<const Operation*> gone_;              // quantisers and pools that codes replace
  std::map<const Operation*, ValueId> codes_;    // by quantiser
  std::map<const Operation*, ValueId> rounded_;  // by quantiser: the result of a layer that rounds
  std::set<ValueId> dequantized_;
  std::map<ValueId, ValueId> step_sizes_;  // by the quantiser's parameter
};

void compute_on_integers(Graph& graph) {
  if (!graph.training()) IntegerRewrite(graph).run();
}

const bool registered = register_pass("integers", compute_on_integers);

}  // namespace
}  // namespace convscope
