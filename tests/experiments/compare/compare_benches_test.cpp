// SPDX-License-Identifier: Apache-2.0
// compare_benches_test.cpp: tests `convscope compare` on benchmark files: which rows are matched,
// which differences count as noise, and which lead to exit code 7.
#include "experiments/compare/compare_benches.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/bench/statistics.h"
#include "tests/experiments/report/run_folders.h"
#include "tests/experiments/report/run_here.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {
namespace {

using nlohmann::json;

json row(const std::string& algorithm, double ms, double spread = 0.02) {
  json blocks = json::array();
  for (int i = 0; i < 12; ++i) blocks.push_back(ms * (1 + spread * (i % 5 - 2) + 1e-4 * i));
  return {{"problem", "n=1,c=3"}, {"direction", "forward"}, {"algorithm", algorithm},
          {"device", "cpu"},      {"threads", 2},           {"median_ms", ms},
          {"p10_ms", 0.9 * ms},   {"p90_ms", 1.1 * ms},     {"block_medians_ms", blocks}};
}

class CompareBenches : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const json& rows, const json& more = json::object()) {
    json file = {{"format", "convscope bench conv2d 1"},
                 {"machine", {{"cpu", "one cpu"}, {"threads", 2}, {"peaks", {{"cores", 2}}}}},
                 {"settings", {{"cache", "warm"}, {"threads", 2}}},
                 {"rows", rows}};
    file.merge_patch(more);
    write_text(folder_ / name, file.dump());
    return folder_ / name;
  }
  CompareResult compared(const json& a, const json& b) {
    return compare_benches(
        {read_bench_side(write("a.json", a)), read_bench_side(write("b.json", b))});
  }
  TemporaryFolder folder_;
};

TEST_F(CompareBenches, matches_rows_by_what_names_them_and_tests_their_blocks) {
  const CompareResult found = compared({row("direct", 2), row("fft", 8), row("gone", 1)},
                                       {row("fft", 8.01), row("direct", 3), row("new", 1)});
  ASSERT_EQ(found.rows.size(), 2u);
  EXPECT_EQ(found.rows[0].key[2], "direct");
  EXPECT_EQ(found.rows[0].ratio, 1.5);
  EXPECT_EQ(found.rows[0].outcome, Outcome::worse);
  EXPECT_GT(found.rows[0].low, 1.4);
  EXPECT_LT(found.rows[0].high, 1.6);
  EXPECT_EQ(found.rows[0].p_adjusted, 2 * found.rows[0].p);
  EXPECT_EQ(found.rows[1].outcome, Outcome::noise);
  ASSERT_EQ(found.remarks.size(), 1u);
  EXPECT_NE(found.remarks[0].find("compared: the 2 rows that both have; 1 are only in"),
            std::string::npos);
  ASSERT_EQ(found.unmatched.size(), 2u);
  EXPECT_EQ(found.unmatched[0].key[2], "gone");
  EXPECT_TRUE(found.unmatched[0].only_first);
  EXPECT_EQ(found.unmatched[1].key[2], "new");
  EXPECT_FALSE(found.unmatched[1].only_first);
  EXPECT_EQ(gate_of(found, 2).missing.size(), 2u);
  EXPECT_EQ(gate_of(found, 2, /*both_ways=*/false).missing.size(), 1u);
  EXPECT_EQ(gate_of(found, 2).exit_code(), 7);
  const BenchTotal total = total_of(found, 1);
  EXPECT_EQ(total.rows, 2u);
  EXPECT_EQ(total.slower, 1u);
  EXPECT_EQ(total.noise, 1u);
  EXPECT_NEAR(total.mean_ratio, std::sqrt(1.5 * 8.01 / 8), 1e-12);
}

// A layer with other operand types is another row.
TEST_F(CompareBenches, rows_of_bytes_and_of_f32_are_not_compared) {
  json bytes = row("direct", 1);
  bytes["problem"] = "n=1,c=3,dtype=u8,types=u8:i8:i32:u8,layout=nchw16c";
  bytes["types"] = "u8:i8:i32:u8";
  const CompareResult found = compared({row("direct", 2), bytes}, {bytes, row("fft", 2)});
  ASSERT_EQ(found.rows.size(), 1u);
  EXPECT_EQ(found.rows[0].ratio, 1);
  EXPECT_EQ(found.rows[0].key[0], bytes["problem"].get<std::string>());
  EXPECT_ERROR(ErrorKind::kInvalid, "got none",
               compared(json::array({row("direct", 2)}), json::array({bytes})));
}

