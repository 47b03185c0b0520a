// SPDX-License-Identifier: Apache-2.0
// check_algorithm.cpp: the whole matrix on one algorithm.
#include "experiments/check/check_algorithm.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <set>
#include <utility>

#include "experiments/bench/problem_list.h"
#include "experiments/check/diagnosis.h"
#include "experiments/check/matrix/card_answers.h"
#include "experiments/check/matrix/check_problems.h"
#include "experiments/plugins/card_check.h"
#include "framework/io/file_names.h"
#include "framework/short_loops.h"

namespace convscope {
namespace {

using matrix::ConvolutionCase;
using matrix::Machines;
using matrix::Tier;

constexpr double kSmallFlops = 1e5, kFlops = 1e6;
constexpr int kRandom = 200, kRandomQuick = 40;

// Work that threads share, large enough that they meet.
constexpr const char* kForThreads[] = {
    "n=4,c=8,h=20,w=20,k=16,r=3,s=3,pad=1", "n=16,c=4,h=9,w=9,k=8,r=3,s=3,pad=1",
    "n=8,c=32,h=7,w=7,k=32", "n=8,c=16,h=12,w=12,k=16,r=3,s=3,pad=1,groups=16"};

class Run {
 public:
  Run(const Conv2dAlgorithm& card, const CheckOptions& options) : card_(card), options_(options) {}

  CheckReport go() {
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    set_flops_worth_threads(0);  // small problems meet threads, too
    run();
    set_flops_worth_threads(kFlopsWorthThreads);
    report_.seconds = seconds();
    return std::move(report_);
  }

 private:
  bool failed() const { return !report_.passes(); }

  void run() {
    if (!options_.problems.empty()) {
      for (const Conv2dProblem& problem : options_.problems) all_tiers(problem, {});
      return;
    }
    answers();
    small();
    shapes();
    random();
    if (!options_.quick) long_sums();
    threads();
    others();
    if (!failed() && report_.cases == 0) {
      report_.sentence = "the card takes no problem of the matrix: its supports() refuses all";
    }
  }

  // ---- one case ---------------------------------------------------------------------------------

  void one(ConvolutionCase& numbers, Direction direction, const Machines& machines) {
    if (failed()) return;
    options_.note(
        cat(name_of(direction), " of ", numbers.problem().text(), ", ", name_of(numbers.tier())));
    ++report_.cases;
    if (std::ranges::count(report_.directions, direction) == 0) {
      report_.directions.push_back(direction);
    }
    const Isa best = current_isa();
    const std::string wrong = numbers.check_everywhere(card_, direction, machines);
    if (wrong.empty()) return;
    const matrix::Fault fault = numbers.fault();
    set_isa(fault.isa);
    set_num_threads(fault.threads);
    report_.sentence = diagnosis_of(card_, fault);
    report_.fault = fault;
    set_isa(best);
  }

  void directions(const Conv2dProblem& problem, Tier tier, const Machines& machines) {
    if (failed() || (tier == Tier::exact && !card_.exact_on_integers)) return;
    std::optional<ConvolutionCase> numbers;
    for (const Direction direction : kDirections) {
      if (!card_.offers(direction)) continue;
      if (!support_of(card_, problem, direction).yes) {
        ++report_.refused;
        continue;
      }
      if (!numbers) numbers.emplace(problem, tier);
      one(*numbers, direction, machines);
    }
  }

  void all_tiers(const Conv2dProblem& problem, const Machines& machines) {
    for (const Tier tier : {Tier::exact, Tier::bounded, Tier::offset, Tier::heavy}) {
      directions(problem, tier, machines);
    }
  }

  // Integers, and one kind of rounded numbers; all kinds come in turn. Sparse weights, too.
  void in_turn(const Conv2dProblem& problem) {
    if (problem.is_empty() || failed()) return;
    std::vector<Conv2dProblem> forms = {problem};
    if (card_.takes_sparse_weights && problem.weight_format.is_dense()) {
      for (const Conv2dProblem& sparse : matrix::sparse_problems(problem, turn_, 1)) {
        forms.push_back(sparse);
      }
    }
    const Machines machines{.each_isa = report_.each_isa};
    for (const Conv2dProblem& form : forms) {
      directions(form, Tier::exact, machines);
      directions(form, matrix::kRoundedTiers[turn_ % 3], machines);
    }
    ++turn_;
  }

  // ---- the parts --------------------------------------------------------------------------------

  void answers() {
    options_.note("supports(), cost() and workspace_bytes()");
    const std::string wrong = problem_of_answers(card_);
    if (!wrong.empty()) report_.sentence = cat("the card ", wrong);
    for (const Conv2dProblem& problem : matrix::small_problems(0)) {  // it need not say yes
      for (const Direction direction : kDirections) support_of(card_, problem, direction);
    }
  }

  // One thread and one instruction set first: what is wrong there is the simplest.
  void small() {
    for (const Machines& machines : {Machines{.each_isa = false, .threads = {1}}, Machines{}}) {
      for (const Conv2dProblem& problem : matrix::small_problems(3)) {
        all_tiers(problem, machines);
      }
    }
    report_.each_isa = !failed() && differs_by_isa();
  }

