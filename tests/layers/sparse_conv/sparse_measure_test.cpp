// SPDX-License-Identifier: Apache-2.0
// sparse_measure_test.cpp: tests the key under which `measure` stores results for a sparse
// convolution. The key has buckets for the number of sites and of pairs per site, so that new sites
// in each batch need no new measurement.
#include <gtest/gtest.h>

#include <charconv>

#include "experiments/bench/sparse/cloud_problem.h"
#include "layers/dispatch/choice_cache.h"
#include "layers/dispatch/kernel_runs.h"
#include "tests/layers/sparse_conv/sparse_case.h"
#include "tests/support/cache_folder.h"

namespace convscope::testing {
namespace {

SparseConvProblem problem_of(const std::string& text) {
  const CloudProblem cloud = CloudProblem::parse(text);
  return cloud.on(cloud.map());
}

std::string shell(std::int64_t sites, int seed, const std::string& more = ",c=4,k=6") {
  return cat("cloud=shell,sites=", sites, ",seed=", seed, ",kernel=3x3x3", more);
}

TEST(SparseBuckets, NameWhatTheTimeDependsOn) {
  EXPECT_EQ(problem_of(shell(1500, 1)).bucket_text(),
            "submanifold,kernel=3x3x3,pad=1x1x1,sites=1k-2k,pairs_per_site=11.3-16,c=4,k=6");
  EXPECT_EQ(
      problem_of("cloud=ink,sites=700,seed=1,kernel=3x3,stride=2,pad=1,c=1,k=2,dtype=f16,"
                 "precision=tf32")
          .bucket_text(),
      "strided,kernel=3x3,stride=2x2,pad=1x1,sites=512-1k,out_sites=256-512,pairs_per_site=4-5.66,"
      "c=1,k=2,dtype=f16,precision=tf32");
}

TEST(SparseBuckets, AreTheSameForOtherSitesOfTheSameKind) {
  const std::string first = problem_of(shell(1500, 1)).bucket_text();
  EXPECT_EQ(problem_of(shell(1500, 2)).bucket_text(), first);
  EXPECT_EQ(problem_of(shell(1100, 3)).bucket_text(), first);
  EXPECT_EQ(problem_of(shell(2000, 4, ",c=4,k=6")).bucket_text(), first);
  for (const std::string& other :
       {shell(3000, 1), shell(700, 1), shell(1500, 1, ",c=5,k=6"), shell(1500, 1, ",c=4,k=7"),
        shell(1500, 1, ",dilation=2,c=4,k=6"), shell(1500, 1, ",c=4,k=6,dtype=f64"),
        std::string("cloud=random,density=0.01,sites=1500,seed=1,kernel=3x3x3,c=4,k=6"),
        std::string("cloud=full,sites=1500,seed=1,kernel=3x3x3,c=4,k=6")}) {
    EXPECT_NE(problem_of(other).bucket_text(), first) << other;
  }
}

// Each number of sites must be within the limits of the bucket that the text names.
TEST(SparseBuckets, HoldTheirNumbers) {
  for (const std::int64_t sites : {1, 2, 3, 4, 7, 8, 1023, 1024, 1025, 2047, 2048}) {
    const std::string text = problem_of(shell(sites, 1)).bucket_text();
    const std::size_t at = text.find("sites=") + 6;
    const auto number = [&](std::size_t begin) {
      std::int64_t value = 0;
      const auto end = std::from_chars(text.data() + begin, text.data() + text.size(), value).ptr;
      return *end == 'k' ? 1024 * value : value;
    };
    EXPECT_LE(number(at), sites) << text;
    EXPECT_GT(number(text.find('-', at) + 1), sites) << text;
  }
}

TEST(SparseBuckets, NoSitesHaveOneToo) {
  SparseConvProblem empty = problem_of(shell(2, 1));
  const auto none =
      std::make_shared<const SparseSites>(std::vector<std::uint64_t>(), SiteGrid{3, 1, {5, 5, 5}});
  empty.map = SparseMap::submanifold(none, empty.map->kernel());
  EXPECT_EQ(empty.bucket_text(),
            "submanifold,kernel=3x3x3,pad=1x1x1,sites=0,pairs_per_site=0,c=4,k=6");
}

// Each batch has new sites. The first batch in a bucket is measured, and later batches reuse the
// result.
TEST(SparseBuckets, MeasureOnceForEach) {
  const CacheFolder cache;
  forget_measured();
  KernelCounter counter;
  const auto measures = [&](const std::string& text, Direction direction = Direction::forward) {
    counter.forget();
    const auto choice = select_algorithm("measure", problem_of(text), direction, Device{});
    EXPECT_TRUE(choice.algorithm->auto_ok);
    return !counter.runs().empty();
  };
  EXPECT_TRUE(measures(shell(1500, 1)));
  for (int seed = 2; seed < 6; ++seed) EXPECT_FALSE(measures(shell(1400 + 50 * seed, seed)));
  EXPECT_TRUE(measures(shell(1500, 1), Direction::backward_weight));
  EXPECT_TRUE(measures(shell(3000, 1)));
  EXPECT_FALSE(measures(shell(3100, 2)));
  EXPECT_EQ(given_answers().size(), 3u);
  forget_measured();  // clears the memory of this process; the file stays
  EXPECT_FALSE(measures(shell(1700, 7)));
}

// If a layer gets new sites in each batch, it must not keep the maps of all batches.
TEST(SparseBuckets, AFewMapsAreKeptWithTheirChoices) {
  ChoiceCache<SparseConvProblem> choices{AlgorithmPolicy("auto")};
  std::vector<std::weak_ptr<const SparseMap>> maps;
  for (int seed = 1; seed < 20; ++seed) {
    const SparseConvProblem z = problem_of(shell(50, seed));
    maps.push_back(z.map);
    EXPECT_NE(choices.get(z, Direction::forward, Device{}, WeightUse::once).algorithm, nullptr);
  }
  const auto alive = std::ranges::count_if(maps, [](const auto& map) { return !map.expired(); });
  EXPECT_GE(alive, 1);
  EXPECT_LE(alive, static_cast<std::ptrdiff_t>(SparseConvProblem::kMaxChoices));
}

}  // namespace
}  // namespace convscope::testing