TEST_F(CompareBenches, compares_the_middle_of_the_samples_of_older_files) {
  const auto older = [](const std::string& algorithm, double ms) {
    json out = row(algorithm, ms);
    out.erase("block_medians_ms");
    return out;
  };
  json bare = older("bare", 1);
  bare.erase("p10_ms");
  const CompareResult found =
      compared({older("direct", 2), older("fft", 8), older("wide", 4), bare},
               {older("direct", 3), older("fft", 8.5), row("wide", 2), bare});
  ASSERT_EQ(found.rows.size(), 4u);
  EXPECT_EQ(found.rows[0].outcome, Outcome::worse);   // 2.7 to 3.3 over 1.8 to 2.2
  EXPECT_EQ(found.rows[1].outcome, Outcome::noise);   // 7.65 to 9.35 over 7.2 to 8.8
  EXPECT_EQ(found.rows[2].outcome, Outcome::better);  // an old file and a new one
  EXPECT_EQ(found.rows[3].outcome, Outcome::one_value);
  for (const BenchResult& one : found.rows) EXPECT_TRUE(std::isnan(one.p));
}

TEST_F(CompareBenches, compares_calls_instead_of_samples_with_several_files_a_side) {
  // The samples within each file differ little, but the times of repeated calls of the same program
  // differ by 20 %.
  std::string a, b, c;
  const double calls[] = {2.0, 2.4, 2.2};
  for (int i = 0; i < 3; ++i) {
    const auto file = [&](const std::string& name, double ms) {
      return write(cat(name, i, ".json"), json::array({row("direct", ms, 0.001), row("fft", 8)}));
    };
    const std::string comma = i == 0 ? "" : ",";
    a += comma + file("a", calls[i]);
    b += comma + file("b", calls[2 - i] * 1.05);
    c += comma + file("c", calls[i] * 3);
  }
  const auto first = [](const std::string& given) { return given.substr(0, given.find(',')); };
  EXPECT_EQ(compare_benches({read_bench_side(first(a)), read_bench_side(first(b))}).rows[0].outcome,
            Outcome::worse);
  const CompareResult found =
      compare_benches({read_bench_side(a), read_bench_side(b), read_bench_side(c)});
  EXPECT_TRUE(found.has_several_files);
  EXPECT_EQ(found.sides[1].text, "2 rows, 3 files");
  EXPECT_EQ(found.rows[0].outcome, Outcome::noise);
  EXPECT_NEAR(found.rows[0].ratio, 1.05, 1e-12);
  EXPECT_NEAR(found.rows[0].first_ms, std::cbrt(2.0 * 2.4 * 2.2), 1e-12);
  EXPECT_LT(found.rows[0].low, 1);
  EXPECT_GT(found.rows[0].high, 1);
  EXPECT_EQ(found.rows[2].outcome, Outcome::worse);
  EXPECT_NEAR(std::sqrt(found.rows[2].low * found.rows[2].high), 3, 1e-9);
  EXPECT_EQ(found.rows[1].outcome, Outcome::one_value);  // equal in every file
  EXPECT_EQ(run_here({"compare", a, b}).code, 0);
  EXPECT_EQ(run_here({"compare", a, a + ",none.json"}).code, 6);
}

