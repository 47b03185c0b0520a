// SPDX-License-Identifier: Apache-2.0
// bench_legend.cpp: what the columns of a benchmark's table mean, in a few lines under it.
#include "experiments/cli/bench/bench_legend.h"

namespace convscope {

std::string bench_legend(bool with_peer) {
  const std::string out =
      "*: what auto chooses. median ms, p10, p90, min: milliseconds of one call; prepare: its part "
      "that packs\nthe weights. GFLOP/s eff.: textbook FLOPs / median; exec.: FLOPs really "
      "executed "
      "/ median. roof: least\npossible time on this machine / median. work MiB: scratch memory. "
      "err/bound: largest error / allowed\nerror, right up to 1. ";
  if (!with_peer) return out + "vs peer, by min, vs plain: beside another library (--peer).\n";
  return out +
         "vs peer: the peer's median / ours, above 1 ours is faster; by min: of\nthe least times; "
         "vs plain: the peer with row-major tensors.\n";
}

std::string sparse_legend() {
  return "pairs: of an output site and an input site that a tap of the kernel joins. products: "
         "those "
         "executed / those\nof pairs. The map's ms are to build it on the device; calls do not "
         "include them.\n";
}

std::string sparse_net_legend(bool with_peer) {
  const std::string out =
      "forward: all layers; backward: dx and dw of each; medians, weights prepared in each call. "
      "The "
      "map is\nbuilt once and not in them. work MiB: scratch memory. err/bound: largest error / "
      "allowed error, right up to 1.\n";
  if (!with_peer) return out;
  return out +
         "ratio: the other library's time / ours, above 1 ours is faster; beside a name that "
         "it does not have stands its fastest.\n";
}

std::string often_legend() {
  return "--weights often: they are prepared before the calls, so prepare is no part of them.\n";
}

std::string ladder_legend() {
  return "ms: median of one call. GFLOP/s: textbook FLOPs / ms. % of peak: FLOPs really executed / "
         "ms, of the\nmeasured peak of as many threads as the rung has. over below: time of the "
         "rung "
         "below / this one's.\nerr/bound: largest error / allowed error, right up to 1.\n";
}

std::string net_legend() {
  return "median ms, p10, p90, min: milliseconds of one run over the whole batch; forward, "
         "backward, "
         "update: parts\nof a training step. images/s: batch / median. GFLOP/s: textbook FLOPs of "
         "convolutions and linear layers\n/ median. peak MiB: tensors and workspace at the highest "
         "moment; workspace: scratch in it, MiB;\nprocess MiB: the whole process.\n";
}

}  // namespace convscope
