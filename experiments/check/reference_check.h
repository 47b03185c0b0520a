// SPDX-License-Identifier: Apache-2.0
// reference_check.h: compares an algorithm of any operator with the operator's algorithm
// `reference`, in every direction, on the problems of the operator's description.
//
// A case is a problem, a direction and a kind of numbers. It runs on each instruction set, with one
// and two threads, in each layout that the algorithm takes. It runs with and without a bias, or
// with and without an old dw. Outputs, workspace and prepared weights hold NaN before the call.
// Guards surround the workspace and the prepared weights. The error bound is the sum of the bounds
// of both algorithms: Algorithm::growth(), or worst_growth() for errors of one sign. Results on
// small integers must be equal if both algorithms are exact on integers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "experiments/check/check_row.h"
#include "experiments/check/matrix/guarded_block.h"
#include "experiments/check/matrix/tiers.h"
#include "experiments/operators/call_arrays.h"
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"
#include "layers/dispatch/execute.h"

namespace convscope {

// The problems of an operator, as texts. Every algorithm accepts at least one of them.
template <class Problem>
struct CheckedProblems {
  std::vector<const char*> texts;
  Problem (*parse)(const std::string& text);  // throws when the text describes no problem
};

// Returns the results of one call that differ from the expected ones by more than `allowed`, one
// bound for each output, as a fault with sentence and place; an empty sentence: none.
struct ReferenceFault {
  std::string sentence, where;
};
CONVSCOPE_API ReferenceFault fault_of_values(const std::vector<std::string>& names,
                                             const std::vector<Tensor>& got,
                                             const std::vector<Tensor>& expected,
                                             const std::vector<double>& allowed);
// Returns numbers of a kind, in the type of an operand.
CONVSCOPE_API Tensor tier_numbers(const Shape& shape, DType type, matrix::Tier tier,
                                  std::uint64_t stream);

template <class Problem>
class ReferenceCheck {
 public:
  ReferenceCheck(const Algorithm<Problem>& algorithm, const CheckSettings& settings,
                 const CheckNote& note)
      : algorithm_(algorithm), settings_(settings), note_(note) {
    row_.algorithm = algorithm.name;
    row_.error_growth = algorithm.error_growth;
  }

  CheckedAlgorithm run(const CheckedProblems<Problem>& of) {
    const CheckClock clock;
    set_flops_worth_threads(0);  // run small problems on threads, too
    row_.features = features_of(algorithm_, direction_features(), of.parse);
    std::vector<std::string> texts(of.texts.begin(), of.texts.end());
    if (!settings_.problem.empty()) texts = {settings_.problem};
    const std::size_t step = settings_.quick ? 3 : 1;
    for (std::size_t i = 0; i < texts.size(); i += step) check(texts[i], of.parse(texts[i]));
    set_flops_worth_threads(kFlopsWorthThreads);
    if (row_.passes() && row_.cases == 0) {
      fail("the algorithm accepts no problem of the check: its supports() refuses every one");
    }
    require(settings_.require, row_);
    row_.seconds = clock.seconds();
    return {std::move(row_), std::move(problem_of_fault_)};
  }

 private:
  // One case, with the results of the reference.
  struct Case {
    const std::string& text;
    const Problem& problem;
    Direction direction;
    matrix::Tier tier;
    bool extra;  // with a bias (forward), or added to an old dw
    Operands operands = {};
    std::vector<Tensor> expected = {};
    std::vector<double> allowed = {};
  };

  void fail(std::string sentence) {
    row_.status = "wrong";
    row_.cause = std::move(sentence);
  }

  void check(const std::string& text, const Problem& problem) {
    for (const Direction direction : kDirections) {
      if (!algorithm_.offers(direction)) continue;
      if (!support_of(algorithm_, problem, direction).yes) {
        ++row_.refused;
        continue;
      }
      const std::string name(name_of(direction));
      if (std::ranges::count(row_.directions, name) == 0) row_.directions.push_back(name);
      for (const matrix::Tier tier : matrix::kAllTiers) {
        if (!row_.passes()) return;
        if (settings_.quick && !is_quick(tier)) continue;
        note_(cat(name, " of ", text, ", ", matrix::name_of(tier)));
        ++row_.cases;
        for (const bool extra : {false, true}) {
          if (extra && direction == Direction::backward_data) continue;
          Case one{text, problem, direction, tier, extra};
          expect(one);
          check_everywhere(one);
        }
      }
    }
  }

