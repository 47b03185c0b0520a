// SPDX-License-Identifier: Apache-2.0
// markup.h: what pages are put together from: tables, lists, facts, and numbers with their units.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

using HtmlTable = std::vector<std::vector<std::string>>;  // first row: head

// The whole file of a run, or "" where there is none or it is too long (run_file.h).
std::string file_text(const std::string& path);

// The box that scrolls a wide table; the keyboard reaches it.
inline constexpr const char* kTableBox =
    "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"Table\">";
// In a box of its own that scrolls sideways, so that the page does not. Known columns get their
// unit below their name.
std::string html_table(const HtmlTable& table);
// "<ul>...", or "" for no sentence.
std::string html_list(const std::vector<std::string>& sentences);

// A name with its value, and what belongs to the value in small letters; nothing when it is empty.
struct Fact {
  std::string name, value, more = {};
};
// "<dl>..." without the facts that have no value, or "".
std::string html_facts(const std::vector<Fact>& facts);

// "1.40 ms"; "" for 0 and what is no number: it was not measured.
std::string seconds_text(double seconds);
std::string mib_text(double mib);
std::string percent_text(const std::optional<double>& percent);  // "98.70 %"
// "44 426"
std::string count_text(double count);
// The unit of a column of summary.json or epochs.csv: "s", "MiB"; "" for none.
std::string unit_of(const std::string& column);

}  // namespace convscope
