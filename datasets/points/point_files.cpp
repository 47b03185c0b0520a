// SPDX-License-Identifier: Apache-2.0
// point_files.cpp: a folder of point clouds, one file per sample, as a data set.
//
//   <root>/train/<class>/*.ply, *.npz     <root>/test/<class>/...
//
// Classes are the folders below train, sorted by name; samples are the files, sorted by name. Skips
// names that begin with '.', readmes and licences. A class without a cloud, and any other file, is
// an error. All clouds are converted to voxels of one size in one box.
#include <algorithm>
#include <filesystem>

#include "datasets/dataset.h"
#include "datasets/files/data_files.h"
#include "datasets/points/cloud.h"
#include "datasets/points/npz_cloud.h"
#include "datasets/points/ply.h"
#include "framework/io/file_names.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;
constexpr const char* kName = "point_files";

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (!is_hidden(entry.path())) out.push_back(entry.path());
  }
  std::ranges::sort(out);
  return out;
}

bool is_cloud(const fs::path& path) {
  const std::string ending = lower_extension(path);
  return ending == ".ply" || ending == ".npz";
}

// Files about the data, by authors or by Windows.
bool is_about_data(const fs::path& path) {
  std::string name = path.filename().string();
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name.starts_with("readme") || name.starts_with("licen") || name == "thumbs.db" ||
         name == "desktop.ini";
}

fs::path find_root(const std::string& root) {
  const std::vector<std::string> folders = data_folders(kName, root);
  std::error_code error;
  for (const std::string& folder : folders) {
    if (fs::is_directory(fs::path(folder) / "train", error)) return folder;
  }
  fail(ErrorKind::kData, kName,
       cat("expected a folder with train/<class>/*.ply or *.npz (and test/<class>/...), looked in ",
           join(folders, " and "), "; set data.root to it"));
}

struct Sample {
  Voxels voxels;
  int label;
  std::string file;
};

class Reader {
 public:
  explicit Reader(const Options& options)
      : root_(find_root(root_of(options))), features_(options.texts("features")) {
    box_ = {
        .grid = options.integers("grid"),
        .low = {options.number("low_x"), options.number("low_y"), options.number("low_z")},
        .size = options.number("voxel_size"),
        .outside = options.text("outside") == "clip" ? OutsidePoints::clip : OutsidePoints::refuse};
    for (const fs::path& folder : sorted_entries(root_ / "train")) {
      if (fs::is_directory(folder)) {
        classes_.push_back(folder.filename().string());
      } else if (is_cloud(folder)) {
        fail(ErrorKind::kData, kName,
             cat("expected each cloud in the folder of its class, got ", folder.string()));
      }
    }
    if (classes_.empty()) {
      fail(ErrorKind::kData, kName,
           cat("expected a folder for each class in ", (root_ / "train").string(), ", got none"));
    }
  }

