// SPDX-License-Identifier: Apache-2.0
// sparse_map_test.cpp: compares the pairs and the output sites of a map with a search through all
// coordinates. Also tests the map's memory, errors and reuse.
#include <algorithm>
#include <tuple>

#include "framework/parallel.h"
#include "tests/layers/sparse_conv/sparse_case.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

using PairSet = std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>>;  // out, in, tap

PairSet searched(const SparseConvProblem& z) {
  PairSet out;
  for (const Pair& pair : all_pairs(z)) out.insert({pair.out, pair.in, pair.tap});
  return out;
}

PairSet view_pairs(const SparseView& view, bool by_output) {
  PairSet out;
  for (std::int64_t tap = 0; tap < view.table->taps; ++tap) {
    for (std::int64_t i = 0; i < view.table->sites; ++i) {
      const std::int64_t j = view.table->neighbour(tap, i);
      if (j < 0) continue;
      const std::int64_t t = view.weight_tap(tap);
      by_output ? out.insert({i, j, t}) : out.insert({j, i, t});
    }
  }
  return out;
}

class SparseMapOf : public ::testing::TestWithParam<SparseCase> {};

TEST_P(SparseMapOf, HasThePairsOfASearch) {
  const SparseConvProblem z = problem_of(GetParam());
  const PairSet expected = searched(z);
  EXPECT_EQ(view_pairs(z.map->by_output(), true), expected);
  EXPECT_EQ(view_pairs(z.map->by_input(), false), expected);
  EXPECT_EQ(z.map->pairs(), static_cast<std::int64_t>(expected.size()));
  for (std::int64_t tap = 0; tap < z.taps(); ++tap) {
    EXPECT_EQ(z.map->pairs(tap), std::ranges::count_if(expected, [&](const auto& pair) {
                return std::get<2>(pair) == tap;
              }));
  }
}

TEST_P(SparseMapOf, HasTheOutputsThatATapReaches) {
  const SparseCase& of = GetParam();
  const SparseConvProblem z = problem_of(of);
  if (of.kind != SparseKind::strided) {
    EXPECT_EQ(z.map->out_sites()->keys(), sites_of(of)->keys());
    return;
  }
  std::set<Place> fine, expected;
  for (const Place& place : places_of(*z.map->in_sites())) fine.insert(place);
  const SiteGrid& grid = z.map->out_sites()->grid();
  for (const Place& place : random_places(grid, 1, 1)) {  // all places
    for (std::int64_t tap = 0; tap < of.kernel.taps(); ++tap) {
      const std::array<std::int64_t, 3> t = {tap / of.kernel.size[2] / of.kernel.size[1],
                                             tap / of.kernel.size[2] % of.kernel.size[1],
                                             tap % of.kernel.size[2]};
      Place at = place;
      for (std::size_t d = 0; d < 3; ++d) {
        at[1 + d] =
            at[1 + d] * of.kernel.stride[d] - of.kernel.padding[d] + t[d] * of.kernel.dilation[d];
      }
      if (fine.contains(at)) expected.insert(place);
    }
  }
  EXPECT_EQ(places_of(*z.map->out_sites()), std::vector<Place>(expected.begin(), expected.end()));
}

TEST_P(SparseMapOf, IsTheSameWithAnyNumberOfThreads) {
  const MachineScope scope;
  const SharedSites sites = sites_of(GetParam());
  set_num_threads(1);
  const SharedMap first = map_of(GetParam(), sites);
  for (const int threads : {2, 5}) {
    set_num_threads(threads);
    const SharedMap now = map_of(GetParam(), sites);
    EXPECT_EQ(now->by_output().table->entries, first->by_output().table->entries);
    EXPECT_EQ(now->by_input().table->entries, first->by_input().table->entries);
    EXPECT_EQ(now->out_sites()->keys(), first->out_sites()->keys());
  }
}

INSTANTIATE_TEST_SUITE_P(All, SparseMapOf, ::testing::ValuesIn(kSparseCases), case_name);

SharedSites shared_sites(const std::vector<Place>& places, const SiteGrid& grid) {
  return std::make_shared<const SparseSites>(coordinates_of(places, grid.rank), grid);
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SparseMapMemory, IsThirtySixBytesForEachSiteOfACube) {
  const SiteGrid grid{3, 1, {24, 24, 24}};
  for (const double density : {0.01, 0.3, 1.0}) {
    const SharedSites sites = shared_sites(random_places(grid, density, 3), grid);
    const SharedMap map = SparseMap::submanifold(sites, {.size = {3, 3, 3}});
    EXPECT_EQ(map->bytes(), static_cast<std::size_t>(36 * sites->count()));
  }
}

