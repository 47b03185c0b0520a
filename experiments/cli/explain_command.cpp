// SPDX-License-Identifier: Apache-2.0
// explain_command.cpp: `convscope explain`: the algorithm of each convolution and direction of a
// config, why other algorithms were not chosen, and the compiled step. Nothing is run, and no data
// are read. With --ranks, the command times steps on random images and forecasts the speed of
// several processes.
#include <algorithm>
#include <memory>
#include <thread>

#include "experiments/cli/bench/bench_remarks.h"
#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "experiments/cli/words/config_words.h"
#include "experiments/config/build.h"
#include "experiments/explain/answer.h"
#include "experiments/explain/details.h"
#include "experiments/explain/network_graph.h"
#include "experiments/explain/ranks/forecast.h"
#include "experiments/explain/remarks.h"
#include "framework/io/atomic_file.h"
#include "framework/io/output_place.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides, layers;
  bool all = false, steps = false, graph = false, json = false;
  std::string svg;
  int ranks = 0, per_host = 1;  // ranks 0: no forecast
  std::string network, inside;
  bool keep_share = false;
};

constexpr const char* kNetwork = "25Gb";

void check_words(const Arguments& arguments) {
  const bool has_rank_options = arguments.per_host > 1 || !arguments.network.empty() ||
                                !arguments.inside.empty() || arguments.keep_share;
  if (arguments.ranks == 0 && has_rank_options) {
    fail_usage("explain",
               "expected --ranks N with --network, --ranks-per-host, --inside and --keep-share, "
               "because these options describe N processes, got no --ranks");
  }
  if (arguments.ranks > 0 && (!arguments.layers.empty() || arguments.all || arguments.steps ||
                              arguments.graph || !arguments.svg.empty())) {
    fail_usage("explain",
               "expected --ranks without --layer, --all, --steps, --graph and --svg, because the "
               "forecast has no such details, got both");
  }
  if (!arguments.inside.empty() && arguments.per_host == 1) {
    fail_usage("explain",
               "expected --inside with --ranks-per-host of at least 2, because it describes the "
               "link inside a host, got only --inside");
  }
}

ForecastQuestion question_of(const Arguments& arguments, const ExperimentConfig& config) {
  ForecastQuestion out{.ranks = arguments.ranks, .keep_share = arguments.keep_share};
  out.cluster.per_host = arguments.per_host;
  out.cluster.between =
      parse_link("--network", arguments.network.empty() ? kNetwork : arguments.network);
  if (!arguments.inside.empty()) out.cluster.inside = parse_link("--inside", arguments.inside);
  if (arguments.per_host > 1 && arguments.inside.empty()) {
    if (config.device.type != DeviceType::cpu) {
      fail_usage("explain",
                 cat("expected --inside with the link between two GPUs of a host, such as nvlink "
                     "or 25GB,10us, because only memory is measured, got --ranks-per-host ",
                     arguments.per_host, " and device ", config.device.str()));
    }
    out.cluster.inside = measured_shared_memory();
  }
  return out;
}

// Times steps on this machine; the forecast assumes that every host is equally fast.
int foresee(const Arguments& arguments, const ExperimentConfig& config) {
  const ForecastQuestion question = question_of(arguments, config);
  backend_of(config.device);
  check_precision(config);
  measure_this_machine_once();
  set_num_threads(static_cast<int>(config.threads));
  if (config.threads == 0) set_num_threads(std::max(1, num_threads() / arguments.per_host));
  warn_of_load(num_threads());
  const int wanted = num_threads() * std::min(arguments.per_host, arguments.ranks);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (config.device.type == DeviceType::cpu && wanted > cores) {
    print_remark(cat("the table assumes hosts with ", wanted,
                     " cores, because so many threads share "
                     "one; this machine has ",
                     cores));
  }
  const Forecast out =
      forecast(config, question, [](const std::string& line) { print_remark(line); });
  arguments.json ? print_result(forecast_json(out)) : print_screen(forecast_text(out));
  return 0;
}

