// SPDX-License-Identifier: Apache-2.0
// run_page.h: writes report.html of a run that this process works on.
#pragma once

#include <string>

#include "experiments/run_folder/run_folder.h"

namespace convscope {

// Writes the page. If writing fails with kIo, the run does not fail, because the page can be made
// later. In this case returns a sentence with the reason and the command that makes the page;
// otherwise
// "".
CONVSCOPE_API std::string write_run_page(const RunFolder& folder);

}  // namespace convscope
