// SPDX-License-Identifier: Apache-2.0
// operation_group.cpp: on a GPU, processes the weights of all layers in one launch at the beginning
// of the step, instead of one launch for each layer: first masks, then quantisers
// (SimpleOperation::run_together).
//
//   mask c1, quantise c1, convolve, mask c2, quantise c2, ..
//   -> mask all, quantise all, convolve, ..
//
// A group runs at the beginning of the step, so its backward pass runs last, when the gradients of
// all its values are complete. Therefore these values are kept in memory longer. Large weights are
// not grouped, because the time of a launch is negligible for them.
#include <algorithm>

#include "framework/graph/simple_operation.h"
#include "layers/plan/pipeline.h"

namespace convscope {
namespace {

// The size of the largest weight that is grouped. A GPU processes about this many elements in the
// time of a launch.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 18;

class OperationGroupOp final : public Operation {
 public:
  explicit OperationGroupOp(std::vector<std::unique_ptr<SimpleOperation>> members)
      : Operation("operation_group"),
        members_(std::move(members)) {  // `all_layers` stays empty: the work of all members
    layer = members_.front()->layer;
    for (const auto& member : members_) {
      inputs.insert(inputs.end(), member->inputs.begin(), member->inputs.end());
      outputs.push_back(member->output());
      operations_.push_back(member.get());
    }
  }

  std::string text() const override {
    std::string out = cat("in one launch: ", members_.front()->text());
    for (std::size_t i = 1; i < members_.size(); ++i) {
      out += cat("; ", members_[i]->layer, " ", members_[i]->text());
    }
    return out;
  }

  void forward(Emitter& emitter) override {
    std::vector<SimpleOperation::Forward> a;
    for (const auto& member : members_) a.push_back(member->forward_arguments(emitter));
    emitter.call([all = operations_, a = std::move(a)] {
      all[0]->run_together(all.data(), a.data(), static_cast<int>(all.size()));
    });
  }

  void backward(Emitter& emitter) override {
    std::vector<const SimpleOperation*> all;
    std::vector<SimpleOperation::Backward> a;
    std::vector<SimpleOperation::Part> to_add;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (!emitter.graph().wants_gradient(members_[i]->output())) continue;
      all.push_back(operations_[i]);
      a.push_back(members_[i]->backward_arguments(emitter, to_add));
    }
    emitter.call([all = std::move(all), a = std::move(a)] {
      all[0]->run_together(all.data(), a.data(), static_cast<int>(all.size()));
    });
    for (const SimpleOperation::Part& part : to_add) emitter.add_to_gradient(part.value, part.slot);
  }

 private:
  std::vector<std::unique_ptr<SimpleOperation>> members_;
  std::vector<const SimpleOperation*> operations_;
};

bool fits(const Graph& graph, const Operation* op) {
  const auto* const known = dynamic_cast<const SimpleOperation*>(op);
  return known != nullptr && graph.is_of_parameters(op->output()) && known->runs_with(*known) &&
         graph.shape(op->output()).numel() <= kMaxElements;
}

// Returns the level of each value: the number of operations between the parameters and the value.
// The level is kNever if one of these operations cannot run at the beginning of the step.
constexpr int kNever = 1 << 30;
std::vector<int> levels_of(const Graph& graph) {
  std::vector<int> out(static_cast<std::size_t>(graph.value_count()), kNever);
  const auto at = [&](ValueId value) -> int& { return out[static_cast<std::size_t>(value)]; };
  for (ValueId value = 0; value < graph.value_count(); ++value) {
    if (graph.parameter_of(value) != nullptr) at(value) = 0;
  }
  for (const auto& op : graph.ops()) {
    if (!fits(graph, op.get())) continue;
    int level = 0;
    for (const ValueId input : op->inputs) level = std::max(level, at(input));
    if (level != kNever) at(op->output()) = level + 1;
  }
  return out;
}

void form_groups(Graph& graph) {
  const std::vector<int> levels = levels_of(graph);
  const auto level_of = [&](const auto& op) {
    return op == nullptr ? kNever : levels[static_cast<std::size_t>(op->output())];
  };
  auto& ops = graph.ops();
  std::stable_sort(ops.begin(), ops.end(),
                   [&](const auto& a, const auto& b) { return level_of(a) < level_of(b); });
  for (std::size_t i = 0; i < ops.size() && level_of(ops[i]) != kNever; ++i) {
    const auto& first = static_cast<const SimpleOperation&>(*ops[i]);
    std::vector<std::size_t> group;
    for (std::size_t j = i; j < ops.size() && level_of(ops[j]) == level_of(ops[i]); ++j) {
      const auto& other = static_cast<const SimpleOperation&>(*ops[j]);
      if (first.runs_with(other) &&
          graph.wants_gradient(first.output()) == graph.wants_gradient(other.output())) {
        group.push_back(j);
      }
    }
    if (group.size() == 1) continue;
    std::vector<std::unique_ptr<SimpleOperation>> members;
    for (const std::size_t j : group) {
      members.emplace_back(static_cast<SimpleOperation*>(ops[j].release()));
    }
    ops[i] = std::make_unique<OperationGroupOp>(std::move(members));
    std::erase(ops, nullptr);
  }
}

const bool registered = register_pass("group_small_operations", form_groups);

}  // namespace
}  // namespace convscope
