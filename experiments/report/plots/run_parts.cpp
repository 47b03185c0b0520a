// SPDX-License-Identifier: Apache-2.0
// run_parts.cpp: runs that may share an axis.
#include "experiments/report/plots/run_parts.h"

#include <algorithm>
#include <set>

#include "experiments/report/chart/series_style.h"

namespace convscope {
namespace {

// Returns a style per config. If each config uses a different algorithm, these are the algorithms'
// styles; otherwise the configs are numbered.
std::vector<int> styles_of(const RunSet& set) {
  std::vector<int> styles, places;
  for (const RunGroup& group : set.groups) {
    places.push_back(static_cast<int>(places.size()));
    const auto& summary = group.runs[0].summary;
    const std::string name = summary ? summary->algorithm : "";
    const auto set_to = group.runs[0].config.find("conv.algorithm");
    if (name.empty() || set_to == group.runs[0].config.end() || set_to->second != name) continue;
    styles.push_back(algorithm_style(name));
  }
  const bool each = styles.size() == places.size() &&
                    std::set<int>(styles.begin(), styles.end()).size() == styles.size();
  return each ? styles : places;
}

void add_once(std::vector<std::string>& lines, const std::vector<std::string>& more) {
  for (const std::string& line : more) {
    if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
  }
}

// Appends a part's table to `data`. The tables may have different columns. A first column names the
// part.
void add_data(std::vector<std::vector<std::string>>& data, const std::string& part,
              const std::vector<std::vector<std::string>>& more) {
  if (more.empty()) return;
  if (data.empty()) data = {{"part"}};
  for (const std::string& column : more[0]) {
    if (std::ranges::find(data[0], column) != data[0].end()) continue;
    data[0].push_back(column);
    for (std::size_t row = 1; row < data.size(); ++row) data[row].emplace_back("-");
  }
  for (std::size_t row = 1; row < more.size(); ++row) {
    std::vector<std::string> cells(data[0].size(), "-");
    cells[0] = part;
    for (std::size_t i = 0; i < more[row].size(); ++i) {
      const auto at = std::ranges::find(data[0], more[0][i]);
      cells[static_cast<std::size_t>(at - data[0].begin())] = more[row][i];
    }
    data.push_back(std::move(cells));
  }
}

void add_part(Figure& whole, const std::string& title, Figure part) {
  whole.title = part.title;
  const auto push = [&](Section section) {
    section.title = section.title.empty() ? title : title + ": " + section.title;
    whole.sections.push_back(std::move(section));
  };
  if (!part.panels.empty()) {
    push({"", part.columns, std::move(part.panels), std::move(part.legend)});
  }
  for (Section& section : part.sections) push(std::move(section));
  add_once(whole.notes, part.notes);
  add_data(whole.data, title, part.data);
}

}  // namespace

std::string data_set_of(const RunGroup& group) {
  const RunData& run = group.runs[0];
  if (run.summary && !run.summary->data.empty()) return run.summary->data;
  const auto set = run.config.find("data.set");
  return set == run.config.end() ? "unknown data" : set->second;
}

std::vector<std::string> by_data_set(const RunGroup& group) { return {data_set_of(group)}; }

std::vector<std::string> by_data_set_and_batch(const RunGroup& group) {
  const auto& summary = group.runs[0].summary;
  return {data_set_of(group), cat("batch ", summary ? summary->batch_size : 0)};
}

std::vector<RunPart> parts_of(const RunSet& set, const PartFacts& facts) {
  const std::vector<int> styles = styles_of(set);
  std::vector<RunPart> parts;
  for (std::size_t i = 0; i < set.groups.size(); ++i) {
    const std::string title = join(facts(set.groups[i]), ", ");
    auto at = std::ranges::find(parts, title, &RunPart::title);
    if (at == parts.end()) at = parts.insert(parts.end(), {title, {}});
    at->members.push_back({&set.groups[i], styles[i], static_cast<int>(i) + 1});
  }
  if (parts.size() == 1) parts[0].title.clear();
  return parts;
}

std::function<Plot(const RunSet&)> draw_by_part(PartFacts facts,
                                                std::function<Plot(const RunPart&)> draw) {
  return [facts = std::move(facts), draw = std::move(draw)](const RunSet& set) {
    const std::vector<RunPart> parts = parts_of(set, facts);
    if (parts.size() == 1) return draw(parts[0]);
    if (parts.empty()) return draw(RunPart{});
    Plot whole;
    Figure figure;
    for (const RunPart& part : parts) {
      Plot plot = draw(part);
      add_once(whole.remarks, plot.remarks);
      if (plot.figure) {
        add_part(figure, part.title, std::move(*plot.figure));
      } else {
        whole.remarks.push_back(cat(part.title, ": ", plot.why_not));
        if (whole.why_not.empty()) whole.why_not = plot.why_not;
      }
    }
    if (figure.sections.empty()) {
      whole.remarks.clear();
      return whole;
    }
    std::vector<std::string> drawn;
    for (const Section& section : figure.sections) drawn.push_back(section.title);
    figure.subtitle = cat("apart, because they cannot share an axis: ", join(drawn, "; "));
    whole.figure = std::move(figure);
    return whole;
  };
}

Plot finished(Figure figure, const std::vector<const RunGroup*>& groups,
              std::vector<std::string> remarks, bool of_times) {
  for (const std::string& note : {spread_note(groups), of_times ? load_note(groups) : ""}) {
    if (!note.empty()) figure.notes.push_back(note);
  }
  figure.subtitle = runs_text(groups);
  return {.figure = std::move(figure), .remarks = std::move(remarks)};
}

std::vector<const RunGroup*> groups_of(const std::vector<PartMember>& members) {
  std::vector<const RunGroup*> out;
  for (const PartMember& member : members) out.push_back(member.group);
  return out;
}

std::vector<std::string> layers_in(const std::vector<const RunGroup*>& groups,
                                   CsvTable RunData::*table) {
  std::vector<std::string> names;
  for (const RunGroup* group : groups) {
    for (const RunData& run : group->runs) {
      for (std::size_t row = 0; row < (run.*table).rows.size(); ++row) {
        add_once(names, {(run.*table).text(row, "layer")});
      }
    }
  }
  return names;
}

}  // namespace convscope
