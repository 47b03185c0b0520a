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
  Tensor labels;     // i32 [N], 0..classes-1
  int classes = 0;
  std::vector<std::string> class_names;
  // Of the training images, per channel, on the 0..1 scale: a network sees (pixel/255 - mean)/std.
  std::vector<double> mean, std;
  // Samples that are points instead: `images` is undefined, mean and std are empty, and a network
  // sees the features as they are.
  std::shared_ptr<const PointSet> points;

  std::int64_t size() const {
    if (points != nullptr) return points->size();
    return images.defined() ? images.dim(0) : 0;
  }
  // [C,H,W], or [M,D+C] of points.
  Shape sample_shape() const {
    if (points != nullptr) return points->sample_shape();
    return {images.dim(1), images.dim(2), images.dim(3)};
  }
};

struct DatasetSplits {
  Dataset train;
  Dataset test;
};

struct DatasetType {
  std::string doc;
  std::vector<OptionField> fields;  // `root` for those that read files
  // Errors of kind kData name the paths tried and the fetch command.
  std::function<DatasetSplits(const Options&)> load;
  // Optional: the shape [C,H,W] of one image ([M,D+C] of points) and the number of classes, known
  // without any file, so that a network can be built and explained without the data.
  std::function<Shape(const Options&)> sample_shape = {};
  int classes = 0;
  // Optional: how many images there are, where options say it. Then no image is made of a set that
  // has no room.
  struct Sizes {
    std::int64_t train = 0, test = 0;
  };
  std::function<Sizes(const Options&)> sizes = {};
  // Of sets of points: the sizes of their grid, [H,W] or [T,H,W].
  std::function<std::vector<std::int64_t>(const Options&)> point_grid = {};
};
CONVSCOPE_API Registry<DatasetType>& dataset_types();

// For those who write a data set. An error of kind kData with file, index and value when a label is
// outside 0..classes-1.
CONVSCOPE_API void check_labels(const Tensor& labels, int classes, const std::string& set,
                                const std::string& file);
// Fills in mean and std of the images.
CONVSCOPE_API void set_channel_statistics(Dataset& dataset);

}  // namespace convscope

#define CONVSCOPE_REGISTER_DATASET(name, ...)                                                    \
  namespace {                                                                                    \
  const bool registered_dataset = ::convscope::dataset_types().add(name, __VA_ARGS__, __FILE__); \
  }
