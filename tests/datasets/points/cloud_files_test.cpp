// SPDX-License-Identifier: Apache-2.0
// cloud_files_test.cpp: tests point clouds from PLY and npz files, their voxels, and the error
// messages for invalid files.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "datasets/dataset.h"
#include "datasets/points/cloud.h"
#include "datasets/points/npz_cloud.h"
#include "datasets/points/ply.h"
#include "framework/io/npz.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
Cloud ply(const std::string& text) { return parse_ply(bytes_of(text), "a.ply"); }

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

const std::string kVertex =
    "element vertex 2\nproperty float x\nproperty float y\nproperty double z\nproperty uchar red\n"
    "property short gain\n";
const std::string kAscii = "ply\nformat ascii 1.0\ncomment made by hand\n" + kVertex +
                           "end_header\n0.5 1 2 255 -3\n1e1 -2.5 +3 7 4\n";

void expect_both_points(const Cloud& cloud) {
  EXPECT_EQ(cloud.axes, 3);
  EXPECT_EQ(cloud.positions, (std::vector<double>{0.5, 1, 2, 10, -2.5, 3}));
  EXPECT_EQ(cloud.names, (std::vector<std::string>{"red", "gain"}));
  EXPECT_EQ(cloud.features, (std::vector<float>{255, -3, 7, 4}));
}

TEST(Ply, AsciiAndBinaryGiveTheSamePoints) {
  expect_both_points(ply(kAscii));
  std::string dos = kAscii;
  for (std::size_t at = 0; (at = dos.find('\n', at)) != std::string::npos; at += 2) {
    dos.replace(at, 1, "\r\n");
  }
  expect_both_points(ply(dos));
  std::string blank = kAscii;  // after the words of the header
  blank.insert(blank.find("end_header") + 10, " \t");
  expect_both_points(ply(blank));
  std::string binary =
      "ply\nformat binary_little_endian 1.0\nelement face 2\n"
      "property list uchar int vertex_index\n" +
      kVertex + "end_header\n";
  for (int face = 0; face < 2; ++face) {  // skipped
    append(binary, std::uint8_t(face + 1));
    for (int i = 0; i <= face; ++i) append(binary, 17);
  }
  for (const auto& [x, y, z, red, gain] :
       {std::tuple{0.5f, 1.0f, 2.0, 255, -3}, {10.0f, -2.5f, 3.0, 7, 4}}) {
    append(binary, x);
    append(binary, y);
    append(binary, z);
    append(binary, static_cast<std::uint8_t>(red));
    append(binary, static_cast<std::int16_t>(gain));
  }
  expect_both_points(ply(binary));
  for (std::size_t size = 0; size < binary.size(); ++size) {  // every truncation is detected
    EXPECT_THROW(ply(binary.substr(0, size)), Error) << size;
  }
}

TEST(Ply, WithoutZIsAPlane) {
  const Cloud cloud = ply(
      "ply\nformat ascii 1.0\nelement vertex 1\nproperty int y\nproperty int x\nend_header\n4 7\n");
  EXPECT_EQ(cloud.axes, 2);
  EXPECT_EQ(cloud.positions, (std::vector<double>{7, 4}));
}

TEST(Ply, RefusesWithTheFileThePlaceAndWhatToDo) {
  const auto refused = [](const std::string& text, const char* part) {
    EXPECT_ERROR(ErrorKind::kData, part, ply(text));
    EXPECT_ERROR(ErrorKind::kData, "a.ply: ", ply(text));
  };
  refused("plx\n", "begins with a line 'ply'");
  refused("ply\nformat ascii 1.0\n", "expected a line 'end_header'");
  refused("ply\nend_header\n", "expected a line 'format'");
  refused("ply\nformat binary_big_endian 1.0\nend_header\n", "write the file again in one of them");
  refused("ply\nformat ascii 1.0\nelement edge 0\nend_header\n", "an element 'vertex'");
  refused("ply\nformat ascii 1.0\nelement vertex x\nend_header\n", "a number of rows");
  refused("ply\nformat ascii 1.0\nelement vertex 1\nproperty vec3 x\nend_header\n",
          "property vec3 x");
  refused("ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nend_header\n1\n",
          "properties x and y");
  refused(
      "ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\n"
      "property list uchar int n\nend_header\n1 1 0\n",
      "no list among the properties of 'vertex'");
  refused("ply\nformat ascii 1.0\n" + kVertex + "end_header\n1.00000000 2 3 4 5\n6 7",
          "expected a number for z in row 2 of 'vertex' (line 11), got the end of the line");
  refused("ply\nformat ascii 1.0\n" + kVertex + "end_header\n1 2 three 4 5\n6 7 8 9 1\n",
          "expected a number for z in row 1 of 'vertex'");
  refused(
      "ply\nformat binary_little_endian 1.0\nelement vertex 1000000000000\nproperty float x\n"
      "property float y\nend_header\n12345678",
      "the file seems to be cut");
}

