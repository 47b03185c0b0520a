// SPDX-License-Identifier: Apache-2.0
// synthetic_segmentation.cpp: draws the data set synthetic_segmentation. The file is compiled
// without contraction to fused multiply-adds (framework/cmake/library.cmake). Sine and cosine are
// those of random.h, so the bytes are the same on every machine.
#include "datasets/synthetic_segmentation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "framework/parallel.h"
#include "framework/random.h"

namespace convscope {
namespace {

constexpr const char* kName = "synthetic_segmentation";
constexpr std::uint64_t kTrainStream = 0x5e60'0001'0000'0000u;
constexpr std::uint64_t kTestStream = 0x5e60'0002'0000'0000u;

constexpr std::int64_t kChannels = 3;
constexpr std::uint32_t kMaxShapes = 4;
enum Class : std::uint8_t { kBackground, kDisc, kSquare, kTriangle, kRing, kClasses };

using Colour = std::array<double, kChannels>;

double between(Generator& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random.uniform());
}

NormalPair cos_sin(Generator& random) { return detail::cos_sin_turn(random.uniform()); }

struct DrawnShape {
  int kind = kDisc;
  double x = 0, y = 0, radius = 0;  // pixels
  double c = 1, s = 0;              // cosine and sine of the rotation
  Colour colour = {};

  // Returns about the distance in pixels of a point from the outline, negative inside. The
  // multiples of the radius give all shapes about the area of the disc.
  double distance(double px, double py) const {
    const double u = c * (px - x) + s * (py - y), v = c * (py - y) - s * (px - x);
    const double from_centre = std::sqrt(u * u + v * v);
    if (kind == kDisc) return from_centre - radius;
    if (kind == kSquare) return std::max(std::abs(u), std::abs(v)) - 0.886 * radius;
    if (kind == kRing) return std::abs(from_centre - 0.75 * radius) - 0.33 * radius;
    constexpr double kHalfRootOf3 = 0.8660254037844386;
    return std::max({v, kHalfRootOf3 * u - 0.5 * v, -kHalfRootOf3 * u - 0.5 * v}) - 0.778 * radius;
  }
};

// A colour that changes linearly over the image.
class Background {
 public:
  explicit Background(Generator& random) {
    const NormalPair turn = cos_sin(random);
    c_ = turn.a;
    s_ = turn.b;
    for (double& level : middle_) level = between(random, 0.2, 0.8);
    for (double& level : change_) level = between(random, -0.4, 0.4);
  }
  // Returns the level at a position in the unit square.
  double at(std::size_t channel, double x, double y) const {
    return middle_[channel] + change_[channel] * (c_ * (x - 0.5) + s_ * (y - 0.5));
  }