TEST_F(CompareBenches, reads_networks_and_ladders) {
  const json net = {{"net", "lenet"},  {"mode", "train"}, {"batch", 64},     {"image", "1x28x28"},
                    {"device", "cpu"}, {"threads", 2},    {"median_ms", 3.0}};
  const BenchSide nets =
      read_bench_side(write("n.json", json::array({net}), {{"format", "convscope bench net 1"}}));
  EXPECT_EQ(nets.kind, "net");
  EXPECT_EQ(nets.rows.at(0).key,
            (std::vector<std::string>{"lenet", "train", "64", "1x28x28", "cpu", "2"}));
  const json ladders = {{{"ladder", "direct"},
                         {"problem", "n=1"},
                         {"direction", "forward"},
                         {"rungs",
                          {{{"rung", "lesson"}, {"threads", 1}, {"median_ms", 9.0}},
                           {{"rung", "fast"}, {"threads", 2}, {"median_ms", nullptr}}}}}};
  const BenchSide rungs = read_bench_side(write("l.json", nullptr,
                                                {{"format", "convscope bench conv2d ladder 1"},
                                                 {"settings", {{"device", "cpu"}}},
                                                 {"ladders", ladders}}));
  EXPECT_EQ(rungs.kind, "ladder");
  ASSERT_EQ(rungs.rows.size(), 1u);
  EXPECT_EQ(rungs.not_timed, 1u);
  EXPECT_EQ(rungs.rows[0].key,
            (std::vector<std::string>{"direct", "n=1", "forward", "lesson", "cpu", "1"}));
  const BenchSide deformable = read_bench_side(write(
      "d.json", json::array({row("fused", 2)}), {{"format", "convscope bench deform_conv2d 1"}}));
  EXPECT_EQ(deformable.kind, "deform_conv2d");
  EXPECT_EQ(deformable.rows.at(0).key[2], "fused");
  EXPECT_EQ(compare_benches({deformable, deformable}).rows.size(), 1u);
  const BenchSide plain = read_bench_side(write("c.json", json::array({row("direct", 2)})));
  for (const auto& [a, b] : {std::pair(nets, rungs), std::pair(plain, deformable)}) {
    try {
      compare_benches({a, b});
      FAIL() << "compared";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("expected files of one kind"), std::string::npos)
          << error.what();
    }
  }
}

TEST_F(CompareBenches, says_what_keeps_files_without_a_common_row_apart) {
  json other = row("direct", 2);
  other["threads"] = 1;
  try {
    compared(json::array({row("direct", 2)}), json::array({other}));
    FAIL() << "compared";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
    EXPECT_NE(std::string(error.what()).find("they have threads 2 and 1"), std::string::npos)
        << error.what();
  }
}

TEST_F(CompareBenches, ends_with_7_above_the_factor) {
  const std::string a = write("a.json", {row("direct", 2), row("fft", 8)});
  const std::string b = write("b.json", {row("direct", 2.5), row("fft", 8)});
  EXPECT_EQ(run_here({"compare", a, b}).code, 0);
  EXPECT_EQ(run_here({"compare", a, b, "--fail-above", "1.3"}).code, 0);
  EXPECT_EQ(run_here({"compare", b, a, "--fail-above", "1.1"}).code, 0);
  const Output called = run_here({"compare", a, b, "--fail-above", "1.1"});
  EXPECT_EQ(called.code, 7);
  EXPECT_EQ(called.err, "regression: B: n=1,c=3 forward direct cpu 2 takes 1.250 times as long\n");
  // The row is slower by more than the allowed factor of 1.1, but the difference is within the
  // noise.
  const std::string loud = write("c.json", {row("direct", 2, 0.4), row("fft", 8)});
  const std::string louder = write("d.json", {row("direct", 2.5, 0.4), row("fft", 8)});
  EXPECT_EQ(run_here({"compare", loud, louder, "--fail-above", "1.1"}).code, 0);
}

TEST_F(CompareBenches, ends_with_9_where_a_busy_machine_decides) {
  const json busy = {{"machine", {{"cores", 2}, {"cores_of_others", 1.2}}}};
  const std::string a = write("a.json", {row("direct", 2), row("fft", 8)});
  const std::string b = write("b.json", {row("direct", 2.5), row("fft", 8)}, busy);
  const std::vector<std::string> words = {"compare", a, b, "--fail-above", "1.1"};
  const Output called = run_here(words);
  EXPECT_EQ(called.code, 9);
  EXPECT_TRUE(called.err.starts_with("undecided: the machine was busy: B: n=1,c=3 forward direct"))
      << called.err;
  EXPECT_NE(called.out.find("slower (busy)"), std::string::npos) << called.out;
  // On a quiet machine, one slow row is enough for exit code 7.
  json quiet = row("fft", 16);
  quiet["cores_of_others"] = 0.1;
  write("b.json", {row("direct", 2.5), quiet}, busy);
  EXPECT_EQ(run_here(words).code, 7);
}

TEST_F(CompareBenches, ends_with_7_where_a_row_is_missing_or_a_file_unfinished) {
  const std::string a = write("a.json", {row("direct", 2), row("fft", 8)});
  const std::string b = write("b.json", json::array({row("direct", 2)}));
  EXPECT_EQ(run_here({"compare", a, b}).code, 0);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{a, b, "--fail-above", "1.1"}, {b, a, "--require-all"}}) {
    std::vector<std::string> line = {"compare"};
    line.insert(line.end(), words.begin(), words.end());
    const Output called = run_here(line);
    EXPECT_EQ(called.code, 7);
    EXPECT_NE(called.err.find("missing: n=1,c=3 forward fft cpu 2 is in "), std::string::npos)
        << called.err;
  }
  EXPECT_EQ(run_here({"compare", a, b, "--fail-above", "1.1", "--no-require-all"}).code, 0);
  const std::string half =
      write("c.json", {row("direct", 2), row("fft", 8)}, {{"complete", false}});
  EXPECT_EQ(run_here({"compare", a, half, "--fail-above", "1.1"}).code, 7);
}

