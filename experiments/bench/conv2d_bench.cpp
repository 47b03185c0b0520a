// SPDX-License-Identifier: Apache-2.0
// conv2d_bench.cpp: measures convolution algorithms, and another library with them.
#include "experiments/bench/conv2d_bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>

#include "experiments/bench/baseline_check.h"
#include "experiments/bench/contender.h"
#include "experiments/bench/honest/least_time.h"
#include "experiments/bench/interleave.h"
#include "experiments/bench/problem_list.h"
#include "experiments/bench/sampled_reference.h"
#include "framework/parallel.h"
#include "framework/tensor.h"
#include "layers/dispatch/half_problem.h"

namespace convscope {
namespace {

using Clock = std::chrono::steady_clock;
using Progress = BenchProgress;

constexpr const char* kOperation = "bench conv2d";

// A prepared call of one of the baseline's variants.
class BaselineContender {
 public:
  BaselineContender(const ConvscopeBaseline& baseline, int variant, ConvscopeBaselineCase* one)
      : baseline_(baseline), variant_(variant), one_(one, Destroy{&baseline}) {}

  void run() const {
    if (ask_baseline(baseline_, "run", [&] { return baseline_.run(one_.get()); }) != 0) {
      fail(ErrorKind::kRun, "baseline",
           cat(baseline_.name, " failed to run ", variant().algorithm));
    }
  }
  const ConvscopeBaselineVariant& variant() const { return baseline_.variants[variant_]; }
  ConvscopeBaselineCase* one() const { return one_.get(); }

