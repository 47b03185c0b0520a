// SPDX-License-Identifier: Apache-2.0
// compact.cpp: builds a smaller dense network that computes the same as a masked network.
#include "sparsity/compact.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "framework/ops/elementwise.h"
#include "sparsity/structured.h"

namespace convscope {
namespace {

using Indices = std::vector<std::int64_t>;

// Returns the entries `rows` of the first axis.
Tensor selected_rows(const Tensor& from, const Indices& rows) {
  Shape shape = {static_cast<std::int64_t>(rows.size())};
  for (int axis = 1; axis < from.rank(); ++axis) shape.push_back(from.dim(axis));
  const Tensor out = Tensor::empty(shape, from.dtype());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out.slice_rows(static_cast<std::int64_t>(i), 1).copy_from(from.slice_rows(rows[i], 1));
  }
  return out;
}

// Returns the columns of a weight [K, C R S] that read the channels `inputs`: first those of row 0,
// then those of row 1, and so on.
std::vector<float> selected_columns(const PrunableLayer& layer, const Tensor& weight,
                                    const Indices& rows, const Indices& inputs) {
  std::vector<float> out;
  const float* w = weight.data<float>();
  for (const std::int64_t k : rows) {
    for (const std::int64_t c : inputs) {
      const float* from = w + k * layer.columns + c * layer.span;
      out.insert(out.end(), from, from + layer.span);
    }
  }
  return out;
}

Indices all_of(std::int64_t count) {
  Indices out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), std::int64_t{0});
  return out;
}

}  // namespace

CompactPlan compact_plan(const PrunableNetwork& network, const std::vector<Tensor>& masks) {
  check_structured(network);
  CompactPlan plan;
  plan.kept.resize(network.layers.size());
  for (std::size_t l = network.layers.size(); l-- > 0;) {
    if (l + 1 == network.layers.size()) {
      plan.kept[l] = all_of(network.layers[l].rows);
      continue;
    }
    const PrunableLayer& reader = network.layers[l + 1];
    const Tensor mask = masks[l + 1].defined() ? masks[l + 1].to(Device{}) : Tensor();
    for (std::int64_t k = 0; k < network.layers[l].rows; ++k) {
      const auto reads = [&](std::int64_t row) {
        if (!mask.defined()) return true;
        const float* from = mask.data<float>() + row * reader.columns + k * reader.span;
        return std::any_of(from, from + reader.span, [](float keep) { return keep != 0; });
      };
      if (std::any_of(plan.kept[l + 1].begin(), plan.kept[l + 1].end(), reads)) {
        plan.kept[l].push_back(k);
      }
    }
    if (plan.kept[l].empty()) {
      fail(ErrorKind::kConfig, "compact",
           cat("expected masks that leave a path from the image to the classes, got layer '",
               reader.name, "' that reads nothing of '", network.layers[l].name, "'"));
    }
  }
  return plan;
}

namespace {

// Cuts each tensor of the masked network to the shape of the tensor with the same name in the
// compact network.
class Cutter {
 public:
  Cutter(Module& model, const PrunableNetwork& network, const std::vector<Tensor>& masks,
         const CompactPlan& plan)
      : network_(network), masks_(masks), plan_(plan) {
    // Maps each layer to the pruned layer that computes its channels: "bn1" to "c1".
    // "c1".
    std::size_t next = 0;
    for (const NamedModule& part : model.modules()) {
      while (next < network.layers.size() && network.layers[next].name == part.name) ++next;
      if (next > 0) carries_[part.name] = next - 1;
    }
  }

  Tensor cut(const std::string& name, Tensor value, const Shape& to) const {
    for (std::size_t l = 0; l < network_.layers.size(); ++l) {
      const PrunableLayer& layer = network_.layers[l];
      if (name != layer.name + ".weight") continue;
      if (masks_[l].defined()) value = elementwise(BinaryOp::mul, value, masks_[l].to(Device{}));
      const Indices inputs = l == 0 ? all_of(layer.inputs) : plan_.kept[l - 1];
      const std::vector<float> values = selected_columns(layer, value, plan_.kept[l], inputs);
      return Tensor::from(std::span<const float>(values), to);
    }
    if (value.shape() == to) return value;
    const auto carrier = carries_.find(name.substr(0, name.rfind('.')));
    CONVSCOPE_CHECK(carrier != carries_.end() && value.rank() >= 1 &&
                        value.dim(0) == network_.layers[carrier->second].rows,
                    "compact", "expected '", name, "' to have one entry for each output of the ",
                    "layer before it, got ", value.shape());
    return selected_rows(value, plan_.kept[carrier->second]);
  }

 private:
  const PrunableNetwork& network_;
  const std::vector<Tensor>& masks_;
  const CompactPlan& plan_;
  std::map<std::string, std::size_t> carries_;
};

std::map<std::string, Tensor> by_name(const std::vector<NamedTensor>& tensors) {
  std::map<std::string, Tensor> out;
  for (const NamedTensor& entry : tensors) out.emplace(entry.name, entry.tensor.to(Device{}));
  return out;
}

const Tensor& counterpart(const std::map<std::string, Tensor>& from, const std::string& name) {
  const auto found = from.find(name);
  CONVSCOPE_CHECK(found != from.end(), "compact", "expected a tensor '", name,
                  "' in the masked network because the compact one has it, got none");
  return found->second;
}

}  // namespace

void copy_compact(Module& model, const PrunableNetwork& network, const std::vector<Tensor>& masks,
                  const CompactPlan& plan, Module& compact) {
  const Cutter cutter(model, network, masks, plan);
  std::vector<NamedTensor> all = model.buffers();
  for (const NamedParameter& parameter : model.parameters()) {
    all.push_back({parameter.name, parameter.variable.value()});
  }
  const std::map<std::string, Tensor> from = by_name(all);
  const auto copy = [&](const std::string& name, const Tensor& to) {
    to.copy_from(cutter.cut(name, counterpart(from, name), to.shape()));
  };
  for (const NamedParameter& parameter : compact.parameters()) {
    copy(parameter.name, parameter.variable.value());
  }
  for (const NamedTensor& buffer : compact.buffers()) copy(buffer.name, buffer.tensor);
}

void copy_compact_state(Module& model, const PrunableNetwork& network,
                        const std::vector<Tensor>& masks, const CompactPlan& plan,
                        const std::vector<NamedTensor>& from_state,
                        const std::vector<NamedTensor>& to_state) {
  const Cutter cutter(model, network, masks, plan);
  const std::map<std::string, Tensor> from = by_name(from_state);
  for (const NamedTensor& to : to_state) {
    Tensor value = counterpart(from, to.name);
    if (!(value.shape() == to.tensor.shape())) {
      std::string parameter;  // "momentum.c1.weight" is state of the longest matching name
      const auto consider = [&](const std::string& name) {
        if (to.name.ends_with("." + name) && name.size() > parameter.size()) parameter = name;
      };
      for (const NamedParameter& candidate : model.parameters()) consider(candidate.name);
      for (const NamedTensor& candidate : model.buffers()) consider(candidate.name);
      value = cutter.cut(parameter, value, to.tensor.shape());
    }
    to.tensor.copy_from(value);
  }
}

}  // namespace convscope
