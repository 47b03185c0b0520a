// SPDX-License-Identifier: Apache-2.0
// mnist.cpp: handwritten digits, 60000 + 10000 grey images of 28x28.
// Source: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-Based Learning Applied to Document
// Recognition, Proc. IEEE 1998, doi 10.1109/5.726791.
#include "datasets/files/data_files.h"
#include "datasets/files/idx.h"

namespace convscope {

CONVSCOPE_REGISTER_DATASET(
    "mnist", {.doc = "MNIST, handwritten digits, 60000 + 10000 grey images of 28x28 (IDX files)",
              .fields = {root_field()},
              .load =
                  [](const Options& options) {
                    return load_idx_splits("mnist", root_of(options),
                                           {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"});
                  },
              .sample_shape =
                  [](const Options&) {
                    return Shape{1, 28, 28};
                  },
              .classes = 10})

}  // namespace convscope