// If a row has too many or too few numbers, the reader must report it. Otherwise all later rows
// would be shifted.
TEST(Ply, NoRowTakesNumbersOfAnother) {
  const std::string head =
      "ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\n"
      "property float y\nproperty float z\n";
  const auto refused = [](const std::string& text, const char* part) {
    EXPECT_ERROR(ErrorKind::kData, part, ply(text));
  };
  const std::string vertices = head + "end_header\n";
  EXPECT_EQ(ply(vertices + "1 2 3\n\n4 5 6 \n7 8 9\n\n").positions.size(), 9u);
  EXPECT_EQ(ply(vertices + "1 2 3\n4 5 6\n7 8 9").positions.size(), 9u);
  refused(vertices + "1 2 3\n4 5\n6 7 8 9\n",
          "for z in row 2 of 'vertex' (line 9), got the end of the line");
  refused(vertices + "1 2 3 4\n5 6\n7 8 9\n",
          "row 1 of 'vertex' (line 8) to end after its 3 properties, got more: '4'");
  refused(vertices + "1 2 3\n4 5 6\n7 8 9\n10 11 12\n",
          "the number of rows in the header seems to be too small");
  refused(vertices + "1 2 3\n4.000 5.000 6.000\n", "expected 3 rows of 'vertex', got 2");
  const std::string faces =
      head + "element face 2\nproperty list uchar int n\nend_header\n1 2 3\n4 5 6\n7 8 9\n";
  EXPECT_EQ(ply(faces + "3 0 1 2\n2 1 0\n").positions.size(), 9u);
  refused(faces + "3 0 1\n2 1 0 2\n", "row 1 of 'face'");
  refused(faces + "3 0 1 2 1\n2 1 0\n", "row 1 of 'face'");
  refused(faces + "3 0 1 2\n", "expected 2 rows of 'face', got 1");
  std::string binary =
      "ply\nformat binary_little_endian 1.0\nelement vertex 1\nproperty float x\n"
      "property float y\nend_header\n";
  append(binary, 1.0f);
  append(binary, 2.0f);
  EXPECT_EQ(ply(binary).positions, (std::vector<double>{1, 2}));
  refused(binary + "x", "after the 1 rows that its header names, got 1 more bytes");
}

NamedTensors arrays(const Shape& coordinates, const Shape& features) {
  return {{"coordinates", Tensor::full(coordinates, 1)}, {"features", Tensor::full(features, 2)}};
}

