// SPDX-License-Identifier: Apache-2.0
// run_frame.h: shows a run as a frame on a terminal, and as one line of a log.
#pragma once

#include <string>
#include <vector>

#include "experiments/watch/run_view.h"
#include "experiments/watch/text_curve.h"

namespace convscope {

struct FrameLook {
  int columns = 80, rows = 24;
  CurveInk ink = CurveInk::stars;
  bool color = false;
};

// Returns at most `rows` lines of at most `columns` columns.
CONVSCOPE_API std::vector<std::string> run_frame(const RunView& run, const FrameLook& look);

// Returns "RUNNING  epoch 2/5  step 150/470  loss 0.2611  train 91.68 %  test 95.40 %  left 00:03".
CONVSCOPE_API std::string run_line(const RunView& run);

// Returns the state, coloured ("\033[32mDONE\033[0m") or plain.
std::string state_text(const std::string& state, bool color);

}  // namespace convscope
