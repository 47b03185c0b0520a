// SPDX-License-Identifier: Apache-2.0
// slow_weights.h: second copies of the weights that move slower than the weights: the exponential
// moving average (EMA), and the slow weights of Lookahead. They work with any optimiser.
//
//   Lookahead, in every k-th update:  slow = slow + alpha * (w - slow),  w = slow
//   EMA, in every update:             average = average + (1 - decay) * (w - average)
//
// Both copies start as the weights before the first update. Lookahead comes first, so the average
// is that of the weights after it. The update kernels (update.h) move the copies right after they
// have written w. The average also contains the running statistics of batch norm.
//
// Sources: Polyak, Juditsky 1992, "Acceleration of stochastic approximation by averaging"; Zhang et
// al. 2019, "Lookahead optimizer: k steps forward, 1 step back", arXiv 1907.08610.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "optim/optimizer.h"

namespace convscope {

struct SlowWeightsOptions {
  double decay = 0;    // of the average; 0: no average
  std::int64_t k = 0;  // updates between two moves of the slow weights; 0: no Lookahead
  double alpha = 0.5;  // of Lookahead, 0 to 1
  bool any() const { return decay > 0 || k > 0; }
};

// Returns `optimizer` with these copies, or `optimizer` itself without any. Its state then also has
// "average.<parameter>", "slow.<parameter>" and "updates". `statistics` are f32 buffers, such as
// running means, that are averaged like parameters. A step whose update is skipped counts for k.
CONVSCOPE_API std::unique_ptr<Optimizer> with_slow_weights(std::unique_ptr<Optimizer> optimizer,
                                                           std::vector<OptimState> statistics,
                                                           const SlowWeightsOptions& options);

// Exchanges weights and averages while it exists. Does nothing for a null or an optimiser without
// averages. No step may run meanwhile.
class CONVSCOPE_API AveragedWeights {
 public:
  explicit AveragedWeights(Optimizer* optimizer);
  ~AveragedWeights();
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  void exchange() const;
  std::vector<AveragedTensor> tensors_;
};

}  // namespace convscope
