// SPDX-License-Identifier: Apache-2.0
// run_page.h: report.html of a run that this process works on.
#pragma once

#include <string>

#include "experiments/run_folder/run_folder.h"

namespace convscope {

// Writes the page. It can be made from the other files of the run at any time, so a failure of kind
// kIo is no failure of the run: returns a sentence with the reason and the command that makes the
// page, else "".
CONVSCOPE_API std::string write_run_page(const RunFolder& folder);

}  // namespace convscope
