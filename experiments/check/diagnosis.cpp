// SPDX-License-Identifier: Apache-2.0
// diagnosis.cpp: turns a fault that the test matrix (convolution_case.h) found into a sentence
// about its likely cause.
#include "experiments/check/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <vector>

#include "experiments/check/matrix/algorithm_state.h"
#include "experiments/check/wrong_loops.h"
#include "experiments/check/wrong_positions.h"

namespace convscope {
namespace {

using matrix::ConvolutionCase;
using matrix::Fault;
using matrix::Surroundings;
using matrix::Tier;

// Each of these problems has one special property, and is so small that all known mistakes can be
// tried on it. No image is square.
constexpr const char* kProbes[] = {
    "n=2,c=2,h=5,w=6,k=3,r=3,s=3",
    "n=1,c=1,h=4,w=7,k=2,r=3,s=3,pad=1",
    "n=2,c=2,h=6,w=5,k=2,r=2,s=3",
    "n=1,c=2,h=5,w=8,k=2,r=3,s=2,pad=1",
    "n=1,c=2,h=4,w=6,k=2,r=3,s=3,pad=1x0x2x0",
    "n=1,c=2,h=5,w=6,k=2,r=3,s=3,pad=0x1x0x2",
    "n=2,c=3,h=3,w=4,k=2",
    "n=1,c=2,h=7,w=8,k=2,r=3,s=3,stride=2,pad=1",
    "n=1,c=2,h=7,w=8,k=2,r=3,s=3,stride=3x1",
    "n=1,c=2,h=6,w=9,k=2,r=3,s=3,stride=1x2,pad=1",
    "n=1,c=2,h=8,w=9,k=2,r=3,s=3,dilation=2",
    "n=1,c=2,h=7,w=9,k=2,r=3,s=3,dilation=1x3,pad=1",
    "n=1,c=2,h=9,w=6,k=2,r=3,s=3,dilation=2x1,pad=1",
    "n=1,c=4,h=4,w=5,k=6,r=3,s=3,pad=1,groups=2",
    "n=2,c=2,h=4,w=5,k=6,r=1,s=1,groups=2",
    "n=1,c=6,h=4,w=5,k=2,r=3,s=3,pad=1,groups=2",
    "n=2,c=3,h=5,w=5,k=3,r=3,s=3,pad=1,groups=3",
    // 29 and 31 channels are not multiples of 4, 8 or 16, and leave different remainders.
    "n=3,c=29,h=3,w=4,k=31",
    "n=1,c=1,h=2,w=29,k=1,r=1,s=3,pad=0x1",
};
constexpr double kMaxProducts = 2e6;  // of the fault's own problem

// The algorithm's result for one problem, with zeros around its inputs.
struct Probe {
  ConvolutionCase numbers;
  bool extra;
  std::vector<float> result;
  bool is_right = false;
};

class Doctor {
 public:
  Doctor(const Conv2dAlgorithm& algorithm, const Fault& fault)
      : algorithm_(algorithm), fault_(fault), y_(output_name(fault.direction)) {}

  std::string say() {
    if (fault_.kind == Fault::Kind::exception || fault_.kind == Fault::Kind::memory) {
      return diagnose_memory();
    }
    const std::string kept = matrix::fault_of_state(algorithm_, fault_.direction);
    if (!kept.empty()) return kept;
    const bool plain = fault_.problem.weight_format.is_dense();
    for (auto ask : {&Doctor::diagnose_threads, &Doctor::diagnose_isa, &Doctor::diagnose_format}) {
      const std::string said = (this->*ask)();
      if (!said.empty()) return said;
    }
    if (fault_.kind == Fault::Kind::bits) return diagnose_bits();
    for (auto ask : {&Doctor::diagnose_surroundings, &Doctor::diagnose_rounding}) {
      const std::string said = (this->*ask)();
      if (!said.empty()) return said;
    }
    const std::string known = plain ? diagnose_known_mistakes() : "";
    if (!known.empty()) return known;
    const std::string beside = diagnose_reads_outside();
    return beside.empty() ? diagnose_places() : beside;
  }

 private:
  ConvolutionCase case_of(const Conv2dProblem& problem) const {
    return ConvolutionCase(problem, fault_.tier);
  }

  bool passes(const Conv2dProblem& problem, int times = 1) const {
    ConvolutionCase one = case_of(problem);
    for (int i = 0; i < times; ++i) {
      if (!one.check(algorithm_, fault_.direction).empty()) return false;
    }
    return true;
  }

