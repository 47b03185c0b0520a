// SPDX-License-Identifier: Apache-2.0
// config_command.cpp: `convscope config show|check|list|keys`: shows and checks configs without
// running them.
#include <algorithm>
#include <iostream>
#include <memory>

#include "datasets/dataset.h"
#include "experiments/cli/command.h"
#include "experiments/config/build.h"
#include "experiments/config/no_memory.h"
#include "experiments/config/shipped/shipped_configs.h"
#include "experiments/config/sweep_block.h"
#include "framework/number_text.h"

namespace convscope {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string filter;
};

std::vector<std::string> overrides_of(const Arguments& arguments) {
  std::vector<std::string> overrides = arguments.overrides;
  for (const std::string& text : global_overrides()) overrides.push_back(text);
  return overrides;
}

ExperimentConfig load(const Arguments& arguments) {
  return load_config(arguments.config, overrides_of(arguments));
}

int show(const Arguments& arguments) {
  print_result(to_yaml(load(arguments), true));
  return 0;
}

void build_all(const ExperimentConfig& config) {
  if (dataset_types().get(config.data.set).sample_shape) {  // otherwise the files would be needed
    const auto unbacked = no_memory(config);
    const SampleInfo sample = sample_info(config);
    const std::shared_ptr<Module> model = build_model(config, sample.shape, sample.classes);
    check_labels_fit(config, *model, sample);
    build_optimizer(config, *model);
    build_pruner(config, *model, nullptr, sample.shape, 0);
  }
}

int check_sweep(const Arguments& arguments) {
  const SweepPlan plan = load_sweep(arguments.config, overrides_of(arguments));
  for (const SweepMember& member : plan.members) build_all(member.config);
  if (global_options().verbosity >= 0) {
    std::cout << arguments.config << ": ok (sweep " << plan.name << ", " << plan.rows.size()
              << " rows, " << plan.members.size() << " runs)\n";
  }
  return 0;
}

int check(const Arguments& arguments) {
  if (holds_sweep(arguments.config, overrides_of(arguments))) return check_sweep(arguments);
  const ExperimentConfig config = load(arguments);
  build_all(config);
  if (global_options().verbosity >= 0) {
    std::cout << arguments.config << ": ok (name " << config.name << ", " << config.origins.size()
              << " values given, the rest are defaults)\n";
  }
  return 0;
}

std::string type_and_range(const OptionField& field) {
  std::string text(name_of(field.type));
  if (!field.choices.empty()) return "one of " + join(field.choices, " | ");
  if (field.min <= -1e300 && field.max >= 1e300) return text;
  return cat(text, ", ", interval_text(field.min, field.max));
}

int keys(const Arguments& arguments) {
  bool any = false;
  for (const ConfigKey& key : config_keys()) {
    if (key.path.find(arguments.filter) == std::string::npos) continue;
    any = true;
    const bool text_default = std::holds_alternative<std::string>(key.field.default_value);
    const std::string standard = to_text(key.field.default_value);
    std::cout << key.path << "\n    " << key.field.doc << "\n    " << type_and_range(key.field)
              << "; "
              << (key.field.required ? "required"
                  : standard == "null" || (text_default && standard.empty())
                      ? "optional"
                      : "default " + standard)
              << "\n";
  }
  if (!any)
    fail_usage("config keys", cat("expected a part of a key, none holds '", arguments.filter, "'"));
  return 0;
}

int list(const Arguments& arguments) {
  const std::vector<ShippedConfig> all = shipped_configs();
  std::size_t width = 0;
  for (const ShippedConfig& config : all) width = std::max(width, config.name.size());
  bool any = false;
  for (const ShippedConfig& config : all) {
    const std::string line =
        cat(config.name, std::string(width - config.name.size() + 2, ' '), config.about);
    if (line.find(arguments.filter) == std::string::npos) continue;
    any = true;
    std::cout << line << "\n";
  }
  if (!any) {
    fail_usage("config list",
               all.empty() ? "expected configs next to the program, got none"
                           : cat("expected a part of a name or of a description, none holds '",
                                 arguments.filter, "'"));
  }
  return 0;
}

std::function<int()> declare(CommandLine& app) {
  auto arguments = std::make_shared<Arguments>();
  CommandLine* show_app =
      app.add_subcommand("show", "Print the resolved config, with the origin of each value.");
  CommandLine* check_app =
      app.add_subcommand("check", "Check whether the config can be run: exit code 0 or 3.");
  CommandLine* keys_app =
      app.add_subcommand("keys", "List every key: meaning, type, range, default.");
  CommandLine* list_app =
      app.add_subcommand("list", "List the shipped configs, which run by name.");
  list_app->add_option("TEXT", arguments->filter, "only lines that contain this text");
  for (CommandLine* sub : {show_app, check_app}) {
    sub->add_option("CONFIG", arguments->config, "config: file, or name of a shipped config")
        ->required();
    sub->add_option("KEY=VALUE", arguments->overrides,
                    "values that replace those of the config (optim.lr=0.1)");
  }
  keys_app->add_option("TEXT", arguments->filter, "only keys that contain this text");
  app.require_subcommand(1);
  return [=] {
    if (show_app->parsed()) return show(*arguments);
    if (check_app->parsed()) return check(*arguments);
    return list_app->parsed() ? list(*arguments) : keys(*arguments);
  };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "config", {.summary = "Show, check or list configs and their keys.",
               .usage = "config show|check CONFIG [KEY=VALUE...]\nconfig list|keys [TEXT]",
               .examples = {"config list mnist", "config show quickstart train.epochs=2",
                            "config check my_config.yaml", "config keys optim"},
               .order = 50,
               .declare = convscope::declare})
