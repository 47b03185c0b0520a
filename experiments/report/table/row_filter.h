// SPDX-License-Identifier: Apache-2.0
// row_filter.h: which runs a table shows: "optim.lr<0.1", "acc>=98", "name~lenet".
#pragma once

#include <string>
#include <vector>

#include "experiments/report/run_table.h"

namespace convscope {

// KEY OP VALUE, where KEY is a column or a key of the config, and OP one of
//   =  ==  !=      equal, as numbers where both are; nothing behind it: there is no value
//   <  <=  >  >=   numbers, or texts by their letters
//   ~  !~          the text holds VALUE, or does not
// A run without a value fits != and !~ and nothing else.
struct RowFilter {
  std::string text;  // as it was given
  std::string key, op, value;
};

// An error (kInvalid) that shows what an expression looks like.
CONVSCOPE_API RowFilter parse_filter(const std::string& text);

// The rows that all filters fit. An unknown key, and < or > between a number and a text, is an
// error.
CONVSCOPE_API std::vector<RunRow> filtered(std::vector<RunRow> rows,
                                           const std::vector<RowFilter>& filters);

// The rows that carry every one of these tags.
CONVSCOPE_API std::vector<RunRow> tagged(std::vector<RunRow> rows,
                                         const std::vector<std::string>& tags);

}  // namespace convscope
