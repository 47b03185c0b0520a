// SPDX-License-Identifier: Apache-2.0
// shape_surfaces.cpp: random points on the surfaces of the set synthetic_shapes. The file is
// compiled without contraction to fused multiply-adds and uses the sine and cosine of random.h, so
// the numbers are the same on every machine.
#include "datasets/points/shape_surfaces.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace convscope {
namespace {

double between(Generator& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random.uniform());
}

struct Direction2 {
  double c, s;
};
// Returns cosine and sine of an angle in turns.
Direction2 turn(double turns) {
  const auto part = static_cast<float>(turns - std::floor(turns));
  const NormalPair pair = detail::cos_sin_turn(part < 1.0f ? part : 0.0f);
  return {static_cast<double>(pair.a), static_cast<double>(pair.b)};
}
Direction2 any_turn(Generator& random) { return turn(static_cast<double>(random.uniform())); }

// A rectangle from `corner` along two edges.
struct Panel {
  SpacePoint corner, u, v;

  double area() const {
    const SpacePoint n{u.y * v.z - u.z * v.y, u.z * v.x - u.x * v.z, u.x * v.y - u.y * v.x};
    return std::sqrt(n.x * n.x + n.y * n.y + n.z * n.z);
  }
  SpacePoint at(double a, double b) const {
    return {corner.x + a * u.x + b * v.x, corner.y + a * u.y + b * v.y,
            corner.z + a * u.z + b * v.z};
  }
};

// An axis-parallel box, given by two opposite corners. A box that rests on something has no bottom
// side.
struct Block {
  SpacePoint low, high;
};
void add_sides(const Block& block, bool bottom, std::vector<Panel>& out) {
  const SpacePoint &a = block.low, &b = block.high;
  const SpacePoint x{b.x - a.x, 0, 0}, y{0, b.y - a.y, 0}, z{0, 0, b.z - a.z};
  out.push_back({a, x, z});
  out.push_back({{a.x, b.y, a.z}, x, z});
  out.push_back({a, y, z});
  out.push_back({{b.x, a.y, a.z}, y, z});
  out.push_back({{a.x, a.y, b.z}, x, y});
  if (bottom) out.push_back({a, x, y});
}

std::vector<SpacePoint> on_panels(const std::vector<Panel>& panels, int count, Generator& random) {
  double all = 0;
  for (const Panel& panel : panels) all += panel.area();
  std::vector<SpacePoint> out;
  for (int i = 0; i < count; ++i) {
    double left = between(random, 0, all);
    std::size_t at = 0;
    while (at + 1 < panels.size() && left >= panels[at].area()) left -= panels[at++].area();
    const double a = between(random, 0, 1);
    out.push_back(panels[at].at(a, between(random, 0, 1)));
  }
  return out;
}

SpacePoint on_sphere(Generator& random) {
  const double z = between(random, -1, 1), r = std::sqrt(std::max(0.0, 1 - z * z));
  const Direction2 d = any_turn(random);
  return {r * d.c, r * d.s, z};
}

// Returns a random point on a disc of radius r at height z.
SpacePoint on_disc(Generator& random, double r, double z) {
  const double out = r * std::sqrt(between(random, 0, 1));
  const Direction2 d = any_turn(random);
  return {out * d.c, out * d.s, z};
}

std::vector<SpacePoint> cylinder(int count, Generator& random) {
  const double half = between(random, 0.6, 1.0), r = between(random, 0.3, 0.7);
  std::vector<SpacePoint> out;
  for (int i = 0; i < count; ++i) {
    // The side of the cylinder has area 4 pi r half, its two ends together 2 pi r^2.
    if (between(random, 0, 2 * half + r) < r) {
      out.push_back(on_disc(random, r, random.below(2) == 0 ? -half : half));
      continue;
    }
    const Direction2 d = any_turn(random);
    out.push_back({r * d.c, r * d.s, between(random, -half, half)});
  }
  return out;
}

std::vector<SpacePoint> cone(int count, Generator& random) {
  const double half = between(random, 0.6, 1.0), r = between(random, 0.5, 0.9);
  const double side = std::sqrt(r * r + 4 * half * half);
  std::vector<SpacePoint> out;
  for (int i = 0; i < count; ++i) {
    if (between(random, 0, r + side) < r) {
      out.push_back(on_disc(random, r, -half));
      continue;
    }
    // t is the distance from the tip of the cone, relative to the whole side. t^2 is uniform,
    // because there is little area near the tip.
    const double t = std::sqrt(between(random, 0, 1));
    const Direction2 d = any_turn(random);
    out.push_back({t * r * d.c, t * r * d.s, half - 2 * half * t});
  }
  return out;
}

