// SPDX-License-Identifier: Apache-2.0
// point_set.cpp: samples that consist of points in a grid.
#include "datasets/points/point_set.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "framework/check.h"

namespace convscope {

std::int64_t PointSet::places_of_grid() const {
  std::int64_t out = 1;
  for (const std::int64_t size : grid) out *= size;
  return out;
}

double PointSet::density() const {
  const double all = static_cast<double>(size()) * static_cast<double>(places_of_grid());
  return all > 0 ? static_cast<double>(places.size()) / all : 0;
}

Shape PointSet::sample_shape() const {
  return {most, static_cast<std::int64_t>(grid.size()) + channels};
}

void PointSet::add(std::vector<std::int32_t> places_in, std::vector<float> features_in,
                   const std::string& name) {
  const std::size_t count = places_in.size(), width = static_cast<std::size_t>(channels);
  const auto refuse = [&](const std::string& why) { fail(ErrorKind::kData, "points", why); };
  if (static_cast<std::int64_t>(count) > most) {
    refuse(cat(name, ": expected at most ", most, " points in a sample, got ", count));
  }
  CONVSCOPE_CHECK(features_in.size() == count * width, "points", "expected ", channels,
                  " features of each point, got ", features_in.size(), " numbers for ", count);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return places_in[i]; });
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t place = places_in[order[i]];
    if (place < 0 || place >= places_of_grid()) {
      refuse(cat(name, ": expected places below ", places_of_grid(), ", got ", place));
    }
    if (i > 0 && places_in[order[i - 1]] == place) {
      refuse(cat(name, ": expected each place once, got place ", place, " twice"));
    }
    places.push_back(place);
    const float* const from = features_in.data() + order[i] * width;
    features.insert(features.end(), from, from + width);
  }
  begin.push_back(static_cast<std::int64_t>(places.size()));
}

PointSet PointSet::subset(const std::vector<std::int64_t>& samples) const {
  PointSet out;
  out.grid = grid;
  out.channels = channels;
  out.most = most;
  for (const std::int64_t sample : samples) {
    CONVSCOPE_CHECK(sample >= 0 && sample < size(), "subset", "expected indices below ", size(),
                    ", got ", sample);
    const std::int64_t from = begin[static_cast<std::size_t>(sample)];
    const std::int64_t to = begin[static_cast<std::size_t>(sample + 1)];
    out.places.insert(out.places.end(), places.begin() + from, places.begin() + to);
    out.features.insert(out.features.end(), features.begin() + from * channels,
                        features.begin() + to * channels);
    out.begin.push_back(static_cast<std::int64_t>(out.places.size()));
  }
  return out;
}

void PointSet::write(std::int64_t sample, const Augmentation& change, float* to) const {
  const std::size_t axes = grid.size();
  const std::int64_t height = grid[axes - 2], width = grid[axes - 1];
  const std::int64_t row_size = static_cast<std::int64_t>(axes) + channels;
  float* row = to;
  for (std::int64_t i = begin[static_cast<std::size_t>(sample)];
       i < begin[static_cast<std::size_t>(sample + 1)]; ++i) {
    const std::int64_t place = places[static_cast<std::size_t>(i)];
    const std::int64_t h = place / width % height - change.dy;
    std::int64_t w = place % width - change.dx;
    if (change.mirrored) w = width - 1 - w;
    if (h < 0 || h >= height || w < 0 || w >= width) continue;
    float* out = row;
    if (axes == 3) *out++ = static_cast<float>(place / width / height);
    *out++ = static_cast<float>(h);
    *out++ = static_cast<float>(w);
    std::copy_n(features.data() + i * channels, channels, out);
    row += row_size;
  }
  std::fill(row, to + most * row_size, -1.0f);
}

}  // namespace convscope
