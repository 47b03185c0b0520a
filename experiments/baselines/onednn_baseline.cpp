// SPDX-License-Identifier: Apache-2.0
// onednn_baseline.cpp: oneDNN as a baseline of the benchmark: libconvscope_baseline_onednn.so.
//
// oneDNN's algorithms direct, winograd and auto have two variants each. "own layout" uses
// format_tag::any for every tensor, so that oneDNN chooses its fastest layouts. Reorders into these
// layouts, and the transform of Winograd's weights, are done in advance and are not timed. "plain"
// has row-major inputs and a row-major result. Each run of "plain" includes all reorders. Those of
// the weights are included too, because weights change in training.
//
// In a quantised problem (u8 or s8 times s8), the primitive has scales for each output channel,
// bias and ReLU as attributes, and writes u8 or s8, as in inference. If x is f32 (a first layer),
// each run begins with a reorder that rounds x to s8, because Convscope's algorithms round x in
// each call, too. Weights are reordered in advance.
//
// The file compiles with oneDNN 3.x (experiments/baselines/setup.py fetches 3.2) and 2.x (Debian's
// is 2.6.3). oneDNN 3.2 has no Winograd for x64.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "experiments/bench/baseline.h"

// The compiler's omp.h declares this function too; oneDNN runs on the same OpenMP.
extern "C" void omp_set_num_threads(int threads);