std::string npz_bytes(const testing::TemporaryFolder& folder, const NamedTensors& tensors) {
  const std::string path = folder.path() + "/a.npz";
  write_npz(path, tensors);
  const std::vector<std::uint8_t> bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

TEST(NpzCloud, ReadsCoordinatesFeaturesAndLabels) {
  const testing::TemporaryFolder folder;
  const Tensor coordinates = Tensor::from({0, 1, 2, 3, 4, 5}, {2, 3});
  const Tensor labels = Tensor::zeros({2}, DType::u8);
  labels.data<std::uint8_t>()[1] = 9;
  const std::string file = npz_bytes(folder, {{"coordinates", coordinates.to(DType::i32)},
                                              {"features", Tensor::from({7, 8}, {2})},
                                              {"labels", labels}});
  const Cloud cloud = parse_npz_cloud(bytes_of(file), "a.npz");
  EXPECT_EQ(cloud.positions, (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(cloud.names, (std::vector<std::string>{"f0"}));
  EXPECT_EQ(cloud.features, (std::vector<float>{7, 8}));
  EXPECT_EQ(cloud.labels, (std::vector<std::int32_t>{0, 9}));
  for (std::size_t size = 0; size < file.size(); size += 7) {
    EXPECT_THROW(parse_npz_cloud(bytes_of(file.substr(0, size)), "a.npz"), Error) << size;
  }
  const std::string plain = npz_bytes(folder, {{"coordinates", Tensor::zeros({4, 2}, DType::f64)}});
  EXPECT_EQ(parse_npz_cloud(bytes_of(plain), "a.npz").axes, 2);
}

TEST(NpzCloud, RefusesArraysThatDoNotFit) {
  const testing::TemporaryFolder folder;
  const auto refused = [&](const NamedTensors& tensors, const char* part) {
    const std::string file = npz_bytes(folder, tensors);
    EXPECT_ERROR(ErrorKind::kData, part, parse_npz_cloud(bytes_of(file), "a.npz"));
  };
  refused({{"points", Tensor::zeros({2, 3})}},
          "a.npz: expected an array 'coordinates', got points");
  refused(arrays({2, 4}, {2}), "expected coordinates [n,2] (x,y) or [n,3] (x,y,z), got [2,4]");
  refused(arrays({2, 3}, {3, 1}), "expected features [2] or [2,C]");
  refused({{"coordinates", Tensor::zeros({2, 3})}, {"labels", Tensor::zeros({2})}},
          "labels [2] of whole numbers");
}

Cloud cloud_of(std::vector<double> positions, std::vector<float> features = {}) {
  Cloud out{.name = "a.ply", .axes = 3};
  out.positions = std::move(positions);
  if (!features.empty()) out.names = {"gain"};
  out.features = std::move(features);
  return out;
}

TEST(Voxels, HoldTheMeanOfTheirPoints) {
  const VoxelBox box{.grid = {2, 3, 4}, .low = {-1, 0, 10}, .size = 0.5};
  // The first two points share a voxel: x -0.6 -> w 0, y 0.5 -> h 1, z 10.9 -> t 1, at index
  // (1*3+1)*4+0 = 16. The third point is in the corner voxel 0.
  const Voxels voxels =
      voxels_of(cloud_of({-0.6, 0.5, 10.9, -0.51, 0.99, 10.5, -1, 0, 10}, {1, 4, 7}), box);
  EXPECT_EQ(voxels.places, (std::vector<std::int32_t>{0, 16}));
  EXPECT_EQ(voxels.features, (std::vector<float>{7, 2.5}));
  EXPECT_EQ(voxels_of(cloud_of({-1, 0, 10}), box).features, (std::vector<float>{1}));
  EXPECT_TRUE(voxels_of(cloud_of({}), box).places.empty());
}

TEST(Voxels, PointsOutsideAreRefusedOrLeftOut) {
  VoxelBox box{.grid = {2, 2, 2}, .size = 0.5};
  const Cloud cloud = cloud_of({0.1, 0.1, 0.1, 0.2, 1.0, 0.3});
  EXPECT_ERROR(
      ErrorKind::kData,
      "a.ply: expected y from 0 to 1 because the grid has 2 voxels of size 0.5 there, got 1 of "
      "point 1",
      voxels_of(cloud, box));
  EXPECT_ERROR(ErrorKind::kData, "'outside: clip'", voxels_of(cloud, box));
  box.outside = OutsidePoints::clip;
  EXPECT_EQ(voxels_of(cloud, box).places.size(), 1u);
  EXPECT_ERROR(ErrorKind::kData, "expected finite coordinates, got z = nan of point 0",
               voxels_of(cloud_of({0, 0, NAN}), box));
  EXPECT_ERROR(ErrorKind::kData, "expected finite coordinates, got x = inf",
               voxels_of(cloud_of({INFINITY, 0, 0}), box));
  EXPECT_ERROR(ErrorKind::kData, "expected finite features, got gain = nan of point 0",
               voxels_of(cloud_of({0, 0, 0}, {NAN}), box));
  EXPECT_ERROR(ErrorKind::kData, "a grid of 3 axes", voxels_of(cloud, {.grid = {2, 2}}));
  EXPECT_ERROR(ErrorKind::kInvalid, "voxel size above 0",
               voxels_of(cloud, {.grid = {2, 2, 2}, .size = 0}));
}

class PointFiles : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder_path() / path).parent_path());
    std::ofstream(folder_path() / path) << text;
  }
  static std::string one_point(const std::string& x, const std::string& property = "gain") {
    return cat(
        "ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\n"
        "property float z\nproperty float ",
        property, "\nend_header\n", x, " 0 1 5\n");
  }
  DatasetSplits load(const std::map<std::string, OptionValue>& more = {}) const {
    const DatasetType& type = dataset_types().get("point_files");
    Options options(type.fields);
    options.set("root", folder_.path());
    options.set("grid", std::vector<std::int64_t>{2, 2, 4});
    for (const auto& [key, value] : more) options.set(key, value);
    return type.load(options);
  }
  std::filesystem::path folder_path() const { return folder_.path(); }
  testing::TemporaryFolder folder_;
};

