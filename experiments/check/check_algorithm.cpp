// SPDX-License-Identifier: Apache-2.0
// check_algorithm.cpp: the whole test matrix on one algorithm of conv2d.
#include "experiments/check/check_algorithm.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "experiments/bench/problem_list.h"
#include "experiments/check/diagnosis.h"
#include "experiments/check/matrix/algorithm_answers.h"
#include "experiments/check/matrix/algorithm_state.h"
#include "experiments/check/matrix/check_problems.h"
#include "experiments/check/matrix/integer_case.h"
#include "experiments/config/shipped/shipped_configs.h"
#include "experiments/plugins/algorithm_check.h"
#include "framework/io/file_names.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

using matrix::ConvolutionCase;
using matrix::Machines;
using matrix::Tier;

constexpr double kSmallFlops = 1e5, kFlops = 1e6;
constexpr int kRandom = 200, kRandomQuick = 40;

// These problems are large enough for each thread to get some work.
constexpr const char* kForThreads[] = {
    "n=4,c=8,h=20,w=20,k=16,r=3,s=3,pad=1", "n=16,c=4,h=9,w=9,k=8,r=3,s=3,pad=1",
    "n=8,c=32,h=7,w=7,k=32", "n=8,c=16,h=12,w=12,k=16,r=3,s=3,pad=1,groups=16"};

class Run {
 public:
  Run(const Conv2dAlgorithm& algorithm, const CheckSettings& settings, const CheckLists& lists,
      const CheckNote& note)
      : algorithm_(algorithm), settings_(settings), lists_(lists), note_(note) {
    row_.algorithm = algorithm.name;
    row_.error_growth = algorithm.error_growth;
  }

  CheckedAlgorithm go() {
    const CheckClock clock;
    set_flops_worth_threads(0);  // run small problems on threads, too
    run();
    set_flops_worth_threads(kFlopsWorthThreads);
    require(settings_.require, row_);
    row_.seconds = clock.seconds();
    return {std::move(row_), std::move(problem_of_fault_)};
  }

 private:
  bool failed() const { return !row_.passes(); }
  void fail(std::string sentence) {
    row_.status = "wrong";
    row_.cause = std::move(sentence);
  }
  void fail_if(std::string sentence) {
    if (!sentence.empty()) fail(std::move(sentence));
  }

  void run() {
    row_.features = features_of(algorithm_, conv2d_features(), Conv2dProblem::parse);
    if (!settings_.problem.empty()) {
      const Conv2dProblem problem = Conv2dProblem::parse(settings_.problem);
      if (problem.types && is_code(problem.types->w)) {
        on_codes(problem, problem.types->text().c_str());
      } else {
        all_tiers(problem, {});
      }
      return state();
    }
    answers();
    small();
    state();
    required_problems();
    shapes();
    random();
    if (!settings_.quick) long_sums();
    threads();
    integers();
    if (takes_real_numbers_) others();
    if (!failed() && row_.cases == 0) {
      fail("the algorithm accepts no problem of the matrix: its supports() refuses every one");
    }
  }

  // ---- one case ---------------------------------------------------------------------------------

  void one(ConvolutionCase& numbers, Direction direction, const Machines& machines) {
    if (failed()) return;
    note_(cat(name_of(direction), " of ", numbers.problem().text(), ", ", name_of(numbers.tier())));
    ++row_.cases;
    const std::string name(name_of(direction));
    if (std::ranges::count(row_.directions, name) == 0) row_.directions.push_back(name);
    const Isa best = current_isa();
    const std::string wrong = numbers.check_everywhere(algorithm_, direction, machines);
    if (wrong.empty()) return;
    const matrix::Fault fault = numbers.fault();
    set_isa(fault.isa);
    set_num_threads(fault.threads);
    fail(diagnosis_of(algorithm_, fault));
    describe(fault);
    set_isa(best);
  }

  void describe(const matrix::Fault& fault) {
    row_.first = first_text({.direction = fault.direction,
                             .problem = fault.problem.text(),
                             .extra = fault.extra,
                             .tier = fault.tier,
                             .isa = fault.isa,
                             .threads = fault.threads});
    if (fault.kind == matrix::Fault::Kind::values && fault.problem.weight_format.is_dense()) {
      row_.where =
          cat(output_name(fault.direction), place_text(fault.problem, fault.direction, fault.at),
              ": ", values_text(fault.got, fault.expected, fault.allowed));
    } else if (fault.kind == matrix::Fault::Kind::bits) {
      row_.where = fault.sentence;
    }
    Conv2dProblem problem = fault.problem;
    problem.layout = ActivationLayout::nchw;  // all layouts are checked
    problem_of_fault_ = problem.text();
  }