  std::string diagnose_memory() const {
    if (fault_.kind == Fault::Kind::exception) return cat("it ", fault_.sentence);
    const std::string& what = fault_.sentence;
    if (what.find("the output") != std::string::npos) {
      return cat("it ", what, ": an index of ", y_, " runs too far");
    }
    if (what.find("workspace") != std::string::npos) {
      return cat("it ", what, ": workspace_bytes() says less than it uses");
    }
    return cat("it ", what);
  }

  // Runs the case again with one thread. If the fault occurred with one thread, repeats the case to
  // see whether the fault depends on chance.
  std::string diagnose_threads() const {
    constexpr int kTimes = 5;
    if (fault_.threads == 1) {
      if (fault_.kind == Fault::Kind::values && passes(fault_.problem, kTimes)) {
        return cat(y_,
                   " is wrong in some calls and right in others: it depends on uninitialised "
                   "memory, or two threads write the same element");
      }
      return "";
    }
    set_num_threads(1);
    const bool right = passes(fault_.problem, kTimes);
    set_num_threads(fault_.threads);
    return right && fault_.kind == Fault::Kind::values ? race() : "";
  }

  // Compares bits: the errors of a race may stay below the bound, but its bits differ from call to
  // call.
  std::string diagnose_bits() const {
    constexpr int kTimes = 20;
    if (fault_.threads == 1) {
      return cat(y_,
                 " has different bits in a second call with the same numbers: it depends on "
                 "uninitialised memory, or the algorithm should say deterministic = false");
    }
    ConvolutionCase integers(fault_.problem,
                             algorithm_.exact_on_integers ? Tier::exact : fault_.tier);
    for (int i = 0; i < kTimes; ++i) {
      if (!integers.check(algorithm_, fault_.direction).empty()) return race();
    }
    return cat(y_, " is within its bound, but has different bits with ", fault_.threads,
               " threads than with one: the order of its sums depends on the number of threads (a "
               "shared sum, perhaps a race, or work divided by that number); or the algorithm "
               "should say deterministic = false");
  }

  std::string race() const {
    return cat(y_, " is right with one thread and wrong with ", fault_.threads,
               ": two threads seem to write the same elements of ", y_,
               " (a race); divide the outputs among threads, not the inputs");
  }

  std::string diagnose_isa() const {
    if (fault_.isa == Isa::scalar || fault_.kind != Fault::Kind::values) return "";
    set_isa(Isa::scalar);
    const bool right = passes(fault_.problem);
    set_isa(fault_.isa);
    return right ? cat(y_, " is right with the instruction set scalar and wrong with ",
                       name_of(fault_.isa), " (", wrong_positions(), ")")
                 : "";
  }

  // For a fault with sparse weights, or with a layout other than NCHW, checks whether dense weights
  // or NCHW images give correct results.
  std::string diagnose_format() const {
    Conv2dProblem plain = fault_.problem;
    const ImageLayouts layout = plain.layout;
    plain.layout = ActivationLayout::nchw;
    if (layout != ActivationLayout::nchw && support_of(algorithm_, plain, fault_.direction).yes &&
        passes(plain)) {
      return cat(y_, " is right for images [N,C,H,W] and wrong in the layout ", name_of(layout),
                 " (", wrong_positions(), ")");
    }
    plain.weight_format = {};
    if (!fault_.problem.weight_format.is_dense() &&
        support_of(algorithm_, plain, fault_.direction).yes && passes(plain)) {
      return cat(y_, " is right with dense weights and wrong with ",
                 fault_.problem.weight_format.text(), " (", wrong_positions(), ")");
    }
    return "";
  }

  std::vector<float> run(const Surroundings& around) const {
    std::vector<float> out;
    const std::string damage =
        case_of(fault_.problem).run(algorithm_, fault_.direction, fault_.extra, out, around);
    return damage.empty() ? out : std::vector<float>();
  }

  bool is_right(const std::vector<float>& result) {
    ConvolutionCase one = case_of(fault_.problem);
    return wrong_elements(one, fault_.extra, result,
                          one.expect(fault_.direction, fault_.extra).values)
               .empty() &&
           !result.empty();
  }

