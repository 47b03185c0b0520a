// SPDX-License-Identifier: Apache-2.0
// overview.cpp: writes the short answer of `convscope explain`: one line per convolution, and how
// the training and inference steps are executed.
#include "experiments/explain/overview.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "experiments/explain/remarks.h"
#include "experiments/explain/text_layout.h"
#include "experiments/plugins/plugins.h"
#include "framework/int_math.h"
#include "framework/parallel.h"
#include "layers/dispatch/cost/device_table.h"

namespace convscope {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
const std::string kChecked = " checked by ";

std::string cell(const ExplainedDirection& of, const std::string& layer) {
  if (!of.asked) return "-";
  if (!of.decision.error.empty()) return "!" + of.policy;
  if (of.ran) return short_kernel(of.ran->kernel, layer);
  return cat("+", of.decision.names.first, of.decision.names.second.empty() ? "" : " (checked)");
}

// Returns the sum of the estimated milliseconds of the directions that run. Returns -1 when there
// is no estimate, because the layer runs in a chain or does not run.
double estimated_ms(const ExplainedLayer& layer) {
  double sum = 0;
  for (const ExplainedDirection& of : layer.directions) {
    if (!of.asked) continue;
    if (!of.ran) return -1;
    bool found = false;
    for (const Verdict& one : of.verdicts) {
      const std::string& kernel = of.ran->kernel;
      const bool first = kernel == one.algorithm || kernel.starts_with(one.algorithm + kChecked);
      if (!first && !kernel.ends_with(kChecked + one.algorithm)) continue;
      found = found || first;
      sum += one.estimated_ms;
    }
    if (!found) return -1;
  }
  return sum;
}

// The kinds of entries in the table, which the legend explains.
struct Contents {
  bool refused = false, unrun = false, unasked = false, estimates = false, no_estimate = false;
  bool sparse = false;
  std::set<std::string> executions;
};

Contents contents_of(const Explanation& explanation) {
  Contents out;
  for (const ExplainedLayer& layer : explanation.layers) {
    for (const ExplainedDirection& of : layer.directions) {
      out.refused = out.refused || of.is_refused();
      out.unasked = out.unasked || !of.asked;
      out.unrun = out.unrun || (of.asked && !of.ran && of.decision.error.empty());
      if (of.ran) out.executions.insert(of.ran->execution);
    }
    out.sparse = out.sparse || std::string_view(layer.conv.use->operation()) == "sparse_conv";
    (estimated_ms(layer) < 0 ? out.no_estimate : out.estimates) = true;
  }
  return out;
}

std::string legend(const Contents& contents, DeviceType device) {
  std::string out = "Layer: C x H x W -> K, kernel, s stride, p padding, g groups, d dilation.";
  if (contents.unasked) out += " -: this gradient is not needed.";
  if (contents.refused) out += " !: it refuses this layer.";
  if (contents.unrun) out += " +: chosen, but nothing runs because another layer is refused.";
  if (contents.sparse) {
    out +=
        " Sparse layer: its map, for the sites of an assumed sample (a ring or a sphere's shell as "
        "wide as the grid), because no batch is known; auto chooses again for each batch.";
  }
  if (contents.estimates) {
    out += " ms: estimated for all directions";
    out += contents.no_estimate ? "; chains have no estimate" : "";
    const TableInUse table = table_in_use(device);
    out += cat(", by the table ", table.name, table.is_generic ? how_to_tune(device) : "", ".");
  }
  return wrapped_text(out, 0);
}

// Lists the layers whose forward kernel differs between inference and training, grouped by the
// inference kernel.
std::string differences(const Explanation& explanation, const ExplainedStep& step) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const ExplainedLayer& layer : explanation.layers) {
    const LayerKernel* const kernel = step.kernels.find(layer.conv.name, Direction::forward);
    const auto& trained = layer.of(Direction::forward).ran;
    if (kernel == nullptr || (trained && trained->kernel == kernel->kernel)) continue;
    const std::string shown = short_kernel(kernel->kernel, layer.conv.name);
    const auto at = std::ranges::find(groups, shown, [](const auto& one) { return one.first; });
    (at == groups.end() ? groups.emplace_back(shown, std::vector<std::string>()) : *at)
        .second.push_back(layer.conv.name);
  }
  std::string out;
  for (const auto& [kernel, layers] : groups) {
    out += wrapped_text(cat("  forward by ", kernel, ": ", join(layers)), 6);
  }
  return out;
}

