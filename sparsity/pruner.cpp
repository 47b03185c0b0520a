// SPDX-License-Identifier: Apache-2.0
// pruner.cpp: prunes a network during training.
#include "sparsity/pruner.h"

#include <cmath>

#include "layers/conv2d/conv2d.h"
#include "layers/linear/linear.h"
#include "sparsity/criteria.h"
#include "sparsity/distribution.h"
#include "sparsity/rigl.h"
#include "sparsity/structured.h"

namespace convscope {
namespace {

// Lets a convolution or linear layer compute only from the blocks that its mask keeps. If the
// method prunes single weights, the blocks have the size 1x1. Returns null for other layers.
Ref<SparseWeights> execute_sparse(const Module& layer, Mask& mask, const SparsityOptions& options) {
  if (dynamic_cast<const Conv2d*>(&layer) == nullptr &&
      dynamic_cast<const Linear*>(&layer) == nullptr) {
    return {};
  }
  const bool blocks = options.method == PruneMethod::block;
  auto weights = make_ref<SparseWeights>(mask.keep(), blocks ? options.block_rows : 1,
                                         blocks ? options.block_cols : 1,
                                         options.gradient == MaskGradient::dense);
  mask.execute_sparse(weights);
  return weights;
}

}  // namespace

Pruner::Pruner(Module& model, const Shape& input, const SparsityOptions& options,
               std::int64_t total_steps, std::uint64_t seed)
    : options_(options),
      schedule_(options, total_steps),
      network_(prunable_network(model, input)),
      excluded_(network_.layers.size(), false),
      seed_(seed) {
  for (const std::string& name : options.exclude) excluded_[network_.index_of(name)] = true;
  if (options.structured()) check_structured(network_);
  check_pieces(pruned_layers(), options_);
  check_counts();
  for (std::size_t l = 0; l < network_.layers.size(); ++l) {
    // With a structured method even an excluded layer gets a mask. It keeps all outputs of the
    // layer, but removes the inputs that no layer computes any longer.
    if (excluded_[l] && !options.structured()) continue;
    PrunableLayer& layer = network_.layers[l];
    auto mask = std::make_shared<Mask>(layer.weight());
    mask->set_dense_gradient(options.gradient == MaskGradient::dense);
    layer.module->add_weight_transform("mask", mask, /*first=*/true);
    Ref<SparseWeights> sparse;
    if (options.execute == SparseExecution::sparse) {
      sparse = execute_sparse(*layer.module, *mask, options);
    }
    masked_.push_back({.layer = l,
                       .mask = mask,
                       .sparse = sparse,
                       .weight = layer.weight(),
                       .held = {},
                       .state = {}});
  }
}

std::vector<const PrunableLayer*> Pruner::pruned_layers() const {
  std::vector<const PrunableLayer*> out;
  for (std::size_t l = 0; l < network_.layers.size(); ++l) {
    if (!excluded_[l]) out.push_back(&network_.layers[l]);
  }
  return out;
}

// Checks that each layer keeps something, whatever the values of its weights. A layer that keeps
// nothing would disconnect the network.
void Pruner::check_counts() const {
  if (pruned_layers().empty()) {
    fail(ErrorKind::kConfig, "sparsity",
         cat("expected at least one layer to prune, got ", network_.layers.size(), " of which ",
             options_.exclude.size(), " are excluded"));
  }
  if (options_.distribution == SparsityDistribution::global && options_.target < 1) return;
  const auto refuse = [&](const PrunableLayer& layer, const char* what) {
    fail(
        ErrorKind::kConfig, "sparsity",
        cat("expected a target that leaves a path from the image to the classes, because a network "
            "cut in two only trains its last biases, got target ",
            options_.target, ", which leaves layer '", layer.name, "' without any ", what,
            "; lower the target or exclude the layer"));
  };
  if (options_.structured()) {
    const auto kept = kept_outputs(network_, excluded_, options_, options_.target);
    for (std::size_t l = 0; l < kept.size(); ++l) {
      bool any = false;
      for (const std::uint8_t k : kept[l]) any = any || k != 0;
      if (!any) refuse(network_.layers[l], network_.layers[l].is_conv ? "filter" : "unit");
    }
    return;
  }
  const std::vector<const PrunableLayer*> layers = pruned_layers();
  SparsityOptions plain = options_;
  if (plain.method == PruneMethod::rigl) plain.method = PruneMethod::magnitude;
  const std::vector<Tensor> masks = weakest_masks(layers, plain, options_.target);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const float* keep = masks[i].data<float>();
    bool any = false;
    for (std::int64_t e = 0; e < masks[i].numel(); ++e) any = any || keep[e] != 0;
    if (!any) refuse(*layers[i], "weight");
  }
}

void Pruner::bind_optimizer_state(const std::vector<NamedTensor>& state) {
  for (Masked& masked : masked_) {
    masked.state.clear();
    const std::string ending = "." + network_.layers[masked.layer].name + ".weight";
    for (const NamedTensor& entry : state) {
      if (entry.name.ends_with(ending) && entry.tensor.shape() == masked.weight.shape()) {
        masked.state.push_back(entry.tensor);
      }
    }
  }
  list_rested();
}

std::vector<Tensor> Pruner::masks() const {
  std::vector<Tensor> out(network_.layers.size());
  for (const Masked& masked : masked_) out[masked.layer] = masked.mask->keep();
  return out;
}

SparsityReport Pruner::report(std::int64_t steps) const {
  std::vector<bool> pruned = excluded_;
  pruned.flip();
  return sparsity_report(network_, masks(), pruned, steps, schedule_.sparsity(steps));
}

