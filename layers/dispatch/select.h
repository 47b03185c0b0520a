// SPDX-License-Identifier: Apache-2.0
// select.h: from a policy ("auto", "measure", a name, a list, "check:a,b") to an algorithm.
//
// auto      the algorithm with the lowest estimated time among those that accept the problem.
// measure   the fastest of them when timed; remembered on disk (measure.h).
// check:a,b run a and b, compare within their error bounds, return a's result.
// <name>    that one. An unknown name, or one that refuses the problem, is an error of kind
//           kUnavailable that says why, and who would accept.
// a,b,auto  the first of these words that accepts the problem. When none does, the error says why
//           each of them refuses.
//
// The templates ask the cards; select.cpp decides, without their types.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "layers/dispatch/measure.h"
#include "layers/dispatch/policy.h"
#include "layers/dispatch/policy_text.h"

namespace convscope {

template <class Problem>
struct Choice {
  const Card<Problem>* algorithm = nullptr;
  const Card<Problem>* checked_by = nullptr;  // not null: run this one too and compare
  std::string word = {};   // of the policy: "auto", or what else led to the algorithm
  std::string layer = {};  // that asks; "": nobody
};

// One line of `convscope explain`.
struct Verdict {
  std::string algorithm;
  std::string idea;
  bool accepts = false;
  std::string reason;       // why not; or, when it accepts, what else speaks against it
  double estimated_ms = 0;  // 0 when it refuses, or when there are no samples
  std::size_t workspace_bytes = 0;
  std::size_t prepared_bytes = 0;
  bool auto_ok = true;
  bool chosen = false;   // by the policy
  bool checks = false;   // runs beside the chosen one, which is compared with it
  bool refused = false;  // the policy names it, and it does not accept
  // Why the estimate is what it is, of those that accept: the products that are executed for one
  // that counts, and what most of the time is.
  double executed_per_useful = 0;
  const char* limit = "";
};

// What every card of a device says of one problem in one direction; sorted by name. Without samples
// nothing will run (run.h), so a card is asked whether it takes the problem, and nothing else.
struct Question {
  const char* operation;
  std::string problem;
  Direction direction;
  Device device;
  WeightUse use;
  std::string layer;  // that asks, for errors; "": nobody
  std::vector<Verdict> verdicts;
  // What `measure` remembers the problem by, where that is less than its text; "": its text.
  std::string measured_as = {};
};

template <class Problem>
Question question_of(const Problem& problem, Direction direction, Device device,
                     WeightUse use = WeightUse::once, const std::string& layer = {}) {
  Question out{HeavyLayer<Problem>::kOperation, problem.text(), direction, device, use, layer, {}};
  if constexpr (requires { problem.bucket_text(); }) out.measured_as = problem.bucket_text();
  for (const auto& [name, card] : HeavyLayer<Problem>::algorithms(device.type).entries()) {
    const Support support = support_of(card, problem, direction);
    Verdict verdict{.algorithm = name,
                    .idea = card.idea,
                    .accepts = support.yes,
                    .reason = support.reason,
                    .auto_ok = card.auto_ok};
    if (support.yes && !problem.is_empty()) {
      verdict.estimated_ms = estimated_ms(card, problem, direction, use);
      const Cost cost = card.cost(problem, direction);
      const double useful = problem.nominal_flops();
      verdict.executed_per_useful = useful > 0 ? cost.executed() / useful : 0;
      verdict.limit = limit_of(cost, device.type, factors_of(problem));
      verdict.workspace_bytes = card.workspace_bytes(problem, direction);
      verdict.prepared_bytes = card.prepared_size(problem, direction, use);
    }
    out.verdicts.push_back(std::move(verdict));
  }
  return out;
}

// Names that `auto` and `measure` may choose, best estimate first; those with auto_ok = false only
// when there is no other.
CONVSCOPE_API std::vector<std::string> candidates_of(const Question& question);

// The names that a policy stands for. `second` is that of check:a,b, or "".
struct ChosenNames {
  std::string first, second;
};

// What a policy comes to. "measure" gives what `auto` would choose.
struct Decision {
  struct Refusal {
    std::string word, reason;
  };
  std::string word;               // that was taken, of a list one of its words
  ChosenNames names;              // empty when nothing was taken
  std::vector<Refusal> refusals;  // of the words that stand before it; of all when none was taken
  std::string error;              // the sentence for it; "": something was taken
};
// An error only when the policy is no policy, or names what is not there.
CONVSCOPE_API Decision decide(const std::string& policy, const Question& question);

// The same, where a refusal is an error.
CONVSCOPE_API Decision decided(const std::string& policy, const Question& question);
inline ChosenNames chosen_names(const std::string& policy, const Question& question) {
  return decided(policy, question).names;
}

// The verdicts with `chosen`, `checks` and `refused` set: those that accept, by estimated time,
// then those that refuse.
CONVSCOPE_API std::vector<Verdict> ordered_verdicts(Question question, const Decision& decision);

// An error when `policy` is no word above, or names an algorithm that is not in `names`; needs no
// problem, so configs can be checked early.
CONVSCOPE_API void check_policy(const char* operation, const std::string& policy, Device device,
                                const std::vector<std::string>& names);

CONVSCOPE_API MeasureKey key_of(const Question& question);

// The remembered algorithm, when it is still there and may still be chosen, or null.
template <class Problem>
const Card<Problem>* measured(const Question& question) {
  const std::string name = remembered_fastest(key_of(question));
  if (name.empty() || std::ranges::count(candidates_of(question), name) == 0) return nullptr;
  return HeavyLayer<Problem>::algorithms(question.device.type).find(name);
}

// May take long for "measure". Call it once for each problem and keep the answer.
template <class Problem>
Choice<Problem> select_algorithm(const std::string& policy, const Problem& problem,
                                 Direction direction, Device device,
                                 WeightUse use = WeightUse::once, const std::string& layer = {}) {
  const Registry<Card<Problem>>& table = HeavyLayer<Problem>::algorithms(device.type);
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

// What the policy comes to, for tables: "measure" is answered from the cache or by auto's order, so
// nothing is run, and a refusal is no error.
template <class Problem>
Decision decide_unrun(const std::string& policy, const Question& question) {
  Decision out = decide(policy, question);
  if (out.word != "measure") return out;
  if (const auto* known = measured<Problem>(question)) out.names.first = known->name;
  return out;
}

// Every algorithm of the device: those that accept, by estimated time, then those that refuse.
template <class Problem>
std::vector<Verdict> explain(const std::string& policy, const Problem& problem, Direction direction,
                             Device device, WeightUse use = WeightUse::once) {
  Question question = question_of(problem, direction, device, use);
  const Decision decision = decide_unrun<Problem>(policy, question);
  return ordered_verdicts(std::move(question), decision);
}

}  // namespace convscope
