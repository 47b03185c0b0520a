// SPDX-License-Identifier: Apache-2.0
// synthetic_digits.cpp: draws the data set synthetic_digits. The file is compiled without
// contraction to fused multiply-adds (framework/cmake/library.cmake). Sine and cosine are those of
// random.h, so the bytes are the same on every machine.
#include "datasets/synthetic_digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "datasets/digit_strokes.h"
#include "framework/parallel.h"
#include "framework/random.h"

namespace convscope {
namespace {

constexpr std::uint64_t kTrainStream = 0xd161'0001'0000'0000u;
constexpr std::uint64_t kTestStream = 0xd161'0002'0000'0000u;
constexpr std::uint64_t kWarpStream = 0x0000'1000'0000'0000u;  // added to each part's stream
constexpr int kPiecesOfACurve = 6;  // line segments between two points of a curve

// Returns cosine and sine of an angle in turns.
NormalPair cos_sin(double turns) {
  const auto part = static_cast<float>(turns - std::floor(turns));
  return detail::cos_sin_turn(part < 1.0f ? part : 0.0f);
}

struct Wave {
  double along_x, along_y, phase;  // turns per unit of length, turns
  double push_x, push_y;
};

// An affine map about the centre of the image. It distorts more than differences of handwriting do.
class Warp {
 public:
  Warp() = default;
  Warp(Generator random, double strength) : is_there_(true) {
    const auto between = [&random](double low, double high) {
      return low + (high - low) * static_cast<double>(random.uniform());
    };
    const NormalPair turn = cos_sin(between(-strength, strength) / 6);
    const double c = turn.a, s = turn.b;
    scale = 1 - 0.5 * between(0.0, strength);
    const double slant = between(-0.5 * strength, 0.5 * strength);
    xx_ = scale * c;
    xy_ = scale * (slant * c - s);
    yx_ = scale * s;
    yy_ = scale * (slant * s + c);
  }
  // Maps a point in the unit square.
  StrokePoint placed(StrokePoint p) const {
    if (!is_there_) return p;
    const double x = p.x - 0.5, y = p.y - 0.5;
    return {0.5 + xx_ * x + xy_ * y, 0.5 + yx_ * x + yy_ * y};
  }
  double scale = 1;

 private:
  bool is_there_ = false;
  double xx_ = 1, xy_ = 0, yx_ = 0, yy_ = 1;
};

// All random numbers of one image, drawn in a fixed order.
class Hand {
 public:
  Hand(Generator& random, double size, const Warp& warp)
      : random_(random), size_(size), warp_(warp) {
    const NormalPair turn = cos_sin(between(-0.055, 0.055));
    const double c = turn.a, s = turn.b;
    const double slant = between(-0.30, 0.30);
    const double wide = between(0.70, 1.05), high = between(0.72, 1.02);
    xx_ = wide * c;
    xy_ = wide * (slant * c) - high * s;
    yx_ = wide * s;
    yy_ = wide * (slant * s) + high * c;
    shift_x_ = between(-0.10, 0.10);
    shift_y_ = between(-0.10, 0.10);
    for (Wave& wave : waves_) {
      wave = {between(-1.2, 1.2), between(-1.2, 1.2), between(0.0, 1.0), between(-0.05, 0.05),
              between(-0.05, 0.05)};
    }
    shake_ = between(0.0, 0.035);
    radius = between(0.030, 0.075) * size * warp.scale;
    softness = between(0.020, 0.055) * size * warp.scale;
    ink = between(0.55, 1.0);
    noise = between(0.0, 0.12);
  }

  double between(double low, double high) {
    return low + (high - low) * static_cast<double>(random_.uniform());
  }

  StrokePoint shaken(StrokePoint p) {
    return {p.x + between(-shake_, shake_), p.y + between(-shake_, shake_)};
  }

  // Maps a point from the unit square to pixels.
  StrokePoint placed(StrokePoint p) const {
    for (const Wave& wave : waves_) {
      const double height = cos_sin(wave.along_x * p.x + wave.along_y * p.y + wave.phase).a;
      p = {p.x + wave.push_x * height, p.y + wave.push_y * height};
    }
    const double x = p.x - 0.5, y = p.y - 0.5;
    const StrokePoint at =
        warp_.placed({0.5 + shift_x_ + xx_ * x + xy_ * y, 0.5 + shift_y_ + yx_ * x + yy_ * y});
    return {at.x * size_, at.y * size_};
  }

