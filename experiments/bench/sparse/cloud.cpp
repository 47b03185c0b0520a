// SPDX-License-Identifier: Apache-2.0
// cloud.cpp: synthetic point clouds described by a few words, for benchmarks, tests and pictures.
#include "experiments/bench/sparse/cloud.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "framework/int_math.h"
#include "framework/random.h"

namespace convscope {
namespace {

constexpr const char* kCloud = "cloud";
constexpr std::int64_t kMaxSites = std::int64_t{1} << 26;
constexpr std::int64_t kInkSide = 64;

using Keys = std::vector<std::uint64_t>;
using At = std::array<double, 3>;  // t, h, w, in sites

void sort_once(Keys& keys) {
  std::ranges::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
}

// Keeps `wanted` of the keys at random, sorted.
void keep_some(Keys& keys, std::int64_t wanted, Generator& random) {
  for (std::int64_t i = 0; i < wanted; ++i) {
    const auto left = static_cast<std::uint32_t>(static_cast<std::int64_t>(keys.size()) - i);
    std::swap(keys[static_cast<std::size_t>(i)],
              keys[static_cast<std::size_t>(i + random.below(left))]);
  }
  keys.resize(static_cast<std::size_t>(wanted));
  std::ranges::sort(keys);
}

// A scene with about `sites` sites: the size of its grid, and a function that draws one random
// point.
class Scene {
 public:
  Scene() = default;
  virtual ~Scene() = default;
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;
  virtual std::array<std::int64_t, 3> extent() const = 0;
  virtual At point(Generator& random) const = 0;
};

double uniform(Generator& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random.uniform());
}

constexpr double kMargin = 6;  // empty border around the drawing, in sites: ten times the noise

// A sheet that is about 1.57 sites thick. With 3x3x3, a site has 12.5 neighbours, including itself.
class Shell : public Scene {
 public:
  explicit Shell(std::int64_t sites)
      : radius_(std::sqrt(static_cast<double>(sites) / (4 * 3.141592653589793 * kDepth))) {}
  std::array<std::int64_t, 3> extent() const override {
    const auto side = static_cast<std::int64_t>(std::ceil(2 * (radius_ + kMargin)));
    return {side, side, side};
  }
  At point(Generator& random) const override {
    At out = {random.normal(), random.normal(), random.normal()};
    const double length = std::sqrt(out[0] * out[0] + out[1] * out[1] + out[2] * out[2]);
    const double depth = radius_ + 0.6 * static_cast<double>(random.normal());
    for (double& axis : out) axis = axis / std::max(length, 1e-9) * depth + radius_ + kMargin;
    return out;
  }

 private:
  static constexpr double kDepth = 1.57;
  double radius_;
};

// A room that is 0.4 times as high as it is wide, with boxes on its floor. A site has about 17
// neighbours.
class Room : public Scene {
 public:
  Room(std::int64_t sites, Generator random) {
    for (int i = 0; i < 12; ++i) {
      const double w = uniform(random, 0.04, 0.12), h = uniform(random, 0.04, 0.12);
      boxes_.push_back({0, uniform(random, 0, 1 - h), uniform(random, 0, 1 - w),
                        uniform(random, 0.05, 0.3), h, w});
    }
    boxes_.push_back({0, 0, 0, 0.4, 1, 1});
    for (const Box& box : boxes_) {
      area_ += 2 * (box.dt * box.dh + box.dt * box.dw + box.dh * box.dw);
      up_to_.push_back(area_);
    }
    side_ = std::sqrt(static_cast<double>(sites) / (area_ * kDepth));
  }
  std::array<std::int64_t, 3> extent() const override {
    const auto length = [&](double part) {
      return static_cast<std::int64_t>(std::ceil(part * side_ + 2 * kMargin));
    };
    return {length(0.4), length(1), length(1)};
  }
  At point(Generator& random) const override {
    const double at = uniform(random, 0, area_);
    const std::size_t which = std::min<std::size_t>(
        static_cast<std::size_t>(std::ranges::upper_bound(up_to_, at) - up_to_.begin()),
        boxes_.size() - 1);
    const Box& box = boxes_[which];
    // Draws one of the three pairs of opposite faces with a probability proportional to its area,
    // then one face of the pair, then a position on this face.
    const std::array<double, 3> size = {box.dt, box.dh, box.dw};
    const double all = box.dt * box.dh + box.dt * box.dw + box.dh * box.dw;
    double face = uniform(random, 0, all);
    std::size_t axis = 0;
    for (; axis < 2; ++axis) {
      const double part = size[(axis + 1) % 3] * size[(axis + 2) % 3];
      if (face < part) break;
      face -= part;
    }
    At out = {box.t, box.h, box.w};
    for (std::size_t d = 0; d < 3; ++d) {
      out[d] +=
          size[d] * (d == axis ? static_cast<double>(random.below(2)) : uniform(random, 0, 1));
    }
    for (double& one : out) one = one * side_ + kMargin;
    out[axis] += 0.7 * static_cast<double>(random.normal());
    return out;
  }

