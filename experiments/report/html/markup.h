// SPDX-License-Identifier: Apache-2.0
// markup.h: HTML parts of pages: tables, lists, facts, and numbers with units.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

using HtmlTable = std::vector<std::vector<std::string>>;  // the first row is the head

// Returns the whole file of a run, or "" if it is missing or too long (run_file.h).
std::string file_text(const std::string& path);

// The start of a box in which a wide table scrolls. The keyboard can reach the box.
inline constexpr const char* kTableBox =
    "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"Table\">";
// Returns a table in a box that scrolls sideways, so that the page does not scroll. Known columns
// have their unit below their name.
std::string html_table(const HtmlTable& table);
// Returns "<ul>...", or "" for no sentence.
std::string html_list(const std::vector<std::string>& sentences);

// A name, its value, and a remark on the value in small letters. Without a value, the fact is
// omitted.
struct Fact {
  std::string name, value, more = {};
};
// Returns "<dl>..." without facts that have no value, or "".
std::string html_facts(const std::vector<Fact>& facts);

// Returns "1.40 ms"; "" for 0 or NaN, which mean that the time was not measured.
std::string seconds_text(double seconds);
std::string mib_text(double mib);
std::string percent_text(const std::optional<double>& percent);  // "98.70 %"
// Returns "44 426".
std::string count_text(double count);
// Returns the unit of a column of summary.json or epochs.csv: "s", "MiB"; "" for none.
std::string unit_of(const std::string& column);

}  // namespace convscope
