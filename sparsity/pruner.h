// SPDX-License-Identifier: Apache-2.0
// pruner.h: prunes a network during training.
//
//   Pruner pruner(model, {1, 3, 32, 32}, options, total_steps, seed);   // adds the masks
//   pruner.bind_optimizer_state(...);
//   for each step: pruner.before_step(step); train; pruner.after_step(step + 1);
//
// Definitions
//   weights      A pruned weight keeps its value, bit for bit. If a later mask keeps the weight
//                again, its training continues from that value (with rigl: from 0, as in the paper
//                of RigL).
//   optimiser    The state of a pruned weight (momentum; Adam's two means) is 0, so it has no
//                momentum if a later mask keeps it again. With `gradient: dense` pruned weights
//                continue to be trained, so they neither keep their value nor have a state of 0.
//   masks        An update of the masks that is due after a training step (schedule.h) reads |w|
//                at the end of this step. Masks are buffers "<layer>.mask.keep". Masks, weights
//                and the number of steps are the whole state: a run resumed from a checkpoint
//                gives the same bits.
//   refusals     unknown names in `exclude`; a layer that would lose all its weights; masks that
//                leave no path from the image to the classes (the message names the layer).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/sparse/sparse_weights.h"
#include "sparsity/hold.h"
#include "sparsity/mask.h"
#include "sparsity/schedule.h"
#include "sparsity/sparsity_report.h"

namespace convscope {

class CONVSCOPE_API Pruner {
 public:
  // Adds the masks. `input` is the shape of a batch. `total_steps` is the number of training steps
  // of the whole run, or 0 if the network is not trained.
  Pruner(Module& model, const Shape& input, const SparsityOptions& options,
         std::int64_t total_steps, std::uint64_t seed);

  // Sets the optimiser's state. A tensor belongs to a parameter if its name ends in the parameter's
  // name ("momentum.c1.weight") and both have the same shape.
  void bind_optimizer_state(const std::vector<NamedTensor>& state);

  // Applies the final masks of the schedule immediately, for a network that is measured, not
  // trained.
  void prune_now();

  // Updates the masks if an update is due, and returns whether they have changed. `steps` is the
  // number of completed training steps. Allocates memory only when masks change.
  bool before_step(std::int64_t steps);
  bool after_step(std::int64_t steps);

  // Returns whether before_step(steps) or after_step(steps + 1) does more than rest().
  bool step_needs_host(std::int64_t steps) const;
  // Restores the values of the pruned weights and clears their optimiser state, as after_step()
  // does. rest() only queues kernels, so a CUDA graph of training steps may contain these kernels.
  void rest() const { rest(rested_.size()); }

  // Sets a function for training on several processes. Method rigl calls the function with the
  // gradient (f32, on the CPU) of this process's images. The function must replace this gradient by
  // the gradient of the images of all processes.
  void use_gradients_of_all(std::function<void(const Tensor&)> sum) {
    sum_gradient_ = std::move(sum);
  }

  bool finished(std::int64_t steps) const { return schedule_.finished(steps); }
  const SparsitySchedule& schedule() const { return schedule_; }
  const PrunableNetwork& network() const { return network_; }
  std::vector<Tensor> masks() const;  // of each layer of network(); undefined for dense ones
  SparsityReport report(std::int64_t steps) const;

 private:
  struct Masked {
    std::size_t layer;  // in network_.layers
    std::shared_ptr<Mask> mask;
    Ref<SparseWeights> sparse;  // null: the layer does not run from blocks
    Tensor weight;
    Tensor held;                // values of the pruned weights
    std::vector<Tensor> state;  // of the optimiser
  };

  void check_counts() const;
  void hold_values();
  void list_rested();
  void rest(std::size_t first) const;  // the first `first` entries of the list
  void update(std::int64_t steps);
  void set_masks(const std::vector<Tensor>& keeps);
  static void set_mask(const Masked& masked, const Tensor& keep);
  std::vector<Tensor> first_rigl_masks(std::int64_t steps) const;
  void replace_weights(std::int64_t steps);
  std::vector<const PrunableLayer*> pruned_layers() const;

  SparsityOptions options_;
  SparsitySchedule schedule_;
  PrunableNetwork network_;
  std::vector<bool> excluded_;  // [layer]
  std::vector<Masked> masked_;
  std::vector<RestedTensor> rested_;  // optimiser state, then weights
  std::size_t rested_states_ = 0;
  std::uint64_t seed_;
  bool held_ready_ = false;
  std::function<void(const Tensor&)> sum_gradient_;
};

}  // namespace convscope