 private:
  struct Box {
    double t, h, w, dt, dh, dw;
  };
  static constexpr double kDepth = 2.4;
  std::vector<Box> boxes_;
  std::vector<double> up_to_;  // cumulative areas of the boxes
  double area_ = 0, side_ = 0;
};

// A scanner with 64 beams and a range of 60 m, 1.7 m above a road that is 40 m wide. A site has
// about 4.6 neighbours.
class Lidar : public Scene {
 public:
  explicit Lidar(std::int64_t sites)
      : per_metre_(std::max(2.0, static_cast<double>(sites) / kSitesOfMetre)) {}
  std::array<std::int64_t, 3> extent() const override {
    const auto length = [&](double metres) {
      return static_cast<std::int64_t>(std::ceil(metres * per_metre_ + 2 * kMargin));
    };
    return {length(kHigh), length(2 * kWall), length(2 * kFar)};
  }
  At point(Generator& random) const override {
    constexpr double kTurn = 6.283185307179586;
    const double beam = static_cast<double>(random.below(64)) / 63;
    const double up = std::tan((-24.8 + 26.8 * beam) * kTurn / 360);
    const double angle = uniform(random, 0, kTurn);
    const double along = std::cos(angle), across = std::sin(angle);
    double far =
        std::min(kFar / std::max(std::abs(along), 1e-9), kWall / std::max(std::abs(across), 1e-9));
    if (up < 0) far = std::min(far, -kSensor / up);
    At out = {std::min(kSensor + up * far, kHigh), kWall + across * far, kFar + along * far};
    for (double& axis : out) {
      axis = axis * per_metre_ + kMargin + kNoise * static_cast<double>(random.normal());
    }
    return out;
  }

 private:
  static constexpr double kFar = 60, kWall = 20, kHigh = 4, kSensor = 1.7;
  static constexpr double kSitesOfMetre = 4800;  // of all rings together
  static constexpr double kNoise = 0.3;
  double per_metre_;
};

// A cube, with its extent along t reduced so that the grid has as many positions as the density
// requires.
class Random : public Scene {
 public:
  Random(std::int64_t sites, double density) {
    const double places = static_cast<double>(sites) / density;
    side_ = static_cast<std::int64_t>(std::ceil(std::cbrt(places) - 1e-6));
    layers_ =
        static_cast<std::int64_t>(std::ceil(places / static_cast<double>(side_ * side_) - 1e-6));
  }
  std::array<std::int64_t, 3> extent() const override { return {layers_, side_, side_}; }
  At point(Generator& random) const override {
    At out = {};
    for (std::size_t d = 0; d < 3; ++d) {
      out[d] = random.below(static_cast<std::uint32_t>(extent()[d]));
    }
    return out;
  }

