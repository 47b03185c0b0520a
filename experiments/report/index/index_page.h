// SPDX-License-Identifier: Apache-2.0
// index_page.h: one self-contained page about all runs and sweeps below a folder. With a script it
// searches and sorts; without one it is a plain table.
#pragma once

#include <string>

#include "experiments/report/index/index_rows.h"

namespace convscope {

// `page_folder` is where the page will lie: links to the runs' own pages are relative to it.
CONVSCOPE_API std::string index_page(const std::string& title, const RunIndex& index,
                                     const std::string& page_folder);

// "a run/report.html" -> "a%20run/report.html".
CONVSCOPE_API std::string url_of_path(const std::string& path);

}  // namespace convscope
