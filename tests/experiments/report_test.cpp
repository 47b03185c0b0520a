// SPDX-License-Identifier: Apache-2.0
// report_test.cpp: the table of runs as Markdown, CSV and JSON.
#include <nlohmann/json.hpp>

#include "experiments/report/run_table.h"
#include "experiments/report/table/run_columns.h"
#include "experiments/run_folder/run_search.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

RunRow row(const std::string& id, double forward, std::optional<double> acc) {
  RunRow out;
  out.state = "DONE";
  out.path = "runs/lenet/" + id;
  RunSummary& s = out.summary;
  s.id = id;
  s.name = "lenet";
  s.batch_size = 64;
  s.avg_forward = forward;
  s.avg_backward = 0.0021345;
  s.avg_forward_mem = 3.25;
  s.avg_backward_mem = 7.5;
  s.kernel_size = "5";
  s.acc = acc;
  s.timed_steps = 10;
  return out;
}

TEST(RunTable, markdown_has_the_agreed_columns_in_order) {
  EXPECT_EQ(
      to_markdown({row("a", 0.00123456, 98.765), row("b|c", 0.5, std::nullopt)}, core_columns()),
      "| id   | name  | batch_size | avg_forward | avg_backward | avg_forward_mem | "
      "avg_backward_mem | kernel_size | acc   |\n"
      "| ---- | ----- | ---------- | ----------- | ------------ | --------------- | "
      "---------------- | ----------- | ----- |\n"
      "| a    | lenet | 64         | 0.001235    | 0.002135     | 3.25            | "
      "7.5              | 5           | 98.77 |\n"
      "| b\\|c | lenet | 64         | 0.5         | 0.002135     | 3.25            | "
      "7.5              | 5           | -     |\n");
}

// Each field of this summary has a different value, so a column that shows the wrong field is
// noticed.
TEST(RunTable, every_column_holds_the_field_of_its_name) {
  nlohmann::json fields = nlohmann::json::parse(to_json_text(RunSummary{}));
  double next = 1;
  for (auto& [name, value] : fields.items()) {
    next += 1;
    if (name == "format") continue;  // of the file, and no field
    if (value.is_number_float() || value.is_null()) value = next + 0.5;
    if (value.is_number_integer()) value = static_cast<std::int64_t>(next);
    if (value.is_string()) value = cat("text ", next);
  }
  RunRow run;
  run.summary = parse_summary(fields.dump());
  int compared = 0;
  for (const RunColumn& column : run_columns()) {
    if (column.of == nullptr || column.name == std::string("busy")) continue;  // not a field
    const TableCell cell = run_cell(run, column.name);
    const nlohmann::json& field = fields.at(column.name);
    if (const auto* number = std::get_if<double>(&cell)) {
      EXPECT_EQ(*number, field.get<double>()) << column.name;
    } else if (const auto* whole = std::get_if<std::int64_t>(&cell)) {
      EXPECT_EQ(*whole, field.get<std::int64_t>()) << column.name;
    } else {
      ASSERT_EQ(cell.index(), TableCell(std::string()).index()) << column.name;
      EXPECT_EQ(std::get<std::string>(cell), field.get<std::string>()) << column.name;
    }
    ++compared;
  }
  EXPECT_GT(compared, 25);
}

// Summaries that were written before a field existed.
TEST(RunTable, has_empty_cells_for_columns_newer_than_a_run) {
  RunRow old = row("a", 0.5, 90.0);
  old.summary.avg_inference = 0.25;
  old.summary.weight_bytes = 1000;
  EXPECT_EQ(run_cell(old, "avg_inference"), TableCell(0.25));
  EXPECT_EQ(reading_columns({old}).back(), "weight_bytes");
  nlohmann::json fields = nlohmann::json::parse(to_json_text(old.summary));
  fields.erase("avg_inference");
  fields.erase("weight_bytes");
  old.summary = parse_summary(fields.dump());
  EXPECT_EQ(old.summary.acc, 90.0);
  EXPECT_EQ(run_cell(old, "avg_inference"), TableCell());
  EXPECT_EQ(run_cell(old, "weight_bytes"), TableCell());
}

TEST(RunTable, a_reader_sees_the_state_only_when_a_run_is_not_done) {
  RunRow done = row("a", 0.5, 90.0);
  done.state = "DONE";
  RunRow failed = done;
  failed.state = "FAILED";
  EXPECT_EQ(reading_columns({done}).back(), "images_per_s");
  EXPECT_EQ(reading_columns({done, failed}).back(), "reason");
}