  double radius, softness, ink, noise;

 private:
  Generator& random_;
  double size_;
  Warp warp_;
  double xx_, xy_, yx_, yy_, shift_x_, shift_y_, shake_;
  std::array<Wave, 2> waves_;
};

// Returns a point of a Catmull-Rom spline: smooth, through all points (E. Catmull, R. Rom 1974).
StrokePoint on_curve(const std::array<StrokePoint, 4>& p, double t) {
  const auto blend = [t](double a, double b, double c, double d) {
    return 0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t * t +
                  (3 * b - a - 3 * c + d) * t * t * t);
  };
  return {blend(p[0].x, p[1].x, p[2].x, p[3].x), blend(p[0].y, p[1].y, p[2].y, p[3].y)};
}

std::vector<StrokePoint> flattened(const PenStroke& stroke, Hand& hand) {
  std::vector<StrokePoint> points;
  for (const StrokePoint& point : stroke.points) points.push_back(hand.shaken(point));
  const auto count = static_cast<std::int64_t>(points.size());
  const bool closed = stroke.form == PenStroke::Form::loop;
  const auto at = [&](std::int64_t i) {
    return points[static_cast<std::size_t>(closed ? (i + count) % count
                                                  : std::clamp<std::int64_t>(i, 0, count - 1))];
  };
  std::vector<StrokePoint> out{hand.placed(at(0))};
  for (std::int64_t i = 0; i < (closed ? count : count - 1); ++i) {
    for (int piece = 1; piece <= kPiecesOfACurve; ++piece) {
      const double t = static_cast<double>(piece) / kPiecesOfACurve;
      const StrokePoint a = at(i), b = at(i + 1);
      // Straight strokes are cut into segments, too, so that the waves bend them.
      out.push_back(hand.placed(stroke.form == PenStroke::Form::corners
                                    ? StrokePoint{a.x + (b.x - a.x) * t, a.y + (b.y - a.y) * t}
                                    : on_curve({at(i - 1), a, b, at(i + 2)}, t)));
    }
  }
  return out;
}

// Lowers the squared distances of pixels near the segment a-b.
void approach(std::vector<double>& squared_distance, std::int64_t size, StrokePoint a,
              StrokePoint b, double reach) {
  const auto first = [&](double low) {
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::floor(low - reach)), 0, size);
  };
  const auto last = [&](double high) {
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(high + reach)), 0, size);
  };
  const double ux = b.x - a.x, uy = b.y - a.y;
  const double length = ux * ux + uy * uy;
  for (std::int64_t h = first(std::min(a.y, b.y)); h < last(std::max(a.y, b.y)); ++h) {
    for (std::int64_t w = first(std::min(a.x, b.x)); w < last(std::max(a.x, b.x)); ++w) {
      const double px = static_cast<double>(w) + 0.5 - a.x;
      const double py = static_cast<double>(h) + 0.5 - a.y;
      const double along = length > 0 ? std::clamp((px * ux + py * uy) / length, 0.0, 1.0) : 0.0;
      const double dx = px - along * ux, dy = py - along * uy;
      double& nearest = squared_distance[static_cast<std::size_t>(h * size + w)];
      nearest = std::min(nearest, dx * dx + dy * dy);
    }
  }
}

void draw(std::uint8_t* pixels, std::int64_t size, int digit, Generator random, const Warp& warp) {
  const std::vector<DigitStyle>& styles = digit_styles(digit);
  const DigitStyle& style = styles[random.below(static_cast<std::uint32_t>(styles.size()))];
  Hand hand(random, static_cast<double>(size), warp);
  const double reach = hand.radius + hand.softness;
  std::vector<double> squared_distance(static_cast<std::size_t>(size * size), 1e30);
  for (const PenStroke& stroke : style) {
    const std::vector<StrokePoint> line = flattened(stroke, hand);
    for (std::size_t i = 1; i < line.size(); ++i) {
      approach(squared_distance, size, line[i - 1], line[i], reach);
    }
  }
  for (std::int64_t i = 0; i < size * size; ++i) {
    const double distance = std::sqrt(squared_distance[static_cast<std::size_t>(i)]);
    // `cover` is the share of the pixel that the pen covers. It falls from 1 inside of the pen to 0
    // outside, over a distance of twice the softness.
    const double cover = std::clamp((reach - distance) / (2 * hand.softness), 0.0, 1.0);
    const double level = cover * hand.ink + hand.noise * static_cast<double>(random.normal());
    pixels[i] = static_cast<std::uint8_t>(std::clamp(level, 0.0, 1.0) * 255.0 + 0.5);
  }
}

