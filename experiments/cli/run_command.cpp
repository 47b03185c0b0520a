// SPDX-License-Identifier: Apache-2.0
// run_command.cpp: `convscope run`: trains and evaluates the network of a config.
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "experiments/cli/words/config_words.h"
#include "experiments/config/experiment_config.h"
#include "experiments/report/run_table.h"
#include "experiments/run_folder/environment.h"
#include "experiments/run_folder/machine_load.h"
#include "experiments/run_folder/run_search.h"
#include "experiments/trainer/checkpoint.h"
#include "experiments/trainer/choices/kept_choices.h"
#include "experiments/trainer/ranks/rank_order.h"
#include "experiments/trainer/ranks/shared_training.h"
#include "experiments/trainer/setup.h"
#include "experiments/trainer/signals.h"
#include "experiments/trainer/trainer.h"
#include "framework/distributed/rank_device.h"
#include "framework/io/atomic_file.h"
#include "framework/io/bytes.h"
#include "framework/io/output_place.h"
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"

namespace convscope {
namespace {

struct RunArguments {
  std::vector<std::string> words;  // CONFIG and KEY=VALUE
  std::string root = "runs";
  std::string name, resume;
  bool dry_run = false;
  std::int64_t epochs_limit = 0;
};

// The config is empty with --resume RUN.
ConfigWords sort_words(const RunArguments& arguments) {
  ConfigWords request = split_config_words("run", arguments.words);
  if (request.config.empty() && (arguments.resume.empty() || arguments.resume == "auto")) {
    fail_usage("run", "expected a config file");
  }
  if (!arguments.name.empty()) request.overrides.push_back(name_override(arguments.name));
  for (const std::string& word : global_overrides()) request.overrides.push_back(word);
  return request;
}

// Returns the run to continue, or nothing if a new run should start.
std::optional<std::string> run_to_resume(const RunArguments& arguments,
                                         const std::optional<ExperimentConfig>& config) {
  if (arguments.resume.empty()) return std::nullopt;
  if (arguments.resume != "auto") return resolve_run(arguments.resume);
  const std::string folder = arguments.root + "/" + config->name;
  const std::string wanted = to_yaml(*config);
  const auto fits = [&](const std::string& run) {
    try {
      return to_yaml(load_config(run + "/config.yaml", global_overrides())) == wanted;
    } catch (const Error&) {
      return false;
    }
  };
  std::optional<std::string> run = newest_unfinished_run(folder, fits);
  if (!run) print_remark(cat("resume no unfinished run in ", folder, ", starting a new run"));
  return run;
}

std::string mask_remark(const TrainingSetup& setup) {
  if (!setup.pruner) return "";
  if (setup.remove_when_final) {
    return "runs   masked dense until the masks are final, then compact dense without the pruned "
           "outputs";
  }
  if (setup.form == Form::sparse) {
    return "runs   block-sparse: convolutions skip pruned blocks where this is estimated to be "
           "faster; layers.csv names what runs";
  }
  return "runs   masked dense: zeros are multiplied like other numbers; neither time nor memory is "
         "saved";
}

std::string quantiser_remark(const TrainingSetup& setup) {
  if (!setup.quant) return "";
  const std::int64_t begin = setup.quant->begin_step;
  if (setup.quant->on_integers && !uses_vnni() && setup.device.type == DeviceType::cpu) {
    return cat("runs   int8 in evaluations", begin > 0 ? cat(" after step ", begin) : "",
               " if this is estimated to be faster than f32 on this CPU without VNNI, or required "
               "(quant.execute=int8_always); `execution` in summary.json names what ran");
  }
  if (setup.quant->on_integers) {
    return cat("runs   int8 in evaluations", begin > 0 ? cat(" after step ", begin) : "",
               ": integer products; training steps round numbers and multiply them in f32");
  }
  return cat("runs   fake-quant f32", begin > 0 ? cat(" after step ", begin) : "",
             ": numbers are rounded and multiplied in f32; neither time nor memory is saved");
}

std::string best_remark(const TrainingSetup& setup) {
  if (!setup.keep_best || setup.val || !setup.test) return "";
  return "warning: best.safetensors and best_acc are chosen on the test images, because there are "
         "no val images; data.val_split sets some aside";
}

// Returns the lines for the terminal and for log.txt before the first step. They say how the
// network is executed, and why the numbers of the run may be unreliable.
std::vector<std::string> remarks_before(const TrainingSetup& setup) {
  std::vector<std::string> lines;
  for (const std::string& line : {mask_remark(setup), quantiser_remark(setup), best_remark(setup),
                                  load_warning(cores_of_others(), num_threads(), cores_online())}) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

void print_row(const Trainer& trainer, const RunFolder& folder) {
  RunRow row;
  row.summary = trainer.summary();
  row.state = read_run_status(folder.path()).state;
  print_screen(to_markdown({row}, core_columns()));
}

// Ends all processes of the group after a failure of this process. This must happen before the
// trainer is destroyed: its destructor could wait forever, for instance for an all-reduce on the
// GPU with a process that has ended.
[[noreturn]] void fail_group(ProcessGroup& group, const std::exception& failure) {
  const auto* const ours = dynamic_cast<const Error*>(&failure);
  if (group.rank() == 0) report_failure(std::current_exception());
  group.fail_all(ours != nullptr ? exit_code(ours->kind()) : 1, failure.what());
}

int train(TrainingSetup& setup, RunFolder& folder, bool resume) {
  Progress progress(Progress::mode_for(global_options().verbosity < 0));
  progress.line(cat("run    ", folder.path()));
  progress.line(cat(
      "data   ", setup.facts.data, ": ", setup.train->dataset().size(), " train, ",
      setup.val_images, " val, ", setup.test_images, " test; model ", setup.facts.model, ", ",
      setup.facts.params, " parameters; ", setup.device.str(),
      setup.facts.device_name.empty() ? "" : cat(" (", setup.facts.device_name, ")"),
      setup.facts.precision == "f32" ? "" : cat(", ", setup.facts.precision), ", ",
      setup.share.size() == 1
          ? ""
          : cat(setup.share.size(), " processes (", setup.share.group->launcher(), "), each "),
      setup.facts.threads, setup.facts.threads == 1 ? " thread, " : " threads, ", setup.facts.isa));
  folder.log(setup.memory);
  for (const std::string& remark : remarks_before(setup)) {
    folder.log(remark);
    progress.line(remark);
  }
  Trainer trainer(setup, folder, progress);
  ProcessGroup* const group = setup.share.group;
  if (resume) {
    trainer.resume();
    if (group != nullptr) share_file(*group, trainer.resumed_from(), "");
    const std::string change = environment_change(folder.file("env.json"));
    if (!change.empty()) {
      folder.log(cat("warning: ", change));
      progress.line(cat("warning: ", change));
    }
  }
  if (group != nullptr) broadcast_network(*group, *setup.model);
  int code = 0;
  try {
    code = trainer.run();
  } catch (const Error& failure) {  // such as a missed gate; training results are kept
    if (trainer.summary().epochs > 0) print_row(trainer, folder);
    if (group != nullptr) fail_group(*group, failure);
    throw;
  }
  print_row(trainer, folder);
  const RunStatus status = read_run_status(folder.path());
  if (code == 0 && status.state == "DONE") {
    progress.line(status.reason.empty() ? cat("done   report: ", folder.file("report.html"))
                                        : "done   without a report");
  } else if (code == 0) {
    progress.line(cat("paused after epoch ", status.epoch, " of ", setup.epochs,
                      "; go on with: convscope run --resume ", folder.path()));
  } else {
    progress.line(cat("stopped; go on with: convscope run --resume ", folder.path()));
  }
  return code;
}

// Checks everything before the folder is created: bad data or an impossible batch size must not
// create a run.
TrainingSetup setup_run(const ExperimentConfig& config, std::int64_t epochs_limit) {
  TrainingSetup setup = setup_training(config);
  check_batches(setup);
  setup.epochs_now = epochs_limit;
  return setup;
}

// In process 0: sends the other processes of the group an order (RankOrder), which says what to
// run.
bool others_know = false;
void tell_others(const ExperimentConfig& config, bool resumes, std::int64_t epochs_limit) {
  ProcessGroup* const group = process_group();
  if (group == nullptr) return;
  others_know = true;
  const ScratchFolder scratch;
  KeptChoices(config.device).write(scratch.path());
  share_order(*group, {.trains = true,
                       .config = to_yaml(config),
                       .choices = text_if_there(scratch.path() + "/choices.json").value_or(""),
                       .resumes = resumes,
                       .epochs_limit = epochs_limit});
}

// Runs as a single process, or as process 0 of a group.
int run_first(const RunArguments& arguments) {
  const ConfigWords request = sort_words(arguments);
  std::optional<ExperimentConfig> config;
  if (!request.config.empty()) config = load_config(request.config, request.overrides);
  const std::optional<std::string> resumed = run_to_resume(arguments, config);
  if (resumed) {
    // A resumed run uses the config in its folder. Only the number of threads may be overridden,
    // because it cannot change results.
    if (!config && !arguments.words.empty()) {
      fail_usage("run", cat("expected no KEY=VALUE with --resume RUN, because a run continues with "
                            "its own config, got '",
                            arguments.words[0], "'"));
    }
    const ExperimentConfig stored = load_config(*resumed + "/config.yaml", global_overrides());
    if (config && to_yaml(*config) != to_yaml(stored)) {
      fail(ErrorKind::kConfig, "resume",
           cat("expected the config that ", *resumed, " was started with, got another one from ",
               request.config,
               "; leave out the config to continue, or leave out --resume to start a new run"));
    }
    config = stored;
  }
  if (arguments.dry_run) {
    print_result(to_yaml(*config));
    return 0;
  }
  const auto is_finished = [&] {
    if (!resumed || read_run_status(*resumed).state != "DONE") return false;
    print_remark(cat("run    ", *resumed, " is finished already"));
    print_screen(to_markdown({read_run_row(*resumed)}, core_columns()));
    return true;
  };
  if (is_finished()) return 0;
  if (!resumed) check_output_folder(arguments.root + "/" + config->name);
  measure_this_machine_once();
  if (resumed) {
    RunFolder folder = RunFolder::reopen(*resumed);
    if (is_finished()) return 0;  // finished by its previous process
    KeptChoices::take_over(folder.path());
    tell_others(*config, /*resumes=*/true, arguments.epochs_limit);
    TrainingSetup setup = setup_run(*config, arguments.epochs_limit);
    return train(setup, folder, true);
  }
  tell_others(*config, /*resumes=*/false, arguments.epochs_limit);
  TrainingSetup setup = setup_run(*config, arguments.epochs_limit);
  if (!setup.start_from.empty()) load_start_weights(setup.start_from, *setup.model);
  RunFolder folder =
      RunFolder::create(arguments.root, config->name, static_cast<std::uint64_t>(config->seed));
  folder.write("config.yaml", setup.config_yaml);
  folder.write("overrides.txt",
               request.overrides.empty() ? "" : join(request.overrides, "\n") + "\n");
  folder.write("env.json", environment_json(process_arguments()));
  folder.write("layers.csv", setup.layers_csv);
  return train(setup, folder, false);
}

// Runs as process 1 or higher of a group: trains with process 0 and writes no lasting file.
int run_other(ProcessGroup& group) {
  const RankOrder order = share_order(group, {});
  if (!order.trains) return 0;
  const ScratchFolder scratch;
  const ExperimentConfig config = parse_config_text(order.config, "config of process 0");
  if (!order.choices.empty()) {
    write_file(scratch.path() + "/choices.json", order.choices);
    KeptChoices::take_over(scratch.path());
  }
  TrainingSetup setup = setup_run(config, order.epochs_limit);
  RunFolder folder =
      RunFolder::create(scratch.path(), "rank", static_cast<std::uint64_t>(config.seed));
  Progress silent(Progress::Mode::quiet);
  Trainer trainer(setup, folder, silent);
  if (order.resumes) {
    share_file(group, "", folder.file("ckpt/last.safetensors"));
    trainer.resume();
  }
  broadcast_network(group, *setup.model);
  try {
    return trainer.run();
  } catch (const std::exception& failure) {
    fail_group(group, failure);
  }
}

// Runs in a group that mpirun or srun has started, or as a single process.
int run(const RunArguments& arguments) {
  const std::optional<RankEnvironment> environment = rank_environment();
  if (!environment) return run_first(arguments);
  std::unique_ptr<ProcessGroup> group = ProcessGroup::join(*environment);
  set_process_group(group.get());
  take_device_of_rank(*group);
  group->watch_signal(StopSignals::received);
  const bool is_first = group->rank() == 0;
  int code = 1;
  try {
    check_same(*group, "version of convscope", CONVSCOPE_VERSION);
    code = is_first ? run_first(arguments) : run_other(*group);
  } catch (const std::exception& failure) {
    fail_group(*group, failure);
  }
  // If there is nothing to train (--dry-run, a finished run), process 0 has sent no order yet, but
  // the other processes wait for one.
  if (is_first && !others_know) share_order(*group, {});
  group.reset();
  return code;
}

std::function<int()> declare_run(CommandLine& app) {
  auto arguments = std::make_shared<RunArguments>();
  app.add_option(
      "CONFIG", arguments->words,
      "config: file, or name of a shipped config (config list); then KEY=VALUE to change it");
  app.add_option("-o,--output", arguments->root, "folder of all runs")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--name", arguments->name, "name of the run; replaces the config's name")
      ->type_name("N");
  app.add_option("--resume", arguments->resume,
                 "run folder to continue; auto: the newest unfinished run of this name")
      ->type_name("RUN");
  app.add_flag("-n,--dry-run", arguments->dry_run, "only print the resolved config");
  app.add_option("--epochs-limit", arguments->epochs_limit,
                 "number of epochs after which the run pauses; --resume continues it")
      ->type_name("N")
      ->range(1, 1000000000);
  return [arguments] { return run(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "run",
    {.summary = "Train a network from a config.",
     .usage =
         "run CONFIG|NAME [KEY=VALUE...] [-o DIR] [--name N] [--resume auto]\nrun --resume RUN",
     .examples = {"run quickstart", "run mnist_lenet5_baseline train.epochs=3 seed=7",
                  "run quickstart \"sparsity={method: magnitude, target: 0.9}\"",
                  "run my_config.yaml device=cuda precision=bf16", "run --resume runs/quickstart"},
     .order = 10,
     .group = "Train",
     .declare = convscope::declare_run})