namespace {

using dnnl::algorithm;
using dnnl::memory;
using Tag = memory::format_tag;

struct Method {
  const char* name;
  algorithm kind;
  double error_growth;
};
// The allowed error growth. Winograd F(4x4,3x3) with the points 0, +-1, +-2 has an error about ten
// times as large as direct sums.
constexpr Method kMethods[] = {{"direct", algorithm::convolution_direct, 4},
                               {"winograd", algorithm::convolution_winograd, 64},
                               {"auto", algorithm::convolution_auto, 64}};
constexpr int kMethodCount = 3;

const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

struct ConvDims {
  memory::dims x, w, y, stride, dilation, pad_before, pad_after;
  bool grouped;
};

ConvDims sizes_of(const ConvscopeBaselineProblem& z) {
  ConvDims out;
  out.grouped = z.groups > 1;
  out.x = {z.n, z.c, z.h, z.w};
  out.y = {z.n, z.k, z.p, z.q};
  out.w = out.grouped ? memory::dims{z.groups, z.k / z.groups, z.c / z.groups, z.r, z.s}
                      : memory::dims{z.k, z.c, z.r, z.s};
  out.stride = {z.stride_h, z.stride_w};
  out.dilation = {z.dilation_h - 1, z.dilation_w - 1};  // oneDNN: 0 = dense
  out.pad_before = {z.pad_top, z.pad_left};
  out.pad_after = {z.pad_bottom, z.pad_right};
  // oneDNN requires the end padding that follows from the output size: it leaves out rows and
  // columns at the end that the stride does not reach.
  out.pad_after[0] = (z.p - 1) * z.stride_h + (z.r - 1) * z.dilation_h + 1 - z.h - z.pad_top;
  out.pad_after[1] = (z.q - 1) * z.stride_w + (z.s - 1) * z.dilation_w + 1 - z.w - z.pad_left;
  return out;
}

using Type = memory::data_type;
memory::desc any(const memory::dims& dims, Type type = Type::f32) { return {dims, type, Tag::any}; }
memory::desc row_major(const memory::dims& dims, Type type = Type::f32) {
  return {dims, type, dims.size() == 5 ? Tag::goihw : Tag::nchw};
}
Type type_of(int32_t type) {
  return type == CONVSCOPE_BASELINE_U8   ? Type::u8
         : type == CONVSCOPE_BASELINE_S8 ? Type::s8
                                         : Type::f32;
}

// A primitive and the layouts that it chose.
struct ConvPrimitive {
  dnnl::primitive primitive;
  memory::desc first, second, output;
  std::string implementation;
  size_t scratch_bytes = 0;
};

template <class Primitive>
ConvPrimitive primitive_of(const typename Primitive::primitive_desc& description,
                           const memory::desc& first, const memory::desc& second,
                           const memory::desc& output) {
  ConvPrimitive out;
  out.implementation = description.impl_info_str();
  out.scratch_bytes = static_cast<size_t>(
      std::max<int64_t>(description.query_s64(dnnl::query::memory_consumption_s64), 0));
  out.primitive = Primitive(description);
  out.first = first;
  out.second = second;
  out.output = output;
  return out;
}

ConvPrimitive forward_of(const dnnl::convolution_forward::primitive_desc& description) {
  return primitive_of<dnnl::convolution_forward>(
      description, description.src_desc(), description.weights_desc(), description.dst_desc());
}

// ---- The only differences between 2.x and 3.x ------------------------------------------------
// Both functions take the same arguments in both versions of oneDNN. Version 3.x makes the
// primitive description on the engine; 2.x describes the operation first. In both versions, the
// hint of a backward pass comes last.
#if DNNL_VERSION_MAJOR >= 3
template <class Operation, class... Arguments>
typename Operation::primitive_desc description_of(const Arguments&... arguments) {
  return {cpu(), arguments...};
}
template <class Operation, class Hint, class... Arguments>
typename Operation::primitive_desc hinted_description_of(const Hint& hint,
                                                         const Arguments&... arguments) {
  return {cpu(), arguments..., hint};
}
#else
template <class Operation, class... Arguments>
typename Operation::primitive_desc description_of(const Arguments&... arguments) {
  return {typename Operation::desc(arguments...), cpu()};
}
template <class Operation, class Hint, class... Arguments>
typename Operation::primitive_desc hinted_description_of(const Hint& hint,
                                                         const Arguments&... arguments) {
  return {typename Operation::desc(arguments...), cpu(), hint};
}
#endif
// ------------------------------------------------------------------------------------------------

dnnl::convolution_forward::primitive_desc forward_description(const ConvDims& z, algorithm kind) {
  return description_of<dnnl::convolution_forward>(dnnl::prop_kind::forward_training, kind,
                                                   any(z.x), any(z.w), any(z.y), z.stride,
                                                   z.dilation, z.pad_before, z.pad_after);
}

// The description of a gradient needs that of a forward pass as a hint. The forward pass may have
// another algorithm than the gradient.
template <class Gradient>
typename Gradient::primitive_desc gradient_description(const ConvDims& z, algorithm kind) {
  return hinted_description_of<Gradient>(forward_description(z, algorithm::convolution_direct),
                                         kind, any(z.x), any(z.w), any(z.y), z.stride, z.dilation,
                                         z.pad_before, z.pad_after);
}

ConvPrimitive convolution(const ConvDims& z, int direction, algorithm kind) {
  if (direction == CONVSCOPE_BASELINE_FORWARD) return forward_of(forward_description(z, kind));
  if (direction == CONVSCOPE_BASELINE_BACKWARD_DATA) {
    using BackwardData = dnnl::convolution_backward_data;
    const auto to_data = gradient_description<BackwardData>(z, kind);
    return primitive_of<BackwardData>(to_data, to_data.diff_dst_desc(), to_data.weights_desc(),
                                      to_data.diff_src_desc());
  }
  using BackwardWeights = dnnl::convolution_backward_weights;
  const auto to_weights = gradient_description<BackwardWeights>(z, kind);
  return primitive_of<BackwardWeights>(to_weights, to_weights.src_desc(),
                                       to_weights.diff_dst_desc(), to_weights.diff_weights_desc());
}

memory::desc vector_of(int64_t count) { return {{count}, Type::f32, Tag::a}; }

memory filled(const memory::desc& desc, const void* values) {
  memory out(desc, cpu());
  std::memcpy(out.get_data_handle(), values, desc.get_size());
  return out;
}

#if DNNL_VERSION_MAJOR >= 3
ConvPrimitive code_convolution(const ConvDims& z, const ConvscopeBaselineProblem& problem,
                               algorithm kind) {
  dnnl::primitive_attr attributes;
  attributes.set_scales_mask(DNNL_ARG_SRC, 0);
  attributes.set_scales_mask(DNNL_ARG_WEIGHTS, z.grouped ? 3 : 1);  // for each output channel
  const Type y = type_of(problem.y_type);
  if (y != Type::f32) attributes.set_scales_mask(DNNL_ARG_DST, 0);
  if (problem.relu != 0) {
    dnnl::post_ops behind;
    behind.append_eltwise(algorithm::eltwise_relu, 0, 0);
    attributes.set_post_ops(behind);
  }
  const Type x = problem.x_type == CONVSCOPE_BASELINE_F32 ? Type::s8 : type_of(problem.x_type);
  return forward_of({cpu(), dnnl::prop_kind::forward_inference, kind, any(z.x, x),
                     any(z.w, Type::s8), vector_of(problem.k), any(z.y, y), z.stride, z.dilation,
                     z.pad_before, z.pad_after, attributes});
}

dnnl::reorder rounding_reorder(const memory& from, const memory& to) {
  dnnl::primitive_attr attributes;
  attributes.set_scales_mask(DNNL_ARG_DST, 0);
  return dnnl::reorder(
      dnnl::reorder::primitive_desc(cpu(), from.get_desc(), cpu(), to.get_desc(), attributes));
}
#else
ConvPrimitive code_convolution(const ConvDims&, const ConvscopeBaselineProblem&, algorithm) {
  throw std::runtime_error("int8 needs oneDNN 3.x");
}
dnnl::reorder rounding_reorder(const memory& from, const memory& to) { return {from, to}; }
#ifndef DNNL_ARG_ATTR_SCALES
#define DNNL_ARG_ATTR_SCALES 0
#endif
#endif

struct Step {
  dnnl::primitive primitive;
  std::unordered_map<int, memory> arguments;
};

Step reorder_step(const memory& from, const memory& to) {
  return {dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

}  // namespace

struct ConvscopeBaselineCase {
  ConvscopeBaselineCase(const ConvscopeBaselineProblem& problem, const Method& method, bool plain,
                        const ConvscopeBaselineInputs& inputs)
      : stream(cpu()) {
    const ConvDims z = sizes_of(problem);
    if (problem.w_type == CONVSCOPE_BASELINE_F32) {
      prepare_numbers(z, problem, method, plain, inputs);
    } else {
      prepare_codes(z, problem, method, plain, inputs);
    }
  }

  void prepare_numbers(const ConvDims& z, const ConvscopeBaselineProblem& problem,
                       const Method& method, bool plain, const ConvscopeBaselineInputs& inputs) {
    const int direction = problem.direction;
    convolution_ = convolution(z, direction, method.kind);
    const bool data = direction == CONVSCOPE_BASELINE_BACKWARD_DATA;
    const bool weight = direction == CONVSCOPE_BASELINE_BACKWARD_WEIGHT;
    const memory first_plain = filled(row_major(data ? z.y : z.x), inputs.first);
    const memory second_plain = filled(row_major(weight ? z.y : z.w), inputs.second);
    const memory first = taken_over(first_plain, convolution_.first, plain);
    const memory second = taken_over(second_plain, convolution_.second, plain);
    const int first_name = data ? DNNL_ARG_DIFF_DST : DNNL_ARG_SRC;
    const int second_name = weight ? DNNL_ARG_DIFF_DST : DNNL_ARG_WEIGHTS;
    const int output_name = data     ? DNNL_ARG_DIFF_SRC
                            : weight ? DNNL_ARG_DIFF_WEIGHTS
                                     : DNNL_ARG_DST;
    run_into(row_major(data     ? z.x
                       : weight ? z.w
                                : z.y),
             output_name, plain, {{first_name, first}, {second_name, second}});
  }

  void prepare_codes(const ConvDims& z, const ConvscopeBaselineProblem& problem,
                     const Method& method, bool plain, const ConvscopeBaselineInputs& inputs) {
    convolution_ = code_convolution(z, problem, method.kind);
    const memory::desc one = vector_of(1), channels = vector_of(problem.k);
    const memory x_scale = filled(one, inputs.x_scale);
    const memory x = filled(row_major(z.x, type_of(problem.x_type)), inputs.first);
    memory codes;
    if (problem.x_type == CONVSCOPE_BASELINE_F32) {
      codes = memory(convolution_.first, cpu());
      steps.push_back({rounding_reorder(x, codes),
                       {{DNNL_ARG_FROM, x},
                        {DNNL_ARG_TO, codes},
                        {DNNL_ARG_ATTR_SCALES | DNNL_ARG_TO, x_scale}}});
    } else {
      codes = taken_over(x, convolution_.first, plain);
    }
    const memory w =
        taken_over(filled(row_major(z.w, Type::s8), inputs.second), convolution_.second, plain);
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, codes},
        {DNNL_ARG_WEIGHTS, w},
        {DNNL_ARG_BIAS, filled(channels, inputs.bias)},
        {DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, x_scale},
        {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, filled(channels, inputs.w_scales)}};
    if (inputs.y_scale != nullptr) {
      arguments.insert({DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, filled(one, inputs.y_scale)});
    }
    run_into(row_major(z.y, type_of(problem.y_type)), DNNL_ARG_DST, plain, std::move(arguments));
  }