// Sites are up to 2^20 apart along two axes, so the grid has more than 2^40 positions. Some sites
// are neighbours.
TEST(SparseMapMemory, HoldsGridsOfMoreThanThirtyTwoBits) {
  const std::int64_t far = std::int64_t{1} << 20;
  const SiteGrid grid{2, 3, {1, far + 2, far + 2}};
  std::vector<Place> places;
  for (std::int64_t n = 0; n < 3; ++n) {
    for (const std::int64_t h : {std::int64_t{0}, std::int64_t{1}, far / 2, far, far + 1}) {
      for (const std::int64_t w : {std::int64_t{0}, std::int64_t{1}, far - 1, far, far + 1}) {
        places.push_back({n, 0, h, w});
      }
    }
  }
  const SharedSites sites = shared_sites(places, grid);
  SparseConvProblem z{.map = SparseMap::submanifold(sites, {.size = {1, 3, 3}})};
  EXPECT_EQ(view_pairs(z.map->by_output(), true), searched(z));
  z.map = SparseMap::strided(sites, {.size = {1, 3, 3}, .stride = {1, 2, 2}, .padding = {0, 1, 1}});
  EXPECT_EQ(view_pairs(z.map->by_output(), true), searched(z));
  EXPECT_EQ(view_pairs(z.map->by_input(), false), searched(z));
}

// The last position of a row and the first position of the next row have consecutive keys, but are
// not neighbours.
TEST(SparseMapMemory, KnowsThatARowOfTheGridEnds) {
  const SiteGrid grid{2, 2, {1, 2, 4}};
  const SharedSites sites =
      shared_sites({{0, 0, 0, 3}, {0, 0, 1, 0}, {0, 0, 1, 3}, {1, 0, 0, 0}}, grid);
  const SharedMap map = SparseMap::submanifold(sites, {.size = {1, 1, 3}});
  EXPECT_EQ(map->pairs(), 4);  // each site and itself
}

TEST(SparseMapErrors, NameWhatDoesNotFit) {
  const SharedSites plane = shared_sites({{0, 0, 1, 1}}, {2, 1, {1, 4, 4}});
  EXPECT_NE(refusal([&] {
              SparseMap::submanifold(plane, {.size = {1, 2, 3}});
            }).find("expected odd sizes and stride 1"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              SparseMap::submanifold(plane, {.size = {1, 3, 3}, .stride = {1, 2, 2}});
            }).find("a submanifold convolution keeps its sites"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              SparseMap::submanifold(plane, {.size = {3, 3, 3}});
            }).find("nothing along t because the sites are 2-D"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              SparseMap::strided(plane, {.size = {1, 5, 5}});
            }).find("a kernel that fits into the padded grid"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              SparseMap::strided(plane, {.size = {1, 9, 1}});
            }).find("kernel sizes from 1 to 7"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              SparseMap::inverse(SparseMap::submanifold(plane, {.size = {1, 3, 3}}));
            }).find("expected a strided map to invert"),
            std::string::npos);
}

TEST(SparseMaps, AreBuiltOnceForTheirSitesAndKernel) {
  const SiteGrid grid{2, 1, {1, 8, 8}};
  const SharedSites sites = shared_sites(random_places(grid, 0.4, 1), grid);
  const SharedSites others = shared_sites(random_places(grid, 0.4, 2), grid);
  const SparseKernel kernel{.size = {1, 3, 3}};
  SparseMaps maps;
  const SharedMap map = maps.submanifold(sites, kernel);
  EXPECT_EQ(maps.submanifold(sites, kernel), map);
  EXPECT_NE(maps.submanifold(sites, {.size = {1, 3, 3}, .dilation = {1, 2, 1}}), map);
  EXPECT_NE(maps.submanifold(others, kernel), map);
  const SparseKernel stride{.size = {1, 3, 3}, .stride = {1, 2, 2}, .padding = {0, 1, 1}};
  EXPECT_EQ(maps.strided(sites, stride), maps.strided(sites, stride));
  EXPECT_EQ(maps.count(), 4u);

  map->check_made_of(sites, SparseKind::submanifold, kernel);
  EXPECT_NE(refusal([&] {
              map->check_made_of(others, SparseKind::submanifold, kernel);
            }).find("other sites"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              map->check_made_of(sites, SparseKind::submanifold, {.size = {1, 5, 3}});
            }).find("kernel=5x3"),
            std::string::npos);
  EXPECT_THROW(map->check_made_of(sites, SparseKind::strided, stride), Error);
}

TEST(SparseMaps, OfNoSitesAreEmpty) {
  const SiteGrid grid{3, 1, {4, 4, 4}};
  const SharedSites none = shared_sites({}, grid);
  EXPECT_EQ(SparseMap::submanifold(none, {.size = {3, 3, 3}})->pairs(), 0);
  const SharedMap strided = SparseMap::strided(none, {.size = {2, 2, 2}, .stride = {2, 2, 2}});
  EXPECT_EQ(strided->out_sites()->count(), 0);
  EXPECT_EQ(strided->out_sites()->grid(), (SiteGrid{3, 1, {2, 2, 2}}));
}

}  // namespace
}  // namespace convscope::testing
