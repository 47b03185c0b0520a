// SPDX-License-Identifier: Apache-2.0
// remarks.cpp: the outcome of a config's policies, in sentences.
#include "experiments/explain/remarks.h"

#include <algorithm>
#include <functional>
#include <map>

#include "experiments/explain/text_layout.h"
#include "quant/quantize_network.h"

namespace convscope {
namespace {

// A function that returns the sentence for one direction of a layer, or "".
using SentenceOf = std::function<std::string(const ExplainedDirection&)>;

struct Remark {
  std::string sentence, directions;  // "": all that the layer needs
  std::vector<std::string> layers;

  // Returns "c1, c2 (forward)"; of many layers only the first ones.
  std::string layers_text() const {
    constexpr std::size_t kMax = 6;
    std::vector<std::string> some(layers.begin(), layers.begin() + std::min(kMax, layers.size()));
    if (layers.size() > kMax) some.back() += cat(" and ", layers.size() - kMax, " more");
    return join(some) + (directions.empty() ? "" : cat(" (", directions, ")"));
  }
};

// Returns remarks in the order of the layers. Layers with the same sentence share one remark.
std::vector<Remark> remarks_of(const Explanation& explanation, const SentenceOf& sentence_of) {
  std::vector<Remark> out;
  for (const ExplainedLayer& layer : explanation.layers) {
    std::vector<std::pair<std::string, std::vector<Direction>>> own;
    for (const Direction direction : kDirections) {
      const ExplainedDirection& of = layer.of(direction);
      const std::string sentence = of.asked ? sentence_of(of) : "";
      if (sentence.empty()) continue;
      const auto at = std::ranges::find(own, sentence, [](const auto& one) { return one.first; });
      (at == own.end() ? own.emplace_back(sentence, std::vector<Direction>()) : *at)
          .second.push_back(direction);
    }
    for (const auto& remark : own) {
      const std::string& sentence = remark.first;
      const std::string text = directions_text(layer, remark.second);
      const auto at = std::ranges::find_if(out, [&](const Remark& one) {
        return one.sentence == sentence && one.directions == text;
      });
      (at == out.end() ? out.emplace_back(Remark{sentence, text, {}}) : *at)
          .layers.push_back(layer.conv.name);
    }
  }
  return out;
}

// "'a' expects x, 'b' expects y"
std::string reasons(const Decision& decision) {
  std::vector<std::string> out;
  for (const auto& [word, reason] : decision.refusals) out.push_back(cat("'", word, "' ", reason));
  return join(out, " and ");
}

std::string refusal(const ExplainedDirection& of) {
  return of.decision.error.empty() ? "" : cat(reasons(of.decision), "; ", acceptance_text(of));
}

std::string fallback(const ExplainedDirection& of) {
  if (!of.decision.error.empty() || of.decision.refusals.empty()) return "";
  return cat(of.policy, " takes ", of.decision.word, ", because ", reasons(of.decision));
}

std::string comparison(const ExplainedDirection& of) {
  if (of.decision.names.second.empty()) return "";
  return cat("each call runs ", of.decision.names.first, " and ", of.decision.names.second,
             ", compares them within their error bounds and returns the first; a run ends with the "
             "largest difference");
}

// Returns the config key of this layer's policy, without its value.
std::string key_of(const ExperimentConfig& config, const std::string& layer, Direction direction) {
  std::map<std::string, int> count_of_type;
  for (std::size_t i = 0; i < config.model.layers.size(); ++i) {
    const LayerSpec& spec = config.model.layers[i];
    const int number = ++count_of_type[spec.type];
    const std::string name = spec.name.empty() ? cat(spec.type, "_", number) : spec.name;
    if (name == layer && spec.options.has("algorithm")) return cat("layers.", i, ".algorithm");
  }
  const bool own = config.conv.per_layer.contains(layer);
  const Conv2dPolicy& policy = config.conv.of(layer);
  const bool is_one = policy.forward == policy.backward_data &&  //
                      policy.forward == policy.backward_weight;
  if (own) return cat("conv.per_layer.", layer, is_one ? "" : cat(".", name_of(direction)));
  return cat("conv.", is_one ? "algorithm" : name_of(direction));
}

// Returns KEY=VALUE arguments that select another algorithm.
std::vector<std::string> ways_out(const Explanation& explanation) {
  std::vector<std::string> out;
  for (const ExplainedLayer& layer : explanation.layers) {
    for (const Direction direction : kDirections) {
      const ExplainedDirection& of = layer.of(direction);
      if (!of.is_refused() || is_check(of.policy)) continue;
      if (finds_itself(of.decision.refusals.back().word)) continue;
      const std::string key = key_of(explanation.config, layer.conv.name, direction);
      const std::string word = cat(key, "=", of.policy, ",auto");
      if (std::ranges::count(out, word) == 0) out.push_back(word);
    }
  }
  return out;
}

}  // namespace

std::string remarks_text(const Explanation& explanation) {
  std::string out;
  const auto add = [&](const char* mark, const SentenceOf& sentence_of) {
    for (const Remark& one : remarks_of(explanation, sentence_of)) {
      out += wrapped_text(cat(mark, one.layers_text(), ": ", one.sentence));
    }
  };
  add("! ", refusal);
  add("", fallback);
  add("", comparison);
  for (const ExplainedStep& step : explanation.steps) {
    if (!step.plan || std::string_view(step.mode) == "training") continue;
    const std::string why = why_not_on_integers(*explanation.model, explanation.config.device,
                                                step.kernels.any("int8"));
    if (!why.empty()) out += wrapped_text(cat(step.mode, ": ", why));
  }
  return out;
}

void fail_if_refused(const Explanation& explanation) {
  constexpr std::size_t kMax = 3;
  const std::vector<Remark> refusals = remarks_of(explanation, [](const ExplainedDirection& of) {
    return of.decision.error.empty() ? "" : reasons(of.decision);
  });
  for (const ExplainedStep& step : explanation.steps) {
    if (refusals.empty() && !step.error.empty()) {
      fail(ErrorKind::kUnavailable, "explain", step.error);
    }
  }
  if (refusals.empty()) return;
  std::vector<std::string> parts;
  for (const Remark& one : refusals) {
    if (parts.size() < kMax)
      parts.push_back(cat(one.layers.size() == 1 ? "layer " : "layers ", one.layers_text(), ": ",
                          one.sentence));
  }
  if (refusals.size() > kMax) parts.back() += " (the table has the rest)";
  std::vector<std::string> ways = ways_out(explanation);
  if (ways.size() > kMax) ways.resize(kMax);
  fail(ErrorKind::kUnavailable, "explain",
       cat("expected algorithms that accept their layers, but ", join(parts, "; "),
           ways.empty() ? "; name others that accept them"
                        : cat("; add ", join(ways, " "), " to take another where one refuses")));
}

}  // namespace convscope