  DatasetSplits read() {
    const std::vector<Sample> train = samples_of("train"), test = samples_of("test");
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      const auto is_one = [&](const Sample& sample) { return sample.label == static_cast<int>(c); };
      if (std::ranges::any_of(train, is_one)) continue;
      fail(ErrorKind::kData, kName,
           cat("expected *.ply or *.npz of each class below ", (root_ / "train").string(),
               ", which has ", join(classes_), "; got none in '", classes_[c], "'"));
    }
    std::size_t most = 1;
    for (const auto* part : {&train, &test}) {
      for (const Sample& sample : *part) most = std::max(most, sample.voxels.places.size());
    }
    return {part_of(train, most), part_of(test, most)};
  }

 private:
  std::vector<Sample> samples_of(const std::string& part) {
    std::vector<Sample> out;
    for (const fs::path& folder : sorted_entries(root_ / part)) {
      if (!fs::is_directory(folder)) continue;
      const std::string name = folder.filename().string();
      const auto at = std::ranges::find(classes_, name);
      if (at == classes_.end()) {
        const std::string near = nearest_word(name, classes_);
        fail(ErrorKind::kData, kName,
             cat(folder.string(), ": expected one of the classes of train, ", join(classes_),
                 ", got '", name, "'", near.empty() ? "" : cat("; did you mean '", near, "'?")));
      }
      for (const fs::path& file : sorted_entries(folder)) {
        if (is_about_data(file)) continue;
        if (!is_cloud(file) || fs::is_directory(file)) {
          fail(ErrorKind::kData, kName,
               cat("expected *.ply or *.npz, because a folder of a class holds its clouds, got ",
                   file.string(), "; move it elsewhere, or begin its name with '.'"));
        }
        out.push_back({voxels(file), static_cast<int>(at - classes_.begin()), file.string()});
      }
    }
    return out;
  }

  Voxels voxels(const fs::path& file) {
    Cloud cloud =
        lower_extension(file) == ".ply" ? read_ply(file.string()) : read_npz_cloud(file.string());
    if (!features_.empty()) cloud = cloud.with_features(features_);
    if (first_file_.empty()) {
      first_file_ = file.string();
      names_ = cloud.names;
    }
    if (cloud.names != names_) {
      const auto text = [](const std::vector<std::string>& names) {
        return names.empty() ? std::string("none") : join(names);
      };
      fail(ErrorKind::kData, kName,
           cat(file.string(), ": expected the features of ", first_file_, ", ", text(names_),
               ", got ", text(cloud.names), "; choose common features with data.features"));
    }
    return voxels_of(cloud, box_);
  }

  Dataset part_of(const std::vector<Sample>& samples, std::size_t most) const {
    Dataset out;
    out.name = kName;
    out.classes = static_cast<int>(classes_.size());
    out.class_names = classes_;
    out.labels = Tensor::empty({static_cast<std::int64_t>(samples.size())}, DType::i32);
    auto set = std::make_shared<PointSet>();
    set->grid = box_.grid;
    set->channels = static_cast<std::int64_t>(std::max<std::size_t>(1, names_.size()));
    set->most = static_cast<std::int64_t>(most);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      set->add(samples[i].voxels.places, samples[i].voxels.features, samples[i].file);
      out.labels.data<std::int32_t>()[i] = samples[i].label;
    }
    out.points = std::move(set);
    return out;
  }

  fs::path root_;
  std::vector<std::string> features_, names_, classes_;
  std::string first_file_;
  VoxelBox box_;
};

std::vector<OptionField> fields() {
  using enum OptionType;
  std::vector<OptionField> out = {
      root_field(),
      {.name = "grid",
       .type = integers,
       .doc = "voxels along each axis: [T,H,W] for (z,y,x), or [H,W] for (y,x)",
       .required = true,
       .min = 1,
       .max = 1 << 20},
      {.name = "voxel_size",
       .type = number,
       .default_value = 1.0,
       .doc = "edge of a voxel in the units of the files",
       .min = 1e-12,
       .max = 1e12}};
  for (const char* axis : {"x", "y", "z"}) {
    out.push_back({.name = cat("low_", axis),
                   .type = number,
                   .default_value = 0.0,
                   .doc = cat("where the grid begins along ", axis, ", in the units of the files"),
                   .min = -1e12,
                   .max = 1e12});
  }
  out.push_back(
      {.name = "outside",
       .type = text,
       .default_value = std::string("refuse"),
       .doc = "treatment of a point outside the grid: refuse (an error), clip (leave it out)",
       .choices = {"refuse", "clip"}});
  out.push_back({.name = "features",
                 .type = texts,
                 .default_value = std::vector<std::string>{},
                 .doc = "properties to read, in this order; []: all of the file, or a constant 1 "
                        "if it has none"});
  return out;
}

}  // namespace

CONVSCOPE_REGISTER_DATASET(
    "point_files",
    {.doc = "point clouds from files (.ply, .npz): one file per sample, one folder per class",
     .fields = fields(),
     .load = [](const Options& options) { return Reader(options).read(); },
     .point_grid = [](const Options& options) { return options.integers("grid"); }})

}  // namespace convscope