  static bool is_quick(matrix::Tier tier) {
    return tier == matrix::Tier::exact || tier == matrix::Tier::bounded ||
           tier == matrix::Tier::flat;
  }

  // Computes the results of the reference, and the errors that are allowed.
  void expect(Case& one) const {
    const Algorithm<Problem>& reference =
        Operator<Problem>::algorithms(DeviceType::cpu).get("reference");
    const Problem& problem = one.problem;
    const OperandSpecs specs = problem.operands(one.direction);
    std::uint64_t stream = 1;
    for (std::size_t i = 0; i < specs.inputs.size(); ++i) {
      one.operands.in.at(i) =
          tier_numbers(specs.inputs[i].desc.shape, specs.inputs[i].desc.dtype, one.tier, stream++);
    }
    if (one.extra && one.direction == Direction::forward) {
      one.operands.in.at(bias_place<Problem>()) = tier_numbers(
          {specs.outputs[0].desc.shape.at(1)}, specs.outputs[0].desc.dtype, one.tier, stream++);
    }
    one.operands.accumulate = one.extra && one.direction == Direction::backward_weight;
    Operands right = with_outputs(one, problem);
    Operands sizes = right;
    Tensor residual;
    if constexpr (requires { Operator<Problem>::magnitudes(problem, one.direction, right); }) {
      sizes = Operator<Problem>::magnitudes(problem, one.direction, right);
    } else {
      sizes = over_magnitudes(right, residual);
      run_algorithm(reference, problem, one.direction, sizes);
    }
    const double terms = longest_sum(problem, one.direction, right);
    run_algorithm(reference, problem, one.direction, right);
    one.expected = outputs(right, problem, one.direction);
    const bool exact = one.tier == matrix::Tier::exact && algorithm_.exact_on_integers &&
                       reference.exact_on_integers;
    const auto growth = [&](const Algorithm<Problem>& of) {
      return matrix::rounds_one_way(one.tier) ? of.worst_growth(terms) : of.growth(terms);
    };
    const double unit =
        exact ? 0 : (growth(algorithm_) + growth(reference)) * eps_of(problem.dtype, problem.math);
    for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
      double largest = 0;
      const Tensor& size = sizes.out.at(i).values;
      for (std::int64_t j = 0; j < size.numel(); ++j) largest = std::max(largest, size.at(j));
      one.allowed.push_back(unit * largest);
    }
  }

