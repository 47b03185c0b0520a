// SPDX-License-Identifier: Apache-2.0
// run_page.h: writes report.html of a run that this process works on.
#pragma once

#include <string>

#include "experiments/run_folder/run_folder.h"

namespace convscope {

// Writes the page. A failure of kind kIo does not fail the run, because the page can be made later.
// In this case returns a sentence with the reason and the command that makes the page; otherwise
// "".
CONVSCOPE_API std::string write_run_page(const RunFolder& folder);

}  // namespace convscope
