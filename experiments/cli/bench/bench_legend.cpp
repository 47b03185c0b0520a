// SPDX-License-Identifier: Apache-2.0
// bench_legend.cpp: explains the columns of a benchmark's table.
#include "experiments/cli/bench/bench_legend.h"

namespace convscope {

std::string bench_legend(bool with_baseline) {
  const std::string out =
      "*: choice of auto. median ms, p10, p90, min: milliseconds of one call; prepare: the part "
      "that packs the\nweights. GFLOP/s eff.: textbook FLOPs / median; exec.: executed FLOPs / "
      "median. roof: least time of the\nalgorithm's FLOPs and bytes on this machine / median. work "
      "MiB: scratch memory. "
      "err/bound: largest error / allowed error; at\nmost 1 is right. ";
  if (!with_baseline)
    return out + "vs baseline, by min, vs plain: compared with a baseline (--baseline).\n";
  return out +
         "vs baseline: the baseline's median / ours; above 1 ours is faster. by min: the "
         "same\nratio "
         "of minimum times; vs plain: the baseline with row-major tensors.\n";
}

std::string sparse_legend() {
  return "pairs: output site and input site that a kernel tap connects. products: executed "
         "products / products of\npairs. The ms of the map are the time to build it on the device; "
         "calls do not include it.\n";
}

std::string sparse_net_legend(bool with_baseline) {
  const std::string out =
      "forward: all layers; backward: dx and dw of each. Medians; weights are prepared in each "
      "call; the map is\nbuilt once and not timed. work MiB: scratch memory. err/bound: largest "
      "error / allowed error; at most 1 is\nright.\n";
  if (!with_baseline) return out;
  return out +
         "ratio: the baseline's time / ours; above 1 ours is faster. Where the baseline lacks an "
         "algorithm, its fastest is taken.\n";
}

std::string often_legend() {
  return "--weights often: weights are prepared before the calls, which do not include prepare.\n";
}

std::string ladder_legend() {
  return "ms: median of one call. GFLOP/s: textbook FLOPs / ms. % of peak: executed FLOPs / ms, "
         "relative to the\nmeasured peak with the rung's number of threads. over below: time of "
         "the rung below / time of this rung.\nerr/bound: largest error / allowed error; at most 1 "
         "is right.\n";
}

std::string net_legend() {
  return "median ms, p10, p90, min: milliseconds of one run over the whole batch; forward, "
         "backward, update: parts\nof a training step. images/s: batch / median. GFLOP/s: textbook "
         "FLOPs of convolutions and linear layers\n/ median. peak MiB: peak of tensors and "
         "workspace; workspace: its scratch part, MiB; process MiB: peak of\nthe process.\n";
}

}  // namespace convscope