  // Returns the operands of a call in the layout of `problem`, with outputs that hold NaN, or an
  // old result where the call adds to it.
  static Operands with_outputs(const Case& one, const Problem& problem) {
    Operands out = one.operands;
    const OperandSpecs specs = problem.operands(one.direction);
    for (std::size_t i = 0; i < specs.inputs.size(); ++i) {
      Operand& input = out.in.at(i);
      if (input.defined()) input.values = stored_images(input.values, specs.inputs[i].desc.layout);
    }
    for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
      const OperandSpec& spec = specs.outputs[i];
      const Tensor before = out.accumulate
                                ? tier_numbers(spec.desc.shape, spec.desc.dtype, one.tier, 9)
                                : Tensor::full(spec.desc.shape, NAN, spec.desc.dtype);
      out.out.at(i) = stored_images(before, spec.desc.layout);
    }
    return out;
  }
  static std::vector<Tensor> outputs(const Operands& operands, const Problem& problem,
                                     Direction direction) {
    std::vector<Tensor> out;
    const OperandSpecs specs = problem.operands(direction);
    for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
      const OperandSpec& spec = specs.outputs[i];
      out.push_back(plain_images(operands.out.at(i).values, spec.desc.shape, spec.desc.layout));
    }
    return out;
  }

  void check_everywhere(const Case& one) {
    std::vector<Problem> forms = {one.problem};
    if constexpr (requires(Problem problem) { problem.layout; }) {
      forms.push_back(one.problem);
      forms.back().layout = ActivationLayout::nchw16c;
    }
    const Isa best = current_isa();
    for (const Problem& form : forms) {
      if (!support_of(algorithm_, form, one.direction).yes) continue;
      for (int i = 0; i < kIsaCount; ++i) {
        if (!supports_isa(static_cast<Isa>(i))) continue;
        set_isa(static_cast<Isa>(i));
        check_threads(one, form);
      }
    }
    set_isa(best);
  }

  void check_threads(const Case& one, const Problem& form) {
    std::vector<Tensor> first;
    for (const int threads : {1, 2}) {
      if (!row_.passes()) return;
      set_num_threads(threads);
      const Operands operands = with_outputs(one, form);
      ReferenceFault fault{.sentence = run_between_guards(form, one.direction, operands),
                           .where = ""};
      const std::vector<Tensor> got = outputs(operands, form, one.direction);
      std::vector<std::string> names;
      for (const OperandSpec& spec : form.operands(one.direction).outputs) {
        names.push_back(result_name(spec, one.direction));
      }
      if (fault.sentence.empty()) fault = fault_of_values(names, got, one.expected, one.allowed);
      if (fault.sentence.empty() && threads > 1 && algorithm_.deterministic &&
          !have_equal_bits(first, got)) {
        fault.sentence = cat("the bits of ", join(names, ", "),
                             " depend on the number of threads; the algorithm states that it is "
                             "deterministic");
      }
      first = got;
      if (fault.sentence.empty()) continue;
      fail(fault.sentence);
      problem_of_fault_ = one.text;
      row_.first = first_text({.direction = one.direction,
                               .problem = one.text,
                               .extra = one.extra,
                               .tier = one.tier,
                               .isa = current_isa(),
                               .threads = threads});
      row_.where = fault.where;
    }
  }

  static bool have_equal_bits(const std::vector<Tensor>& first, const std::vector<Tensor>& second) {
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (std::memcmp(first[i].raw_data(), second[i].raw_data(),
                      static_cast<std::size_t>(first[i].size_bytes())) != 0) {
        return false;
      }
    }
    return true;
  }

  // Runs the algorithm once. Returns "" or which memory it has damaged.
  std::string run_between_guards(const Problem& problem, Direction direction,
                                 const Operands& operands) const {
    if (problem.is_empty()) {
      finish_empty(operands);
      return "";
    }
    const auto block = [](std::size_t bytes) {
      constexpr std::size_t kGuard = 256;
      const auto floats = static_cast<std::int64_t>(ScratchArena::round_up(bytes) / sizeof(float));
      return std::make_unique<matrix::GuardedBlock>(Device{}, DType::f32, nullptr, floats, 0,
                                                    kGuard);
    };
    const std::size_t prepared_bytes = algorithm_.prepared_size(problem, direction);
    const auto workspace = block(algorithm_.workspace_bytes(problem, direction));
    const auto prepared = block(prepared_bytes);
    if (prepared_bytes > 0) {
      algorithm_.prepare_weights(
          {problem, direction, operands.input(1), prepared->data(), workspace->data(), {}});
    }
    Operator<Problem>::run({algorithm_,
                            problem,
                            direction,
                            operands,
                            {},
                            workspace->data(),
                            prepared_bytes > 0 ? prepared->data() : nullptr});
    if (const char* const side = workspace->damage()) {
      return cat("it wrote ", side, " the workspace");
    }
    const char* const side = prepared->damage();
    return side == nullptr ? "" : cat("it wrote ", side, " the prepared weights");
  }

  const Algorithm<Problem>& algorithm_;
  const CheckSettings& settings_;
  const CheckNote& note_;
  CheckRow row_;
  std::string problem_of_fault_;
};

// Returns the check of an operator for its description.
template <class Problem>
OperatorCheck reference_check(CheckedProblems<Problem> problems) {
  OperatorCheck out{.problem = problems.texts.at(0), .features = names_of(direction_features())};
  out.checker = [problems](const CheckSettings& settings) -> AlgorithmChecker {
    if (!settings.problem.empty()) problems.parse(settings.problem);
    return [problems, settings](const std::string& name, const CheckNote& note) {
      Algorithm<Problem> algorithm =
          Operator<Problem>::algorithms(DeviceType::cpu).get(name, ErrorKind::kUnavailable);
      limit_error_growth(algorithm.error_growth, settings);
      return ReferenceCheck<Problem>(algorithm, settings, note).run(problems);
    };
  };
  return out;
}

}  // namespace convscope