  void directions(const Conv2dProblem& problem, Tier tier, const Machines& machines) {
    if (failed() || (tier == Tier::exact && !algorithm_.exact_on_integers)) return;
    std::optional<ConvolutionCase> numbers;
    for (const Direction direction : kDirections) {
      if (!algorithm_.offers(direction)) continue;
      if (!matrix::takes_some_form(algorithm_, problem, direction)) {
        ++row_.refused;
        continue;
      }
      if (!numbers) numbers.emplace(problem, tier);
      takes_real_numbers_ = true;
      one(*numbers, direction, machines);
    }
  }

  void all_tiers(const Conv2dProblem& problem, const Machines& machines) {
    for (const Tier tier : matrix::kAllTiers) directions(problem, tier, machines);
  }

  // Checks a problem on small integers and on one kind of real numbers; the next call takes the
  // next kind. If the algorithm accepts sparse weights, one format of sparse weights is checked,
  // too.
  void in_turn(const Conv2dProblem& problem) {
    if (problem.is_empty() || failed()) return;
    std::vector<Conv2dProblem> forms = {problem};
    if (algorithm_.takes_sparse_weights && problem.weight_format.is_dense()) {
      for (const Conv2dProblem& sparse : matrix::sparse_problems(problem, turn_, 1)) {
        forms.push_back(sparse);
      }
    }
    const Machines machines{.each_isa = each_isa_};
    for (const Conv2dProblem& form : forms) {
      directions(form, Tier::exact, machines);
      directions(form, matrix::kRoundedTiers[turn_ % matrix::kRoundedTierCount], machines);
    }
    ++turn_;
  }

  // ---- the parts --------------------------------------------------------------------------------

  void answers() {
    note_("supports(), cost() and workspace_bytes()");
    const std::string wrong = problem_of_answers(algorithm_);
    if (!wrong.empty()) fail(cat("the algorithm ", wrong));
    for (const Conv2dProblem& problem : matrix::small_problems(0)) {  // the algorithm may refuse it
      for (const Direction direction : kDirections) support_of(algorithm_, problem, direction);
    }
  }

  // The first round uses one thread and one instruction set, because its faults are simplest to
  // diagnose.
  void small() {
    for (const Machines& machines : {Machines{.each_isa = false, .threads = {1}}, Machines{}}) {
      for (const Conv2dProblem& problem : matrix::small_problems(3)) {
        all_tiers(problem, machines);
      }
    }
    each_isa_ = !failed() && differs_by_isa();
  }

  // Required problems are also computed and compared.
  void required_problems() {
    for (const Feature& feature : conv2d_features()) {
      if (std::ranges::count(settings_.require, feature.name) == 0) continue;
      for (const char* const text : feature.problems) all_tiers(Conv2dProblem::parse(text), {});
    }
  }

  void state() {
    for (const Direction direction : kDirections) {
      if (failed() || !algorithm_.offers(direction)) continue;
      note_(cat(name_of(direction), ": several calls in a row"));
      fail_if(matrix::fault_of_state(algorithm_, direction));
    }
  }

  // Returns whether the bits of results depend on the instruction set. If they do not, the
  // algorithm has no kernels for particular instruction sets, and later parts check only one.
  // NCHW16c kernels always count as dependent.
  bool differs_by_isa() const {
    const Isa best = current_isa();
    bool differs = false;
    for (const Conv2dProblem& problem : matrix::small_problems(3)) {
      ConvolutionCase numbers(problem, Tier::bounded);
      for (const Direction direction : kDirections) {
        if (!support_of(algorithm_, problem, direction).yes) continue;
        std::vector<float> first;
        for (int i = 0; i < kIsaCount; ++i) {
          if (!supports_isa(static_cast<Isa>(i))) continue;
          set_isa(static_cast<Isa>(i));
          std::vector<float> bits;
          numbers.check(algorithm_, direction, &bits);
          if (first.empty()) first = bits;
          differs = differs || first.size() != bits.size() ||
                    std::memcmp(first.data(), bits.data(), bits.size() * sizeof(float)) != 0;
        }
      }
    }
    set_isa(best);
    return differs || algorithm_.takes_nchw16c_layout;
  }

  void shapes() {
    std::set<std::string> seen;  // two large problems may shrink to the same small one
    const auto take = [&](const std::vector<Conv2dProblem>& problems) {
      for (const Conv2dProblem& problem : problems) {
        if (failed()) return;
        const Conv2dProblem small = matrix::shrunk(problem, settings_.quick ? kSmallFlops : kFlops);
        if (seen.insert(small.text()).second) in_turn(small);
      }
    };
    take(lists_.edge_cases);
    if (!settings_.quick) take(lists_.others);
  }

  void random() {
    for (int i = 0; i < (settings_.quick ? kRandomQuick : kRandom) && !failed(); ++i) {
      in_turn(
          matrix::shrunk(matrix::random_problem(1, static_cast<std::uint64_t>(i)), kSmallFlops));
    }
  }

