// SPDX-License-Identifier: Apache-2.0
// cloud.h: synthetic point clouds described by a few words, for benchmarks, tests and pictures. The
// same description always gives the same sites.
//
//   shell   the surface of a sphere with noise: one thin sheet without an edge
//   room    floor, ceiling, walls and some boxes with noise: thicker sheets, and edges
//   lidar   rings of a turning scanner on a road between two walls: lines with few neighbours
//   random  each position of a cube with equal probability: neighbours only by chance
//   full    every position of a cube: what a dense convolution computes
//   ink     strokes of a pen on images of 64x64 pixels; 2-D
//
// The number of neighbours per site determines the speed of a convolution. In shell, room and lidar
// this number does not depend on the number of sites, because a cloud with more sites is a larger
// scene at the same density.
#pragma once

#include <cstdint>
#include <string>

#include "layers/sparse_conv/sites.h"

namespace convscope {

enum class CloudShape : std::uint8_t { shell, room, lidar, random, full, ink };
inline constexpr CloudShape kCloudShapes[] = {CloudShape::shell, CloudShape::room,
                                              CloudShape::lidar, CloudShape::random,
                                              CloudShape::full,  CloudShape::ink};
constexpr const char* name_of(CloudShape shape) {
  constexpr const char* kNames[] = {"shell", "room", "lidar", "random", "full", "ink"};
  return kNames[static_cast<int>(shape)];
}

struct CONVSCOPE_API DrawnCloud {
  CloudShape shape = CloudShape::shell;
  std::int64_t sites = 10000;  // of all scenes together
  std::int64_t seed = 1;
  std::int64_t batch = 1;  // scenes, among which `sites` is divided; ink: set by `sites`
  double density = 0.05;   // of random only

  int rank() const { return shape == CloudShape::ink ? 2 : 3; }
  void check() const;        // throws an error of "cloud" when it cannot be generated
  std::string text() const;  // "cloud=shell,sites=10000,seed=1"
  bool operator==(const DrawnCloud&) const = default;
};

// Returns exactly cloud.sites sites, in the order of their keys.
CONVSCOPE_API SharedSites cloud_sites(const DrawnCloud& cloud);

}  // namespace convscope