 private:
  double c_, s_;
  Colour middle_, change_;
};

DrawnShape random_shape(Generator& random, double size, const Background& background) {
  DrawnShape out;
  out.kind = 1 + static_cast<int>(random.below(kClasses - 1));
  out.radius = between(random, 0.12, 0.26) * size;
  out.x = between(random, 0.1, 0.9) * size;
  out.y = between(random, 0.1, 0.9) * size;
  const NormalPair turn = cos_sin(random);
  out.c = turn.a;
  out.s = turn.b;
  for (std::size_t k = 0; k < kChannels; ++k) {
    // Adding at least 0.15 modulo 1 gives a colour that differs from the background.
    const double level = background.at(k, out.x / size, out.y / size) + between(random, 0.15, 0.85);
    out.colour[k] = level - std::floor(level);
  }
  return out;
}

void draw(std::uint8_t* pixels, std::int32_t* labels, std::int64_t size, Generator random) {
  const auto length = static_cast<double>(size);
  const Background background(random);
  std::vector<DrawnShape> shapes(1 + random.below(kMaxShapes));
  for (DrawnShape& shape : shapes) shape = random_shape(random, length, background);
  const double noise = between(random, 0.02, 0.14);
  for (std::int64_t i = 0; i < size * size; ++i) {
    const double x = static_cast<double>(i % size) + 0.5, y = static_cast<double>(i / size) + 0.5;
    Colour colour;
    for (std::size_t k = 0; k < kChannels; ++k) {
      colour[k] = background.at(k, x / length, y / length);
    }
    labels[i] = kBackground;
    for (const DrawnShape& shape : shapes) {
      const double distance = shape.distance(x, y);
      if (distance < 0) labels[i] = shape.kind;
      const double cover = std::clamp(0.5 - distance, 0.0, 1.0);  // an outline is a pixel wide
      for (std::size_t k = 0; k < kChannels; ++k) {
        colour[k] += cover * (shape.colour[k] - colour[k]);
      }
    }
    for (std::size_t k = 0; k < kChannels; ++k) {
      const double level = colour[k] + noise * static_cast<double>(random.normal());
      pixels[static_cast<std::int64_t>(k) * size * size + i] =
          static_cast<std::uint8_t>(std::clamp(level, 0.0, 1.0) * 255.0 + 0.5);
    }
  }
}

Dataset draw_part(const SyntheticSegmentationOptions& options, std::int64_t count,
                  std::uint64_t stream) {
  const std::int64_t size = options.image_size, plane = size * size;
  Dataset out;
  out.name = kName;
  out.classes = kClasses;
  out.class_names = {"background", "disc", "square", "triangle", "ring"};
  out.images = Tensor::empty({count, kChannels, size, size}, DType::u8);
  out.labels = Tensor::empty({count, size, size}, DType::i32);
  std::uint8_t* pixels = out.images.data<std::uint8_t>();
  std::int32_t* labels = out.labels.data<std::int32_t>();
  parallel_for(count, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      draw(pixels + i * kChannels * plane, labels + i * plane, size,
           Generator(options.seed, stream + static_cast<std::uint64_t>(i)));
    }
  });
  return out;
}

std::vector<OptionField> fields() {
  using enum OptionType;
  const SyntheticSegmentationOptions of;
  return {{.name = "train_size",
           .type = integer,
           .default_value = of.train_size,
           .doc = "training images",
           .min = 1,
           .max = 1e6},
          {.name = "test_size",
           .type = integer,
           .default_value = of.test_size,
           .doc = "test images",
           .min = 1,
           .max = 1e6},
          {.name = "image_size",
           .type = integer,
           .default_value = of.image_size,
           .doc = "height and width, in pixels",
           .min = 8,
           .max = 256},
          {.name = "seed",
           .type = integer,
           .default_value = std::int64_t{1},
           .doc = "seed of the generated images, independent of the run's seed",
           .min = 0}};
}

}  // namespace

DatasetSplits synthetic_segmentation(const SyntheticSegmentationOptions& options) {
  CONVSCOPE_CHECK(options.train_size >= 0 && options.test_size >= 0, kName,
                  "expected sizes of at least 0, got ", options.train_size, " and ",
                  options.test_size);
  CONVSCOPE_CHECK(options.image_size >= 8 && options.image_size <= 256, kName,
                  "expected an image size of 8 to 256 pixels, got ", options.image_size);
  DatasetSplits out{draw_part(options, options.train_size, kTrainStream),
                    draw_part(options, options.test_size, kTestStream)};
  set_channel_statistics(out.train);
  out.test.mean = out.train.mean;
  out.test.std = out.train.std;
  return out;
}

CONVSCOPE_REGISTER_DATASET(
    "synthetic_segmentation",
    {.doc = "generated images of shapes, with a class for each pixel; needs no files",
     .fields = fields(),
     .load =
         [](const Options& options) {
           return synthetic_segmentation(
               {.train_size = options.integer("train_size"),
                .test_size = options.integer("test_size"),
                .seed = static_cast<std::uint64_t>(options.integer("seed")),
                .image_size = options.integer("image_size")});
         },
     .sample_shape =
         [](const Options& options) {
           const std::int64_t size = options.integer("image_size");
           return Shape{kChannels, size, size};
         },
     .classes = kClasses,
     .sizes =
         [](const Options& options) {
           return DatasetType::Sizes{options.integer("train_size"), options.integer("test_size")};
         },
     .label_shape =
         [](const Options& options) {
           const std::int64_t size = options.integer("image_size");
           return Shape{size, size};
         }})

}  // namespace convscope
