// SPDX-License-Identifier: Apache-2.0
// bench_exchange.cpp: `convscope launch -n 2 bench exchange`: times sums over processes.
#include <memory>

#include "experiments/bench/exchange/exchange_bench.h"
#include "experiments/cli/command.h"
#include "experiments/cli/nested_commands.h"
#include "framework/distributed/rank_environment.h"

namespace convscope {
namespace {

constexpr const char* kCommand = "bench exchange";

struct Arguments {
  bool tree = false;
  double min_time = 0.2;
  int most_mib = 64;
};

void check(const Arguments& arguments, int processes) {
  if (!(arguments.min_time > 0 && arguments.min_time <= 3600)) {
    fail_usage(kCommand, cat("expected --min-time above 0 and at most 3600 seconds, got ",
                             arguments.min_time));
  }
  if (processes < 2) {
    fail_usage(kCommand,
               "expected at least 2 processes, because sums over processes are timed, got one; "
               "start them with convscope launch -n 2 bench exchange");
  }
  if (arguments.tree && (processes & (processes - 1)) != 0) {
    fail_usage(kCommand,
               cat("expected 2, 4, 8, .. processes with --tree, because it sums in pairs, "
                   "got ",
                   processes));
  }
}

int bench_in(ProcessGroup& group, const Arguments& arguments) {
  check(arguments, group.size());
  bool one_host = true;
  for (int rank = 1; rank < group.size(); ++rank) {
    one_host = one_host && group.host_of(rank) == group.host_of(0);
  }
  const ExchangeBenchOptions options{.order = arguments.tree ? SumOrder::tree : SumOrder::any,
                                     .min_seconds = arguments.min_time,
                                     .most_bytes = std::int64_t{arguments.most_mib} << 20};
  const std::vector<ExchangeRow> rows = bench_exchange(group, options);
  if (group.rank() != 0) return 0;
  print_screen(cat(group.size(), " processes on ", one_host ? "one host" : "several hosts", ", ",
                   group.library(), arguments.tree ? ", sums in a tree" : "", "\n",
                   exchange_text(rows, group.size(), one_host, options.order)));
  return 0;
}

// Process 0 reports an error for the whole group.
int bench(const Arguments& arguments) {
  const std::optional<RankEnvironment> environment = rank_environment();
  if (!environment) {
    check(arguments, 1);  // fails
    return 1;
  }
  std::unique_ptr<ProcessGroup> group = ProcessGroup::join(*environment);
  set_process_group(group.get());
  int code = 1;
  try {
    code = bench_in(*group, arguments);
  } catch (const std::exception& error) {
    const auto* const ours = dynamic_cast<const Error*>(&error);
    if (group->rank() == 0) report_failure(std::current_exception());
    group->fail_all(ours != nullptr ? exit_code(ours->kind()) : 1, error.what());
  }
  group.reset();
  return code;
}

}  // namespace

void declare_bench_exchange(CommandLine& app, std::function<int()>& run) {
  auto arguments = std::make_shared<Arguments>();
  CommandLine* const exchange = app.add_subcommand(
      "exchange", "Time sums over processes by size: launch -n 2 bench exchange.");
  exchange->add_flag("--tree", arguments->tree, "sums in pairs, as with train.deterministic_ranks");
  exchange->add_option("--min-time", arguments->min_time, "seconds of timing for each size")
      ->capture_default_str();
  exchange->add_option("--most", arguments->most_mib, "largest size, in MiB")
      ->type_name("MIB")
      ->range(1, 1024)
      ->capture_default_str();
  exchange->callback([arguments, &run] { run = [arguments] { return bench(*arguments); }; });
}

}  // namespace convscope