std::vector<SpacePoint> torus(int count, Generator& random) {
  const double ring = between(random, 0.6, 0.75), tube = between(random, 0.15, 0.3);
  std::vector<SpacePoint> out;
  while (static_cast<int>(out.size()) < count) {
    const Direction2 a = any_turn(random), b = any_turn(random);
    const double r = ring + tube * b.c;
    // The outer part of a torus has more area than the inner part.
    if (between(random, 0, ring + tube) < r) out.push_back({r * a.c, r * a.s, tube * b.s});
  }
  return out;
}

std::vector<SpacePoint> stairs(int count, Generator& random) {
  const int steps = 3 + static_cast<int>(random.below(4));
  const double width = between(random, 0.4, 0.9), height = between(random, 0.6, 1.0);
  std::vector<Panel> panels;
  for (int i = 0; i < steps; ++i) {
    const double x = -1 + 2.0 * i / steps, z = -height + 2 * height * i / steps;
    const double deep = 2.0 / steps, high = 2 * height / steps;
    panels.push_back({{x, -width, z}, {0, 2 * width, 0}, {0, 0, high}});
    panels.push_back({{x, -width, z + high}, {0, 2 * width, 0}, {deep, 0, 0}});
  }
  return on_panels(panels, count, random);
}

// Returns boxes on the floor z = `floor`.
std::vector<Block> furniture(int count, double floor, double reach, Generator& random) {
  std::vector<Block> out;
  for (int i = 0; i < count; ++i) {
    const double x = between(random, -reach, reach), y = between(random, -reach, reach);
    const double a = between(random, 0.1, 0.3), b = between(random, 0.1, 0.3);
    const double high = between(random, 0.2, 0.8);
    out.push_back({{x - a, y - b, floor}, {x + a, y + b, floor + high}});
  }
  return out;
}

std::vector<SpacePoint> room(int count, Generator& random) {
  const double wide = between(random, 0.7, 1.0), deep = between(random, 0.7, 1.0);
  const double high = between(random, 0.5, 0.8);
  std::vector<Panel> panels = {{{-wide, -deep, -high}, {2 * wide, 0, 0}, {0, 2 * deep, 0}}};
  const Panel walls[] = {{{-wide, -deep, -high}, {2 * wide, 0, 0}, {0, 0, 2 * high}},
                         {{-wide, -deep, -high}, {0, 2 * deep, 0}, {0, 0, 2 * high}},
                         {{wide, -deep, -high}, {0, 2 * deep, 0}, {0, 0, 2 * high}},
                         {{-wide, deep, -high}, {2 * wide, 0, 0}, {0, 0, 2 * high}}};
  const int count_of_walls = 2 + static_cast<int>(random.below(3));
  for (int i = 0; i < count_of_walls; ++i) panels.push_back(walls[i]);
  const int pieces = 1 + static_cast<int>(random.below(3));
  for (const Block& block : furniture(pieces, -high, 0.55, random)) {
    add_sides(block, false, panels);
  }
  return on_panels(panels, count, random);
}

// Returns the distance at which a ray from `eye` along `d` enters the block, or none.
double distance_to(const Block& block, const SpacePoint& eye, const SpacePoint& d) {
  double near = 0, far = std::numeric_limits<double>::infinity();
  const std::array<std::array<double, 4>, 3> axes = {{{eye.x, d.x, block.low.x, block.high.x},
                                                      {eye.y, d.y, block.low.y, block.high.y},
                                                      {eye.z, d.z, block.low.z, block.high.z}}};
  for (const auto& [from, along, low, high] : axes) {
    if (along == 0) {
      if (from < low || from > high) return std::numeric_limits<double>::infinity();
      continue;
    }
    const double a = (low - from) / along, b = (high - from) / along;
    near = std::max(near, std::min(a, b));
    far = std::min(far, std::max(a, b));
  }
  return near <= far ? near : std::numeric_limits<double>::infinity();
}

