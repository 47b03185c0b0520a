// SPDX-License-Identifier: Apache-2.0
// cifar10.cpp: the binary version of CIFAR-10. A record has one label byte and an image of 32x32
// pixels in 3072 bytes: all red values, then all green ones, then all blue ones.
#include "datasets/cifar10.h"

#include <cstring>
#include <filesystem>

#include "datasets/files/data_files.h"

namespace convscope {
namespace {

const std::vector<std::string>& default_class_names() {
  static const std::vector<std::string> names = {
      "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
  return names;
}

std::vector<std::string> read_class_names(const std::string& folder) {
  const std::string path = folder + "/batches.meta.txt";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return default_class_names();
  std::vector<std::string> names(1);
  for (const std::uint8_t c : read_file(path)) {
    if (c == '\n') {
      names.emplace_back();
    } else if (c > ' ' && c < 127 && names.back().size() < 64) {
      names.back() += static_cast<char>(c);
    }
  }
  std::erase(names, "");
  if (names.size() != 10) {
    fail(ErrorKind::kData, "cifar10",
         cat(path, ": expected 10 class names, one on each line, got ", names.size()));
  }
  return names;
}

Dataset concatenate(const std::vector<Dataset>& parts) {
  std::int64_t total = 0;
  for (const Dataset& part : parts) total += part.size();
  Dataset out = parts.front();
  out.images = Tensor::empty({total, 3, 32, 32}, DType::u8);
  out.labels = Tensor::empty({total}, DType::i32);
  std::int64_t at = 0;
  for (const Dataset& part : parts) {
    out.images.slice_rows(at, part.size()).copy_from(part.images);
    out.labels.slice_rows(at, part.size()).copy_from(part.labels);
    at += part.size();
  }
  return out;
}

DatasetSplits load(const Options& options) {
  const std::string folder = find_data_folder("cifar10", root_of(options), {"test_batch.bin"});
  const auto part = [&](const std::string& file) {
    const std::string path = find_data_file("cifar10", folder, {file});
    return parse_cifar10(read_file(path), path);
  };
  std::vector<Dataset> parts;
  for (int i = 1; i <= 5; ++i) parts.push_back(part(cat("data_batch_", i, ".bin")));
  DatasetSplits splits{concatenate(parts), part("test_batch.bin")};
  splits.train.class_names = splits.test.class_names = read_class_names(folder);
  set_channel_statistics(splits.train);
  splits.test.mean = splits.train.mean;
  splits.test.std = splits.train.std;
  return splits;
}

}  // namespace

Dataset parse_cifar10(Bytes file, const std::string& name) {
  if (file.empty() || file.size() % kCifar10RecordBytes != 0) {
    fail(ErrorKind::kData, "cifar10",
         cat(name, ": expected whole records of ", kCifar10RecordBytes, " bytes, got ", file.size(),
             " bytes"));
  }
  const std::size_t count = file.size() / kCifar10RecordBytes;
  Dataset out;
  out.name = "cifar10";
  out.classes = 10;
  out.class_names = default_class_names();
  out.images = Tensor::empty({static_cast<std::int64_t>(count), 3, 32, 32}, DType::u8);
  out.labels = Tensor::empty({static_cast<std::int64_t>(count)}, DType::i32);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t* record = file.data() + i * kCifar10RecordBytes;
    out.labels.data<std::int32_t>()[i] = record[0];
    std::memcpy(out.images.data<std::uint8_t>() + i * (kCifar10RecordBytes - 1), record + 1,
                kCifar10RecordBytes - 1);
  }
  check_labels(out.labels, out.classes, "cifar10", name);
  return out;
}

CONVSCOPE_REGISTER_DATASET(
    "cifar10", {.doc = "CIFAR-10, 50000 + 10000 colour images of 32x32 (binary version)",
                .fields = {root_field()},
                .load = load,
                .sample_shape =
                    [](const Options&) {
                      return Shape{3, 32, 32};
                    },
                .classes = 10})

}  // namespace convscope
