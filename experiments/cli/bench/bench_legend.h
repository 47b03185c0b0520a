// SPDX-License-Identifier: Apache-2.0
// bench_legend.h: what the columns of a benchmark's table mean, in a few lines under it. More:
// experiments/bench/README.md.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

CONVSCOPE_API std::string bench_legend(bool with_peer);       // of bench conv2d
CONVSCOPE_API std::string sparse_legend();                    // of bench sparse_conv, more columns
CONVSCOPE_API std::string sparse_net_legend(bool with_peer);  // of bench sparse_net
CONVSCOPE_API std::string often_legend();                     // with --weights often
CONVSCOPE_API std::string ladder_legend();                    // of bench conv2d --ladder
CONVSCOPE_API std::string net_legend();                       // of bench net

}  // namespace convscope
