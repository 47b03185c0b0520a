// SPDX-License-Identifier: Apache-2.0
// fashion_mnist.cpp: articles of clothing, in files and sizes like MNIST's, but harder to classify.
// Source: H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST: a Novel Image Dataset for Benchmarking
// Machine Learning Algorithms, 2017, arXiv 1708.07747.
#include "datasets/files/data_files.h"
#include "datasets/files/idx.h"

namespace convscope {

CONVSCOPE_REGISTER_DATASET(
    "fashion_mnist",
    {.doc = "Fashion-MNIST, clothing, 60000 + 10000 grey images of 28x28 (IDX files)",
     .fields = {root_field()},
     .load =
         [](const Options& options) {
           return load_idx_splits("fashion_mnist", root_of(options),
                                  {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal",
                                   "Shirt", "Sneaker", "Bag", "Ankle boot"});
         },
     .sample_shape =
         [](const Options&) {
           return Shape{1, 28, 28};
         },
     .classes = 10})

}  // namespace convscope