TEST(RunTable, csv_quotes_what_needs_it) {
  RunRow failed = row("a", 0.25, 50.0);
  failed.state = "FAILED";
  failed.reason = "[train] expected \"this\", got that";
  EXPECT_EQ(to_csv({failed}, {"id", "avg_forward", "acc", "state", "reason"}),
            "id,avg_forward,acc,state,reason\n"
            "a,0.25,50,FAILED,\"[train] expected \"\"this\"\", got that\"\n");
}

TEST(RunTable, json_keeps_numbers_and_has_null_for_what_is_missing) {
  EXPECT_EQ(to_json({row("a", 0.25, std::nullopt)}, {"id", "batch_size", "avg_forward", "acc"}),
            "[\n  {\n    \"id\": \"a\",\n    \"batch_size\": 64,\n    \"avg_forward\": 0.25,\n"
            "    \"acc\": null\n  }\n]\n");
}

TEST(RunTable, sorts_by_any_column_with_empty_cells_last) {
  std::vector<RunRow> rows = {row("a", 3, 97.0), row("b", 1, std::nullopt), row("c", 2, 99.0)};
  const auto ids = [&] { return rows[0].summary.id + rows[1].summary.id + rows[2].summary.id; };
  sort_rows(rows, "avg_forward", false);
  EXPECT_EQ(ids(), "bca");
  sort_rows(rows, "acc", true);
  EXPECT_EQ(ids(), "cab");
  sort_rows(rows, "acc", false);
  EXPECT_EQ(ids(), "acb");
  for (const std::string& column : all_columns()) EXPECT_NO_THROW(sort_rows(rows, column, true));
}

TEST(RunTable, an_unknown_column_is_an_error_that_names_the_nearest) {
  std::vector<RunRow> rows = {row("a", 1, 1.0)};
  try {
    sort_rows(rows, "avg_forwrad", false);
    FAIL() << "sorted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'avg_forward'?"), std::string::npos);
  }
}

TEST(RunTable, a_summary_comes_back_as_it_was_written) {
  const RunSummary summary = row("a", 0.1, 12.5).summary;
  const RunSummary back = parse_summary(to_json_text(summary));
  EXPECT_EQ(to_json_text(back), to_json_text(summary));
  EXPECT_EQ(back.acc, 12.5);
  EXPECT_EQ(back.val_acc, std::nullopt);
  EXPECT_THROW(parse_summary("{\"id\": 3"), Error);
  EXPECT_THROW(parse_summary("{}"), Error);
}

TEST(RunTable, unfinished_and_broken_runs_are_listed_with_their_state) {
  const TemporaryFolder root;
  std::string done, gone;
  {
    const RunFolder folder = RunFolder::create(root.path(), "lenet", 1);
    folder.write("config.yaml", "name: lenet\n");
    folder.write("summary.json", to_json_text(row("x", 1, 90.0).summary));
    folder.set_status({.state = "DONE", .exit_code = 0});
    done = folder.path();
    const RunFolder killed = RunFolder::create(root.path(), "lenet", 1);
    killed.write("config.yaml", "name: lenet\n");
    killed.set_status({.state = "RUNNING"});
    gone = killed.path();
    const RunFolder broken = RunFolder::create(root.path(), "other", 1);
    broken.write("status.json", "{");
  }
  const std::vector<std::string> found = find_runs(root.path());
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0], done);  // by name, `latest` is not counted twice
  const RunRow first = read_run_row(found[0]);
  EXPECT_EQ(first.state, "DONE");
  const RunRow second = read_run_row(found[1]);
  EXPECT_EQ(second.state, "KILLED");
  EXPECT_FALSE(second.has_summary);
  const RunRow third = read_run_row(found[2]);
  EXPECT_EQ(third.state, "UNREADABLE");
  EXPECT_EQ(third.summary.name, "other");
  EXPECT_NE(third.reason.find("status.json"), std::string::npos);
  const std::string table = to_markdown({first, second, third}, all_columns());
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 5);
  EXPECT_EQ(find_runs(root.path() + "/lenet").size(), 2u);
  EXPECT_EQ(find_runs(done), std::vector<std::string>{done});
  EXPECT_EQ(newest_unfinished_run(root.path() + "/lenet"), gone);
  {
    const RunFolder folder = RunFolder::reopen(gone);
    folder.set_status({.state = "FAILED", .exit_code = 1});
  }
  EXPECT_EQ(newest_unfinished_run(root.path() + "/lenet"), std::nullopt);
  {
    const RunFolder folder = RunFolder::reopen(gone);
    folder.set_status({.state = "FAILED", .exit_code = 6});
  }
  EXPECT_EQ(newest_unfinished_run(root.path() + "/lenet"), gone);
}

}  // namespace
}  // namespace convscope::testing
