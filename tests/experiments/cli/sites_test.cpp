// SPDX-License-Identifier: Apache-2.0
// sites_test.cpp: tests `convscope sites`: the counts of active sites after each layer of a
// network, the figure, and the written files.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "experiments/cli/cli.h"
#include "experiments/notebooks/show_sites.h"
#include "framework/io/npy.h"
#include "tests/experiments/report/xml_check.h"
#include "tests/layers/sparse_conv/sparse_case.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {
namespace {

using Places = std::set<Place>;

Places set_of(const SparseSites& sites) {
  const std::vector<Place> places = places_of(sites);
  return {places.begin(), places.end()};
}

// Computes from the coordinates of the sites which outputs of a 3x3 kernel with padding 1 read at
// least one site.
Places met(const Places& sites, std::int64_t stride, std::int64_t height, std::int64_t width) {
  Places out;
  for (std::int64_t n = 0; n < 2; ++n) {
    for (std::int64_t p = 0; p < (height - 1) / stride + 1; ++p) {
      for (std::int64_t q = 0; q < (width - 1) / stride + 1; ++q) {
        for (int tap = 0; tap < 9; ++tap) {
          const Place at = {n, 0, p * stride - 1 + tap / 3, q * stride - 1 + tap % 3};
          if (sites.contains(at)) out.insert({n, 0, p, q});
        }
      }
    }
  }
  return out;
}

class SitesCommand : public ::testing::Test {
 protected:
  int call(const std::string& words) {
    std::istringstream in("convscope sites " + words);
    std::vector<std::string> all;
    for (std::string word; in >> word;) all.push_back(word);
    std::vector<char*> arguments;
    for (std::string& word : all) arguments.push_back(word.data());
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    const int code = run_command_line(static_cast<int>(arguments.size()), arguments.data());
    out_ = ::testing::internal::GetCapturedStdout();
    errors_ = ::testing::internal::GetCapturedStderr();
    return code;
  }
  std::string at(const char* name) const { return folder_ / name; }

