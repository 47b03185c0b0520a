// SPDX-License-Identifier: Apache-2.0
// linear_cross_entropy.cpp: the last linear layer and softmax cross-entropy in one kernel call. The
// backward pass is that of the linear layer.
#include "layers/linear/linear_cross_entropy.h"

#include "framework/graph/emitter.h"
#include "layers/linear/linear_fused.h"
#include "layers/losses/cross_entropy.h"

namespace convscope {

LinearCrossEntropy::LinearCrossEntropy(std::unique_ptr<Operation> linear)
    : Operation(kKind.data()), linear_(std::move(linear)) {
  inputs = linear_->inputs;
  layer = linear_->layer;
  all_layers = linear_->all_layers;
}

// Passes may have changed the inputs since the fusion.
Operation& LinearCrossEntropy::linear() const {
  linear_->inputs.assign(inputs.begin(), inputs.end() - 1);
  return *linear_;
}

std::string LinearCrossEntropy::text() const {
  const std::string first = "linear";
  return linear().text().insert(first.size(), cat(" + ", kSoftmaxCrossEntropy));
}

std::vector<RanKernel> LinearCrossEntropy::kernels(const Graph& graph) const {
  std::vector<RanKernel> out = linear().kernels(graph);
  for (RanKernel& each : out) {
    if (each.kernel == "linear") each.kernel = "linear with the loss";
  }
  return out;
}

void LinearCrossEntropy::forward(Emitter& emitter) {
  const Graph& graph = emitter.graph();
  const LinearParts linear = parts();
  const LinearLoss& fused = linear_fused(emitter.device()).loss;
  const ValueId logits = linear_->output();
  LinearLossArgs args{
      .x = emitter.value(linear.x),
      .w = emitter.value(linear.weight),
      .b = linear.bias == kNoValue ? Tensor() : emitter.value(linear.bias),
      .labels = emitter.value(inputs.back()),
      .dlogits = graph.wants_gradient(logits) ? emitter.gradient_target(logits).tensor : Tensor(),
      .loss = emitter.value(outputs[0]),
      .correct = emitter.value(outputs[1]),
      .operand_type = linear.operand_type};
  if (fused.workspace_bytes != nullptr) {
    args.workspace = emitter.workspace(fused.workspace_bytes(
        graph.shape(linear.x), graph.shape(linear.weight), linear.operand_type));
  }
  emitter.call([run = fused.run, args, state = emitter.state()]() mutable {
    args.loss_scale = state->loss_scale;
    run(args);
  });
}

namespace {

bool can_fuse(const Graph& graph, Operation& first, Operation&) {
  const LinearParts linear = *linear_parts(first);
  if (linear.relu || linear.forward_in_blocks) return false;
  const LinearLoss& fused = linear_fused(graph.device()).loss;
  return fused.run != nullptr &&
         (fused.supports == nullptr ||
          fused.supports(graph.shape(linear.x), graph.shape(linear.weight)));
}

std::unique_ptr<Operation> with_loss(std::unique_ptr<Operation> linear) {
  return std::make_unique<LinearCrossEntropy>(std::move(linear));
}

const bool registered =
    register_fusions("fuse_loss", {{"linear", kSoftmaxCrossEntropy, can_fuse, with_loss}});

}  // namespace
}  // namespace convscope
