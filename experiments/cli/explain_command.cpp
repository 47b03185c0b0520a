// SPDX-License-Identifier: Apache-2.0
// explain_command.cpp: `convscope explain`: which algorithm each convolution of a config uses in
// each direction, why not the others, and how a step is planned. Nothing is run, no data are read.
#include <memory>

#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "experiments/explain/answer.h"
#include "experiments/explain/details.h"
#include "experiments/explain/remarks.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides, layers;
  bool all = false, steps = false, json = false;
};

int explain(const Arguments& arguments) {
  std::vector<std::string> overrides = arguments.overrides;
  for (const std::string& text : global_overrides()) overrides.push_back(text);
  const ExperimentConfig config = load_config(arguments.config, overrides);
  measure_this_machine_once();
  set_num_threads(static_cast<int>(config.threads));
  const Explanation explanation = explain_config(config);
  if (arguments.json) {
    print_result(explanation_json(explanation, asked_layers(explanation, arguments.layers)));
  } else {
    print_result(answer_text(explanation, {arguments.layers, arguments.all, arguments.steps}));
  }
  fail_if_refused(explanation);
  return 0;
}

std::function<int()> declare(CommandLine& app) {
  auto arguments = std::make_shared<Arguments>();
  app.add_option("CONFIG", arguments->config, "experiment file (YAML)")->required();
  app.add_option("KEY=VALUE", arguments->overrides, "values that replace those of the file");
  app.add_option("--layer", arguments->layers,
                 "every algorithm of this convolution, and why not; may be given several times")
      ->type_name("NAME")
      ->one_at_a_time();
  app.add_flag("--all", arguments->all, "every algorithm of every convolution, and the operations");
  app.add_flag("--steps", arguments->steps, "also the operations that the steps consist of");
  app.add_flag("--json", arguments->json, "all of it as one JSON object");
  return [arguments] { return explain(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "explain",
    {.summary = "which algorithm each convolution uses, and why not the others",
     .usage = "explain CONFIG [KEY=VALUE...] [--layer NAME]... [--all] [--steps] [--json]",
     .examples = {"explain experiments/configs/quickstart.yaml conv.algorithm=im2col_gemm",
                  "explain experiments/configs/quickstart.yaml --layer c1"},
     .order = 55,
     .declare = convscope::declare})
