// SPDX-License-Identifier: Apache-2.0
// npz_cloud.cpp: a cloud of points in NumPy's archive of arrays.
#include "datasets/points/npz_cloud.h"

#include "framework/io/npz.h"
#include "framework/registry.h"

namespace convscope {

Cloud parse_npz_cloud(Bytes file, const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    fail(ErrorKind::kData, "npz", cat(name, ": ", why));
  };
  Tensor coordinates, features, labels;
  std::vector<std::string> found;
  for (const NamedTensor& array : parse_npz(file, name)) {
    found.push_back(array.name);
    if (array.name == "coordinates") coordinates = array.tensor;
    if (array.name == "features") features = array.tensor;
    if (array.name == "labels") labels = array.tensor;
  }
  if (!coordinates.defined()) {
    refuse(cat("expected an array 'coordinates', got ", found.empty() ? "none" : join(found)));
  }
  if (coordinates.rank() != 2 || (coordinates.dim(1) != 2 && coordinates.dim(1) != 3)) {
    refuse(cat("expected coordinates [n,2] (x,y) or [n,3] (x,y,z), got ", coordinates.shape()));
  }
  const std::int64_t n = coordinates.dim(0);
  Cloud out{.name = name, .axes = static_cast<int>(coordinates.dim(1))};
  const Tensor positions = coordinates.to(DType::f64);
  out.positions.assign(positions.data<double>(), positions.data<double>() + positions.numel());
  if (features.defined()) {
    if (features.rank() < 1 || features.rank() > 2 || features.dim(0) != n) {
      refuse(cat("expected features [", n, "] or [", n, ",C] because coordinates are ",
                 coordinates.shape(), ", got ", features.shape()));
    }
    const std::int64_t width = features.rank() == 2 ? features.dim(1) : 1;
    for (std::int64_t c = 0; c < width; ++c) out.names.push_back(cat("f", c));
    const Tensor values = features.to(DType::f32);
    out.features.assign(values.data<float>(), values.data<float>() + values.numel());
  }
  if (labels.defined()) {
    if (labels.shape() != Shape{n} || is_floating(labels.dtype())) {
      refuse(cat("expected labels [", n, "] of whole numbers, got ", labels.str()));
    }
    const Tensor values = labels.to(DType::i32);
    out.labels.assign(values.data<std::int32_t>(), values.data<std::int32_t>() + n);
  }
  return out;
}

Cloud read_npz_cloud(const std::string& path) { return parse_npz_cloud(read_file(path), path); }

}  // namespace convscope