TEST_F(CompareBenches, refuses_a_file_of_another_format) {
  const json rows = json::array({row("direct", 2)});
  for (const char* format : {"convscope bench conv2d 2", "convscope bench conv2d 11", "other 1"}) {
    const std::string file = write("f.json", rows, {{"format", format}});
    EXPECT_ERROR(ErrorKind::kData, "but this program reads", read_bench_side(file));
  }
}

TEST_F(CompareBenches, shows_what_differs_and_what_all_rows_share) {
  const std::string a = write("a.json", {row("direct", 2), row("fft", 8)});
  const std::string b = write("b.json", {row("direct", 1), row("fft", 8)},
                              {{"settings", {{"cache", "cold"}}}, {"machine", {{"cpu", "other"}}}});
  const std::string text = run_here({"compare", a, b}).out;
  EXPECT_NE(text.find("| cache | warm | cold |"), std::string::npos) << text;
  EXPECT_NE(text.find("the machines differ (cpu)"), std::string::npos) << text;
  EXPECT_NE(text.find("(all rows: problem n=1,c=3, direction forward, device cpu, threads 2)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("| direct    | 2   | 1   | 0.500 |"), std::string::npos) << text;
  EXPECT_NE(text.find("B / A: geometric mean 0.707 of 2 rows; 1 faster, 0 slower, 1 within noise."),
            std::string::npos)
      << text;
  const json all = json::parse(run_here({"compare", a, b, "-f", "json"}).out);
  EXPECT_EQ(all["kind"], "benchmarks");
  EXPECT_EQ(all["totals"][0]["faster"], 1);
  EXPECT_EQ(all["results"][0]["ratio"], 0.5);
}

TEST_F(CompareBenches, refuses_what_is_no_benchmark) {
  const auto kind = [&](const std::string& text) {
    write_text(folder_ / "x.json", text);
    try {
      read_bench_side(folder_ / "x.json");
    } catch (const Error& error) {
      return exit_code(error.kind());
    }
    return 0;
  };
  EXPECT_EQ(kind("no JSON"), 4);
  EXPECT_EQ(kind("[1, 2]"), 4);
  EXPECT_EQ(kind("{\"rows\": 3}"), 4);
  EXPECT_EQ(kind("{\"rows\": []}"), 4);
  EXPECT_EQ(kind("{\"rows\": [1, {\"median_ms\": -2}, {\"median_ms\": \"x\"}]}"), 4);
  EXPECT_EQ(kind("{\"format\": \"other\", \"rows\": [{\"median_ms\": 2}]}"), 4);
  EXPECT_THROW(read_bench_side(folder_ / "none.json"), Error);
}

TEST(TimingSummary, keeps_the_medians_of_blocks_in_their_order) {
  EXPECT_EQ(summary_of({0.003, 0.001, 0.002}).block_medians_ms, (std::vector<double>{3, 1, 2}));
  std::vector<double> drift;
  for (int i = 0; i < 320; ++i) drift.push_back(1e-3 * (i / 10 + 1) + (i % 10 == 0 ? 1 : 0));
  const TimingSummary summary = summary_of(drift);
  ASSERT_EQ(summary.block_medians_ms.size(), 32u);
  EXPECT_NEAR(summary.block_medians_ms.front(), 1, 1e-9);
  EXPECT_NEAR(summary.block_medians_ms.back(), 32, 1e-9);
  std::vector<double> threes;  // blocks of three, the middle one of which is never first
  for (int i = 0; i < 96; ++i) threes.push_back(1e-3 * (i / 3 * 10 + std::array{3, 1, 2}[i % 3]));
  EXPECT_NEAR(summary_of(threes).block_medians_ms[7], 72, 1e-9);
  std::vector<double> uneven(100, 0.001);
  EXPECT_EQ(summary_of(uneven).block_medians_ms.size(), 32u);
  EXPECT_TRUE(summary_of({}).block_medians_ms.empty());
}

}  // namespace
}  // namespace convscope::testing
