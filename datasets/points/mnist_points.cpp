// SPDX-License-Identifier: Apache-2.0
// mnist_points.cpp: the ink of MNIST's digits as points in 2-D.
// Source: mnist.cpp.
#include "datasets/files/data_files.h"
#include "datasets/points/ink_points.h"

namespace convscope {

CONVSCOPE_REGISTER_DATASET(
    "mnist_points",
    {.doc = "MNIST as points: the pixels with ink, about a fifth of them (the files of mnist)",
     .fields = {root_field(), ink_threshold_field(0)},
     .load =
         [](const Options& options) {
           Options image_options(dataset_types().get("mnist").fields);
           if (options.has("root")) image_options.set("root", options.get("root"));
           const DatasetSplits images = dataset_types().get("mnist").load(image_options);
           const std::int64_t threshold = options.integer("threshold");
           return DatasetSplits{ink_points(images.train, threshold, "mnist_points"),
                                ink_points(images.test, threshold, "mnist_points")};
         },
     .sample_shape =
         [](const Options&) {
           return Shape{28 * 28, 3};
         },
     .classes = 10,
     .point_grid =
         [](const Options&) {
           return std::vector<std::int64_t>{28, 28};
         }})

}  // namespace convscope