std::string operations_text(const StepPlan& plan) {
  std::vector<std::vector<std::string>> rows, once;
  const auto millions = [](double count) {
    return count > 0 ? fmt::format("{:.3g}", 1e-6 * count) : std::string("-");
  };
  for (const StepPlan::Line& line : plan.lines()) {
    std::vector<std::string> row{line.layer, line.shape.str(), line.text};
    if (!line.once) row.insert(row.begin() + 2, {millions(line.flops), millions(line.bytes)});
    (line.once ? once : rows).push_back(std::move(row));
  }
  std::string out =
      cat("  operations, with MFLOP and MB of the forward pass:\n", columns_text(rows, 4));
  if (once.empty()) return out;
  return out + cat("  once, when the weights change:\n", columns_text(once, 4));
}

// Returns the plug-ins whose algorithms were chosen.
std::string plugins_text(const Explanation& explanation) {
  std::set<std::string> chosen;
  for (const ExplainedLayer& layer : explanation.layers) {
    for (const ExplainedDirection& of : layer.directions) {
      chosen.insert(plugin_remark(of.decision.names.first));
      chosen.insert(plugin_remark(of.decision.names.second));
    }
  }
  std::string out;
  for (const std::string& remark : chosen) {
    if (!remark.empty()) out += wrapped_text(cat("plug-in ", remark));
  }
  return out;
}

// Returns "submanifold 3x3x3 32x32x32, 1624 sites, 1 -> 16" for a sparse problem.
std::string short_map(const std::string& problem) {
  std::map<std::string, std::string> parts;
  std::istringstream words(problem);
  for (std::string word; std::getline(words, word, ',');) {
    const std::size_t equals = std::min(word.find('='), word.size());
    parts[word.substr(0, equals)] = equals < word.size() ? word.substr(equals + 1) : "";
  }
  const std::string& grid = parts["grid"];  // begins with the batch
  std::string out = cat(problem.substr(0, problem.find(',')), " ", parts["kernel"]);
  for (const char* key : {"stride", "pad", "dilation"}) {
    if (parts.contains(key)) out += cat(" ", key[0], parts[key]);
  }
  out += cat(" on ", grid.substr(grid.find('x') + 1), ", ", parts["sites"]);
  if (parts["sites"] != parts["out_sites"]) out += cat(" -> ", parts["out_sites"]);
  return out + cat(" sites, ", parts["c"], " -> ", parts["k"]);
}

std::string batch_text(const ExperimentConfig& config) {
  const std::int64_t batch = config.data.batch_size;
  const std::int64_t parts = config.train.accumulate;
  if (parts == 1) return cat("batch ", batch);
  return cat("micro-batches of ", ceil_div(batch, parts), " (batch ", batch, ")");
}

}  // namespace

std::string short_kernel(const std::string& kernel, const std::string& layer) {
  constexpr std::size_t kMax = 24;
  const std::size_t checked = kernel.find(kChecked);
  if (checked != std::string::npos) return kernel.substr(0, checked) + " (checked)";
  const std::size_t colon = kernel.find(": ");
  if (colon == std::string::npos) return kernel;
  const std::string layers = kernel.substr(colon + 2);
  if (layers == layer) return kernel.substr(0, colon);
  if (kernel.size() <= kMax) return kernel;
  return cat(kernel.substr(0, colon + 2), layers.substr(0, layers.find('+')), "..",
             layers.substr(layers.rfind('+') + 1));
}

