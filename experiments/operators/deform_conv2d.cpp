// SPDX-License-Identifier: Apache-2.0
// deform_conv2d.cpp: the deformable convolution in the commands. Benchmarks have normally
// distributed offsets.
#include "layers/deform_conv2d/deform_conv2d.h"

#include "experiments/check/reference_check.h"
#include "experiments/cli/command.h"
#include "experiments/operators/bench_call.h"
#include "experiments/operators/conv_sizes.h"
#include "experiments/operators/operator_table.h"
#include "experiments/tune/random_problems.h"
#include "experiments/tune/tuning.h"

namespace convscope {
namespace {

class DeformConv2dOpCall final : public ConvOpCall<DeformConv2dProblem> {
 public:
  DeformConv2dOpCall()
      : ConvOpCall({{"x", "input [N,C,H,W], .npy, f4 or f8"},
                    {"offset",
                     "offset of each tap [N,2 O R S,P,Q] with O offset groups; (v, u) of a tap are "
                     "adjacent, as in torchvision"},
                    {"mask", "factor of each tap [N,O R S,P,Q] (default 1)", /*is_required=*/false},
                    {"w", "weights [K,C/groups,R,S]"},
                    {"b", "bias [K]", /*is_required=*/false}}) {}

 private:
  void add_options(CommandLine& app) override {
    ConvOpCall::add_options(app);
    app.add_option("--offset-groups", offset_groups_,
                   "number of channel groups with their own offsets")
        ->capture_default_str();
  }

  void check() const override {
    ConvOpCall::check();
    if (wants("dmask") && !is_given("mask")) {
      fail_usage(command(), "expected --mask because --out-dmask asks for its gradient");
    }
  }

  DeformConv2dProblem problem_of_arrays() const override {
    const Conv2dParams conv = params();
    const Tensor& x = given("x");
    return deform_conv2d_problem(x.shape(), given("w").shape(), {conv, offset_groups_},
                                 is_given("mask"), x.dtype());
  }

  std::string because(const std::string& name) const override {
    if (name != "offset" && name != "mask") return ConvOpCall::because(name);
    const std::int64_t groups = problem().offset_groups;
    return cat("it has ", name == "offset" ? "(v, u)" : "a factor", " of ", problem().taps(),
               " taps in ", groups, groups == 1 ? " offset group" : " offset groups",
               " for each pixel of y");
  }

  // The offsets are checked before the mask: if only the mask has a wrong shape, the options are
  // right, and there is no hint.
  std::string hint(const std::string& name, const Shape& got) const override {
    const DeformConv2dProblem& z = problem();
    const Shape expected = z.offset_shape();
    if (name != "offset" || got.rank() != 4 || got[0] != expected[0]) return "";
    if (got[2] != expected[2] || got[3] != expected[3]) {
      if (got[1] != expected[1]) return "";
      return cat("; --padding, --stride and --dilation say that y is ", z.y_shape());
    }
    const std::int64_t planes = expected[1] / z.offset_groups, groups = got[1] / planes;
    const bool fits = groups > 0 && got[1] == groups * planes && z.c % groups == 0;
    return fits && groups != z.offset_groups ? cat("; it fits with --offset-groups ", groups) : "";
  }

  std::int64_t offset_groups_ = 1;
};

class DeformConv2dBenchCall final : public BenchCallOf<DeformConv2dProblem> {
 public:
  DeformConv2dBenchCall()
      : BenchCallOf({"n=8,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1,dilation=1,groups=1,offset_"
                     "groups=1,mask=1; c, h, w and k are required",
                     "n=8,c=64"}) {}

 private:
  void add_options(CommandLine& app) override {
    add_batch(app);
    add_layout(app, "nchw, nchw16c, or both", {"nchw", "nchw16c", "both"});
  }
  ReportedGroup measure(const DeformConv2dProblem& problem, Direction direction,
                        const BenchProgress& progress) override {
    return bench_operator(settings(), problem, direction, algorithms(), progress);
  }
};

// Problems with one special property each, and one that is large enough for tiles of all sizes.
CheckedProblems<DeformConv2dProblem> checked_problems() {
  return {.texts = {"n=2,c=3,h=7,w=5,k=4,r=3,s=3,pad=1", "n=1,c=1,h=1,w=1,k=1,r=1,s=1",
                    "n=1,c=16,h=9,w=11,k=16,r=3,s=3,pad=1",
                    "n=3,c=17,h=13,w=7,k=33,r=3,s=3,stride=2,pad=1",
                    "n=2,c=24,h=10,w=9,k=20,r=3,s=3,pad=1,offset_groups=3",
                    "n=2,c=32,h=8,w=8,k=48,r=3,s=3,pad=1,groups=2,offset_groups=4",
                    "n=1,c=12,h=11,w=6,k=18,r=3,s=2,stride=2x1,pad=1x0,dilation=1x2,groups=3,"
                    "offset_groups=2",
                    "n=2,c=20,h=12,w=12,k=8,r=5,s=5,pad=2,mask=0",
                    "n=2,c=8,h=6,w=8,k=8,r=3,s=3,pad=1x2x0x3,groups=8,offset_groups=8",
                    "n=7,c=32,h=6,w=5,k=17,r=3,s=3,pad=1", "n=2,c=64,h=24,w=23,k=40,r=3,s=3,pad=1"},
          .parse = [](const std::string& text) {
            const DeformConv2dProblem out = DeformConv2dProblem::parse(text);
            out.check();
            return out;
          }};
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_OPERATOR(
    DeformConv2dProblem, DeformConv2dOpCall, DeformConv2dBenchCall,
    {.title = "deformable convolution",
     .list_titles = {"Algorithms of deformable convolution, CPU",
                     "Algorithms of deformable convolution, CUDA"},
     .op_summary = "Run a deformable convolution or its gradients.",
     .bench_summary = "Time the algorithms of deformable convolution.",
     .op_examples = {"--x x.npy --offset offset.npy --mask mask.npy --w w.npy "
                     "--padding 1 --dy dy.npy --out-y y.npy --out-doffset doffset.npy"},
     .bench_examples = {"--shapes experiments/shapes/deform.txt --threads 1"},
     .check_examples = {"fused"},
     .check = convscope::reference_check(convscope::checked_problems()),
     .tune = [](convscope::Tuning& tuning) {
       tuning.measure(convscope::random_deform_conv2d(tuning.random(), tuning.device().type));
     }})
