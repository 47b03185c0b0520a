// SPDX-License-Identifier: Apache-2.0
// explanation_json.cpp: all that `convscope explain` knows, as JSON.
#include <nlohmann/json.hpp>

#include "experiments/explain/details.h"
#include "experiments/explain/network_graph.h"
#include "framework/io/json_text.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Verdict& verdict) {
  return {{"algorithm", verdict.algorithm},
          {"accepts", verdict.accepts},
          {"reason", verdict.reason},
          {"estimated_ms", verdict.estimated_ms},
          {"workspace_bytes", verdict.workspace_bytes},
          {"prepared_bytes", verdict.prepared_bytes},
          {"chosen", verdict.chosen},
          {"checks", verdict.checks},
          {"refused", verdict.refused},
          {"executed_per_useful", verdict.executed_per_useful},
          {"limit", verdict.limit}};
}

Json json_of(const ExplainedDirection& of) {
  Json out = {{"policy", of.policy}, {"taken", of.decision.word}, {"asked_for", of.asked}};
  if (!of.decision.error.empty()) out["error"] = of.decision.error;
  if (!of.decision.refusals.empty()) {
    out["refusals"] = Json::array();
    for (const auto& [word, reason] : of.decision.refusals) {
      out["refusals"].push_back({{"word", word}, {"reason", reason}});
    }
  }
  out["algorithms"] = Json::array();
  for (const Verdict& verdict : of.verdicts) out["algorithms"].push_back(json_of(verdict));
  return out;
}

Json json_of(const ExplainedLayer& layer) {
  Json directions = Json::object();
  for (const Direction direction : kDirections) {
    directions[std::string(name_of(direction))] = json_of(layer.of(direction));
  }
  return {{"layer", layer.conv.name},
          {"problem", layer.conv.use->problem()},
          {"nominal_flops", layer.conv.use->nominal_flops()},
          {"directions", directions}};
}

Json json_of(const ExplainedStep& step) {
  Json out = {{"mode", step.mode},
              {"planned", step.plan != nullptr},
              {"execution", step.error.empty() ? step.kernels.execution : "none"}};
  if (!step.error.empty()) out["error"] = step.error;
  if (!step.kernels.why.empty()) out["reason"] = step.kernels.why;
  out["kernels"] = Json::array();
  for (const auto& [key, kernel] : step.kernels.all()) {
    out["kernels"].push_back({{"layer", key.first},
                              {"direction", name_of(key.second)},
                              {"kernel", kernel.kernel},
                              {"layout", kernel.layout},
                              {"step", kernel.execution}});
  }
  if (!step.plan) return out;
  const PlanMemory& memory = step.plan->memory();
  out["calls"] = step.plan->call_count();
  out["layout_conversions"] = step.plan->conversions();
  out["arena_bytes"] = memory.arena_bytes;
  out["arena_lower_bound_bytes"] = memory.lower_bound_bytes;
  out["kept_bytes"] = memory.kept_bytes;
  out["operations"] = Json::array();
  for (const auto& line : step.plan->lines()) {
    out["operations"].push_back(
        {{"layer", line.layer}, {"text", line.text}, {"shape", line.shape.str()}});
  }
  return out;
}

}  // namespace

std::string explanation_json(const Explanation& explanation,
                             const std::vector<const ExplainedLayer*>& layers) {
  Json all = {{"convolutions", Json::array()}, {"steps", Json::array()}};
  for (const ExplainedLayer* layer : layers) all["convolutions"].push_back(json_of(*layer));
  for (const ExplainedStep& step : explanation.steps) all["steps"].push_back(json_of(step));
  const std::vector<GraphNode> nodes = graph_nodes(explanation);
  all["layers"] = Json::array();
  for (const GraphNode& node : nodes) {
    Json from = Json::array();
    for (const std::size_t input : node.inputs) from.push_back(nodes[input].name);
    all["layers"].push_back({{"layer", node.name},
                             {"kind", node.kind},
                             {"from", from},
                             {"output", node.shape},
                             {"mflop", node.mflop},
                             {"algorithm", node.algorithm}});
  }
  all["plugins"] = explanation.config.plugins;
  all["format"] = "convscope explain 1";
  return json_text(all);
}

}  // namespace convscope
