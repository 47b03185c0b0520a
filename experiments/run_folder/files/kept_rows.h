// SPDX-License-Identifier: Apache-2.0
// kept_rows.h: which rows of a file of lines a run keeps when it goes on from a checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

// Where a row stands: before the checkpoint, after it, or nowhere (a header, a damaged row).
enum class RowPlace { before, after, unknown };

// Rows of metrics.jsonl and of epochs.csv, for a checkpoint after `epochs` whole epochs and `steps`
// steps.
CONVSCOPE_API RowPlace place_of_metrics_row(std::string_view row, std::int64_t epochs,
                                            std::int64_t steps);
CONVSCOPE_API RowPlace place_of_epoch_row(std::string_view row, std::int64_t epochs);

struct KeptRows {
  std::int64_t bytes = 0;
  bool as_counted = true;       // false: the file was changed, and its rows decided
  bool lacks_line_end = false;  // of the last row
};

// `counted`: bytes of the file when the checkpoint was written. They decide while they end between
// the rows before and after the checkpoint. In a file that was changed since, they may end in the
// middle of a row: then the file is kept up to the first row after the checkpoint.
CONVSCOPE_API KeptRows kept_rows(const std::string& path, std::int64_t counted,
                                 const std::function<RowPlace(std::string_view)>& place_of);

}  // namespace convscope
