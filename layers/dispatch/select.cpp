// SPDX-License-Identifier: Apache-2.0
// select.cpp: from a policy's word ("auto", "measure", "check:a,b" or a name) to an algorithm.
#include "layers/dispatch/select.h"

#include <algorithm>

#include "layers/dispatch/heavy_use.h"

namespace convscope {
namespace {

constexpr std::string_view kCheckPrefix = "check:";

// The two names of "check:a,b".
ChosenNames parse_check(const char* operation, const std::string& policy) {
  const std::string names = policy.substr(kCheckPrefix.size());
  const std::size_t comma = names.find(',');
  CONVSCOPE_CHECK(comma != std::string::npos && comma > 0 && comma + 1 < names.size() &&
                      names.find(',', comma + 1) == std::string::npos,
                  operation, "expected two algorithms like 'check:im2col_gemm,reference', got '",
                  policy, "'");
  return {names.substr(0, comma), names.substr(comma + 1)};
}

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

[[noreturn]] void refuse(const std::string& who, const std::string& why, const Question& question) {
  std::vector<std::string> others;
  for (const Verdict& one : question.verdicts) {
    if (one.accepts) others.push_back(one.algorithm);
  }
  fail(ErrorKind::kUnavailable, question.operation,
       cat("expected an algorithm that can compute ", name_of(question.direction), " of ",
           question.problem, ", but '", who, "' ", why,
           others.empty() ? "; no algorithm here accepts it"
                          : cat("; these accept it: ", join(others))));
}

// `name`, when it is known and accepts the problem.
const std::string& accepting(const std::string& name, const Question& question) {
  std::vector<std::string> known;
  for (const Verdict& one : question.verdicts) known.push_back(one.algorithm);
  check_name(question.operation, name, question.device, known);
  const Verdict& verdict = *std::ranges::find(question.verdicts, name, &Verdict::algorithm);
  if (!verdict.accepts) refuse(name, verdict.reason, question);
  return name;
}

}  // namespace

HeavyUse::~HeavyUse() = default;

std::vector<std::string> candidates_of(const Question& question) {
  std::vector<const Verdict*> preferred;
  std::vector<const Verdict*> others;  // correct but slow: only when nothing else is there
  for (const Verdict& one : question.verdicts) {
    if (one.accepts) (one.auto_ok ? preferred : others).push_back(&one);
  }
  std::vector<const Verdict*>& best = preferred.empty() ? others : preferred;
  std::ranges::stable_sort(best, {}, &Verdict::estimated_ms);
  std::vector<std::string> names;
  for (const Verdict* one : best) names.push_back(one->algorithm);
  return names;
}

ChosenNames chosen_names(const std::string& policy, const Question& question) {
  if (policy == "auto" || policy == "measure") {
    const std::vector<std::string> candidates = candidates_of(question);
    if (candidates.empty()) refuse("auto", "found none among those that it may choose", question);
    return {candidates.front(), ""};
  }
  if (policy.starts_with(kCheckPrefix)) {
    const ChosenNames names = parse_check(question.operation, policy);
    return {accepting(names.first, question), accepting(names.second, question)};
  }
  return {accepting(policy, question), ""};
}

std::vector<Verdict> ordered_verdicts(Question question, const std::string& chosen) {
  std::vector<Verdict> out = std::move(question.verdicts);
  for (Verdict& one : out) {
    one.chosen = one.algorithm == chosen;
    if (one.accepts && !one.auto_ok) {
      one.reason = "accepts it, but auto chooses it only when alone";
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
  if (policy == "auto" || policy == "measure") return;
  if (policy.starts_with(kCheckPrefix)) {
    const ChosenNames two = parse_check(operation, policy);
    check_name(operation, two.first, device, names);
    check_name(operation, two.second, device, names);
    return;
  }
  check_name(operation, policy, device, names);
}

}  // namespace convscope