int explain(const Arguments& arguments) {
  check_words(arguments);
  if (!arguments.svg.empty()) check_output_files({arguments.svg});
  std::vector<std::string> overrides = arguments.overrides;
  for (const std::string& text : global_overrides()) overrides.push_back(text);
  const ExperimentConfig config = config_or_network("explain", arguments.config, overrides);
  const bool by_name = is_network_name(arguments.config);
  if (arguments.ranks > 0 && by_name) {
    fail_usage("explain", cat("expected a config with --ranks, because steps on its data set are "
                              "timed, got the network '",
                              arguments.config, "'"));
  }
  if (arguments.ranks > 0) return foresee(arguments, config);
  measure_this_machine_once();
  set_num_threads(static_cast<int>(config.threads));
  const Explanation explanation = by_name
                                      ? explain_config(config, sample_of_network(arguments.config))
                                      : explain_config(config);
  if (arguments.json) {
    print_result(explanation_json(explanation, asked_layers(explanation, arguments.layers)));
  } else {
    print_screen(answer_text(explanation,
                             {arguments.layers, arguments.all, arguments.steps, arguments.graph}));
  }
  if (!arguments.svg.empty()) {
    write_file(arguments.svg, graph_svg(config.name, graph_nodes(explanation)));
  }
  fail_if_refused(explanation);
  return 0;
}

std::function<int()> declare(CommandLine& app) {
  auto arguments = std::make_shared<Arguments>();
  app.add_option("CONFIG", arguments->config,
                 "config: file or name of a shipped config; or the name of a model (resnet18, with "
                 "images of ImageNet)")
      ->required();
  app.add_option("KEY=VALUE", arguments->overrides,
                 "values that replace those of the config (optim.lr=0.1)");
  app.add_option(
         "--layer", arguments->layers,
         "every algorithm for this layer, with time or refusal reason; may be given several times")
      ->type_name("NAME")
      ->one_at_a_time();
  app.add_flag("--all", arguments->all, "every algorithm for every layer, and the operations");
  app.add_flag("--steps", arguments->steps, "the operations of the compiled steps");
  app.add_flag("--graph", arguments->graph,
               "all layers: which results they read, output shape, MFLOP and algorithm");
  app.add_option("--svg", arguments->svg, "file for a drawing of all layers (SVG)")
      ->type_name("FILE");
  app.add_flag("--json", arguments->json, "output as one JSON object");
  app.add_option("--ranks", arguments->ranks,
                 "forecast of a step's time on 1, 2, 4, .. N processes (launch -n N), from steps "
                 "timed here and a network model")
      ->type_name("N")
      ->range(1, 65536);
  app.add_option(
         "--network", arguments->network,
         "network between hosts: bits (25Gb) or bytes (12.5GB) per second, or nvlink; then a comma "
         "and a latency (default 50us for TCP; InfiniBand has about 3us) (default 25Gb)")
      ->type_name("RATE[,LATENCY]");
  app.add_option("--ranks-per-host", arguments->per_host,
                 "processes per host, which share its cores (unless threads=N) and network")
      ->type_name("N")
      ->range(1, 65536)
      ->capture_default_str();
  app.add_option("--inside", arguments->inside,
                 "link between two processes of a host, written as for --network (default on the "
                 "CPU: measured copies through shared memory)")
      ->type_name("RATE[,LATENCY]");
  app.add_flag("--keep-share", arguments->keep_share,
               "data.batch_size per process: the whole batch grows with N");
  return [arguments] { return explain(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "explain", {.summary = "Explain which algorithm each layer uses, and why.",
                .usage = "explain CONFIG [KEY=VALUE...] [--layer NAME]... [--all] [--steps] "
                         "[--graph] [--svg FILE] [--json] [--ranks N]",
                .examples = {"explain quickstart conv.algorithm=im2col_gemm",
                             "explain quickstart --layer c1", "explain resnet18",
                             "explain quickstart data.batch_size=512 --ranks 64 --network 25Gb"},
                .order = 55,
                .group = "Study algorithms",
                .declare = convscope::declare})
