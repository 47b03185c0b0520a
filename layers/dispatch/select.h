// SPDX-License-Identifier: Apache-2.0
// select.h: selects an algorithm by a policy ("auto", "measure", a name, a list, "check:a,b").
//
// auto      the algorithm with the lowest estimated time among those that accept the problem.
// measure   the fastest of them when timed; remembered on disk (measure.h).
// check:a,b run a and b, compare within their error bounds, return a's result.
// <name>    that algorithm. An unknown name, or one that refuses the problem, is an error of kind
//           kUnavailable, which says why and which algorithms accept.
// a,b,auto  the first of these words that accepts the problem. When none does, the error says why
//           each of them refuses.
//
// The templates query the algorithms. select.cpp decides and does not depend on the problem type.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "layers/dispatch/measure.h"
#include "layers/dispatch/policy.h"
#include "layers/dispatch/policy_text.h"

namespace convscope {

template <class Problem>
struct Choice {
  const Algorithm<Problem>* algorithm = nullptr;
  const Algorithm<Problem>* checked_by = nullptr;  // not null: run this one too and compare
  std::string word = {};   // the policy's word that led to the algorithm: "auto", a name
  std::string layer = {};  // the layer that selects, for errors; "": none
};

// One line of `convscope explain`.
struct Verdict {
  std::string algorithm;
  std::string idea;
  bool accepts = false;
  std::string reason;       // why it refuses; or a disadvantage when it accepts
  double estimated_ms = 0;  // 0 when it refuses, or when there are no samples
  std::size_t workspace_bytes = 0;
  std::size_t prepared_bytes = 0;
  bool auto_ok = true;
  bool chosen = false;   // by the policy
  bool checks = false;   // runs in addition to the chosen algorithm, for comparison
  bool refused = false;  // the policy names the algorithm, which does not accept
  // If the algorithm accepts, these members explain its estimate: how many products it executes for
  // each useful product, and what takes most of the time (limit_of()).
  double executed_per_useful = 0;
  const char* limit = "";
};

// The answers of every algorithm of a device about one problem and direction, sorted by name. For
// an empty problem nothing will run (run.h), so only supports() is called.
struct Question {
  const char* operation;
  std::string problem;
  Direction direction;
  Device device;
  WeightUse use;
  std::string layer;  // the layer that selects, for errors; "": none
  std::vector<Verdict> verdicts;
  // The key under which `measure` stores its result. If several problems share a result, they have
  // the same key. "" means that the text of the problem is the key.
  std::string measured_as = {};
};

template <class Problem>
Question question_of(const Problem& problem, Direction direction, Device device,
                     WeightUse use = WeightUse::once, const std::string& layer = {}) {
  Question out{Operator<Problem>::kOperation, problem.text(), direction, device, use, layer, {}};
  if constexpr (requires { problem.bucket_text(); }) out.measured_as = problem.bucket_text();
  for (const auto& [name, algorithm] : Operator<Problem>::algorithms(device.type).entries()) {
    const Support support = support_of(algorithm, problem, direction);
    Verdict verdict{.algorithm = name,
                    .idea = algorithm.idea,
                    .accepts = support.yes,
                    .reason = support.reason,
                    .auto_ok = algorithm.auto_ok};
    if (support.yes && !problem.is_empty()) {
      verdict.estimated_ms = estimated_ms(algorithm, problem, direction, use);
      const Cost cost = algorithm.cost(problem, direction);
      const double useful = problem.nominal_flops();
      verdict.executed_per_useful = useful > 0 ? cost.flops / useful : 0;
      verdict.limit =
          limit_of(cost_key_of(algorithm, direction), cost, device.type, operand_type_of(problem));
      verdict.workspace_bytes = algorithm.workspace_bytes(problem, direction);
      verdict.prepared_bytes = algorithm.prepared_size(problem, direction, use);
    }
    out.verdicts.push_back(std::move(verdict));
  }
  return out;
}

// Returns the names that `auto` and `measure` may choose, best estimate first. Algorithms with
// auto_ok = false are included only when no other algorithm accepts.
CONVSCOPE_API std::vector<std::string> candidates_of(const Question& question);

// The names that a policy selects. `second` is b of check:a,b, or "".
struct ChosenNames {
  std::string first, second;
};

// The result of a policy. For "measure" it holds what `auto` would choose.
struct Decision {
  struct Refusal {
    std::string word, reason;
  };
  std::string word;               // the word that was taken
  ChosenNames names;              // empty when nothing was taken
  std::vector<Refusal> refusals;  // of each policy word before `word`, or of all if none was taken
  std::string error;              // the message if nothing was taken, else ""
};
// Throws only when the policy is malformed, or names an algorithm that does not exist.
CONVSCOPE_API Decision decide(const std::string& policy, const Question& question);

// Returns decide(), but throws on a refusal.
CONVSCOPE_API Decision decided(const std::string& policy, const Question& question);
inline ChosenNames chosen_names(const std::string& policy, const Question& question) {
  return decided(policy, question).names;
}

// Returns the verdicts with `chosen`, `checks` and `refused` set. Algorithms that accept come
// first, by estimated time; algorithms that refuse follow.
CONVSCOPE_API std::vector<Verdict> ordered_verdicts(Question question, const Decision& decision);

// Throws when `policy` is malformed, or names an algorithm that is not in `names`. It needs no
// problem, so configs can be checked early.
CONVSCOPE_API void check_policy(const char* operation, const std::string& policy, Device device,
                                const std::vector<std::string>& names);

CONVSCOPE_API MeasureKey key_of(const Question& question);

// Returns the remembered algorithm if it still exists and may be chosen, else null.
template <class Problem>
const Algorithm<Problem>* measured(const Question& question) {
  const std::string name = remembered_fastest(key_of(question));
  if (name.empty() || std::ranges::count(candidates_of(question), name) == 0) return nullptr;
  return Operator<Problem>::algorithms(question.device.type).find(name);
}

// Selects an algorithm. "measure" may take long: call it once for each problem and keep the result.
template <class Problem>
Choice<Problem> select_algorithm(const std::string& policy, const Problem& problem,
                                 Direction direction, Device device,
                                 WeightUse use = WeightUse::once, const std::string& layer = {}) {
  const Registry<Algorithm<Problem>>& table = Operator<Problem>::algorithms(device.type);
  const Question question = question_of(problem, direction, device, use, layer);
  const Decision decision = decided(policy, question);
  Choice<Problem> out{.word = decision.word, .layer = layer};
  if (decision.word == "measure") {
    std::vector<std::string> candidates = candidates_of(question);
    if (problem.is_empty()) candidates.resize(1);  // nothing to time
    out.algorithm = &table.get(measured_fastest(
        key_of(question), candidates, [&] { return timing_of(problem, direction, device, use); }));
    return out;
  }
  const auto& [first, second] = decision.names;
  out.algorithm = &table.get(first);
  if (!second.empty()) out.checked_by = &table.get(second);
  return out;
}

// Returns the decision for tables, without running anything. For "measure" this is the remembered
// result or, if there is none, the choice of `auto`. A refusal is not an error.
template <class Problem>
Decision decide_unrun(const std::string& policy, const Question& question) {
  Decision out = decide(policy, question);
  if (out.word != "measure") return out;
  if (const auto* known = measured<Problem>(question)) out.names.first = known->name;
  return out;
}

// Returns the estimated milliseconds of the algorithm that decide_unrun() takes; nothing if none.
template <class Problem>
std::optional<double> decided_ms(const std::string& policy, const Question& question) {
  const Decision decision = decide_unrun<Problem>(policy, question);
  if (!decision.error.empty()) return std::nullopt;
  return std::ranges::find(question.verdicts, decision.names.first, &Verdict::algorithm)
      ->estimated_ms;
}

// Returns all algorithms of the device: those that accept, by estimated time, then the others.
template <class Problem>
std::vector<Verdict> explain(const std::string& policy, const Problem& problem, Direction direction,
                             Device device, WeightUse use = WeightUse::once) {
  Question question = question_of(problem, direction, device, use);
  const Decision decision = decide_unrun<Problem>(policy, question);
  return ordered_verdicts(std::move(question), decision);
}

}  // namespace convscope
