// SPDX-License-Identifier: Apache-2.0
// run_page.cpp: writes report.html of a run that this process works on.
#include "experiments/report/html/run_page.h"

#include "experiments/report/html/html_report.h"

namespace convscope {

std::string write_run_page(const RunFolder& folder) {
  try {
    folder.write("report.html", html_report(folder.path()));
    return "";
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo) throw;
    return cat("report.html could not be written: ", error.what(), "; `convscope plot ",
               folder.path(), "` makes it");
  }
}

}  // namespace convscope
