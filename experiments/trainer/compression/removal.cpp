// SPDX-License-Identifier: Apache-2.0
// removal.cpp: `sparsity: {remove: true}`: once the masks of a structured method are final, pruned
// filters are removed from the network. The rest of the run trains the smaller dense network, which
// is faster and needs less memory.
//
// Idea   train, prune, reconfigure, continue: Lym et al. 2019, "PruneTrain", arXiv:1901.09290
// When   at the first epoch that begins with final masks. Weights, buffers and the optimiser's
//        state are cut, so the run continues; only the summation order differs from then on.
#include "experiments/config/build.h"
#include "experiments/config/compact_config.h"
#include "experiments/trainer/trainer.h"

namespace convscope {
namespace {

struct Network {
  std::shared_ptr<Module> model;
  std::unique_ptr<Optimizer> optimizer;
};

Network build(const ExperimentConfig& config, const Dataset& data) {
  Network out;
  out.model = build_model(config, data.sample_shape(), data.classes);
  out.optimizer = build_optimizer(config, *out.model);
  return out;
}

void take_over(TrainingSetup& setup, const ExperimentConfig& config, Network network) {
  setup.pruner.reset();  // destroyed before the model that owns its masks
  setup.model = std::move(network.model);
  setup.optimizer = std::move(network.optimizer);
  setup.config_yaml = to_yaml(config);
  setup.remove_when_final = false;
  setup.form = Form::compact;
  setup.describe_network();
}

std::vector<NamedTensor> tensors_of(Optimizer& optimizer) {
  std::vector<NamedTensor> out;
  for (const OptimState& entry : optimizer.state()) out.push_back({entry.name, entry.tensor});
  return out;
}

// Replaces network and optimiser of the setup by the smaller ones. Returns a text about the network
// that remains.
std::string remove_pruned(TrainingSetup& setup) {
  const PrunableNetwork& network = setup.pruner->network();
  const std::vector<Tensor> masks = setup.pruner->masks();
  const CompactPlan plan = compact_plan(network, masks);
  const ExperimentConfig config = parse_config_text(setup.config_yaml, "config.yaml");
  const ExperimentConfig smaller = parse_config_text(
      to_yaml(compact_config(config, config.name, network, plan)), "config of the smaller network");
  Network small = build(smaller, setup.train->dataset());
  copy_compact(*setup.model, network, masks, plan, *small.model);
  copy_compact_state(*setup.model, network, masks, plan, tensors_of(*setup.optimizer),
                     tensors_of(*small.optimizer));

  std::string kept;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    kept += cat(l == 0 ? "" : ", ", network.layers[l].name, " ", plan.kept[l].size(), " of ",
                network.layers[l].rows);
  }
  const std::int64_t before = setup.facts.params;
  take_over(setup, smaller, std::move(small));
  return cat("removed pruned outputs; outputs that stay: ", kept, "; ", setup.facts.params, " of ",
             before, " parameters");
}

class Removal final : public Hook {
 public:
  using Hook::Hook;

  void before_epoch() override {
    TrainingSetup& setup = run_.setup;
    if (!setup.remove_when_final || !setup.pruner->finished(run_.state.step)) return;
    run_.runner.reset();
    run_.val.reset();
    run_.test.reset();
    const std::string text = remove_pruned(setup);
    setup.model->train();
    for (const auto& hook : run_.hooks) hook->on_new_network();
    run_.folder.write("layers.csv", setup.layers_csv);
    run_.say(text);
    run_.restart_averages();
  }
};

}  // namespace

HookPointer removal_hook(Training& run) { return std::make_unique<Removal>(run); }

bool rebuild_removed(TrainingSetup& setup, const std::string& config_yaml) {
  const ExperimentConfig config = parse_config_text(config_yaml, "config of the checkpoint");
  if (!config.sparsity.values().empty()) return false;
  take_over(setup, config, build(config, setup.train->dataset()));
  return true;
}

}  // namespace convscope
