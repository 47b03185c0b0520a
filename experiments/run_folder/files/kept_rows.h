// SPDX-License-Identifier: Apache-2.0
// kept_rows.h: selects which rows of a file such as epochs.csv a run keeps when it resumes from a
// checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

// Position of a row relative to the checkpoint. A header or a damaged row is unknown.
enum class RowPlace { before, after, unknown };

// Returns the position of a row of metrics.jsonl or epochs.csv for a checkpoint after `epochs`
// whole epochs and `steps` steps.
CONVSCOPE_API RowPlace place_of_metrics_row(std::string_view row, std::int64_t epochs,
                                            std::int64_t steps);
CONVSCOPE_API RowPlace place_of_epoch_row(std::string_view row, std::int64_t epochs);

struct KeptRows {
  std::int64_t bytes = 0;
  bool as_counted = true;       // false: the file was changed, so its rows decided
  bool lacks_line_end = false;  // whether the last row lacks it
};

// Returns the rows to keep. `counted` is the file's length in bytes when the checkpoint was
// written. The file is kept up to `counted` if this byte separates the rows before the checkpoint
// from the rows after it. In a file that was changed later, `counted` may be in the middle of a
// row. In this case the file is kept up to the first row after the checkpoint.
CONVSCOPE_API KeptRows kept_rows(const std::string& path, std::int64_t counted,
                                 const std::function<RowPlace(std::string_view)>& place_of);

}  // namespace convscope
