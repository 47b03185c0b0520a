// SPDX-License-Identifier: Apache-2.0
// conv2d.cpp: the convolution in the commands. Its benchmark also has ladders, integer types and
// another library.
#include <algorithm>

#include "experiments/bench/contender.h"
#include "experiments/bench/conv2d_bench.h"
#include "experiments/check/check_algorithm.h"
#include "experiments/cli/bench/bench_ladder.h"
#include "experiments/cli/bench/bench_legend.h"
#include "experiments/cli/bench/bench_remarks.h"
#include "experiments/cli/command.h"
#include "experiments/operators/baseline_option.h"
#include "experiments/operators/bench_call.h"
#include "experiments/operators/conv_sizes.h"
#include "experiments/operators/operator_table.h"
#include "experiments/tune/random_problems.h"
#include "experiments/tune/tuning.h"
#include "layers/dispatch/half_problem.h"

namespace convscope {
namespace {

class Conv2dOpCall final : public ConvOpCall<Conv2dProblem> {
 public:
  Conv2dOpCall()
      : ConvOpCall({{"x", "input [N,C,H,W], .npy, f4 or f8"},
                    {"w", "weights [K,C/groups,R,S]"},
                    {"b", "bias [K]", /*is_required=*/false}}) {}

 private:
  Conv2dProblem problem_of_arrays() const override {
    const Tensor& x = given("x");
    return conv2d_problem(x.shape(), given("w").shape(), params(), x.dtype());
  }
};

using Problems = std::vector<Conv2dProblem>;

OperandTypes parsed_types(const std::string& text) {
  OperandTypes out;
  if (OperandTypes::parse(text, out) && is_code(out.w)) return out;
  fail_usage("bench conv2d", cat("expected --types of x, w, the sums and y with w of i8, as "
                                 "u8:i8:i32:u8, got '",
                                 text, "'"));
}

// Sets the operand types of the problems. Quantised images are stored in NCHW16c. On a CPU, a layer
// with few input channels is treated as the first of a network: its images are NCHW f32, and the
// kernel quantises them.
void set_types(const std::string& text, Device device, Problems& problems) {
  if (text.empty()) return;
  constexpr std::int64_t kMaxColours = 4;
  OperandTypes types = parsed_types(text);
  int first_layers = 0;
  for (Conv2dProblem& problem : problems) {
    const bool first = device.type == DeviceType::cpu && is_code(types.x) &&
                       problem.c <= kMaxColours && problem.groups == 1;
    first_layers += first ? 1 : 0;
    OperandTypes own = types;
    if (first) own.x = DType::f32;
    problem.set_integer_types(own);
  }
  if (first_layers == 0) return;
  types.x = DType::f32;
  remark(cat(first_layers, first_layers == 1 ? " layer" : " layers",
             " with at most 4 channels treated as the first of a network: ", types.text(),
             " in layout nchw:nchw16c; images are rounded in each call"));
}

class Conv2dBenchCall final : public BenchCallOf<Conv2dProblem> {
 public:
  Conv2dBenchCall()
      : BenchCallOf({"n=8,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1,dilation=1,groups=1; c, h, w "
                     "and k are required",
                     "n=8,c=64"}) {
    direction_ = "";  // all; for a ladder: forward
  }

 private:
  void add_direction(CommandLine& app) override {
    app.add_option("--direction", direction_,
                   "directions: all, or some of forward,backward_data,backward_weight (default "
                   "all; for a ladder: forward)");
    app.add_option(
           "--ladder", ladder_,
           "ladder to climb: versions of one algorithm from its lesson to the fastest kernel, on "
           "the ladder's own problem unless one is given; all, or names joined by commas")
        ->type_name("NAME,...");
  }
  void add_options(CommandLine& app) override {
    add_layout(app,
               "nchw, nchw16c, nchw:nchw16c (x in nchw, y in nchw16c), nhwc (with fp16/bf16 images "
               "the weights are f32, as in a training step), or both: nchw and nchw16c",
               {"nchw", "nchw16c", "nchw:nchw16c", "nhwc", "both"});
    app.add_option("--types", types_,
                   "integer types of x, w, the accumulators and y, such as u8:i8:i32:u8; forward "
                   "only; on the CPU, layers with at most 4 channels take f32 images")
        ->type_name("TEXT");
    add_batch(app);
    baseline_.declare(app);
    baseline_.declare_former(app);
  }