 private:
  std::int64_t side_ = 1, layers_ = 1;
};

std::unique_ptr<Scene> scene_of(const DrawnCloud& cloud, std::int64_t sites, std::uint64_t stream) {
  switch (cloud.shape) {
    case CloudShape::shell:
      return std::make_unique<Shell>(sites);
    case CloudShape::room:
      return std::make_unique<Room>(sites,
                                    Generator(static_cast<std::uint64_t>(cloud.seed), stream));
    case CloudShape::lidar:
      return std::make_unique<Lidar>(sites);
    default:
      return std::make_unique<Random>(sites, cloud.density);
  }
}

// Draws positions of the scene until there are at least `sites` distinct ones, then keeps `sites`
// of them at random.
Keys drawn(const Scene& scene, const SiteGrid& grid, std::int64_t batch, std::int64_t sites,
           Generator& random) {
  const SparseSites keyed(Keys(), grid);
  Keys out;
  for (int round = 0; static_cast<std::int64_t>(out.size()) < sites; ++round) {
    CONVSCOPE_CHECK(round < 200, kCloud, "expected space for ", sites, " sites in ", grid.text(),
                    ", found it for ", out.size());
    for (std::int64_t i = 0; i < 2 * sites; ++i) {
      const At at = scene.point(random);
      SitePlace place{.batch = batch, .at = {}};
      bool inside = true;
      for (std::size_t d = 0; d < 3; ++d) {
        place.at[d] = static_cast<std::int64_t>(std::floor(at[d]));
        inside = inside && place.at[d] >= 0 && place.at[d] < grid.extent[d];
      }
      if (inside) out.push_back(keyed.key(place));
    }
    sort_once(out);
  }
  keep_some(out, sites, random);
  return out;
}

// Visits each position once and selects exactly `sites` of them (Knuth, The Art of Computer
// volume 2, 3.4.2, algorithm S).
Keys chosen_of_all(const SiteGrid& grid, std::int64_t batch, std::int64_t sites,
                   Generator& random) {
  const std::int64_t all = grid.extent[0] * grid.extent[1] * grid.extent[2];
  Keys out;
  std::int64_t left = sites;
  for (std::int64_t i = 0; i < all && left > 0; ++i) {
    if (static_cast<std::int64_t>(random.below(static_cast<std::uint32_t>(all - i))) >= left) {
      continue;
    }
    out.push_back(static_cast<std::uint64_t>(batch * all + i));
    --left;
  }
  return out;
}

// Returns the pixels that two to four random pen strokes (quadratic curves) cover on one image.
Keys ink_of(std::int64_t batch, Generator& random) {
  Keys out;
  const auto anywhere = [&] { return uniform(random, 8, kInkSide - 8); };
  const std::uint32_t strokes = 2 + random.below(3);
  for (std::uint32_t stroke = 0; stroke < strokes; ++stroke) {
    double at[3][2];
    for (auto& point : at) point[0] = anywhere(), point[1] = anywhere();
    const double pen = uniform(random, 0.8, 1.5);
    for (int step = 0; step <= 256; ++step) {
      const double u = step / 256.0, v = 1 - u;
      const double h = v * v * at[0][0] + 2 * u * v * at[1][0] + u * u * at[2][0];
      const double w = v * v * at[0][1] + 2 * u * v * at[1][1] + u * u * at[2][1];
      for (auto y = static_cast<std::int64_t>(h - pen); y <= static_cast<std::int64_t>(h + pen);
           ++y) {
        for (auto x = static_cast<std::int64_t>(w - pen); x <= static_cast<std::int64_t>(w + pen);
             ++x) {
          const double dy = static_cast<double>(y) - h, dx = static_cast<double>(x) - w;
          if (dy * dy + dx * dx > pen * pen) continue;
          out.push_back(static_cast<std::uint64_t>((batch * kInkSide + y) * kInkSide + x));
        }
      }
    }
  }
  sort_once(out);
  return out;
}

SharedSites ink_sites(const DrawnCloud& cloud) {
  Keys keys;
  std::int64_t images = 0;
  for (; static_cast<std::int64_t>(keys.size()) < cloud.sites; ++images) {
    Generator random(static_cast<std::uint64_t>(cloud.seed),
                     static_cast<std::uint64_t>(images + 1));
    const Keys more = ink_of(images, random);
    keys.insert(keys.end(), more.begin(), more.end());
  }
  keys.resize(static_cast<std::size_t>(cloud.sites));
  return std::make_shared<const SparseSites>(std::move(keys),
                                             SiteGrid{2, images, {1, kInkSide, kInkSide}});
}

SharedSites full_sites(const DrawnCloud& cloud) {
  const std::int64_t each = ceil_div(cloud.sites, cloud.batch);
  const auto side =
      static_cast<std::int64_t>(std::ceil(std::cbrt(static_cast<double>(each)) - 1e-6));
  const SiteGrid grid{3, cloud.batch, {ceil_div(each, side * side), side, side}};
  Keys keys;
  for (std::int64_t b = 0; b < cloud.batch; ++b) {
    const std::int64_t sites = (b + 1) * cloud.sites / cloud.batch - b * cloud.sites / cloud.batch;
    for (std::int64_t i = 0; i < sites; ++i) {
      keys.push_back(static_cast<std::uint64_t>(b * grid.extent[0] * side * side + i));
    }
  }
  return std::make_shared<const SparseSites>(std::move(keys), grid);
}

}  // namespace

