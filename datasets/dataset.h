// SPDX-License-Identifier: Apache-2.0
// dataset.h: labelled images or sets of points in memory, and the table of data sets that a config
// can name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/points/point_set.h"
#include "framework/options.h"
#include "framework/registry.h"
#include "framework/tensor.h"

namespace convscope {

struct Dataset {
  std::string name;  // "mnist"
  Tensor images;     // u8 [N,C,H,W], 0..255
  Tensor labels;     // i32 [N] or, with a class for each pixel, [N,H,W]; 0..classes-1
  int classes = 0;
  std::vector<std::string> class_names;
  // Mean and standard deviation of each channel of the training images, on the 0..1 scale. A
  // network sees (pixel/255 - mean)/std.
  std::vector<double> mean, std;
  // For samples that are points: `images` is undefined, mean and std are empty, and the features
  // are not normalised.
  std::shared_ptr<const PointSet> points;

  std::int64_t size() const {
    if (points != nullptr) return points->size();
    return images.defined() ? images.dim(0) : 0;
  }
  // Returns [C,H,W], or [M,D+C] for points.
  Shape sample_shape() const {
    if (points != nullptr) return points->sample_shape();
    return {images.dim(1), images.dim(2), images.dim(3)};
  }
  // Returns the shape of a sample's labels: [] for one class, [H,W] for a class for each pixel.
  Shape label_shape() const {
    Shape out;
    for (int axis = 1; axis < labels.rank(); ++axis) out.push_back(labels.dim(axis));
    return out;
  }
};

struct DatasetSplits {
  Dataset train;
  Dataset test;
};

struct DatasetType {
  std::string doc;
  std::vector<OptionField> fields;  // `root` for sets that read files
  // Loads the set. Throws kData with the paths tried and the fetch command.
  std::function<DatasetSplits(const Options&)> load;
  // Optional: the shape [C,H,W] of an image ([M,D+C] for points) and the number of classes, known
  // without files, so that a network can be built and explained without the data.
  std::function<Shape(const Options&)> sample_shape = {};
  int classes = 0;
  // Optional: the number of images, if the options determine it. A set that does not fit into
  // memory can then be refused before any image is created.
  struct Sizes {
    std::int64_t train = 0, test = 0;
  };
  std::function<Sizes(const Options&)> sizes = {};
  // For sets of points: the sizes of their grid, [H,W] or [T,H,W].
  std::function<std::vector<std::int64_t>(const Options&)> point_grid = {};
  // For sets with a class for each pixel: [H,W]. Class 0 is the background.
  std::function<Shape(const Options&)> label_shape = {};
};
CONVSCOPE_API Registry<DatasetType>& dataset_types();

// Checks labels, for authors of data sets. Throws kData with file, index and value when a label is
// outside of 0..classes-1.
CONVSCOPE_API void check_labels(const Tensor& labels, int classes, const std::string& set,
                                const std::string& file);
// Sets dataset.mean and dataset.std from the images.
CONVSCOPE_API void set_channel_statistics(Dataset& dataset);

}  // namespace convscope

#define CONVSCOPE_REGISTER_DATASET(name, ...)                                                    \
  namespace {                                                                                    \
  const bool registered_dataset = ::convscope::dataset_types().add(name, __VA_ARGS__, __FILE__); \
  }