  // Tries other values in the output and in the workspace before the call.
  std::string diagnose_surroundings() {
    Surroundings zero, one;
    zero.output = 0;
    one.output = 1;
    const std::vector<float> with_zero = run(zero), with_one = run(one);
    const bool assigned = !(fault_.extra && fault_.direction == Direction::backward_weight);
    if (assigned && !with_zero.empty() && with_zero.size() == with_one.size()) {
      std::vector<bool> kept(with_zero.size());
      bool any = false, adds = true;
      for (std::size_t i = 0; i < kept.size(); ++i) {
        kept[i] = with_zero[i] == 0.0f && with_one[i] == 1.0f;
        any = any || (kept[i] && std::isnan(fault_.result[i]));
        adds = adds && std::abs(with_one[i] - with_zero[i] - 1.0f) < 1e-3f;
      }
      if (adds && is_right(with_zero)) {
        return cat(
            y_,
            " is right only when it holds zeros before the call: values are added instead of "
            "assigned",
            fault_.direction == Direction::backward_weight ? " (accumulate is false here)" : "");
      }
      if (any) {
        return cat(y_, " keeps the old contents of memory: ",
                   positions_text(fault_.problem, fault_.direction, kept), " are never written");
      }
    }
    Surroundings clean;
    clean.dirty_workspace = false;
    if (algorithm_.workspace_bytes(fault_.problem, fault_.direction) > 0 && is_right(run(clean))) {
      return cat(y_,
                 " is right only when the workspace holds zeros before the call: the workspace is "
                 "read before it is written");
    }
    return "";
  }

  // Finds results that are NaN because the algorithm reads memory before or after an input.
  std::string diagnose_reads_outside() {
    const struct {
      const char* name;
      float Surroundings::*where;
    } inputs[] = {{"x", &Surroundings::x},
                  {"w", &Surroundings::w},
                  {"dy", &Surroundings::dy},
                  {"b", &Surroundings::b}};
    if (std::ranges::none_of(fault_.result, [](float value) { return std::isnan(value); }))
      return "";
    const std::vector<float> before = run({});
    for (const auto& input : inputs) {
      Surroundings around;
      around.*input.where = 0;
      const std::vector<float> now = run(around);
      if (now.size() != before.size() || now.empty() ||
          std::memcmp(now.data(), before.data(), now.size() * sizeof(float)) == 0) {
        continue;
      }
      return cat(input.name, " is read outside of its memory, and the values there reach ", y_,
                 " (", wrong_positions(), ")");
    }
    return "";
  }

  // Recognises an error that is a rounding error somewhat above the bound.
  std::string diagnose_rounding() {
    ConvolutionCase one = case_of(fault_.problem);
    const auto terms = static_cast<double>(fault_.problem.sum_length(fault_.direction));
    const double largest = one.expect(fault_.direction, fault_.extra).largest;
    double worst = 0;
    for (std::size_t i = 0; i < fault_.result.size(); ++i) {
      const double error = std::abs(static_cast<double>(fault_.result[i]) -
                                    one.expect(fault_.direction, fault_.extra).values[i]);
      worst = std::isnan(error) ? HUGE_VAL : std::max(worst, error);
    }
    const double grows = worst / (static_cast<double>(0x1p-23) * largest);
    if (!(grows < 1e4)) return "";
    const auto number = [](double value) { return std::round(value * 10) / 10; };
    if (fault_.tier == Tier::exact) {
      return cat(y_,
                 " of small integers has rounding errors, although the algorithm says "
                 "exact_on_integers: some product or sum in it is not an integer");
    }
    const auto bound = [&](const Conv2dAlgorithm& algorithm) {
      return matrix::rounds_one_way(fault_.tier) ? algorithm.worst_growth(terms)
                                                 : algorithm.growth(terms);
    };
    Conv2dAlgorithm chain = algorithm_;
    chain.one_chain = true;
    if (!algorithm_.one_chain && terms > kSumChain && grows <= bound(chain)) {
      return cat(y_, " errs by ", number(grows),
                 " eps of the largest sum over magnitudes, and "
                 "error_growth allows ",
                 number(bound(algorithm_)), ": ", terms,
                 " terms seem to be added in one chain; cut sums into chains of ", kSumChain,
                 " terms (framework/simd/sum_chain.h), or say one_chain = true");
    }
    return cat(y_, " errs by ", number(grows),
               " eps of the largest sum over magnitudes, and the algorithm allows ",
               number(bound(algorithm_)), ": error_growth is too small, or a sum loses digits");
  }

  // Returns the elements that differ from `right` by more than 4 times the algorithm's bound, so
  // that rounding errors do not explain the difference.
  std::vector<std::size_t> wrong_elements(ConvolutionCase& one, bool extra,
                                          const std::vector<float>& result,
                                          const std::vector<double>& right) {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < std::min(result.size(), right.size()); ++i) {
      const double error = std::abs(static_cast<double>(result[i]) - right[i]);
      const double bound = 4 * one.allowed(algorithm_, fault_.direction, extra, right[i]) +
                           1e-6 * std::abs(right[i]);
      if (!(error <= bound)) out.push_back(i);
    }
    return out;
  }