void DrawnCloud::check() const {
  CONVSCOPE_CHECK(sites >= 1 && sites <= kMaxSites, kCloud, "expected sites from 1 to ", kMaxSites,
                  ", got ", sites);
  CONVSCOPE_CHECK(seed >= 0, kCloud, "expected a seed of at least 0, got ", seed);
  CONVSCOPE_CHECK(batch >= 1 && batch <= sites, kCloud,
                  "expected a batch from 1 to the number of sites, got ", batch);
  CONVSCOPE_CHECK(
      shape != CloudShape::ink || batch == 1, kCloud,
      "expected no batch with cloud=ink because its sites determine the number of images, got ",
      batch);
  CONVSCOPE_CHECK(density > 0 && density <= 1, kCloud,
                  "expected a density above 0 and at most 1, got ", density);
  CONVSCOPE_CHECK(static_cast<double>(sites) / density <= 0x1p40, kCloud,
                  "expected at most 2^40 places, got ", sites, " sites at density ", density);
}

std::string DrawnCloud::text() const {
  std::string out = cat("cloud=", name_of(shape), ",sites=", sites, ",seed=", seed);
  if (shape == CloudShape::random) out += fmt::format(",density={}", density);
  if (batch != 1) out += cat(",batch=", batch);
  return out;
}

SharedSites cloud_sites(const DrawnCloud& cloud) {
  cloud.check();
  if (cloud.shape == CloudShape::ink) return ink_sites(cloud);
  if (cloud.shape == CloudShape::full) return full_sites(cloud);
  const auto sites_of = [&](std::int64_t b) {
    return (b + 1) * cloud.sites / cloud.batch - b * cloud.sites / cloud.batch;
  };
  SiteGrid grid{3, cloud.batch, {1, 1, 1}};
  std::vector<std::unique_ptr<Scene>> scenes;
  for (std::int64_t b = 0; b < cloud.batch; ++b) {
    scenes.push_back(scene_of(cloud, sites_of(b), static_cast<std::uint64_t>(2 * b + 1)));
    const std::array<std::int64_t, 3> extent = scenes.back()->extent();
    for (std::size_t d = 0; d < 3; ++d) grid.extent[d] = std::max(grid.extent[d], extent[d]);
  }
  Keys keys;
  for (std::int64_t b = 0; b < cloud.batch; ++b) {
    Generator random(static_cast<std::uint64_t>(cloud.seed), static_cast<std::uint64_t>(2 * b + 2));
    const bool crowded = cloud.shape == CloudShape::random && cloud.density > 0.25;
    const Keys more =
        crowded ? chosen_of_all(grid, b, sites_of(b), random)
                : drawn(*scenes[static_cast<std::size_t>(b)], grid, b, sites_of(b), random);
    keys.insert(keys.end(), more.begin(), more.end());
  }
  return std::make_shared<const SparseSites>(std::move(keys), grid);
}

}  // namespace convscope
