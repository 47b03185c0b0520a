// SPDX-License-Identifier: Apache-2.0
// build_pruner.cpp: builds masks on a network from the block `sparsity:` of a config.
#include "experiments/config/build_pruner.h"

#include "framework/error_phase.h"

namespace convscope {

std::unique_ptr<Pruner> build_pruner(const ExperimentConfig& config, Module& model,
                                     Optimizer* optimizer, const Shape& sample_shape,
                                     std::int64_t total_steps) {
  if (config.sparsity.values().empty()) return nullptr;
  const SparsityOptions options = parse_sparsity(config.sparsity);
  if (options.method == PruneMethod::none) return nullptr;
  Shape input = {1};
  for (const std::int64_t size : sample_shape) input.push_back(size);
  auto pruner = in_phase(ErrorKind::kConfig, [&] {
    return std::make_unique<Pruner>(model, input, options, total_steps,
                                    static_cast<std::uint64_t>(config.seed));
  });
  if (optimizer != nullptr) bind_pruner(pruner.get(), *optimizer);
  return pruner;
}

void bind_pruner(Pruner* pruner, Optimizer& optimizer) {
  if (pruner == nullptr) return;
  std::vector<NamedTensor> state;
  for (const OptimState& entry : optimizer.state()) state.push_back({entry.name, entry.tensor});
  pruner->bind_optimizer_state(state);
}

}  // namespace convscope