  void check() const override {
    if (!has_problems() && ladder_.empty()) {
      fail_usage(
          command(),
          "expected --shapes FILE, --problem n=8,c=64,... or --ladder NAME, got none of them");
    }
    const bool names_more = algorithm_ != "all" || baseline_.given() || !precision_.empty() ||
                            timing_.weights != "once";
    if (!ladder_.empty() && names_more) {
      fail_usage(
          command(),
          "expected --ladder without --algorithm, --baseline, --precision and --weights because "
          "its rungs say what is timed, got more than --ladder");
    }
    if (!types_.empty() && !has_problems()) {
      fail_usage(command(),
                 "expected --types with --problem or --shapes because the problem of a ladder has "
                 "its own types, got only --ladder");
    }
    if (!types_.empty() && (!precision_.empty() || !layout_.empty())) {
      fail_usage(
          command(),
          "expected --types without --precision and --layout because integers have one layout, "
          "got both");
    }
    check_timing_and_batch();
    if (against_.asked() && (!ladder_.empty() || baseline_.given())) {
      fail_usage(
          command(),
          "expected --against without --ladder and --baseline because it compares the rows of two "
          "builds, got one of them");
    }
  }

  std::vector<Direction> directions() const override {
    const char* const usual = ladder_.empty() ? "all" : "forward";
    return parse_directions(direction_.empty() ? usual : direction_);
  }

  Problems read_problems() const override {
    auto out = problems_given<Conv2dProblem>(command(), shapes_, problems_);
    set_layouts(layout_, out);
    set_types(types_, device(), out);
    set_precision(precision_, out);
    for (Conv2dProblem& problem : out) {
      if (batch_ > 0) problem.n = batch_;
      // The weights stay f32, as in a compiled step.
      const bool last = problem.layout == ActivationLayout::nhwc;
      if (last && is_half(problem.dtype) && !problem.types) problem = with_nhwc(problem);
      check_can_be_timed(problem, device());
    }
    return out;
  }

  // Integer problems run the forward direction by default. A direction that was requested is tried,
  // so that its refusal is shown.
  bool is_timed(const Conv2dProblem& problem, Direction direction) const override {
    return !direction_.empty() || !holds_codes(problem) || direction == Direction::forward;
  }

  ReportedGroup measure(const Conv2dProblem& problem, Direction direction,
                        const BenchProgress& progress) override {
    Conv2dBenchOptions options;
    static_cast<BenchSettings&>(options) = settings();
    options.algorithms = algorithms();
    options.baseline = baseline_.get();
    return bench_conv2d(options, problem, direction, progress);
  }

  std::vector<BenchCase> cases() override {
    baseline_.open();
    return BenchCallOf::cases();
  }

  BenchReportSettings report() const override { return baseline_.with_name(BenchCallOf::report()); }
  std::string legend() const override { return bench_legend(baseline_.given()); }

  int time(BenchFiles& files, const std::vector<BenchCase>& cases) override {
    if (!ladder_.empty()) {
      return bench_ladders({ladder_, problems(), directions(), batch_}, files, report());
    }
    const bool unmeasured = settings().peaks && settings().peaks->int8.one_thread <= 0;
    const auto of_codes = [](const Conv2dProblem& one) { return is_code(operand_type_of(one)); };
    if (unmeasured && std::ranges::any_of(problems(), of_codes)) {
      remark(cat("the peak of int8 products was not measured on this machine; roof assumes ",
                 peak_of_bytes(), " times that of f32 (convscope info --measure)"));
    }
    return BenchCallOf::time(files, cases);
  }

  std::string ladder_, types_;
  BaselineOption baseline_;
};

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_OPERATOR(
    Conv2dProblem, Conv2dOpCall, Conv2dBenchCall,
    {.title = "convolution",
     .list_titles = {"Convolution algorithms, CPU (conv.algorithm)",
                     "Convolution algorithms, CUDA"},
     .op_summary = "Run a convolution or its gradients.",
     .bench_summary = "Time the algorithms of convolution.",
     .bench_problems = "--shapes FILE|--problem TEXT|--ladder NAME",
     .op_examples = {"--x x.npy --w w.npy --padding 1 --out-y y.npy",
                     "--x x.npy --w w.npy --dy dy.npy --stride 2,1 --out-dw dw.npy"},
     .bench_examples = {"--shapes experiments/shapes/resnet18.txt --threads 1",
                        "--problem n=8,c=64,h=56,w=56,k=64,r=3,s=3,pad=1 "
                        "--direction forward --baseline onednn --json bench.json",
                        "--shapes experiments/shapes/resnet18.txt --types u8:i8:i32:u8 "
                        "--weights often --baseline onednn",
                        "--ladder winograd --json ladder.json",
                        "--shapes resnet18 --algorithm auto --against /usr/bin/convscope "
                        "--fail-above 1.10"},
     .check_examples = {"winograd_f4x3", "mine --plugin mine/build/mine.so",
                        "mine --plugin mine/build/mine.so --quick"},
     .check = convscope::conv2d_check(),
     .tune = [](convscope::Tuning& tuning) {
       tuning.measure(convscope::random_conv2d(tuning.random(), tuning.device().type));
     }})