  // Runs the convolution and reorders its output to `wanted`. The reorder is part of each run for
  // "plain"; otherwise read() does it.
  void run_into(const memory::desc& wanted, int output_name, bool plain,
                std::unordered_map<int, memory> arguments) {
    output_plain = memory(wanted, cpu());
    const bool as_it_is = convolution_.output == wanted;
    const memory output = as_it_is ? output_plain : memory(convolution_.output, cpu());
    arguments.insert({output_name, output});
    steps.push_back({convolution_.primitive, std::move(arguments)});
    if (!as_it_is) (plain ? steps : finish).push_back(reorder_step(output, output_plain));
  }

  // Returns `from` in the layout of the convolution. With `each_time` ("plain"), each run converts
  // it; otherwise it is converted once, now.
  memory taken_over(const memory& from, const memory::desc& wanted, bool each_time) {
    if (wanted == from.get_desc()) return from;
    const memory to(wanted, cpu());
    const Step step = reorder_step(from, to);
    if (each_time) {
      steps.push_back(step);
    } else {
      execute({step});
    }
    return to;
  }

  void execute(const std::vector<Step>& list) {
    for (const Step& step : list) step.primitive.execute(stream, step.arguments);
    stream.wait();
  }

  dnnl::stream stream;
  ConvPrimitive convolution_;
  std::vector<Step> steps;   // executed by run()
  std::vector<Step> finish;  // executed first by read()
  memory output_plain;
};

