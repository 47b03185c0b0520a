// SPDX-License-Identifier: Apache-2.0
// sweep_command.cpp: `convscope sweep`: trains every member of a config's `sweep:` block and ends
// with one table.
#include <cstdio>
#include <filesystem>
#include <memory>

#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "experiments/cli/words/config_words.h"
#include "experiments/config/sweep_block.h"
#include "experiments/launchers/outside_program.h"
#include "experiments/report/table/latex_table.h"
#include "experiments/sweep/cluster/mpi_sweep.h"
#include "experiments/sweep/cluster/slurm_script.h"
#include "experiments/sweep/cluster/slurm_sweep.h"
#include "experiments/sweep/sweep_check.h"
#include "experiments/sweep/sweep_runner.h"
#include "experiments/sweep/sweep_status.h"
#include "experiments/sweep/sweep_worker.h"
#include "framework/io/output_place.h"
#include "framework/number_text.h"

namespace convscope {
namespace {

struct Arguments {
  std::vector<std::string> words;  // CONFIG and KEY=VALUE
  std::string root = "runs";
  std::string name;
  std::string format = "md";
  std::string launcher = "local", hosts;
  std::vector<std::string> slurm;
  int jobs = 1;
  std::int64_t member = -1;
  bool jobs_given = false;
  bool dry_run = false, retry_failed = false, detach = false;
  bool status = false, cancel = false, work = false;
};

SweepPlan read_plan(const Arguments& arguments, std::vector<std::string>& overrides) {
  ConfigWords words = split_config_words("sweep", arguments.words);
  if (words.config.empty()) fail_usage("sweep", "expected a config file");
  overrides = std::move(words.overrides);
  if (!arguments.name.empty()) overrides.push_back(name_override(arguments.name));
  for (const std::string& word : global_overrides()) overrides.push_back(word);
  return load_sweep(words.config, overrides);
}

std::string as_command(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + shell_word(word);
  return out;
}

// Checks options that only make sense together.
void check_options(const Arguments& arguments) {
  const auto only_with = [&](bool given, const char* option, bool fits, const char* other) {
    if (given && !fits) fail_usage("sweep", cat("expected ", other, " with ", option));
  };
  const bool slurm = arguments.launcher == "slurm", mpi = arguments.launcher == "mpi";
  only_with(!arguments.slurm.empty(), "--slurm", slurm, "--launcher slurm");
  only_with(arguments.detach, "--detach", slurm, "--launcher slurm");
  only_with(!arguments.hosts.empty(), "--hosts", mpi, "--launcher mpi");
  only_with(arguments.member >= 0, "--member", arguments.work, "--work");
  if (slurm && arguments.jobs_given) {
    fail_usage(
        "sweep",
        "expected --slurm at_once=N instead of --jobs N, because Slurm distributes the members");
  }
  if (arguments.status + arguments.cancel + arguments.work + arguments.dry_run > 1) {
    fail_usage("sweep", "expected one of --status, --cancel, --work and --dry-run, got several");
  }
}

// Returns the folder that a folder name or a config names.
std::string folder_of(const Arguments& arguments) {
  std::error_code error;
  if (arguments.words.size() == 1 && std::filesystem::is_directory(arguments.words[0], error)) {
    std::string folder = arguments.words[0];
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    return folder;
  }
  std::vector<std::string> overrides;
  return arguments.root + "/" + read_plan(arguments, overrides).name;
}

int show_status(const Arguments& arguments) {
  const SweepStatus status = sweep_status(folder_of(arguments));
  const std::string text = arguments.format == "csv"     ? to_csv(status.table)
                           : arguments.format == "json"  ? to_json(status.table)
                           : arguments.format == "latex" ? to_latex(status.table)
                                                         : to_markdown(status.table);
  arguments.format == "md" ? print_screen(text) : print_result(text);
  print_remark(status.summary);
  return 0;
}

int work(const Arguments& arguments) {
  WorkerOptions options;
  options.folder = folder_of(arguments);
  options.quiet = global_options().verbosity < 0;
  if (arguments.member >= 0) options.member = static_cast<std::size_t>(arguments.member);
  return work_on_sweep(options);
}

int cancel(const Arguments& arguments) {
  const std::string job = cancel_slurm_sweep(folder_of(arguments));
  print_remark(cat("cancel job ", job, " of Slurm; its members write checkpoints"));
  return 0;
}

// Returns the rows of the sweep that this machine cannot run. With `trains_elsewhere`, rows that
// only lack a device here are not returned, because cluster nodes may have it; a warning names
// them.
std::vector<RefusedRow> refused_here(const SweepPlan& plan, bool trains_elsewhere) {
  std::vector<RefusedRow> refused = refused_rows(plan);
  if (!trains_elsewhere) return refused;
  std::erase_if(refused, [](const RefusedRow& row) {
    if (row.is_unavailable) print_remark(cat("warning: not on this machine: ", row.reason));
    return row.is_unavailable;
  });
  return refused;
}

SweepResult train(const SweepPlan& plan, const SweepOptions& options, const std::string& launcher) {
  if (launcher == "slurm") return run_slurm_sweep(plan, options);
  if (launcher == "mpi") return run_mpi_sweep(plan, options);
  measure_this_machine_once();  // warned once here, because members keep each other's cores busy
  return run_sweep(plan, options);
}

int sweep(const Arguments& arguments) {
  check_options(arguments);
  if (arguments.status) return show_status(arguments);
  if (arguments.cancel) return cancel(arguments);
  if (arguments.work) return work(arguments);
  SweepOptions options;
  options.root = arguments.root;
  options.jobs = arguments.jobs;
  options.jobs_by_default = !arguments.jobs_given;
  options.retry_failed = arguments.retry_failed;
  options.quiet = global_options().verbosity < 0;
  options.slurm = parse_slurm_settings(arguments.slurm);
  options.detach = arguments.detach;
  options.hosts = arguments.hosts;
  options.plugins = global_options().plugins;
  const SweepPlan plan = read_plan(arguments, options.overrides);
  const std::vector<RefusedRow> refused = refused_here(plan, arguments.launcher != "local");
  if (arguments.dry_run) {
    print_screen(list_members(plan, arguments.root + "/" + plan.name, refused));
    if (arguments.launcher == "slurm") print_result("\n" + slurm_script_of(plan, options));
    if (arguments.launcher == "mpi") {
      const Launcher mpirun = find_program("mpirun").empty()  // printed anyway
                                  ? Launcher{LauncherKind::open_mpi, "mpirun"}
                                  : find_launcher("mpirun");
      print_result("\n" + as_command(mpirun_words(plan, options, mpirun)) + "\n");
    }
  }
  refuse(refused);
  if (arguments.dry_run) return 0;
  check_output_folder(options.root + "/" + plan.name);
  const SweepResult result = train(plan, options, arguments.launcher);
  if (result.exit_code > 128) return result.exit_code;  // interrupted: no table yet
  if (options.detach && result.outcomes.empty()) return 0;
  const std::string text =
      arguments.format == "csv"     ? to_csv(sweep_table(plan, result.outcomes))
      : arguments.format == "json"  ? to_json(sweep_table(plan, result.outcomes))
      : arguments.format == "latex" ? to_latex(sweep_reading_table(plan, result.outcomes))
                                    : sweep_markdown(plan, result.outcomes);
  arguments.format == "md" ? print_screen(text) : print_result(text);
  return result.exit_code;
}

std::function<int()> declare_sweep(CommandLine& app) {
  auto arguments = std::make_shared<Arguments>();
  app.add_option("CONFIG", arguments->words,
                 "config: file, or name of a shipped config (config list); then KEY=VALUE to "
                 "change it; with --status, --cancel and --work also the folder of a sweep");
  app.add_option("-o,--output", arguments->root, "folder of all runs")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--name", arguments->name, "name of the sweep; replaces the config's name")
      ->type_name("N");
  app.add_option_function(
         "-j,--jobs",
         [arguments](const std::string& word) {
           arguments->jobs = parse_number<int>(word).value_or(1);
           arguments->jobs_given = true;
         },
         "number of members that train at a time and share the threads; with --launcher mpi: "
         "number of workers (default 1; mpi: one per slot)")
      ->type_name("N")
      ->range(1, 1024);
  app.add_option("--launcher", arguments->launcher,
                 "place where members are trained: local (this machine), slurm (job array) or mpi "
                 "(workers started by mpirun)")
      ->type_name("L")
      ->capture_default_str()
      ->one_of({"local", "slurm", "mpi"});
  app.add_option(
         "--slurm", arguments->slurm,
         "resources for Slurm, such as partition=gpu,time=30,mem=8G,gpus=1,cpus=4,at_once=20; "
         "replaces the config's sweep.slurm")
      ->type_name("K=V,...")
      ->one_at_a_time();
  app.add_option("--hosts", arguments->hosts, "file of hosts for mpirun, one per line")
      ->type_name("FILE");
  app.add_flag("--detach", arguments->detach, "submit the job array to Slurm without waiting");
  app.add_flag("--status", arguments->status, "only print the members with state, host and epoch");
  app.add_flag("--cancel", arguments->cancel,
               "cancel the Slurm job array; its members write checkpoints");
  app.add_flag("--work", arguments->work,
               "work as a worker: train members of a prepared sweep folder that are not taken yet");
  app.add_option("--member", arguments->member,
                 "with --work: number of the only member to train, as in --status")
      ->type_name("I")
      ->range(0, 9999);
  app.add_option("-f,--format", arguments->format,
                 "format of the table on stdout: md, csv, json or latex")
      ->type_name("F")
      ->capture_default_str()
      ->one_of({"md", "csv", "json", "latex"});
  app.add_flag("--retry-failed", arguments->retry_failed,
               "train members again that diverged or missed their gate");
  app.add_flag("-n,--dry-run", arguments->dry_run,
               "only list the members, one per line, with the reason why one cannot be trained");
  return [arguments] { return sweep(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "sweep",
    {.summary = "Train every member of a sweep and print one table.",
     .usage = "sweep CONFIG|NAME [KEY=VALUE...] [--dry-run] [--jobs N] [--launcher L] [-o DIR]",
     .examples = {"sweep synthetic_sweep --dry-run", "sweep synthetic_sweep sweep.seeds=[1,2,3]",
                  "sweep synthetic_sweep --launcher slurm --slurm time=30,at_once=4",
                  "sweep runs/synthetic_sweep --status"},
     .order = 15,
     .declare = convscope::declare_sweep})