  void long_sums() {
    for (const Conv2dProblem& problem : matrix::long_sum_problems()) {
      for (const Tier tier : {Tier::offset, Tier::flat}) {
        directions(problem, tier, {.each_isa = each_isa_, .threads = {1}});
      }
    }
  }

  // Checks 8-bit integers: each element of y must equal the result of f64 arithmetic.
  void on_codes(const Conv2dProblem& problem, const char* types) {
    if (failed()) return;
    const Conv2dProblem typed = matrix::with_types(problem, types);
    if (!support_of(algorithm_, typed, Direction::forward).yes) {
      ++row_.refused;
      return;
    }
    note_(cat("forward of ", typed.text(), ", codes"));
    matrix::Int8Options beside = matrix::options_by_turns(turn_, typed.types->y);
    beside.extreme = turn_ % 11 == 5;
    matrix::Int8Case numbers(typed, beside, turn_++);
    ++row_.cases;
    row_.directions = {std::string(name_of(Direction::forward))};
    fail_if(numbers.check_everywhere(algorithm_));
  }

  void integers() {
    if (!algorithm_.takes_mixed_types || takes_real_numbers_) return;
    std::vector<Conv2dProblem> problems = matrix::small_problems(3);
    for (const char* const text : kForThreads) problems.push_back(Conv2dProblem::parse(text));
    for (int i = 0; i < (settings_.quick ? kRandomQuick : kRandom); ++i) {
      problems.push_back(
          matrix::shrunk(matrix::random_problem(7, static_cast<std::uint64_t>(i)), kSmallFlops));
    }
    for (std::size_t i = 0; i < problems.size() && !failed(); ++i) {
      std::vector<Conv2dProblem> forms = {problems[i]};
      if (algorithm_.takes_sparse_weights) {
        for (const auto& sparse : matrix::sparse_problems(problems[i], i, 2)) {
          forms.push_back(sparse);
        }
      }
      for (const Conv2dProblem& form : forms) {
        on_codes(form, matrix::kCodeTypes[i % std::size(matrix::kCodeTypes)]);
      }
    }
  }

  // Threads that write the same elements (a race) give wrong results only sometimes.
  void threads() {
    for (const char* const text : kForThreads) {
      directions(Conv2dProblem::parse(text),
                 algorithm_.exact_on_integers ? Tier::exact : Tier::bounded,
                 {.each_isa = false, .threads = {1, 4, 4, 2, 4, 3, 4, 4}});
    }
  }

  void others() {
    if (failed()) return;
    note_("forward with a NaN in x");
    std::string wrong = matrix::fault_of_nan(algorithm_);
    if (wrong.empty()) {
      note_("forward with residual and relu");
      wrong = matrix::fault_of_epilogue(algorithm_);
    }
    if (!wrong.empty()) fail(cat("forward ", wrong));
  }

  const Conv2dAlgorithm& algorithm_;
  const CheckSettings& settings_;
  const CheckLists& lists_;
  const CheckNote& note_;
  CheckRow row_;
  std::string problem_of_fault_;
  bool each_isa_ = false;  // the bits differ between instruction sets
  std::size_t turn_ = 0;
  bool takes_real_numbers_ = false;  // a problem of real numbers was checked
};

}  // namespace

CheckLists check_lists(const std::string& folder) {
  CheckLists out;
  try {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".txt" && !is_hidden(entry.path()))
        files.push_back(entry.path());
    }
    std::ranges::sort(files);
    for (const std::filesystem::path& file : files) {
      if (!is_list_of(file.string())) continue;
      std::vector<Conv2dProblem>& to = file.stem() == "edge_cases" ? out.edge_cases : out.others;
      std::ranges::copy(problems_of_file(file.string()), std::back_inserter(to));
    }
  } catch (const std::exception& error) {
    fail(ErrorKind::kIo, "check",
         cat("expected the problems that come with the program, in ", folder,
             ", got: ", error.what(), "; no algorithm was checked"));
  }
  return out;
}

OperatorCheck conv2d_check() {
  OperatorCheck out{.problem = "n=2,c=3,h=9,w=9,k=4,r=3,s=3,pad=1",
                    .features = names_of(conv2d_features())};
  out.checker = [](const CheckSettings& settings) -> AlgorithmChecker {
    CheckLists lists;
    if (settings.problem.empty()) {
      lists = check_lists(shipped_shapes());
    } else {
      Conv2dProblem::parse(settings.problem).check();
    }
    return [settings, lists](const std::string& name, const CheckNote& note) {
      Conv2dAlgorithm algorithm =
          conv2d_algorithms(DeviceType::cpu).get(name, ErrorKind::kUnavailable);
      limit_error_growth(algorithm.error_growth, settings);
      return Run(algorithm, settings, lists, note).go();
    };
  };
  return out;
}

}  // namespace convscope