// A scanner above the ground rotates once; each of its lasers draws a ring. Objects on the ground
// block rays and cast shadows.
std::vector<SpacePoint> scan(int count, Generator& random) {
  const double ground = -0.6, eye_height = between(random, 0.35, 0.6);
  const SpacePoint eye{between(random, -0.2, 0.2), between(random, -0.2, 0.2), ground + eye_height};
  std::vector<Block> blocks =
      furniture(3 + static_cast<int>(random.below(4)), ground, 0.85, random);
  for (std::uint32_t i = 1 + random.below(4); i > 0; --i) {  // posts
    const double x = between(random, -0.9, 0.9), y = between(random, -0.9, 0.9);
    blocks.push_back({{x - 0.05, y - 0.05, ground}, {x + 0.05, y + 0.05, ground + 1.3}});
  }
  const int lasers = 10 + static_cast<int>(random.below(7));
  std::vector<SpacePoint> out;
  // A ray that hits nothing in range is replaced by another random ray; the number of tries is
  // limited.
  for (int tries = 0; static_cast<int>(out.size()) < count && tries < 20 * count; ++tries) {
    const double laser = static_cast<double>(random.below(static_cast<std::uint32_t>(lasers)));
    const double slope = 0.15 - 1.4 * laser / lasers;
    const Direction2 way = any_turn(random);
    const SpacePoint d{way.c, way.s, slope};
    double best = slope < 0 ? -eye_height / slope : std::numeric_limits<double>::infinity();
    for (const Block& block : blocks) {
      const double at = distance_to(block, eye, d);
      if (at > 0.05) best = std::min(best, at);
    }
    const SpacePoint hit{eye.x + best * d.x, eye.y + best * d.y, eye.z + best * d.z};
    if (best < 3 && std::abs(hit.x) <= 1 && std::abs(hit.y) <= 1) out.push_back(hit);
  }
  return out;
}

// A rotation about a random axis (a random unit quaternion), or only about z.
class Rotation {
 public:
  Rotation(Generator& random, bool any_axis) {
    if (!any_axis) {
      const Direction2 d = any_turn(random);
      m_ = {{{d.c, -d.s, 0}, {d.s, d.c, 0}, {0, 0, 1}}};
      return;
    }
    std::array<double, 4> q = {};
    double squares = 0;
    for (double& v : q) {
      v = static_cast<double>(random.normal());
      squares += v * v;
    }
    const double scale = 1 / std::sqrt(std::max(squares, 1e-12));
    const double w = q[0] * scale, x = q[1] * scale, y = q[2] * scale, z = q[3] * scale;
    m_ = {{{1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)},
           {2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)},
           {2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)}}};
  }
  SpacePoint of(const SpacePoint& p) const {
    return {m_[0][0] * p.x + m_[0][1] * p.y + m_[0][2] * p.z,
            m_[1][0] * p.x + m_[1][1] * p.y + m_[1][2] * p.z,
            m_[2][0] * p.x + m_[2][1] * p.y + m_[2][2] * p.z};
  }

 private:
  std::array<std::array<double, 3>, 3> m_;
};

}  // namespace

std::vector<SpacePoint> points_of_shape(int shape, int count, Generator& random) {
  std::vector<SpacePoint> out;
  std::vector<Panel> sides;
  switch (shape) {
    case 0:
      for (int i = 0; i < count; ++i) out.push_back(on_sphere(random));
      break;
    case 1:
      add_sides({{-0.6, -0.6, -0.6}, {0.6, 0.6, 0.6}}, true, sides);
      out = on_panels(sides, count, random);
      break;
    case 2:
      out = cylinder(count, random);
      break;
    case 3:
      out = cone(count, random);
      break;
    case 4:
      out = torus(count, random);
      break;
    case 5:
      out = stairs(count, random);
      break;
    case 6:
      out = room(count, random);
      break;
    default:
      out = scan(count, random);
  }
  const bool stands = shape >= 5;  // z stays vertical
  const std::array<double, 3> stretch = {between(random, 0.7, 1.0), between(random, 0.7, 1.0),
                                         between(random, 0.7, 1.0)};
  const Rotation rotation(random, !stands);
  for (SpacePoint& p : out) {
    p = rotation.of({p.x * stretch[0], p.y * stretch[1], p.z * stretch[2]});
  }
  return out;
}

}  // namespace convscope