TEST_F(PointFiles, AFolderForEachClassIsADataSet) {
  put("train/chair/1.ply", one_point("3"));
  put("train/apple/2.ply", one_point("1"));
  put("train/apple/readme.txt", "no cloud");
  put("train/.ipynb_checkpoints/old.ply", one_point("1"));
  put("train/apple/.DS_Store", "no cloud");
  put("train/apple/.ipynb_checkpoints/2-checkpoint.ply", one_point("1"));
  put("test/.git/x.ply", "no cloud");
  put("test/chair/9.ply", one_point("2"));
  const DatasetSplits data = load();
  EXPECT_EQ(data.train.class_names, (std::vector<std::string>{"apple", "chair"}));
  EXPECT_EQ(data.train.size(), 2);
  EXPECT_EQ(data.train.labels.at(1), 1);
  EXPECT_EQ(data.train.points->places, (std::vector<std::int32_t>{8 + 1, 8 + 3}));
  EXPECT_EQ(data.train.points->features, (std::vector<float>{5, 5}));
  EXPECT_EQ(data.train.sample_shape(), (Shape{1, 4}));
  EXPECT_EQ(data.test.size(), 1);
  EXPECT_EQ(load({{"features", std::vector<std::string>{}}}).train.size(), 2);
  EXPECT_ERROR(ErrorKind::kData, "did you mean 'gain'?",
               load({{"features", std::vector<std::string>{"gian"}}}));
}

TEST_F(PointFiles, ErrorsNameTheFile) {
  EXPECT_ERROR(ErrorKind::kData, "train/<class>/*.ply", load());
  put("train/apple/1.ply", one_point("9"));
  EXPECT_ERROR(ErrorKind::kData, "train/apple/1.ply: expected x from 0 to 4", load());
  EXPECT_EQ(load({{"outside", std::string("clip")}}).train.points->points(0), 0);
  put("train/apple/1.ply", one_point("1"));
  put("train/apple/2.ply", one_point("1", "red"));
  EXPECT_ERROR(ErrorKind::kData, "expected the features of ", load());
  std::filesystem::remove(folder_path() / "train/apple/2.ply");
  put("test/aple/1.ply", one_point("1"));
  EXPECT_ERROR(ErrorKind::kData, "did you mean 'apple'?", load());
}

TEST_F(PointFiles, NothingIsLeftOutSilently) {
  put("train/apple/1.PLY", one_point("1"));
  put("train/chair/2.Ply", one_point("2"));
  EXPECT_EQ(load().train.size(), 2);
  put("train/chair/scan.xyz", "1 2 3\n");
  EXPECT_ERROR(ErrorKind::kData, "train/chair/scan.xyz; move it elsewhere", load());
  std::filesystem::remove(folder_path() / "train/chair/scan.xyz");
  put("train/3.ply", one_point("1"));
  EXPECT_ERROR(ErrorKind::kData, "each cloud in the folder of its class, got ", load());
  std::filesystem::remove(folder_path() / "train/3.ply");
  std::filesystem::create_directory(folder_path() / "train/boat");
  EXPECT_ERROR(ErrorKind::kData, "which has apple, boat, chair; got none in 'boat'", load());
}

}  // namespace
}  // namespace convscope