Dataset draw_part(const SyntheticDigitsOptions& options, std::int64_t count, std::uint64_t stream) {
  const std::int64_t size = options.image_size;
  Dataset out;
  out.name = "synthetic_digits";
  out.classes = 10;
  for (int digit = 0; digit < 10; ++digit) out.class_names.push_back(std::to_string(digit));
  out.images = Tensor::empty({count, 1, size, size}, DType::u8);
  out.labels = Tensor::empty({count}, DType::i32);
  std::uint8_t* pixels = out.images.data<std::uint8_t>();
  std::int32_t* labels = out.labels.data<std::int32_t>();
  parallel_for(count, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const int digit = static_cast<int>(i % 10);  // equal numbers
      labels[i] = digit;
      const std::uint64_t own = stream + static_cast<std::uint64_t>(i);
      draw(pixels + i * size * size, size, digit, Generator(options.seed, own),
           options.warp > 0 ? Warp(Generator(options.seed, own + kWarpStream), options.warp)
                            : Warp());
    }
  });
  return out;
}

}  // namespace

DatasetSplits synthetic_digits(const SyntheticDigitsOptions& options) {
  CONVSCOPE_CHECK(options.train_size >= 0 && options.test_size >= 0, "synthetic_digits",
                  "expected sizes of at least 0, got ", options.train_size, " and ",
                  options.test_size);
  CONVSCOPE_CHECK(options.image_size >= 8 && options.image_size <= 256, "synthetic_digits",
                  "expected an image size of 8 to 256 pixels, got ", options.image_size);
  CONVSCOPE_CHECK(options.warp >= 0 && options.warp <= 1, "synthetic_digits",
                  "expected a warp of 0 to 1, got ", options.warp);
  DatasetSplits out{draw_part(options, options.train_size, kTrainStream),
                    draw_part(options, options.test_size, kTestStream)};
  set_channel_statistics(out.train);
  out.test.mean = out.train.mean;
  out.test.std = out.train.std;
  return out;
}

std::vector<OptionField> synthetic_digits_fields() {
  return {{.name = "train_size",
           .type = OptionType::integer,
           .default_value = std::int64_t{6000},
           .doc = "training images",
           .min = 1,
           .max = 1e6},
          {.name = "test_size",
           .type = OptionType::integer,
           .default_value = std::int64_t{2000},
           .doc = "test images",
           .min = 1,
           .max = 1e6},
          {.name = "image_size",
           .type = OptionType::integer,
           .default_value = std::int64_t{28},
           .doc = "height and width, in pixels",
           .min = 8,
           .max = 256},
          {.name = "seed",
           .type = OptionType::integer,
           .default_value = std::int64_t{1},
           .doc = "seed of the generated digits, independent of the run's seed",
           .min = 0},
          {.name = "warp",
           .type = OptionType::number,
           .default_value = 0.0,
           .doc = "strength of rotation, shrinking and slant; 1: by 60 degrees, to half, by 0.5",
           .min = 0,
           .max = 1}};
}

CONVSCOPE_REGISTER_DATASET(
    "synthetic_digits",
    {.doc = "generated digits from pen strokes; needs no files (not MNIST)",
     .fields = synthetic_digits_fields(),
     .load =
         [](const Options& options) {
           return synthetic_digits({.train_size = options.integer("train_size"),
                                    .test_size = options.integer("test_size"),
                                    .seed = static_cast<std::uint64_t>(options.integer("seed")),
                                    .image_size = options.integer("image_size"),
                                    .warp = options.number("warp")});
         },
     .sample_shape =
         [](const Options& options) {
           const std::int64_t size = options.integer("image_size");
           return Shape{1, size, size};
         },
     .classes = 10,
     .sizes =
         [](const Options& options) {
           return DatasetType::Sizes{options.integer("train_size"), options.integer("test_size")};
         }})

}  // namespace convscope
