// SPDX-License-Identifier: Apache-2.0
// pruner.h: prunes a network while it is trained.
//
//   Pruner pruner(model, {1, 3, 32, 32}, options, total_steps, seed);   // adds the masks
//   pruner.bind_optimizer_state(...);
//   for each step: pruner.before_step(step); train; pruner.after_step(step + 1);
//
// What is defined
//   weights      A weight that is out keeps its value, bit by bit, and returns with it when a later
//                mask takes it in again (rigl: a grown weight starts from 0, as its paper says).
//   optimiser    The state that belongs to a weight (momentum; Adam's two means) is 0 while it is
//                out, so it returns at rest. With gradient: dense neither holds: weights that are
//                out are trained on.
//   masks        are computed from |w| after the step after which they are due (schedule.h), and
//                are buffers "<layer>.mask.keep". Masks, weights and the number of steps are all
//                the state there is: a run that goes on from a checkpoint gives the same bits.
//   refusals     unknown names in `exclude`; a layer that would lose everything; masks that leave
//                no path from the image to the classes (the message says at which layer).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/conv2d/sparse_weights.h"
#include "sparsity/hold.h"
#include "sparsity/mask.h"
#include "sparsity/schedule.h"
#include "sparsity/sparsity_report.h"

namespace convscope {

class CONVSCOPE_API Pruner {
 public:
  // `input`: the shape of a batch. `total_steps`: of the whole run; 0 when nothing will be trained.
  Pruner(Module& model, const Shape& input, const SparsityOptions& options,
         std::int64_t total_steps, std::uint64_t seed);

  // Tensors whose names end in a parameter's name and that have its shape ("momentum.c1.weight")
  // are that parameter's state.
  void bind_optimizer_state(const std::vector<NamedTensor>& state);

  // The masks of the schedule's end, at once: for a network that is measured, not trained.
  void prune_now();

  // `steps`: training steps that are done. Allocates nothing unless masks change.
  // True when the masks have changed.
  bool before_step(std::int64_t steps);
  bool after_step(std::int64_t steps);

  // Whether before_step(steps) or after_step(steps + 1) does more than rest().
  bool step_needs_host(std::int64_t steps) const;
  // Puts the weights that are out back and their optimiser state to rest, as after_step() does:
  // queues kernels only, for a device that goes through steps by itself.
  void rest() const { rest(rested_.size()); }

  // Of a training on several processes: turns a gradient (f32, on the CPU) of this process's images
  // into that of all. rigl asks for it.
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
    Ref<SparseWeights> sparse;  // null: the layer is not executed from blocks
    Tensor weight;
    Tensor held;                // values of the weights that are out
    std::vector<Tensor> state;  // of the optimiser
  };

  void check_counts() const;
  void hold_values();
  void list_rested();
  void rest(std::size_t first) const;  // the first ones of the list
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