  // A card without kernels for instruction sets gives the same bits on each.
  bool differs_by_isa() const {
    const Isa best = current_isa();
    bool differs = false;
    for (const Conv2dProblem& problem : matrix::small_problems(3)) {
      ConvolutionCase numbers(problem, Tier::bounded);
      for (const Direction direction : kDirections) {
        if (!support_of(card_, problem, direction).yes) continue;
        std::vector<float> first;
        for (int i = 0; i < kIsaCount; ++i) {
          if (!supports_isa(static_cast<Isa>(i))) continue;
          set_isa(static_cast<Isa>(i));
          std::vector<float> bits;
          numbers.check(card_, direction, &bits);
          if (first.empty()) first = bits;
          differs = differs || first.size() != bits.size() ||
                    std::memcmp(first.data(), bits.data(), bits.size() * sizeof(float)) != 0;
        }
      }
    }
    set_isa(best);
    return differs || card_.takes_blocked_layout;
  }

  void shapes() {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(options_.shapes_folder)) {
      if (entry.path().extension() == ".txt" && !is_hidden(entry.path()))
        files.push_back(entry.path());
    }
    // The edge cases first: they are small, and each has something of its own.
    std::ranges::sort(files, {}, [](const std::filesystem::path& path) {
      return std::pair(path.stem() != "edge_cases", path.string());
    });
    std::set<std::string> seen;  // two large problems may shrink to the same small one
    for (const std::filesystem::path& file : files) {
      if (failed() || (options_.quick && file.stem() != "edge_cases")) return;
      for (const Conv2dProblem& problem : problems_of_file(file.string())) {
        const Conv2dProblem small = matrix::shrunk(problem, options_.quick ? kSmallFlops : kFlops);
        if (seen.insert(small.text()).second) in_turn(small);
      }
    }
  }

  void random() {
    for (int i = 0; i < (options_.quick ? kRandomQuick : kRandom) && !failed(); ++i) {
      in_turn(
          matrix::shrunk(matrix::random_problem(1, static_cast<std::uint64_t>(i)), kSmallFlops));
    }
  }

  void long_sums() {
    for (const Conv2dProblem& problem : matrix::long_sum_problems()) {
      directions(problem, Tier::offset, {.each_isa = report_.each_isa, .threads = {1}});
    }
  }

  // Whoever writes where another thread writes is not wrong each time.
  void threads() {
    for (const char* const text : kForThreads) {
      directions(Conv2dProblem::parse(text), card_.exact_on_integers ? Tier::exact : Tier::bounded,
                 {.each_isa = false, .threads = {1, 4, 4, 2, 4, 3, 4, 4}});
    }
  }

  void others() {
    if (failed()) return;
    options_.note("forward with a NaN in x");
    std::string wrong = matrix::fault_of_nan(card_);
    if (wrong.empty()) {
      options_.note("forward with residual and relu");
      wrong = matrix::fault_of_epilogue(card_);
    }
    if (!wrong.empty()) report_.sentence = cat("forward ", wrong);
  }

  const Conv2dAlgorithm& card_;
  const CheckOptions& options_;
  CheckReport report_;
  std::size_t turn_ = 0;
};

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

}  // namespace

CheckReport check_algorithm(const Conv2dAlgorithm& card, const CheckOptions& options) {
  return Run(card, options).go();
}

std::string report_text(const Conv2dAlgorithm& card, const CheckReport& report,
                        const std::string& command) {
  if (report.passes()) {
    std::vector<std::string> names;
    for (const Direction direction : report.directions) names.emplace_back(name_of(direction));
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.1f s", report.seconds);
    return cat("ok     ", card.name, ": ", report.cases, " cases of ", join(names),
               " agree with the "
               "reference (",
               seconds,
               report.refused > 0
                   ? cat("; ", report.refused, " more are not for it: its supports() says why)\n")
                   : ")\n");
  }
  std::string out = cat("wrong  ", card.name, ": ", report.sentence, "\n");
  if (!report.fault) return out;
  const matrix::Fault& fault = *report.fault;
  out += cat("first  ", name_of(fault.direction), " of ", fault.problem.text(),
             !fault.extra                            ? ""
             : fault.direction == Direction::forward ? ", with a bias"
                                                     : ", accumulating",
             ", ", name_of(fault.tier), ", ", name_of(fault.isa), ", ", fault.threads,
             fault.threads == 1 ? " thread\n" : " threads\n");
  if (fault.kind == matrix::Fault::Kind::values && fault.problem.weight_format.is_dense()) {
    out +=
        cat("where  ", output_name(fault.direction),
            place_text(fault.problem, fault.direction, fault.at), ": got ", number_text(fault.got),
            ", expected ", number_text(fault.expected),
            fault.allowed > 0 ? cat(", allowed is an error of ", number_text(fault.allowed)) : "",
            "\n");
  } else if (fault.kind == matrix::Fault::Kind::bits) {
    out += cat("where  ", fault.sentence, "\n");
  }
  return command.empty() ? out : cat(out, "again  ", command, "\n");
}

}  // namespace convscope
