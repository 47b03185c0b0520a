// SPDX-License-Identifier: Apache-2.0
// index_page.h: one self-contained page of all runs and sweeps below a folder. A script searches
// and sorts the table; without scripts the page is a plain table.
#pragma once

#include <string>

#include "experiments/report/index/index_rows.h"

namespace convscope {

// Returns the page. Links to the runs' pages are relative to `page_folder`, where it will be
// stored.
CONVSCOPE_API std::string index_page(const std::string& title, const RunIndex& index,
                                     const std::string& page_folder);

// Returns "a%20run/report.html" for "a run/report.html".
CONVSCOPE_API std::string url_of_path(const std::string& path);

}  // namespace convscope
