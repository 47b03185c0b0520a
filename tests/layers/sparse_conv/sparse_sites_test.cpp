// SPDX-License-Identifier: Apache-2.0
// sparse_sites_test.cpp: tests coordinates of sites: which are refused, how sites are ordered, and
// the largest grid.
#include <algorithm>

#include "tests/layers/sparse_conv/sparse_case.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

const SiteGrid kVolume{3, 2, {4, 5, 6}};

std::string refusal(const std::vector<Place>& places, const SiteGrid& grid) {
  try {
    const SparseSites sites(coordinates_of(places, grid.rank), grid);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SparseSites, StandInTheOrderOfTheirKeys) {
  const std::vector<Place> places = {{1, 0, 0, 0}, {0, 3, 4, 5}, {0, 0, 1, 0}, {0, 0, 0, 5}};
  const SparseSites sites(coordinates_of(places, 3), kVolume);
  EXPECT_EQ(sites.keys(), (std::vector<std::uint64_t>{5, 6, 119, 120}));
  EXPECT_EQ(places_of(sites), (std::vector<Place>{places[3], places[2], places[1], places[0]}));
  const Tensor rows = Tensor::from({10, 11, 20, 21, 30, 31, 40, 41}, {4, 2});
  const Tensor sorted = sites.in_key_order(rows);
  EXPECT_TRUE(same_bits(sorted, Tensor::from({40, 41, 30, 31, 20, 21, 10, 11}, {4, 2})));
  EXPECT_TRUE(same_bits(sites.in_users_order(sorted), rows));
}

// Keys must be compared as integers. Converted to double, the last position of this grid would
// appear to be outside.
TEST(SparseSites, HoldTheLastPlaceOfAGridOf2To54Places) {
  const std::int64_t last = (std::int64_t{1} << 18) - 1;
  const SiteGrid grid{3, 1, {last + 1, last + 1, last + 1}};
  EXPECT_EQ(grid.all_places(), std::int64_t{1} << 54);
  const std::uint64_t key = (std::uint64_t{1} << 54) - 1;
  EXPECT_EQ(places_of(SparseSites(std::vector<std::uint64_t>{key}, grid)),
            (std::vector<Place>{{0, last, last, last}}));
  EXPECT_THROW(SparseSites(std::vector<std::uint64_t>{key + 1}, grid), Error);
  const auto sites =
      std::make_shared<const SparseSites>(coordinates_of({{0, last, last, last}}, 3), grid);
  const SharedMap map = SparseMap::strided(sites, {.size = {1, 1, 1}, .stride = {1, 1, 1}});
  EXPECT_EQ(map->out_sites()->keys(), std::vector<std::uint64_t>{key});
}

TEST(SparseSites, OfRandomPlacesAreThosePlaces) {
  for (const int rank : {2, 3}) {
    const SiteGrid grid{rank, 3, {rank == 2 ? 1 : 20, 17, 31}};
    const std::vector<Place> places = random_places(grid, 0.3, 5);
    const SparseSites sites(coordinates_of(places, rank), grid);
    std::vector<Place> sorted = places;
    std::ranges::sort(sorted);
    EXPECT_EQ(places_of(sites), sorted);
    EXPECT_TRUE(same_bits(sites.coordinates(), coordinates_of(sorted, rank)));
    EXPECT_TRUE(same_bits(sites.in_users_order(sites.coordinates()), coordinates_of(places, rank)));
  }
}

TEST(SparseSites, RefuseAPlaceOutsideOfTheGridByItsRow) {
  EXPECT_NE(refusal({{0, 0, 0, 0}, {0, 0, 5, 0}}, kVolume)
                .find("expected h from 0 to 4 in the grid 2x4x5x6, got 5 in row 1: [0, 0, 5, 0]"),
            std::string::npos);
  EXPECT_NE(refusal({{0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 0, -1}}, kVolume).find("got -1 in row 2"),
            std::string::npos);
  EXPECT_NE(refusal({{2, 0, 0, 0}}, kVolume).find("expected a batch index from 0 to 1"),
            std::string::npos);
  EXPECT_NE(refusal({{-1, 0, 0, 0}}, kVolume).find("got -1 in row 0"), std::string::npos);
  EXPECT_NE(refusal({{0, 0, 3, 9}}, {2, 1, {1, 4, 9}}).find("[0, 3, 9]"), std::string::npos);
}

TEST(SparseSites, RefuseAPlaceThatComesTwiceByBothRows) {
  const std::string why =
      refusal({{0, 1, 2, 3}, {1, 0, 0, 0}, {0, 0, 0, 0}, {0, 1, 2, 3}}, kVolume);
  EXPECT_NE(why.find("[0, 1, 2, 3] in row 0 and again in row 3"), std::string::npos) << why;
}

TEST(SparseSites, RefuseWhatAreNoCoordinates) {
  EXPECT_THROW(SparseSites(Tensor::zeros({3, 4}), kVolume), Error);
  EXPECT_THROW(SparseSites(Tensor::zeros({3, 5}, DType::i32), kVolume), Error);
  EXPECT_THROW(SparseSites(Tensor::zeros({3, 3}, DType::i32), kVolume), Error);
  EXPECT_THROW(SparseSites(Tensor::zeros({12}, DType::i32), kVolume), Error);
}

TEST(SparseSites, MayBeNone) {
  const SparseSites sites(Tensor::empty({0, 4}, DType::i32), kVolume);
  EXPECT_EQ(sites.count(), 0);
  EXPECT_EQ(sites.coordinates().shape(), Shape({0, 4}));
  EXPECT_EQ(SiteGrid::around(Tensor::empty({0, 3}, DType::i32)), (SiteGrid{2, 1, {1, 1, 1}}));
}

TEST(SparseSites, HaveKeysOfSixtyTwoBits) {
  const std::int64_t most = (std::int64_t{1} << 31) - 1;
  const SiteGrid wide{2, 1, {1, most, most}};
  const std::vector<Place> places = {{0, 0, most - 1, most - 1}, {0, 0, 0, 0}, {0, 0, 1, 0}};
  const SparseSites sites(coordinates_of(places, 2), wide);
  EXPECT_EQ(places_of(sites), (std::vector<Place>{places[1], places[2], places[0]}));
  EXPECT_EQ(sites.keys()[1], static_cast<std::uint64_t>(most));
  EXPECT_NE(refusal({}, {3, 2, {most, most, most}}).find("at most 2^62 places"), std::string::npos);
  EXPECT_NE(refusal({}, {3, 0, {1, 1, 1}}).find("sizes from 1"), std::string::npos);
  EXPECT_EQ(SiteGrid::around(coordinates_of(places, 2)), wide);
}

}  // namespace
}  // namespace convscope::testing
