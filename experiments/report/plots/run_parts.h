// SPDX-License-Identifier: Apache-2.0
// run_parts.h: runs that may stand on one axis. A kind of plot draws one part; with several parts
// (other data sets, other batches) the figure has a section for each, named by what sets it apart.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/report/plot_kind.h"

namespace convscope {

struct PartMember {
  const RunGroup* group = nullptr;
  int style = 0;   // the same in all figures of a set of runs
  int number = 1;  // its place in the set
};

struct RunPart {
  std::string title;  // "mnist, batch 64"; "" when there is one part
  std::vector<PartMember> members;
};

// What must agree within a part: "mnist", "batch 64".
using PartFacts = std::function<std::vector<std::string>(const RunGroup& group)>;
std::string data_set_of(const RunGroup& group);
std::vector<std::string> by_data_set(const RunGroup& group);
std::vector<std::string> by_data_set_and_batch(const RunGroup& group);

std::vector<RunPart> parts_of(const RunSet& set, const PartFacts& facts);

// A function for PlotKind::draw: `draw` for each part, and their figures as one.
std::function<Plot(const RunSet&)> draw_by_part(PartFacts facts,
                                                std::function<Plot(const RunPart&)> draw);

// For labels and notes.
std::vector<const RunGroup*> groups_of(const std::vector<PartMember>& members);

}  // namespace convscope
