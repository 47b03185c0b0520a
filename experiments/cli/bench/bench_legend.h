// SPDX-License-Identifier: Apache-2.0
// bench_legend.h: explains the columns of a benchmark's table in a few lines below the table. More:
// experiments/bench/README.md.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

CONVSCOPE_API std::string bench_legend(bool with_baseline);  // for bench conv2d
CONVSCOPE_API std::string sparse_legend();                   // bench sparse_conv, extra columns
CONVSCOPE_API std::string sparse_net_legend(bool with_baseline);  // for bench sparse_net
CONVSCOPE_API std::string often_legend();                         // for --weights often
CONVSCOPE_API std::string ladder_legend();                        // for bench conv2d --ladder
CONVSCOPE_API std::string net_legend();                           // for bench net

}  // namespace convscope
