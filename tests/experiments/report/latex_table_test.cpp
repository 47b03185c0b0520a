// SPDX-License-Identifier: Apache-2.0
// latex_table_test.cpp: a table as LaTeX, and on a narrow terminal.
#include "experiments/report/table/latex_table.h"

#include <gtest/gtest.h>

#include "experiments/report/table/fit_table.h"
#include "experiments/report/table/fit_text.h"

namespace convscope {
namespace {

TEST(LatexTable, has_rules_units_and_deviations) {
  TextTable table;
  table.columns = {{"name"},
                   {.name = "avg_forward", .digits = 4, .unit = "s"},
                   {.name = "acc", .digits = 0, .is_mean = true, .unit = "%"},
                   {"n"}};
  table.rows = {{std::string("a_b & 50%"), 0.0012345, mean_std({93, 90, 96}), std::int64_t{3}},
                {std::string("c"), 1.5e-7, MeanStd{}, TableCell()},
                {std::string("d"), -2.0, mean_std({-1, -2}), std::int64_t{2}}};
  EXPECT_EQ(to_latex(table),
            "% \\usepackage{booktabs}\n"
            "\\begin{tabular}{lrrr}\n"
            "\\toprule\n"
            "name & avg\\_forward (s) & acc (\\%) & n \\\\\n"
            "\\midrule\n"
            "a\\_b \\& 50\\% & 0.001234 & $93.00 \\pm 3.00$ & 3 \\\\\n"
            "c & $1.5 \\times 10^{-7}$ & -- & -- \\\\\n"
            "d & $-2$ & $-1.50 \\pm 0.71$ & 2 \\\\\n"
            "\\bottomrule\n"
            "\\end{tabular}\n");
}

TEST(LatexTable, prints_every_character_as_it_is) {
  EXPECT_EQ(latex_escaped("\\ {x} ~^ #$ <>|\n±×"),
            "\\textbackslash{} \\{x\\} \\textasciitilde{}\\textasciicircum{} \\#\\$ "
            "$<$$>$$|$ $\\pm$$\\times$");
}

TextTable wide() {
  TextTable table;
  table.columns = {{"id"}, {"device"}, {"threads"}, {"acc", 0}, {"reason"}};
  for (const char* id : {"run-1", "run-2"}) {
    table.rows.push_back({std::string(id), std::string("cpu"), TableCell(),
                          id[4] == '1' ? 90.0 : 91.0, std::string(60, id[4])});
  }
  return table;
}

TEST(FitTable, moves_below_what_all_rows_share) {
  const FittedTable fitted = fit_table(wide(), 200, {"reason"}, {"id", "acc"});
  EXPECT_EQ(fitted.shared, "all rows: device cpu, threads -");
  EXPECT_TRUE(fitted.left_out.empty());
  ASSERT_EQ(fitted.table.columns.size(), 3u);
  EXPECT_EQ(fitted.table.columns[1].name, "acc");
  EXPECT_EQ(std::get<std::string>(fitted.table.rows[0][2]).size(), 60u);
  // fit_table() may remove a column in which all rows have the same value. In a table with one row
  // this holds for every column, so then none is removed. A column that must stay is never removed.
  TextTable one = wide();
  one.rows.resize(1);
  EXPECT_EQ(fit_table(one, 200, {}, {}).table.columns.size(), 5u);
  EXPECT_EQ(fit_table(wide(), 200, {}, {"device"}).table.columns[1].name, "device");
}

TEST(FitTable, cuts_long_texts_and_then_leaves_out_the_least_important) {
  const FittedTable cut = fit_table(wide(), 70, {"reason"}, {"id", "acc"});
  EXPECT_TRUE(cut.left_out.empty());
  const std::string& text = std::get<std::string>(cut.table.rows[0][2]);
  EXPECT_TRUE(text.ends_with("…"));
  EXPECT_EQ(shown_width(text), 40u);
  const FittedTable narrow = fit_table(wide(), 30, {"reason", "acc"}, {"id"});
  EXPECT_EQ(narrow.left_out, std::vector<std::string>{"reason"});
  EXPECT_EQ(narrow.table.columns.size(), 2u);
  EXPECT_EQ(narrow.table.rows[1].size(), 2u);
  const FittedTable narrower = fit_table(wide(), 10, {"reason", "acc"}, {"id"});
  EXPECT_EQ(narrower.left_out, (std::vector<std::string>{"acc", "reason"}));
}

TEST(FitText, keeps_marked_rows_in_their_table) {
  // `bench` prints `*` before the algorithm that `auto` chooses, so this row begins two columns to
  // the left of the heading.
  const std::string fitted = fit_text(
      "    algorithm  median ms  a long heading  by min\n"
      "  * direct          0.07               1       -\n",
      40);
  EXPECT_EQ(fitted,
            "    algorithm  median ms  a long heading\n"
            "  * direct          0.07               1\n"
            "\n"
            "    algorithm  by min\n"
            "  * direct          -\n");
}

TEST(FitText, lines_of_a_paragraph_begin_at_its_column) {
  EXPECT_EQ(hanging_text("  --kind  ", "figures:\n  curves: loss and accuracy\npareto", 10, 30),
            "  --kind  figures:\n            curves: loss and\n            accuracy\n"
            "          pareto\n");
}

TEST(FitText, breaks_long_lines_below_their_last_column) {
  EXPECT_EQ(fit_text("name   a sentence that is longer than the forty places of a line\nend\n", 40),
            "name   a sentence that is longer than\n       the forty places of a line\nend\n");
  EXPECT_EQ(fit_text("  a paragraph without columns, which has an indentation", 40),
            "  a paragraph without columns, which has\n    an indentation");
  EXPECT_EQ(fit_text("n=1,c=64,h=28,w=28,k=64,r=3,s=3,stride=1,pad=1 wide\n", 40),
            "n=1,c=64,h=28,w=28,k=64,r=3,s=3,\n  stride=1,pad=1 wide\n");
  const std::string short_lines = "a  b\n\n| c |\n";
  EXPECT_EQ(fit_text(short_lines, 40), short_lines);
  EXPECT_EQ(fit_text(std::string(300, 'x'), 0), std::string(300, 'x'));
}

TEST(FitText, makes_several_tables_of_one_that_is_too_wide) {
  EXPECT_EQ(fit_text("| name | first value | second value | third |\n"
                     "| ---- | ----------- | ------------ | ----- |\n"
                     "| a    | 1           | 2            | 3     |\n",
                     40),
            "| name | first value | second value |\n| ---- | ----------- | ------------ |\n"
            "| a    | 1           | 2            |\n\n| name | third |\n| ---- | ----- |\n"
            "| a    | 3     |\n");
  EXPECT_EQ(fit_text("algorithm  median of ms  another value  last\n"
                     "a                  1.5            2.5     3\n",
                     40),
            "algorithm  median of ms  another value\na                  1.5            2.5\n\n"
            "algorithm  last\na            3\n");
  EXPECT_EQ(fit_text("| a | text | b |\n| - | " + std::string(45, '-') +
                         " | - |\n| x | a text that is longer than what one line holds | 3 |\n",
                     40),
            "| a | text                             |\n"
            "| - | -------------------------------- |\n"
            "| x | a text that is longer than what  |\n"
            "|   | one line holds                   |\n\n"
            "| a | b |\n| - | - |\n| x | 3 |\n");
  EXPECT_EQ(fit_text("a long first  and second column\n" + std::string(50, '-') + "\n", 40),
            "a long first  and second column\n" + std::string(40, '-') + "\n");
}

TEST(FitTable, cuts_between_characters) {
  TextTable table;
  std::string text;
  for (int i = 0; i < 50; ++i) text += "é";
  table.columns = {{"id"}, {"note"}};
  table.rows = {{std::string("1"), text}, {std::string("2"), std::string("a" + text)}};
  for (const auto& row : fit_table(table, 20, {}, {}).table.rows) {
    const std::string cut = std::get<std::string>(row[1]);
    // The text is cut only between whole UTF-8 characters. Its characters have two bytes each, so
    // an even number of bytes remains.
    EXPECT_EQ((cut.size() - std::string("…").size() - (cut[0] == 'a' ? 1 : 0)) % 2, 0u) << cut;
  }
}

}  // namespace
}  // namespace convscope