void Pruner::hold_values() {
  for (Masked& masked : masked_) {
    if (!masked.held.defined()) masked.held = masked.weight.clone();
    masked.held.copy_from(masked.weight);
  }
  held_ready_ = true;
  list_rested();
}

void Pruner::list_rested() {
  rested_.clear();
  if (options_.gradient != MaskGradient::masked) return;
  for (const Masked& masked : masked_) {
    for (const Tensor& state : masked.state) rested_.push_back({masked.mask->keep(), {}, state});
  }
  rested_states_ = rested_.size();
  if (!held_ready_) return;
  for (const Masked& masked : masked_) {
    rested_.push_back({masked.mask->keep(), masked.held, masked.weight});
  }
}

bool Pruner::step_needs_host(std::int64_t steps) const {
  return !held_ready_ || (steps == 0 && schedule_.update_due(0)) || schedule_.update_due(steps + 1);
}

bool Pruner::before_step(std::int64_t steps) {
  bool changed = false;
  if (!held_ready_) hold_values();
  if (steps == 0 && schedule_.update_due(0)) {
    update(0);
    changed = true;
  }
  if (options_.method == PruneMethod::rigl) {
    const bool on = schedule_.update_due(steps + 1) && schedule_.replaced(steps + 1) > 0;
    for (Masked& masked : masked_) {
      masked.mask->observe_gradient(on);  // the step is compiled again
      if (masked.sparse) masked.sparse->want_dense_gradient(on);
    }
  }
  return changed;
}

bool Pruner::after_step(std::int64_t steps) {
  // Restores the values of the pruned weights. Also clears their optimiser state, which weight
  // decay may have changed: the state must be 0 if a later mask keeps a weight again.
  rest();
  if (!schedule_.update_due(steps)) return false;
  update(steps);
  rest(rested_states_);  // state of the weights just pruned
  return true;
}

void Pruner::rest(std::size_t first) const {
  if (first == 0) return;
  rest_kernel.get(rested_[0].value.device())(rested_.data(), static_cast<int>(first));
}

void Pruner::prune_now() {
  if (options_.structured()) {
    set_masks(tied_masks(network_, kept_outputs(network_, excluded_, options_, options_.target)));
  } else if (options_.method == PruneMethod::rigl) {
    set_masks(first_rigl_masks(0));
  } else {
    set_masks(weakest_masks(pruned_layers(), options_, options_.target));
  }
  hold_values();
}

void Pruner::update(std::int64_t steps) {
  const double sparsity = schedule_.sparsity(steps);
  if (options_.structured()) {
    set_masks(tied_masks(network_, kept_outputs(network_, excluded_, options_, sparsity)));
  } else if (options_.method != PruneMethod::rigl) {
    set_masks(weakest_masks(pruned_layers(), options_, sparsity));
  } else if (steps <= schedule_.first_update()) {
    set_masks(first_rigl_masks(steps));
  } else if (schedule_.replaced(steps) > 0) {
    replace_weights(steps);
  }
  hold_values();
  const std::string cut_at = connectivity(network_, masks()).cut_at;
  if (cut_at.empty()) return;
  fail(ErrorKind::kRun, "sparsity",
       cat("expected masks that leave a path from the image to the classes, because a network cut "
           "in two only trains its last biases, got none through layer '",
           cut_at, "' after step ", steps, " at sparsity ", sparsity,
           "; lower the target, exclude the layer or choose another distribution"));
}

void Pruner::set_masks(const std::vector<Tensor>& keeps) {
  for (std::size_t i = 0; i < masked_.size(); ++i) set_mask(masked_[i], keeps[i]);
}

void Pruner::set_mask(const Masked& masked, const Tensor& keep) {
  masked.mask->set_keep(keep);
  if (masked.sparse) masked.sparse->mask_changed();
}

// Returns the first masks of RigL. If they apply from the first training step on, random weights
// are dropped. If the network was trained dense before, the weakest weights are dropped.
std::vector<Tensor> Pruner::first_rigl_masks(std::int64_t steps) const {
  const std::vector<const PrunableLayer*> layers = pruned_layers();
  SparsityOptions plain = options_;
  plain.method = PruneMethod::magnitude;
  if (steps > 0) return weakest_masks(layers, plain, options_.target);
  std::vector<std::int64_t> counts;
  for (const PrunableLayer* layer : layers) counts.push_back(layer->weights());
  const std::vector<std::int64_t> zeros =
      rounded_zeros(counts, layer_sparsities(layers, options_.distribution, options_.target));
  std::vector<Tensor> masks;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::vector<std::uint8_t> keep =
        drop_weakest(random_strengths(counts[l], seed_, l), zeros[l]);
    Tensor mask = Tensor::empty(layers[l]->weight().shape());
    for (std::size_t i = 0; i < keep.size(); ++i)
      mask.data<float>()[i] = keep[i] != 0 ? 1.0f : 0.0f;
    masks.push_back(mask);
  }
  return masks;
}

void Pruner::replace_weights(std::int64_t steps) {
  for (const Masked& masked : masked_) {
    const Tensor keep = masked.mask->keep().to(Device{}).clone();
    const Tensor weight = masked.weight.to(Device{}).clone();
    const float* kept = keep.data<float>();
    double in = 0;
    for (std::int64_t i = 0; i < keep.numel(); ++i) in += kept[i];
    Tensor gradient = masked.mask->observed_gradient().to(Device{});
    if (sum_gradient_) sum_gradient_(gradient = gradient.clone());
    drop_and_grow(keep, weight, gradient, std::llround(schedule_.replaced(steps) * in));
    set_mask(masked, keep);
    masked.weight.copy_from(weight);
  }
}

}  // namespace convscope