  void add_probe(const Conv2dProblem& problem) {
    if (!support_of(algorithm_, problem, fault_.direction).yes) return;
    Surroundings around;
    around.x = around.w = around.dy = around.b = 0;
    for (const bool extra : {false, true}) {
      if (extra && fault_.direction == Direction::backward_data) continue;
      Probe probe{case_of(problem), extra, {}};
      const std::string damage =
          probe.numbers.run(algorithm_, fault_.direction, extra, probe.result, around);
      if (!damage.empty()) continue;
      probe.is_right = wrong_elements(probe.numbers, extra, probe.result,
                                      probe.numbers.expect(fault_.direction, extra).values)
                           .empty();
      probes_.push_back(std::move(probe));
    }
  }

  // Returns whether loops with the planted mistakes give the algorithm's results on all probes. At
  // least one of these results must be wrong.
  template <class Plant>
  bool explains(const Plant& plant) {
    bool matters = false;
    for (Probe& probe : probes_) {
      const Loops right(probe.numbers.problem());
      Loops wrong = right;
      plant(wrong);
      if (wrong == right) {
        if (!probe.is_right) return false;
        continue;
      }
      const std::vector<double> sums = sums_of(wrong, probe.numbers, fault_.direction, probe.extra);
      if (!wrong_elements(probe.numbers, probe.extra, probe.result, sums).empty()) return false;
      matters = matters || !probe.is_right;
    }
    return matters;
  }

  std::string sentence_of(const KnownMistake& mistake) const {
    const bool for_dw =
        fault_.direction == Direction::backward_weight && mistake.agrees_of_dw != nullptr;
    return cat(y_, " agrees with ", for_dw ? mistake.agrees_of_dw : mistake.agrees, ": ",
               for_dw ? mistake.cause_of_dw : mistake.cause);
  }

  std::string diagnose_known_mistakes() {
    probes_.clear();
    for (const char* const text : kProbes) add_probe(Conv2dProblem::parse(text));
    std::string said = first_explanation(true);
    if (!said.empty()) return said;
    // The fault may show only in its own problem, or the algorithm may have several mistakes. So
    // the known mistakes are tried on this problem only.
    Conv2dProblem own = fault_.problem;
    if (own.nominal_flops() > 2 * kMaxProducts) return "";
    own.layout = ActivationLayout::nchw;
    const bool others_wrong =
        std::ranges::any_of(probes_, [](const Probe& p) { return !p.is_right; });
    probes_.clear();
    add_probe(own);
    said = first_explanation(false);
    return said.empty() || !others_wrong ? said
                                         : cat(said, "; other problems show other errors too");
  }

  std::string first_explanation(bool pairs) {
    const std::vector<KnownMistake>& known = known_mistakes();
    for (const KnownMistake& mistake : known) {
      if (explains(mistake.plant)) return sentence_of(mistake);
    }
    for (std::size_t i = 0; pairs && i < known.size(); ++i) {
      for (std::size_t j = i + 1; j < known.size(); ++j) {
        const auto both = [&](Loops& loops) { known[i].plant(loops), known[j].plant(loops); };
        if (!explains(both)) continue;
        return cat("two mistakes together: ", sentence_of(known[i]), "; and ",
                   sentence_of(known[j]));
      }
    }
    return "";
  }

  std::string wrong_positions() const {
    ConvolutionCase one = case_of(fault_.problem);
    const std::vector<double>& right = one.expect(fault_.direction, fault_.extra).values;
    if (right.size() != fault_.result.size()) return "no element can be compared";
    if (!fault_.problem.weight_format.is_dense() &&
        fault_.direction == Direction::backward_weight) {
      return cat("element ", fault_.at, " of the kept blocks first");
    }
    std::vector<bool> wrong(right.size());
    for (std::size_t i = 0; i < wrong.size(); ++i) {
      const double error = std::abs(static_cast<double>(fault_.result[i]) - right[i]);
      wrong[i] = !(error <= one.allowed(algorithm_, fault_.direction, fault_.extra, right[i]));
    }
    return cat("wrong: ", positions_text(fault_.problem, fault_.direction, wrong));
  }

  std::string diagnose_places() const {
    return cat(y_, " agrees with no known mistake; ", wrong_positions());
  }

  const Conv2dAlgorithm& algorithm_;
  const Fault& fault_;
  const std::string y_;
  std::deque<Probe> probes_;
};

}  // namespace

const char* output_name(Direction direction) {
  return direction == Direction::forward         ? "y"
         : direction == Direction::backward_data ? "dx"
                                                 : "dw";
}

std::string diagnosis_of(const Conv2dAlgorithm& algorithm, const Fault& fault) {
  return Doctor(algorithm, fault).say();
}

}  // namespace convscope