  TemporaryFolder folder_;
  std::string out_, errors_;
};

TEST(SitesThrough, CountWhereAKernelMeetsASite) {
  const SiteGrid grid{2, 2, {1, 11, 14}};
  const auto input =
      std::make_shared<const SparseSites>(coordinates_of(random_places(grid, 0.08, 3), 2), grid);
  const Places first = set_of(*input);
  const auto kept = sites_through(input, {}, /*keep=*/true);
  const auto plain = sites_through(input, {}, /*keep=*/false);
  ASSERT_EQ(kept.size(), 5u);
  EXPECT_EQ(kept[1].sites, input);
  EXPECT_EQ(set_of(*kept[2].sites), met(first, 2, 11, 14));
  EXPECT_EQ(kept[3].sites, kept[2].sites);
  const Places spread = met(first, 1, 11, 14);
  EXPECT_EQ(set_of(*plain[1].sites), spread);
  EXPECT_EQ(set_of(*plain[2].sites), met(spread, 2, 11, 14));
  EXPECT_GT(plain[1].sites->count(), kept[1].sites->count());
  EXPECT_EQ(kept[0].pairs, 0);
  EXPECT_GT(plain[1].pairs, kept[1].pairs);
  // Without a stride the grid does not change.
  EXPECT_EQ(sites_through(input, {.stride = 1, .stages = 3}, false).size(), 4u);
}

TEST(SitesPanel, ShadesWhatLiesBehindOneAnother) {
  const SiteGrid grid{3, 2, {3, 4, 5}};
  const auto sites = SparseSites(
      coordinates_of({{0, 0, 1, 2}, {0, 1, 1, 2}, {0, 2, 1, 2}, {0, 0, 3, 4}, {1, 0, 0, 0}}, 3),
      grid);
  const ImagePanel panel = sites_panel(sites, "t");
  EXPECT_EQ(panel.rows, 4);
  EXPECT_EQ(panel.columns, 5);
  EXPECT_EQ(panel.shades[1 * 5 + 2], 1);
  EXPECT_EQ(panel.shades[3 * 5 + 4], 0.25);
  EXPECT_EQ(panel.shades[0], 0);  // site of the other volume
  EXPECT_EQ(sites_panel(sites, "t", 1).shades[0], 1);
  EXPECT_THROW(sites_panel(sites, "t", 2), Error);
  const SparseSites wide(coordinates_of({{0, 0, 0, 999}}, 2), {2, 1, {1, 10, 1000}});
  EXPECT_LE(sites_panel(wide, "").columns, 96);
  EXPECT_EQ(sites_panel(wide, "").shades.size(), static_cast<std::size_t>(91));
}

TEST_F(SitesCommand, PrintsCountsAndDrawsThem) {
  const SiteGrid grid{2, 2, {1, 11, 14}};
  const Tensor coordinates = coordinates_of(random_places(grid, 0.08, 3), 2);
  write_npy(at("s.npy"), coordinates);
  ASSERT_EQ(
      call(at("s.npy") + " --batch-index 1 -o " + at("s.svg") + " --out-sites " + at("again.npy")),
      0)
      << errors_;
  const auto input =
      std::make_shared<const SparseSites>(coordinates, SiteGrid::around(coordinates));
  const auto plain = sites_through(input, {}, false);
  EXPECT_TRUE(out_.starts_with(cat(input->count(), " sites in ", input->grid().text(), "\n")));
  EXPECT_NE(out_.find("| 3x3 / 2 | "), std::string::npos) << out_;
  EXPECT_NE(out_.find(cat("| ", plain[1].sites->count(), " ")), std::string::npos) << out_;
  EXPECT_TRUE(same_bits(read_npy(at("again.npy")), coordinates));  // in the order of the file
  std::ifstream file(at("s.svg"));
  const std::string svg((std::istreambuf_iterator<char>(file)), {});
  expect_well_formed(svg);
  EXPECT_NE(svg.find(cat("3x3: ", plain[1].sites->count(), ", ")), std::string::npos);
  EXPECT_NE(svg.find("number 1 of the batch"), std::string::npos);
}

TEST_F(SitesCommand, DrawsAClouds) {
  ASSERT_EQ(call("--cloud cloud=shell,sites=200,seed=2 --stages 1 --out-sites " + at("c.npy")), 0)
      << errors_;
  EXPECT_EQ(read_npy(at("c.npy")).shape(), Shape({200, 4}));
  EXPECT_NE(out_.find("| 3x3x3 / 2 |"), std::string::npos) << out_;
  // The problem of a benchmark is accepted too.
  ASSERT_EQ(call("--cloud cloud=ink,sites=99,seed=1,kernel=3x3,c=8,k=8"), 0) << errors_;
  EXPECT_TRUE(out_.starts_with("99 sites in ")) << out_;
}

TEST_F(SitesCommand, MistakesAreOneSentenceAndACode) {
  const auto expect = [&](const std::string& arguments, int code, const std::string& part) {
    EXPECT_EQ(call(arguments), code) << arguments << "\n" << errors_;
    EXPECT_EQ(out_, "") << arguments;
    EXPECT_NE(errors_.find(part), std::string::npos) << errors_;
  };
  const std::string cloud = "--cloud cloud=shell,sites=20,seed=2 ";
  expect("", 2, "expected a file SITES or --cloud TEXT, got none of them");
  expect(at("s.npy") + " " + cloud, 2, "got both");
  expect(at("absent.npy"), 6, "absent.npy");
  expect("--cloud cloud=shel,sites=20", 2, "did you mean 'shell'?");
  expect(cloud + "--kernel 4", 2, "expected --kernel 1, 3, 5 or 7");
  expect(cloud + "--stride 0", 2, "--stride");
  expect(cloud + "--stages 9", 2, "--stages");
  expect(cloud + "--batch-index 1", 2, "expected a batch index from 0 to 0, got 1");
  expect(cloud + "-o /nonexistent/a.svg", 6, "/nonexistent");
  write_npy(at("bad.npy"), Tensor::zeros({4, 2}, DType::i32));
  expect(at("bad.npy"), 2, "expected coordinates [n,3] (batch, h, w) or [n,4]");
  write_npy(at("none.npy"), Tensor::empty({0, 4}, DType::i32));
  EXPECT_EQ(call(at("none.npy")), 0) << errors_;
}

}  // namespace
}  // namespace convscope::testing
