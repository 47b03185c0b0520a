// SPDX-License-Identifier: Apache-2.0
// select.cpp: selects an algorithm by a policy ("auto", "measure", a name, a list, "check:a,b").
#include "layers/dispatch/select.h"

#include <algorithm>

#include "layers/dispatch/operator_use.h"
#include "layers/dispatch/plugin/plugin_algorithms.h"

namespace convscope {
namespace {

void check_name(const char* operation, const std::string& name, Device device,
                const std::vector<std::string>& known) {
  if (std::ranges::count(known, name) > 0) return;
  std::vector<std::string> words = known;
  words.insert(words.end(), {"auto", "measure"});
  const std::string near = nearest_word(name, words);
  fail(ErrorKind::kUnavailable, operation,
       cat("expected auto, measure, check:<a>,<b> or an algorithm for device ", device.str(), " (",
           join(known), "), got '", name, "'",
           near.empty() ? "" : cat("; did you mean '", near, "'?")));
}

std::vector<std::string> names_of(const Question& question, bool accepting_alone) {
  std::vector<std::string> out;
  for (const Verdict& one : question.verdicts) {
    if (one.accepts || !accepting_alone) out.push_back(one.algorithm);
  }
  return out;
}

// Builds the error message: why no word was accepted, which algorithms accept, and what to write
// instead.
std::string sentence_of(const std::vector<Decision::Refusal>& refusals, const std::string& policy,
                        const Question& question) {
  std::vector<std::string> reasons;
  for (const auto& [word, reason] : refusals) reasons.push_back(cat("'", word, "' ", reason));
  const std::vector<std::string> others = names_of(question, /*accepting_alone=*/true);
  const bool may_add_auto =
      !is_check(policy) && !finds_itself(refusals.back().word) && !candidates_of(question).empty();
  return cat(
      question.layer.empty() ? "" : cat("layer ", question.layer, ": "),
      "expected an algorithm that can compute ", name_of(question.direction), " of ",
      question.problem, ", but ", join(reasons, " and "),
      others.empty() ? "; no algorithm here accepts it" : cat("; these accept it: ", join(others)),
      may_add_auto ? cat("; '", policy, ",auto' takes one of them") : "");
}

// Unknown names are errors, at any position of a list.
void check_words(const char* operation, const PolicyText& policy, Device device,
                 const std::vector<std::string>& known) {
  for (const std::string& word : policy.words) {
    if (policy.is_check || !finds_itself(word)) check_name(operation, word, device, known);
  }
}

// Returns why a word of a policy selects no algorithm, or "" when it selects `name`.
std::string refusal_of(const std::string& word, bool is_name, const Question& question,
                       std::string& name) {
  if (!is_name && finds_itself(word)) {
    const std::vector<std::string> candidates = candidates_of(question);
    if (candidates.empty()) return "found none among those that it may choose";
    name = candidates.front();
    return "";
  }
  name = word;
  const Verdict& verdict = *std::ranges::find(question.verdicts, word, &Verdict::algorithm);
  return verdict.accepts ? "" : verdict.reason;
}

}  // namespace

OperatorUse::~OperatorUse() = default;

MeasureKey key_of(const Question& question) {
  const bool by_text = question.measured_as.empty();
  MeasureKey out{question.operation, by_text ? question.problem : question.measured_as,
                 question.direction, question.device, question.use};
  if (question.device.type != DeviceType::cpu) return out;
  for (const std::string& name : candidates_of(question)) {
    const PluginAlgorithm* const from = plugin_of_algorithm(question.operation, name);
    if (from != nullptr) out.plugins += cat(" | ", name, " of plug-in ", from->hash);
  }
  return out;
}

std::vector<std::string> candidates_of(const Question& question) {
  std::vector<const Verdict*> preferred;
  std::vector<const Verdict*> others;  // correct but slow: used only when nothing else accepts
  for (const Verdict& one : question.verdicts) {
    if (one.accepts) (one.auto_ok ? preferred : others).push_back(&one);
  }
  std::vector<const Verdict*>& best = preferred.empty() ? others : preferred;
  std::ranges::stable_sort(best, {}, &Verdict::estimated_ms);
  std::vector<std::string> names;
  for (const Verdict* one : best) names.push_back(one->algorithm);
  return names;
}

Decision decide(const std::string& policy, const Question& question) {
  const PolicyText text = parse_policy(question.operation, policy);
  check_words(question.operation, text, question.device, names_of(question, false));
  Decision out;
  std::vector<std::string> taken;
  for (const std::string& word : text.words) {
    std::string name;
    const std::string reason = refusal_of(word, text.is_check, question, name);
    if (!reason.empty()) {
      out.refusals.push_back({word, reason});
      continue;
    }
    taken.push_back(name);
    if (text.is_check) continue;
    out.word = word;
    out.names.first = name;
    return out;
  }
  if (text.is_check && out.refusals.empty()) {
    out.word = text.text();
    out.names = {taken[0], taken[1]};
    return out;
  }
  out.error = sentence_of(out.refusals, text.text(), question);
  return out;
}

Decision decided(const std::string& policy, const Question& question) {
  Decision out = decide(policy, question);
  if (!out.error.empty()) fail(ErrorKind::kUnavailable, question.operation, out.error);
  return out;
}

std::vector<Verdict> ordered_verdicts(Question question, const Decision& decision) {
  std::vector<Verdict> out = std::move(question.verdicts);
  for (Verdict& one : out) {
    one.chosen = one.algorithm == decision.names.first;
    one.checks = one.algorithm == decision.names.second;
    one.refused =
        std::ranges::count(decision.refusals, one.algorithm, &Decision::Refusal::word) > 0;
    if (one.accepts && !one.auto_ok) {
      one.reason = "auto takes it only as a last resort";
    }
  }
  std::ranges::stable_sort(out, [](const Verdict& a, const Verdict& b) {
    if (a.accepts != b.accepts) return a.accepts;
    return a.estimated_ms < b.estimated_ms;
  });
  return out;
}

void check_policy(const char* operation, const std::string& policy, Device device,
                  const std::vector<std::string>& names) {
  check_words(operation, parse_policy(operation, policy), device, names);
}

}  // namespace convscope
