// SPDX-License-Identifier: Apache-2.0
// answer.cpp: the text of `convscope explain`, for the command line and for Python.
#include "experiments/explain/answer.h"

#include <algorithm>

#include "experiments/explain/details.h"
#include "experiments/explain/network_graph.h"
#include "experiments/explain/overview.h"
#include "experiments/explain/text_layout.h"
#include "experiments/run_folder/user_words.h"

namespace convscope {

std::vector<const ExplainedLayer*> asked_layers(const Explanation& explanation,
                                                const std::vector<std::string>& names) {
  std::vector<const ExplainedLayer*> out;
  std::vector<std::string> known;
  for (const ExplainedLayer& layer : explanation.layers) {
    known.push_back(layer.conv.name);
    const bool named = std::ranges::count(names, layer.conv.name) > 0;
    if (names.empty() || named) out.push_back(&layer);
  }
  for (const std::string& name : names) {
    if (std::ranges::count(known, name) > 0) continue;
    fail("explain", cat("expected --layer with the name of a convolution, got '", name, "'",
                        did_you_mean(name, known),
                        known.empty() ? "; the network has none" : cat("; known: ", join(known))));
  }
  return out;
}

std::string answer_text(const Explanation& explanation, const ExplainQuestion& question) {
  const std::vector<const ExplainedLayer*> layers = asked_layers(explanation, question.layers);
  const bool has_details = question.all || !question.layers.empty();
  std::string out;
  if (question.layers.empty()) out += overview_text(explanation) + "\n";
  if (has_details && !layers.empty()) {
    out += marks_text();
    for (const ExplainedLayer* layer : layers) out += "\n" + layer_text(*layer);
  }
  if (question.graph) {
    out += (has_details ? "\n" : "") + graph_text(graph_nodes(explanation)) + "\n";
  }
  const bool operations = question.all || question.steps;
  if (question.layers.empty() || operations) {
    out += (has_details ? "\n" : "") + steps_text(explanation, operations);
  }
  if (has_details || explanation.layers.empty()) return out;
  return out + wrapped_text(cat("more: --layer ", explanation.layers[0].conv.name,
                                " (all algorithms of a layer), --all (of every layer)",
                                question.steps ? "" : ", --steps (operations)",
                                question.graph ? "" : ", --graph (all layers)"));
}

std::string problem_text(const std::shared_ptr<const OperatorUse>& use, Device device) {
  ExplainedLayer layer{{use->operation(), use}, {}};
  for (const Direction direction : kDirections) {
    ExplainedDirection& of = layer.directions[static_cast<std::size_t>(direction)];
    of.policy = use->policy().of(direction);
    of.decision = use->decision(direction, device);
    of.verdicts = use->explain(direction, device);
    const ChosenNames& names = of.decision.names;
    if (names.first.empty()) continue;
    of.ran = LayerKernel{
        names.second.empty() ? names.first : cat(names.first, " checked by ", names.second),
        cat("on ", device.str())};
  }
  return "* runs; ! is named but refuses. Milliseconds are estimates;\nworkspace and prepared "
         "weights are in MiB.\n\n" +
         layer_text(layer);
}

}  // namespace convscope
