// SPDX-License-Identifier: Apache-2.0
// row_filter.h: selects the runs of a table: "optim.lr<0.1", "acc>=98", "name~lenet".
#pragma once

#include <string>
#include <vector>

#include "experiments/report/run_table.h"

namespace convscope {

// KEY OP VALUE, where KEY is a column or a key of the config, and OP one of
//   =  ==  !=      equal, as numbers where both are; an empty VALUE means no value
//   <  <=  >  >=   numbers, or texts by their letters
//   ~  !~          the text contains VALUE, or does not
// A run without a value matches only != and !~.
struct RowFilter {
  std::string text;  // as given
  std::string key, op, value;
};

// Parses a filter; the error (kInvalid) shows an example.
CONVSCOPE_API RowFilter parse_filter(const std::string& text);

// Returns the rows that match all filters. Fails for an unknown key, and for < or > between a
// number and a text.
CONVSCOPE_API std::vector<RunRow> filtered(std::vector<RunRow> rows,
                                           const std::vector<RowFilter>& filters);

// Returns the rows with all of these tags.
CONVSCOPE_API std::vector<RunRow> tagged(std::vector<RunRow> rows,
                                         const std::vector<std::string>& tags);

}  // namespace convscope
