// SPDX-License-Identifier: Apache-2.0
// algorithm_check.cpp: checks an algorithm that comes from a plug-in.
#include "experiments/plugins/algorithm_check.h"

#include <algorithm>
#include <cmath>
#include <exception>

#include "experiments/check/matrix/check_problems.h"
#include "experiments/check/matrix/tolerance.h"
#include "framework/simd/cpu_isa.h"
#include "layers/dispatch/policy_text.h"

namespace convscope {
namespace {

constexpr std::size_t kLongestName = 40;
constexpr std::size_t kMaxBytes = std::size_t{1} << 40;

// Calls one of the algorithm's functions. Returns "", or what is wrong as the end of a sentence; an
// exception counts as wrong, too.
template <class Ask>
std::string problem_of(const char* function, const Conv2dProblem& problem, Direction direction,
                       const Ask& ask) {
  std::string what;
  try {
    const std::string wrong = ask();
    if (wrong.empty()) return "";
    what = cat("answers ", wrong);
  } catch (const std::exception& error) {
    what = cat("throws an exception (", error.what(), ")");
  } catch (...) {
    what = "throws an exception of an unknown type";
  }
  return cat("is wrong: its ", function, "() ", what, " when it is asked about ",
             name_of(direction), " of ", problem.text());
}

std::string wrong_with(const Conv2dCost& cost) {
  const auto number = [](const char* name, double value, double most) -> std::string {
    return std::isfinite(value) && value > 0 && value <= most ? "" : cat(name, " = ", value);
  };
  std::string out = number("flops", cost.flops, 1e30);
  if (out.empty()) out = number("bytes", cost.bytes, 1e30);
  const double all = cost.issued + cost.prepared * flops_per_cycle(DType::f32);
  if (out.empty()) out = number("peak_share", cost.flops / all, 1 + 1e-9);
  return out;
}

}  // namespace

std::string problem_of_name(const std::string& name) {
  const auto is_small = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_part = [&](char c) { return is_small(c) || (c >= '0' && c <= '9') || c == '_'; };
  if (name.empty() || name.size() > kLongestName || !is_small(name[0]) ||
      !std::ranges::all_of(name, is_part)) {
    return cat("a name of at most ", kLongestName,
               " lower-case letters, digits and _, a letter first, such as my_direct");
  }
  if (finds_itself(name) || name == "check") {
    return "another name, because this word is a selection mode";
  }
  return "";
}

std::string problem_of_algorithm(const Conv2dAlgorithm& algorithm,
                                 const std::vector<std::string>& others) {
  if (algorithm.name == nullptr) return "has no name";
  const std::string wrong_name = problem_of_name(algorithm.name);
  if (!wrong_name.empty()) return cat("is named '", algorithm.name, "': expected ", wrong_name);
  if (const auto& table = conv2d_algorithms(DeviceType::cpu);
      table.find(algorithm.name) != nullptr) {
    return cat("has a name that is taken: ", table.file_of(algorithm.name), " has the algorithm '",
               algorithm.name, "' already");
  }
  if (std::ranges::count(others, algorithm.name) > 0) {
    return cat("has a name that is taken: the plug-in has two algorithms '", algorithm.name, "'");
  }
  if (algorithm.device != DeviceType::cpu) return "is not for the CPU, where plug-ins compute";
  if (!std::isfinite(algorithm.error_growth) || algorithm.error_growth <= 0) {
    return cat("has the error_growth ", algorithm.error_growth);
  }
  const double most = algorithm.one_chain ? kMaxChainGrowth : kMaxErrorGrowth;
  if (algorithm.error_growth > most) {
    return cat("has the error_growth ", algorithm.error_growth,
               algorithm.one_chain ? " and one_chain" : "", ": a convolution may state ", most,
               " at most (experiments/check/matrix/tolerance.h)");
  }
  const struct {
    const char* name;
    bool there;
  } parts[] = {
      {"idea", algorithm.idea != nullptr && *algorithm.idea != '\0'},
      {"function prepare_weights to match prepared_bytes",
       algorithm.prepared_bytes == nullptr || algorithm.prepare_weights != nullptr},
      {"function prepared_bytes to match prepare_weights",
       algorithm.prepare_weights == nullptr || algorithm.prepared_bytes != nullptr},
      {"direction: forward, backward_data or backward_weight",
       std::ranges::any_of(kDirections, [&](Direction d) { return algorithm.offers(d); })}};
  for (const auto& part : parts) {
    if (!part.there) return cat("has no ", part.name);
  }
  return "";
}

std::string problem_of_ladder(const Conv2dLadder& ladder,
                              const std::vector<std::string>& algorithms) {
  if (ladder.name == nullptr || !problem_of_name(ladder.name).empty()) {
    return cat("has an invalid name");
  }
  if (conv2d_ladders(DeviceType::cpu).find(ladder.name) != nullptr) {
    return cat("has a name that is taken: there is a ladder '", ladder.name, "' already");
  }
  if (ladder.device != DeviceType::cpu) return "is not for the CPU";
  if (ladder.rungs.size() < 2) return "has fewer than two rungs";
  if (ladder.problem == nullptr) return "has no problem";
  try {
    Conv2dProblem::parse(ladder.problem).check();
  } catch (const Error& error) {
    return cat("has an invalid problem: ", error.what());
  }
  for (const Conv2dRung& rung : ladder.rungs) {
    if (rung.algorithm == nullptr || rung.isa == nullptr || rung.sentence == nullptr) {
      return "has a rung without algorithm, isa or sentence";
    }
    if (conv2d_algorithms(DeviceType::cpu).find(rung.algorithm) == nullptr &&
        std::ranges::count(algorithms, rung.algorithm) == 0) {
      return cat("has a rung '", rung.algorithm, "', but no algorithm has this name");
    }
    try {
      if (*rung.isa != '\0') parse_isa(rung.isa);
    } catch (const Error& error) {
      return cat("has a rung with no instruction set: ", error.what());
    }
    if (rung.threads < 0) return cat("has a rung with ", rung.threads, " threads");
  }
  return "";
}

std::string problem_of_answers(const Conv2dAlgorithm& algorithm) {
  for (const Conv2dProblem& problem : matrix::small_problems(3)) {
    for (const Direction direction : kDirections) {
      if (!algorithm.offers(direction)) continue;
      bool takes = false;
      std::string wrong = problem_of("supports", problem, direction, [&]() -> std::string {
        const Conv2dSupport answer = support_of(algorithm, problem, direction);
        takes = answer.yes;
        return takes || !answer.reason.empty() ? "" : "no without a sentence";
      });
      if (!wrong.empty()) return wrong;
      if (!takes) continue;
      wrong = problem_of("cost", problem, direction,
                         [&] { return wrong_with(algorithm.cost(problem, direction)); });
      if (!wrong.empty()) return wrong;
      const auto bytes = [](std::size_t count) -> std::string {
        return count <= kMaxBytes ? "" : cat(count, " bytes");
      };
      wrong = problem_of("workspace_bytes", problem, direction,
                         [&] { return bytes(algorithm.workspace_bytes(problem, direction)); });
      if (!wrong.empty()) return wrong;
      wrong = problem_of("prepared_bytes", problem, direction,
                         [&] { return bytes(algorithm.prepared_size(problem, direction)); });
      if (!wrong.empty()) return wrong;
    }
  }
  return "";
}

}  // namespace convscope
