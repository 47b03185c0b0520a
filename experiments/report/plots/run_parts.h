// SPDX-License-Identifier: Apache-2.0
// run_parts.h: splits runs into parts whose runs may share an axis: one data set or one batch size
// per part. A kind of plot draws one part. With several parts, the figure has one section per part,
// named by the data set or batch size.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/report/plot_kind.h"

namespace convscope {

struct PartMember {
  const RunGroup* group = nullptr;
  int style = 0;   // the same in all figures of a set of runs
  int number = 1;  // its index in the set
};

struct RunPart {
  std::string title;  // "mnist, batch 64"; "" with a single part
  std::vector<PartMember> members;
};

// Facts that agree within a part: "mnist", "batch 64".
using PartFacts = std::function<std::vector<std::string>(const RunGroup& group)>;
std::string data_set_of(const RunGroup& group);
std::vector<std::string> by_data_set(const RunGroup& group);
std::vector<std::string> by_data_set_and_batch(const RunGroup& group);

std::vector<RunPart> parts_of(const RunSet& set, const PartFacts& facts);

// Returns a function for PlotKind::draw that calls `draw` for each part and joins the figures.
std::function<Plot(const RunSet&)> draw_by_part(PartFacts facts,
                                                std::function<Plot(const RunPart&)> draw);

// Returns a plot with this figure. The subtitle counts the runs, and notes explain means and
// deviations. With `of_times`, a note also explains the asterisk of name_with_load().
Plot finished(Figure figure, const std::vector<const RunGroup*>& groups,
              std::vector<std::string> remarks, bool of_times = false);

// Returns the groups for labels and notes.
std::vector<const RunGroup*> groups_of(const std::vector<PartMember>& members);

// Returns the layers of a table in all runs, each once, in the order of the rows.
std::vector<std::string> layers_in(const std::vector<const RunGroup*>& groups,
                                   CsvTable RunData::*table);

}  // namespace convscope
