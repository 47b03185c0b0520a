// SPDX-License-Identifier: Apache-2.0
// catalog.cpp: the table of published data sets. Its MD5 sums are those that the authors of the
// sets publish for the archives (CIFAR-10: https://www.cs.toronto.edu/~kriz/cifar.html;
// Fashion-MNIST: its README). The SHA-256 sums of MNIST are those of the unpacked files, so they
// are valid for any compression of a copy.
#include "datasets/catalog.h"

#include "datasets/dataset.h"
#include "framework/registry.h"

namespace convscope {

const std::vector<PublishedSet>& published_sets() {
  static const std::vector<PublishedSet> sets = {
      {.name = "cifar10",
       .mirrors = {"https://www.cs.toronto.edu/~kriz"},
       .files = {{"cifar-10-binary.tar.gz", "", "c32a1d4ab5d03f1284b67883e8d87530"}},
       .members = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                   "data_batch_5.bin", "test_batch.bin"},
       .optional_members = {"batches.meta.txt"},
       .train_size = 50000,
       .test_size = 10000},
      {.name = "fashion_mnist",
       .mirrors = {"https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/"
                   "fashion",
                   "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"},
       .files = {{"train-images-idx3-ubyte.gz", "", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"},
                 {"train-labels-idx1-ubyte.gz", "", "25c81989df183df01b3e8a0aad5dffbe"},
                 {"t10k-images-idx3-ubyte.gz", "", "bef4ecab320f06d8554ea6380940ec79"},
                 {"t10k-labels-idx1-ubyte.gz", "", "bb300cfdad3c16e7a12a480ee83cd310"}},
       .members = {},
       .train_size = 60000,
       .test_size = 10000},
      {.name = "mnist",
       .mirrors = {"https://ossci-datasets.s3.amazonaws.com/mnist",
                   "https://storage.googleapis.com/cvdf-datasets/mnist"},
       .files = {{"train-images-idx3-ubyte.gz",
                  "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db", ""},
                 {"train-labels-idx1-ubyte.gz",
                  "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5", ""},
                 {"t10k-images-idx3-ubyte.gz",
                  "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7", ""},
                 {"t10k-labels-idx1-ubyte.gz",
                  "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2", ""}},
       .members = {},
       .train_size = 60000,
       .test_size = 10000},
  };
  return sets;
}

namespace {

// Returns a remark for `data` commands on a set without published files; "" for other sets.
const char* remark_on(const std::string& name) {
  if (name == "mnist_points") return "; that set reads the files of mnist";
  const bool drawn = (name.starts_with("synthetic_") && dataset_types().find(name) != nullptr) ||
                     name == "digit_points";
  return drawn ? "; that set is drawn by the program itself" : "";
}

}  // namespace

const PublishedSet& published_set(const std::string& name) {
  std::vector<std::string> names;
  for (const PublishedSet& set : published_sets()) {
    if (set.name == name) return set;
    names.push_back(set.name);
  }
  const std::string near = nearest_word(name, names);
  fail("data", cat("expected one of ", join(names), ", got '", name, "'",
                   near.empty() ? "" : cat("; did you mean '", near, "'?"), remark_on(name)));
}

}  // namespace convscope