namespace {

ConvscopeBaselineCase* create(const ConvscopeBaselineProblem* problem, int32_t variant,
                              const ConvscopeBaselineInputs* inputs, char* reason,
                              size_t reason_bytes) {
  try {
    return new ConvscopeBaselineCase(*problem, kMethods[variant % kMethodCount],
                                     variant >= kMethodCount, *inputs);
  } catch (const dnnl::error& error) {
    const bool none = error.status == dnnl_unimplemented;
    std::snprintf(reason, reason_bytes, "%s",
                  none ? "oneDNN has no such implementation for this problem" : error.what());
  } catch (const std::exception& error) {
    std::snprintf(reason, reason_bytes, "%s", error.what());
  }
  return nullptr;
}

int32_t run(ConvscopeBaselineCase* one) {
  try {
    one->execute(one->steps);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

int32_t read(ConvscopeBaselineCase* one, void* output) {
  try {
    one->execute(one->finish);
    std::memcpy(output, one->output_plain.get_data_handle(),
                one->output_plain.get_desc().get_size());
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

const char* implementation(ConvscopeBaselineCase* one) {
  return one->convolution_.implementation.c_str();
}
size_t workspace_bytes(ConvscopeBaselineCase* one) { return one->convolution_.scratch_bytes; }
void destroy(ConvscopeBaselineCase* one) { delete one; }
void set_threads(int32_t threads) { omp_set_num_threads(threads); }

constexpr ConvscopeBaselineVariant variant_of(int index) {
  const Method& method = kMethods[index % kMethodCount];
  return {method.name,
          index < kMethodCount ? CONVSCOPE_BASELINE_OWN_LAYOUT : CONVSCOPE_BASELINE_PLAIN,
          method.error_growth};
}
constexpr ConvscopeBaselineVariant kVariants[] = {variant_of(0), variant_of(1), variant_of(2),
                                                  variant_of(3), variant_of(4), variant_of(5)};

}  // namespace

extern "C" __attribute__((visibility("default"))) const ConvscopeBaseline* convscope_baseline() {
  static const dnnl_version_t* const version = dnnl_version();
  static const std::string text = std::to_string(version->major) + "." +
                                  std::to_string(version->minor) + "." +
                                  std::to_string(version->patch);
  static const ConvscopeBaseline baseline = {.abi = CONVSCOPE_BASELINE_ABI,
                                             .name = "onednn",
                                             .version = text.c_str(),
                                             .device = "cpu",
                                             .variant_count = 2 * kMethodCount,
                                             .variants = kVariants,
                                             .set_threads = set_threads,
                                             .create = create,
                                             .run = run,
                                             .read = read,
                                             .implementation = implementation,
                                             .workspace_bytes = workspace_bytes,
                                             .destroy = destroy};
  return &baseline;
}
