// SPDX-License-Identifier: Apache-2.0
// digit_points.cpp: the ink of the synthetic digits as points in 2-D.
#include "datasets/points/ink_points.h"
#include "datasets/synthetic_digits.h"

namespace convscope {
namespace {

// The default threshold for ink: above the noise of the drawn digits.
constexpr std::int64_t kThreshold = 64;

const DatasetType& digits() { return dataset_types().get("synthetic_digits"); }

// Returns the options of synthetic_digits: all options except `threshold`.
Options image_options(const Options& options) {
  Options out(digits().fields);
  for (const OptionField& field : digits().fields) out.set(field.name, options.get(field.name));
  return out;
}

}  // namespace

CONVSCOPE_REGISTER_DATASET(
    "digit_points",
    {.doc = "synthetic_digits as points: the pixels with ink; needs no files",
     .fields =
         [] {
           std::vector<OptionField> out = synthetic_digits_fields();
           out.push_back(ink_threshold_field(kThreshold));
           return out;
         }(),
     .load =
         [](const Options& options) {
           const DatasetSplits images = digits().load(image_options(options));
           const std::int64_t threshold = options.integer("threshold");
           return DatasetSplits{ink_points(images.train, threshold, "digit_points"),
                                ink_points(images.test, threshold, "digit_points")};
         },
     .sample_shape =
         [](const Options& options) {
           const std::int64_t size = options.integer("image_size");
           return Shape{size * size, 3};
         },
     .classes = 10,
     .sizes =
         [](const Options& options) {
           return DatasetType::Sizes{options.integer("train_size"), options.integer("test_size")};
         },
     .point_grid =
         [](const Options& options) {
           return std::vector<std::int64_t>(2, options.integer("image_size"));
         }})

}  // namespace convscope
