// SPDX-License-Identifier: Apache-2.0
// idx.cpp: the IDX format of MNIST and similar sets: u8 arrays, raw or gzip.
#include "datasets/files/idx.h"

#include <array>
#include <cstring>

#include "datasets/files/data_files.h"
#include "framework/io/inflater.h"

namespace convscope {
namespace {

constexpr int kMaxAxes = 4;

template <class... Words>
void check(bool condition, const std::string& name, const Words&... words) {
  if (!condition) fail(ErrorKind::kData, "idx", cat(name, ": ", words...));
}

// Returns the sizes of all axes. `header` holds the first 4 + 4 * kMaxAxes bytes, or the whole
// file.
Shape parse_header(Bytes header, const std::string& name) {
  check(header.size() >= 4, name, "expected an IDX header, got only ", header.size(), " bytes");
  check(header[0] == 0 && header[1] == 0, name, "expected the IDX magic 0 0 8 r, got ", +header[0],
        " ", +header[1], " ", +header[2], " ", +header[3]);
  check(header[2] == 8, name, "expected IDX type code 8 (unsigned bytes), got ", +header[2]);
  const int axes = header[3];
  check(axes >= 1 && axes <= kMaxAxes, name, "expected 1 to ", kMaxAxes, " axes, got ", axes);
  check(header.size() >= 4u + 4u * static_cast<std::size_t>(axes), name, "expected ", axes,
        " sizes in the header, got only ", header.size(), " bytes");
  Shape shape;
  for (int axis = 0; axis < axes; ++axis) {
    std::int64_t size = 0;
    for (int i = 0; i < 4; ++i) {
      size =
          size << 8 | header[4 + 4 * static_cast<std::size_t>(axis) + static_cast<std::size_t>(i)];
    }
    shape.push_back(size);
  }
  return shape;
}

// Returns the number of data bytes that the header claims. Throws kData if it exceeds `most`.
std::size_t claimed_bytes(const Shape& shape, std::uint64_t most, const std::string& name) {
  std::int64_t bytes = 1;
  bool fits = true;
  for (std::int64_t size : shape) fits = fits && !__builtin_mul_overflow(bytes, size, &bytes);
  check(fits && static_cast<std::uint64_t>(bytes) <= most, name, "expected data for ", shape,
        " because the header says so, got a file that holds at most ", most, " bytes of it");
  return static_cast<std::size_t>(bytes);
}

Tensor parse_gzip(Bytes file, const std::string& name) {
  Inflater inflater(file, DeflateFormat::gzip, name);
  std::array<std::uint8_t, 4 + 4 * kMaxAxes> header{};
  std::size_t have = inflater.read(header.data(), 4);
  if (have == 4 && header[3] <= kMaxAxes) {
    have += inflater.read(header.data() + 4, 4u * header[3]);
  }
  const Shape shape = parse_header(Bytes(header.data(), have), name);
  const std::size_t bytes = claimed_bytes(shape, largest_inflated(file.size()), name);
  Tensor out = Tensor::empty(shape, DType::u8);
  const std::size_t got = inflater.read(static_cast<std::uint8_t*>(out.raw_data()), bytes);
  check(got == bytes, name, "expected ", bytes, " bytes of data for ", shape, ", got ", got);
  std::uint8_t extra = 0;  // reading further makes zlib check the checksum
  check(inflater.read(&extra, 1) == 0, name, "expected ", bytes, " bytes of data for ", shape,
        ", got more");
  check(inflater.left() == 0, name, "expected nothing after the gzip data, got ", inflater.left(),
        " bytes");
  return out;
}

Dataset load_split(const std::string& set, const std::string& folder, const std::string& stem,
                   const std::vector<std::string>& class_names) {
  const std::string images_path = find_data_file(set, folder, idx_spellings(stem + "-images", 3));
  const std::string labels_path = find_data_file(set, folder, idx_spellings(stem + "-labels", 1));
  const Tensor images = read_idx(images_path);
  const Tensor labels = read_idx(labels_path);
  check(images.rank() == 3, images_path, "expected images [N,H,W], got ", images.shape());
  check(labels.rank() == 1, labels_path, "expected labels [N], got ", labels.shape());
  check(images.dim(0) == labels.dim(0), labels_path, "expected ", images.dim(0), " labels because ",
        images_path, " holds as many images, got ", labels.dim(0));
  check(images.dim(1) > 0 && images.dim(2) > 0, images_path,
        "expected images of at least one pixel, got ", images.shape());
  Dataset out;
  out.name = set;
  out.images = images.reshape({images.dim(0), 1, images.dim(1), images.dim(2)});  // [N,1,H,W]
  out.labels = labels.to(DType::i32);
  out.classes = static_cast<int>(class_names.size());
  out.class_names = class_names;
  check_labels(out.labels, out.classes, set, labels_path);
  return out;
}

}  // namespace

Tensor parse_idx(Bytes file, const std::string& name) {
  if (is_gzip(file)) return parse_gzip(file, name);
  const Shape shape = parse_header(file, name);
  const Bytes data = file.subspan(4 + 4 * static_cast<std::size_t>(shape.rank()));
  const std::size_t bytes = claimed_bytes(shape, data.size(), name);
  check(bytes == data.size(), name, "expected ", bytes, " bytes of data for ", shape, ", got ",
        data.size());
  Tensor out = Tensor::empty(shape, DType::u8);
  if (bytes > 0) std::memcpy(out.raw_data(), data.data(), bytes);
  return out;
}

Tensor read_idx(const std::string& path) { return parse_idx(read_file(path), path); }

std::string idx_bytes(const Tensor& tensor) {
  CONVSCOPE_CHECK(tensor.dtype() == DType::u8 && tensor.rank() >= 1 && tensor.rank() <= kMaxAxes,
                  "idx", "expected a u8 tensor of 1 to ", kMaxAxes, " axes, got ", tensor.str());
  std::string out{'\0', '\0', '\x08', static_cast<char>(tensor.rank())};
  for (std::int64_t size : tensor.shape()) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(size >> shift & 0xff);
  }
  out.append(static_cast<const char*>(tensor.raw_data()), static_cast<std::size_t>(tensor.numel()));
  return out;
}

std::vector<std::string> idx_spellings(const std::string& stem, int axes) {
  std::vector<std::string> out;
  for (const char* ending : {"", ".gz"}) {
    for (const char* link : {"-", "."})
      out.push_back(cat(stem, link, "idx", axes, "-ubyte", ending));
  }
  return out;
}

DatasetSplits load_idx_splits(const std::string& set, const std::string& root,
                              const std::vector<std::string>& class_names) {
  const std::string folder = find_data_folder(set, root, idx_spellings("train-images", 3));
  DatasetSplits splits{load_split(set, folder, "train", class_names),
                       load_split(set, folder, "t10k", class_names)};
  CONVSCOPE_CHECK(splits.train.sample_shape() == splits.test.sample_shape(), set,
                  "expected test images of the size of the training images, ",
                  splits.train.sample_shape(), ", got ", splits.test.sample_shape());
  set_channel_statistics(splits.train);
  splits.test.mean = splits.train.mean;
  splits.test.std = splits.train.std;
  return splits;
}

}  // namespace convscope
