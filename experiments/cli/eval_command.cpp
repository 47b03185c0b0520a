// SPDX-License-Identifier: Apache-2.0
// eval_command.cpp: `convscope eval`: loss, accuracy and IoU of trained weights.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "experiments/config/build.h"
#include "experiments/config/experiment_config.h"
#include "experiments/run_folder/check_lines.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/step_kernels.h"
#include "experiments/trainer/checkpoint.h"
#include "experiments/trainer/evaluation/evaluator.h"
#include "experiments/trainer/setup.h"
#include "framework/error_phase.h"
#include "quant/quantize_network.h"

namespace convscope {
namespace {

struct EvalArguments {
  std::string target, split = "test", weights = "last", execute;
};

struct Target {
  ExperimentConfig config;
  std::string checkpoint;
};

Target find_target(const EvalArguments& arguments) {
  std::vector<std::string> overrides = global_overrides();
  if (!arguments.execute.empty()) overrides.push_back("quant.execute=" + arguments.execute);
  if (std::filesystem::is_regular_file(arguments.target)) {
    if (!arguments.target.ends_with(".safetensors")) {
      fail_usage("eval", cat("expected a run folder or a .safetensors file of `convscope run` or "
                             "`export`, got '",
                             arguments.target, "'"));
    }
    return {parse_config_text(checkpoint_config(arguments.target), arguments.target, {}, overrides),
            arguments.target};
  }
  const std::string run = resolve_run(arguments.target);
  Target target{load_config(run + "/config.yaml", overrides),
                cat(run, "/ckpt/", arguments.weights, ".safetensors")};
  // If pruned filters were removed before the checkpoint was written, the network in the checkpoint
  // is smaller than that of the run's config.
  if (target.config.sparsity.has("remove") && target.config.sparsity.flag("remove")) {
    target.config =
        parse_config_text(checkpoint_config(target.checkpoint), target.checkpoint, {}, overrides);
  }
  return target;
}

int evaluate_target(const EvalArguments& arguments) {
  const Target target = find_target(arguments);
  measure_this_machine_once();
  TrainingSetup setup = setup_training(target.config);
  const TrainingState state = load_checkpoint(target.checkpoint, *setup.model, nullptr);
  std::unique_ptr<Loader> train;
  Loader* loader = arguments.split == "test"  ? setup.test.get()
                   : arguments.split == "val" ? setup.val.get()
                                              : nullptr;
  if (arguments.split == "train") {  // in order, without augmentation
    train = std::make_unique<Loader>(
        setup.train->dataset(),
        LoaderOptions{.batch_size = target.config.data.batch_size, .shuffle = false});
    loader = train.get();
  }
  if (loader == nullptr) {
    fail(ErrorKind::kConfig, "eval",
         cat("expected a config with ", arguments.split,
             " images, because that split was asked "
             "for, got none",
             arguments.split == "val" ? " (data.val_split is 0)" : ""));
  }
  Evaluator evaluator(*setup.model, *loader, setup.device, setup.plan, setup.loss);
  const Evaluation result = in_phase(ErrorKind::kRun, [&] { return evaluator.run(); });
  std::fputs(fmt::format("split {}  images {}  accuracy {:.2f} %  loss {:.6g}  epoch {}  step {}\n",
                         arguments.split, result.images, result.accuracy, result.loss, state.epoch,
                         state.step)
                 .c_str(),
             stdout);
  if (const auto top5 = evaluator.count_classes().top5_accuracy()) {
    std::fputs(fmt::format("top-5 accuracy {:.2f} %\n", *top5).c_str(), stdout);
  }
  if (const auto iou = result.mean_iou()) {
    const std::vector<std::string>& names = loader->dataset().class_names;
    std::string line = fmt::format("mean IoU {:.2f} %", *iou);
    for (std::size_t k = 0; k < result.class_iou.size(); ++k) {
      if (result.class_iou[k] < 0) continue;  // the class does not occur
      line += fmt::format("  {} {:.2f}", k < names.size() ? names[k] : cat(k), result.class_iou[k]);
    }
    std::fputs((line + "\n").c_str(), stdout);
  }
  if (target.config.quant && setup.plan) {
    const Shape input =
        batch_shape(target.config.data.batch_size, loader->dataset().sample_shape());
    const StepKernels kernels =
        kernels_of_step(*setup.model, input, target.config.device, PlanMode::inference, setup.plan);
    const std::string why =
        why_not_on_integers(*setup.model, target.config.device, kernels.any("int8"));
    if (!why.empty()) std::fputs((why + "\n").c_str(), stderr);
  }
  for (const std::string& line : check_lines()) std::fputs((line + "\n").c_str(), stderr);
  if (!std::isfinite(result.loss)) {
    fail(ErrorKind::kRun, "eval",
         cat("expected a finite loss, got ", result.loss, " with the weights of ",
             target.checkpoint));
  }
  return 0;
}

std::function<int()> declare_eval(CommandLine& app) {
  auto arguments = std::make_shared<EvalArguments>();
  app.add_option(
         "RUN", arguments->target,
         "run folder, or a .safetensors file of convscope (checkpoint, quantised or sparse model)")
      ->required();
  app.add_option("--split", arguments->split, "split of the data set: test, val or train")
      ->type_name("S")
      ->capture_default_str()
      ->one_of({"test", "val", "train"});
  app.add_option("--weights", arguments->weights, "weights of a run folder: last or best")
      ->type_name("W")
      ->capture_default_str()
      ->one_of({"last", "best"});
  app.add_option("--execute", arguments->execute,
                 "execution of a quantised run: fake (rounded values, f32 products), int8 (integer "
                 "products where they are faster) or int8_always (default: the config's)")
      ->type_name("E")
      ->one_of({"fake", "int8", "int8_always"});
  return [arguments] { return evaluate_target(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND("eval",
                           {.summary = "Evaluate a trained network: loss, accuracy, IoU.",
                            .usage = "eval RUN|FILE [--split test|val|train]",
                            .examples = {"eval runs/quickstart",
                                         "eval runs/quickstart --split train --weights best",
                                         "eval codes.safetensors"},
                            .order = 20,
                            .declare = convscope::declare_eval})
