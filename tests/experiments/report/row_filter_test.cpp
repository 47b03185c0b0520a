// SPDX-License-Identifier: Apache-2.0
// row_filter_test.cpp: tests which runs a filter or a tag keeps, and the errors for bad filters.
#include "experiments/report/table/row_filter.h"

#include <gtest/gtest.h>

#include "framework/check.h"

namespace convscope {
namespace {

RunRow row(const std::string& id, std::optional<double> acc, double lr) {
  RunRow out;
  out.state = "DONE";
  out.summary.id = id;
  out.summary.name = "lenet-" + id;
  out.summary.kernel_size = id == "c" ? "7/3" : "5";
  out.summary.acc = acc;
  out.summary.tags = id == "a" ? "paper, first" : id == "b" ? "paper" : "";
  out.config = flat_config(cat("optim: {lr: ", lr, ", nesterov: true}\nmodel: {widths: [6, 16]}\n"),
                           "c.yaml");
  return out;
}

std::string kept(const std::vector<std::string>& filters) {
  std::vector<RowFilter> parsed;
  for (const std::string& text : filters) parsed.push_back(parse_filter(text));
  std::string out;
  const std::vector<RunRow> rows = {row("a", 98, 0.1), row("b", 97.5, 0.05),
                                    row("c", std::nullopt, 1)};
  for (const RunRow& one : filtered(rows, parsed)) out += one.summary.id;
  return out;
}

std::string refusal(const std::string& filter) {
  try {
    kept({filter});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
    return error.what();
  }
  return "";
}

TEST(RowFilter, compares_numbers_of_columns_and_of_config_keys) {
  EXPECT_EQ(kept({"optim.lr<0.1"}), "b");
  EXPECT_EQ(kept({"optim.lr<=0.1"}), "ab");
  EXPECT_EQ(kept({"optim.lr>=0.1"}), "ac");
  EXPECT_EQ(kept({"optim.lr > 0.1"}), "c");
  EXPECT_EQ(kept({"optim.lr=1.0"}), "c");  // an integer in the file
  EXPECT_EQ(kept({"optim.lr=1e-1"}), "a");
  EXPECT_EQ(kept({"acc>=98"}), "a");
  EXPECT_EQ(kept({"acc!=98"}), "bc");
}

TEST(RowFilter, several_must_all_hold) {
  EXPECT_EQ(kept({"optim.lr<1", "acc<98"}), "b");
  EXPECT_EQ(kept({"optim.lr<1", "acc>99"}), "");
}

TEST(RowFilter, compares_texts_and_finds_parts_of_them) {
  EXPECT_EQ(kept({"name=lenet-b"}), "b");
  EXPECT_EQ(kept({"name==lenet"}), "");
  EXPECT_EQ(kept({"name~lenet"}), "abc");
  EXPECT_EQ(kept({"name!~-b"}), "ac");
  EXPECT_EQ(kept({"id>a"}), "bc");
  EXPECT_EQ(kept({"optim.nesterov=true"}), "abc");
  EXPECT_EQ(kept({"model.widths=[6, 16]"}), "abc");
  EXPECT_EQ(kept({"kernel_size<6"}), "ab");  // 7/3 is not a number
}

TEST(RowFilter, a_run_without_a_value_is_neither_above_nor_below) {
  EXPECT_EQ(kept({"acc>0"}), "ab");
  EXPECT_EQ(kept({"acc<1000"}), "ab");
  EXPECT_EQ(kept({"tags<zebra"}), "ab");
  EXPECT_EQ(kept({"acc="}), "c");
  EXPECT_EQ(kept({"acc!="}), "ab");
  EXPECT_EQ(kept({"quant.w_bits=4"}), "");  // a key of the config that no run has
  EXPECT_EQ(kept({"quant.w_bits="}), "abc");
}

TEST(RowFilter, says_what_is_wrong_with_an_expression) {
  EXPECT_NE(refusal("acc").find("--filter 'acc': expected KEY=VALUE"), std::string::npos);
  EXPECT_NE(refusal("=3").find("nothing before the operator"), std::string::npos);
  EXPECT_NE(refusal("acc<").find("nothing after the operator"), std::string::npos);
  EXPECT_NE(refusal("acc=<3").find("the operator '=<'"), std::string::npos);
  EXPECT_NE(refusal("optim.lt<1").find("did you mean 'optim.lr'?"), std::string::npos);
  EXPECT_NE(refusal("ac<1").find("did you mean 'acc'?"), std::string::npos);
  EXPECT_NE(refusal("optim<1").find("'optim' is a whole block of the config"), std::string::npos);
  EXPECT_NE(refusal("acc<high").find("expected a number after '<' because acc is 98"),
            std::string::npos)
      << refusal("acc<high");
}

TEST(RowFilter, a_tag_is_a_whole_word) {
  const std::vector<RunRow> rows = {row("a", 1, 1), row("b", 1, 1), row("c", 1, 1)};
  const auto ids = [&](const std::vector<std::string>& tags) {
    std::string out;
    for (const RunRow& one : tagged(rows, tags)) out += one.summary.id;
    return out;
  };
  EXPECT_EQ(ids({"paper"}), "ab");
  EXPECT_EQ(ids({"paper", "first"}), "a");
  EXPECT_EQ(ids({"pap"}), "");
  EXPECT_EQ(ids({}), "abc");
}

}  // namespace
}  // namespace convscope