 private:
  struct Destroy {
    const ConvscopeBaseline* baseline;
    void operator()(ConvscopeBaselineCase* one) const noexcept {
      try {
        baseline->destroy(one);
      } catch (...) {  // errors at the end are ignored
      }
    }
  };
  const ConvscopeBaseline& baseline_;
  int variant_;
  std::unique_ptr<ConvscopeBaselineCase, Destroy> one_;
};

// The scales of a problem in f32, as the C interface takes them, and its bias.
struct BaselineScales {
  float x = 1, y = 1;
  std::vector<float> w, bias;
};

std::int32_t baseline_type(DType type) {
  return type == DType::u8   ? CONVSCOPE_BASELINE_U8
         : type == DType::i8 ? CONVSCOPE_BASELINE_S8
                             : CONVSCOPE_BASELINE_F32;
}

std::string variant_name(const ConvscopeBaseline& baseline,
                         const ConvscopeBaselineVariant& variant) {
  return cat(baseline_title(baseline), " ", variant.algorithm,
             variant.layout == CONVSCOPE_BASELINE_PLAIN ? " (plain)" : "");
}

double seconds_of(const std::function<void()>& run) {
  const Clock::time_point begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The first run includes one-time costs, so a second run is timed unless it would take long.
double estimate_of(double first_seconds, const std::function<void()>& run) {
  return first_seconds > 1 ? first_seconds : std::min(first_seconds, seconds_of(run));
}

class Measurement {
 public:
  Measurement(const Conv2dBenchOptions& options, const Conv2dProblem& problem, Direction direction,
              const Progress& progress)
      : options_(options),
        direction_(direction),
        progress_(progress),
        data_(problem, direction, options.device) {
    group_.problem = problem;
    group_.direction = direction;
    group_.threads = num_threads();
  }

  Conv2dBenchGroup result() {
    BenchRows rows(options_, group_.problem.nominal_flops(), group_.problem.nominal_bytes(),
                   operand_type_of(group_.problem), least_bytes_of(group_.problem));
    check_contenders(rows);
    if (options_.baseline != nullptr) ask_for_baseline(rows);
    progress_("timing");
    group_.rows = rows.measured();
    return std::move(group_);
  }

 private:
  const SampledReference& reference() {
    if (!reference_) {
      progress_("expected values");
      reference_ = std::make_unique<SampledReference>(group_.problem, direction_, data_.inputs());
    }
    return *reference_;
  }

  void check_contenders(BenchRows& rows) {
    const Conv2dProblem& problem = group_.problem;
    Conv2dProblem dense = problem;
    dense.weight_format = {};
    const auto chosen_for = [&](const Conv2dProblem& z) {
      return auto_choice_of(z, direction_, options_.device, options_.weights);
    };
    const auto ms = [&](const Conv2dAlgorithm* algorithm, const Conv2dProblem& z) {
      return algorithm == nullptr ? std::numeric_limits<double>::infinity()
                                  : estimated_ms(*algorithm, z, direction_, options_.weights);
    };
    const Conv2dAlgorithm* chosen = chosen_for(problem);
    const Conv2dAlgorithm* as_dense = nullptr;
    const bool sparse = !problem.weight_format.is_dense();
    if (sparse) {  // of all formats, dense ones included
      as_dense = chosen_for(dense);
      (ms(as_dense, dense) < ms(chosen, problem) ? chosen : as_dense) = nullptr;
    }
    const bool all = !options_.only_auto;
    check_algorithms(rows, problem, chosen, all || chosen != nullptr);
    if (sparse) check_algorithms(rows, dense, as_dense, all || as_dense != nullptr);
  }

  // Checks the algorithms that accept `problem`, which is the group's problem or its variant with
  // dense weights.
  void check_algorithms(BenchRows& rows, const Conv2dProblem& problem,
                        const Conv2dAlgorithm* chosen, bool any) {
    if (!any) return;
    const bool beside = !(problem == group_.problem);
    std::vector<BenchRefusal> known;  // ignored: an algorithm may refuse the dense variant
    for (const Conv2dAlgorithm* algorithm : accepting_algorithms(
             options_.algorithms, problem, direction_, options_.only_auto ? chosen : nullptr,
             beside ? known : group_.refusals)) {
      const SampledReference& expected = reference();
      const std::string name = beside ? cat(algorithm->name, " (dense)") : algorithm->name;
      progress_(cat("checking ", name));
      rows.add(std::make_unique<Contender>(*algorithm, problem, direction_, data_,
                                           switches_of(options_), name),
               algorithm->cost(problem, direction_), algorithm == chosen,
               [&](BenchContender& one) { return static_cast<Contender&>(one).check(expected); });
    }
    if (beside) return;
    // Algorithms for dense weights have run on the dense variant, so their refusal of sparse
    // weights is not listed.
    std::erase_if(group_.refusals, [&](const BenchRefusal& one) {
      return !problem.weight_format.is_dense() && one.reason.starts_with("expects dense weights");
    });
  }

  void ask_for_baseline(BenchRows& rows) {
    if (holds_codes(group_.problem) && direction_ != Direction::forward) {
      return group_.refusals.push_back(
          {baseline_title(*options_.baseline), "computes only the forward pass of integers"});
    }
    check_baseline(rows);
  }

  ConvscopeBaselineProblem baseline_problem() const {
    const Conv2dProblem& z = group_.problem;
    const OperandTypes t = z.types ? *z.types : OperandTypes();
    return {.n = z.n,
            .c = z.c,
            .h = z.h,
            .w = z.w,
            .k = z.k,
            .r = z.r,
            .s = z.s,
            .p = z.p(),
            .q = z.q(),
            .stride_h = z.stride_h,
            .stride_w = z.stride_w,
            .pad_top = z.pad_top,
            .pad_bottom = z.pad_bottom,
            .pad_left = z.pad_left,
            .pad_right = z.pad_right,
            .dilation_h = z.dilation_h,
            .dilation_w = z.dilation_w,
            .groups = z.groups,
            .direction = static_cast<std::int32_t>(direction_),
            .x_type = baseline_type(t.x),
            .w_type = baseline_type(t.w),
            .y_type = baseline_type(t.y),
            .relu = data_.inputs().behind.relu ? 1 : 0};
  }

  // Returns pointers to the inputs. For quantised problems, bias and scales point into `scales`.
  ConvscopeBaselineInputs baseline_inputs(BaselineScales& scales) const {
    const BenchData::Plain& plain = data_.plain();
    ConvscopeBaselineInputs out{};
    out.first = plain.first.raw_data();
    out.second = plain.second.raw_data();
    if (!holds_codes(group_.problem)) return out;
    const OperandViews views = data_.operands().views(direction_);
    const double* const bias = data_.inputs().behind.bias;
    for (std::int64_t k = 0; k < group_.problem.k; ++k) {
      scales.w.push_back(static_cast<float>(views.w.scale(k)));
      scales.bias.push_back(static_cast<float>(bias[k]));
    }
    scales.x = static_cast<float>(views.x.scale(0));
    scales.y = static_cast<float>(views.y.scale(0));
    out.bias = scales.bias.data();
    out.x_scale = &scales.x;
    out.w_scales = scales.w.data();
    if (views.y.scales != nullptr) out.y_scale = &scales.y;
    return out;
  }

  void check_baseline(BenchRows& rows) {
    const ConvscopeBaseline& baseline = *options_.baseline;
    const ConvscopeBaselineProblem problem = baseline_problem();
    BaselineScales scales;
    const ConvscopeBaselineInputs inputs = baseline_inputs(scales);
    ask_baseline(baseline, "set_threads", [&] { return baseline.set_threads(group_.threads), 0; });
    for (int variant = 0; variant < baseline.variant_count; ++variant) {
      const std::string name = variant_name(baseline, baseline.variants[variant]);
      progress_(cat("checking ", name));
      char reason[400] = "";
      ConvscopeBaselineCase* const one = ask_baseline(baseline, "create", [&] {
        return baseline.create(&problem, variant, &inputs, reason, sizeof reason);
      });
      reason[sizeof reason - 1] = '\0';
      if (one == nullptr) {
        group_.refusals.push_back({name, reason});
      } else {
        baselines_.push_back(std::make_unique<BaselineContender>(baseline, variant, one));
      }
    }
    group_.baseline = baseline_title(baseline);
    group_.baseline_rows.resize(baselines_.size());
    for (std::size_t i = 0; i < baselines_.size(); ++i)
      check_baseline_variant(*baselines_[i], i, rows);
  }

  void check_baseline_variant(const BaselineContender& one, std::size_t i, BenchRows& rows) {
    const ConvscopeBaseline& baseline = *options_.baseline;
    BaselineBenchRow& row = group_.baseline_rows[i];
    row.algorithm = one.variant().algorithm;
    row.plain = one.variant().layout == CONVSCOPE_BASELINE_PLAIN;
    double first_seconds = 0;
    try {
      const char* const kernel = ask_baseline(baseline, "implementation",
                                              [&] { return baseline.implementation(one.one()); });
      row.implementation = kernel == nullptr ? "" : kernel;
      row.workspace_bytes = ask_baseline(baseline, "workspace_bytes",
                                         [&] { return baseline.workspace_bytes(one.one()); });
      first_seconds = seconds_of([&] { one.run(); });
    } catch (const Error& error) {
      row.wrong = error.what();
      return;
    }
    const Tensor& result = data_.plain().output;
    std::memset(result.raw_data(), 0xff, static_cast<std::size_t>(result.size_bytes()));
    try {
      if (ask_baseline(baseline, "read",
                       [&] { return baseline.read(one.one(), result.raw_data()); }) != 0) {
        row.wrong = "its result could not be read";
      }
    } catch (const Error& error) {
      row.wrong = error.what();
    }
    if (!row.wrong.empty()) return;
    const auto verdict = reference().judge(data_.result_of_plain(), one.variant().error_growth);
    row.error_ratio = verdict.error_ratio;
    row.wrong = verdict.wrong;
    if (!row.wrong.empty()) return;
    rows.add_other({.run = [&one] { one.run(); },
                    .estimate_seconds = estimate_of(first_seconds, [&] { one.run(); }),
                    .seconds = {}},
                   [this, &row](const std::vector<double>& seconds) {
                     row.time = summary_of(seconds);
                     row.gflops_effective =
                         group_.problem.nominal_flops() / (row.time.median_ms * 1e6);
                   });
  }

  const Conv2dBenchOptions& options_;
  const Direction direction_;
  const Progress& progress_;
  const BenchData data_;
  Conv2dBenchGroup group_;
  std::unique_ptr<SampledReference> reference_;
  std::vector<std::unique_ptr<BaselineContender>> baselines_;
};

}  // namespace

const BaselineBenchRow* BaselineBenchRows::best_baseline(bool plain) const {
  const BaselineBenchRow* best = nullptr;
  for (const BaselineBenchRow& row : baseline_rows) {
    if (!row.wrong.empty() || row.plain != plain || row.time.samples == 0) continue;
    if (best == nullptr || row.time.median_ms < best->time.median_ms) best = &row;
  }
  return best;
}

void check_can_be_timed(const Conv2dProblem& problem, Device device) {
  const bool half = problem.dtype == DType::f16 || problem.dtype == DType::bf16;
  const bool on_cuda = device.type == DeviceType::cuda;
  const bool good = holds_codes(problem) || (half && on_cuda && problem == with_nhwc(problem)) ||
                    (!problem.types && (problem.dtype == DType::f32 || (half && on_cuda)));
  CONVSCOPE_CHECK(good, kOperation,
                  "expected elements of type f32, or f16 or bf16 on cuda, or integers as "
                  "types=u8:i8:i32:u8, got ",
                  problem.text(), " on ", device.str());
}

Conv2dBenchGroup bench_conv2d(const Conv2dBenchOptions& options, const Conv2dProblem& problem,
                              Direction direction, const Progress& progress) {
  check_can_be_timed(problem, options.device);
  if (problem.is_empty()) {
    Conv2dBenchGroup group;
    group.problem = problem;
    group.direction = direction;
    group.threads = num_threads();
    group.skipped = "a batch of no images leaves nothing to time";
    return group;
  }
  return Measurement(options, problem, direction, progress).result();
}

}  // namespace convscope