std::string short_problem(const std::string& problem) {
  std::map<std::string, std::string> sizes;
  std::vector<std::string> others;
  std::istringstream words(problem);
  for (std::string word; std::getline(words, word, ',');) {
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string key = word.substr(0, equals);
    const std::string value = equals < word.size() ? word.substr(equals + 1) : "";
    if (key.size() == 1) {
      sizes[key] = value;
    } else if (key == "stride" || key == "pad" || key == "dilation" || key == "groups") {
      if (value != (key == "pad" ? "0" : "1")) others.push_back(cat(key[0], value));
    } else {
      others.push_back(word);
    }
  }
  for (const char* key : {"c", "h", "w", "k", "r", "s"}) {
    if (sizes.contains(key)) continue;
    return problem.find(",out_sites=") == std::string::npos ? problem : short_map(problem);
  }
  return cat(sizes["c"], "x", sizes["h"], "x", sizes["w"], " -> ", sizes["k"], " ", sizes["r"], "x",
             sizes["s"], others.empty() ? "" : " ", join(others, " "));
}

std::string overview_text(const Explanation& explanation) {
  const ExperimentConfig& config = explanation.config;
  const std::size_t count = explanation.layers.size();
  if (count == 0) return "the network has no convolution\n";
  std::string out = cat(config.name, ": ", count, count == 1 ? " convolution" : " convolutions",
                        ", ", batch_text(config), ", ", config.device.str(), ", ", num_threads(),
                        num_threads() == 1 ? " thread" : " threads",
                        explanation.steps[0].error.empty() ? ". What a training step runs:\n\n"
                                                           : ". What the config chooses:\n\n");
  const Contents contents = contents_of(explanation);
  const bool mixed = contents.executions.size() > 1;
  std::vector<std::vector<std::string>> rows(
      1, {"layer", "", "forward", "backward_data", "backward_weight"});
  if (mixed) rows[0].emplace_back("step");
  if (contents.estimates) rows[0].emplace_back("ms");
  for (const ExplainedLayer& layer : explanation.layers) {
    rows.push_back({layer.conv.name, short_problem(layer.conv.use->problem())});
    for (const ExplainedDirection& of : layer.directions)
      rows.back().push_back(cell(of, layer.conv.name));
    const auto& forward = layer.of(Direction::forward).ran;
    if (mixed) rows.back().push_back(forward ? forward->execution : "-");
    const double ms = estimated_ms(layer);
    if (contents.estimates) rows.back().push_back(ms < 0 ? "-" : number_text("%.3f", ms));
  }
  out += columns_text(
      rows, 0, contents.estimates ? std::vector{rows[0].size() - 1} : std::vector<std::size_t>());
  return out + "\n" + legend(contents, explanation.config.device.type) + remarks_text(explanation) +
         plugins_text(explanation);
}

std::string steps_text(const Explanation& explanation, bool operations) {
  std::string out;
  for (const ExplainedStep& step : explanation.steps) {
    std::string line = cat(step.mode, ": ");
    if (!step.error.empty()) {
      line += "does not run, because an algorithm refuses its layer (!)";
    } else if (!step.plan) {
      line += cat("dynamic graph, because ", step.kernels.why);
    } else {
      const PlanMemory& memory = step.plan->memory();
      const auto conversions = step.plan->conversions();
      line += cat(step.kernels.execution,
                  step.kernels.why.empty() ? "" : cat(" (not recorded: ", step.kernels.why, ")"),
                  ", ", step.plan->call_count(), " calls, ",
                  number_text("%.2f MiB", static_cast<double>(memory.arena_bytes) / kMiB),
                  " (at least ",
                  number_text("%.2f", static_cast<double>(memory.lower_bound_bytes) / kMiB),
                  " are needed), ", conversions,
                  conversions == 1 ? " conversion of layout" : " conversions of layout");
    }
    out += wrapped_text(line);
    if (std::string_view(step.mode) != "training") out += differences(explanation, step);
    if (operations && step.plan) out += operations_text(*step.plan);
  }
  return out;
}

}  // namespace convscope
