// SPDX-License-Identifier: Apache-2.0
// conv_transpose2d.cpp: the transposed convolution in the commands.
#include "layers/conv_transpose2d/conv_transpose2d.h"

#include "experiments/bench/conv2d_bench.h"
#include "experiments/check/reference_check.h"
#include "experiments/cli/bench/bench_legend.h"
#include "experiments/cli/command.h"
#include "experiments/operators/baseline_option.h"
#include "experiments/operators/bench_call.h"
#include "experiments/operators/conv_sizes.h"
#include "experiments/operators/operator_table.h"

namespace convscope {
namespace {

class ConvTranspose2dOpCall final : public ConvOpCall<ConvTranspose2dProblem> {
 public:
  ConvTranspose2dOpCall()
      : ConvOpCall({{"x", "input [N,C,H,W], .npy, f4 or f8"},
                    {"w", "weights [C,K/groups,R,S]"},
                    {"b", "bias [K]", /*is_required=*/false}}) {}

 private:
  void add_options(CommandLine& app) override {
    ConvOpCall::add_options(app);
    app.add_option("--output-padding", output_padding_,
                   "rows and columns to add at the bottom and right: one number or h,w, below the "
                   "stride or the dilation")
        ->capture_default_str();
  }
  ConvTranspose2dProblem problem_of_arrays() const override {
    const Conv2dParams conv = params();
    const auto more = whole_numbers(command(), "--output-padding", output_padding_, {1, 2});
    const Tensor& x = given("x");
    return conv_transpose2d_problem(x.shape(), given("w").shape(), {conv, more[0], more.back()},
                                    x.dtype());
  }

  std::string output_padding_ = "0";
};

class ConvTranspose2dBenchCall final : public BenchCallOf<ConvTranspose2dProblem> {
 public:
  ConvTranspose2dBenchCall()
      : BenchCallOf({"n=8,c=64,h=28,w=28,k=32,r=2,s=2,stride=2,pad=0,dilation=1,groups=1,opad=0; "
                     "c, h, w and k are required",
                     "n=8,c=64"}) {}

 private:
  void add_options(CommandLine& app) override {
    add_batch(app);
    baseline_.declare(app);
  }
  void check() const override {
    BenchCallOf::check();
    if (against_.asked() && baseline_.given()) {
      fail_usage(command(),
                 "expected --against without --baseline because it compares the rows of two "
                 "builds, got both");
    }
  }
  // Times the convolution that computes this direction. A baseline computes it, too.
  ReportedGroup measure(const ConvTranspose2dProblem& problem, Direction direction,
                        const BenchProgress& progress) override {
    Conv2dBenchOptions options;
    static_cast<BenchSettings&>(options) = settings();
    for (const auto* algorithm : algorithms()) {
      options.algorithms.push_back(&conv2d_algorithms(device().type).get(algorithm->name));
    }
    options.baseline = baseline_.get();
    ReportedGroup out(bench_conv2d(options, problem.convolution(), exchanged(direction), progress));
    out.problem = problem.text();
    out.direction = direction;
    return out;
  }
  std::vector<BenchCase> cases() override {
    baseline_.open();
    return BenchCallOf::cases();
  }
  BenchReportSettings report() const override { return baseline_.with_name(BenchCallOf::report()); }
  std::string legend() const override { return bench_legend(baseline_.given()); }

  BaselineOption baseline_;
};

// Problems with one special property each. Every algorithm accepts one of them.
CheckedProblems<ConvTranspose2dProblem> checked_transposed_problems() {
  return {.texts = {"n=2,c=3,h=7,w=5,k=4,r=2,s=2,stride=2", "n=1,c=1,h=1,w=1,k=1,r=1,s=1",
                    "n=1,c=16,h=6,w=7,k=16,r=3,s=3,stride=2,pad=1,opad=1",
                    "n=2,c=17,h=5,w=6,k=33,r=3,s=3,pad=1",
                    "n=2,c=24,h=5,w=4,k=20,r=4,s=4,stride=2,pad=1,groups=4",
                    "n=1,c=12,h=6,w=5,k=18,r=3,s=2,stride=3x2,pad=1x0,dilation=1x2,groups=3,"
                    "opad=2x1",
                    "n=2,c=8,h=6,w=8,k=8,r=3,s=3,pad=1,groups=8",
                    "n=2,c=5,h=4,w=6,k=7,r=3,s=3,pad=2x3x2x3,dilation=3,opad=2x1",
                    "n=17,c=6,h=6,w=5,k=9,r=3,s=3,pad=1", "n=2,c=32,h=7,w=7,k=24,r=1,s=1",
                    "n=1,c=40,h=12,w=11,k=64,r=5,s=5,pad=2"},
          .parse = [](const std::string& text) { return ConvTranspose2dProblem::parse(text); }};
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_OPERATOR(
    ConvTranspose2dProblem, ConvTranspose2dOpCall, ConvTranspose2dBenchCall,
    {.title = "transposed convolution",
     .list_titles = {"Algorithms of transposed convolution, CPU",
                     "Algorithms of transposed convolution, CUDA"},
     .op_summary = "Run a transposed convolution or its gradients.",
     .bench_summary = "Time the algorithms of transposed convolution.",
     .op_examples = {"--x x.npy --w w.npy --stride 2 --output-padding 1 --out-y y.npy"},
     .bench_examples = {"--problem n=8,c=64,h=28,w=28,k=32,r=2,s=2,stride=2,opad=1"},
     .check_examples = {"direct"},
     .check = convscope::reference_check(convscope::checked_transposed_problems())})
