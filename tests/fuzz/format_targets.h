// SPDX-License-Identifier: Apache-2.0
// format_targets.h: fuzz targets for the parsers of arrays, data sets, archives, and the metadata
// of plug-ins.
#pragma once

#include <algorithm>

#include "datasets/cifar10.h"
#include "datasets/files/idx.h"
#include "datasets/files/tar.h"
#include "datasets/points/npz_cloud.h"
#include "datasets/points/ply.h"
#include "framework/io/inflater.h"
#include "framework/io/npy.h"
#include "framework/io/npz.h"
#include "framework/io/safetensors.h"
#include "layers/plugin/plugin_file.h"
#include "tests/fuzz/target.h"
#include "tests/support/idx_files.h"
#include "tests/support/tar_files.h"

namespace convscope::testing {

inline NamedTensors some_tensors() {
  return {{"w", Tensor::full({2, 3}, 1.5)},
          {"labels", Tensor::full({4}, 7, DType::u8)},
          {"empty", Tensor::zeros({0, 2}, DType::i32)}};
}

inline std::string deflated_npz() {  // the output of np.savez_compressed, cut down to one entry
  const std::string npy = npy_header(Tensor::zeros({3})) + std::string(12, '\0');
  const std::string gzip = gzipped(npy);  // header of 10 bytes, data, CRC and size
  const std::string packed = gzip.substr(10, gzip.size() - 18);
  std::string fields;
  append_little_endian(fields, 20, 2);
  append_little_endian(fields, 0, 2);
  append_little_endian(fields, 8, 2);
  append_little_endian(fields, 0, 4);
  fields += gzip.substr(gzip.size() - 8, 4);
  append_little_endian(fields, packed.size(), 4);
  append_little_endian(fields, npy.size(), 4);
  append_little_endian(fields, 5, 2);
  append_little_endian(fields, 0, 2);
  const std::string local = "PK\x03\x04" + fields + "x.npy" + packed;
  std::string out = local + "PK\x01\x02";
  append_little_endian(out, 20, 2);
  out += fields + std::string(14, '\0') + "x.npy" + "PK\x05\x06" + std::string(4, '\0');
  append_little_endian(out, 1, 2);
  append_little_endian(out, 1, 2);
  append_little_endian(out, 46 + 5, 4);
  append_little_endian(out, local.size(), 4);
  append_little_endian(out, 0, 2);
  return out;
}

inline std::vector<FuzzTarget> format_targets() {
  return {
      {"idx", [](Bytes bytes) { parse_idx(bytes, "fuzz"); },
       [] {
         const Dataset data = numbered_dataset(3, 1, 4);
         return std::vector<std::string>{image_bytes(data), label_bytes(data),
                                         gzipped(image_bytes(data)), gzipped(label_bytes(data))};
       }},
      {"cifar", [](Bytes bytes) { parse_cifar10(bytes, "fuzz"); },
       [] { return std::vector<std::string>{std::string(1, '\7') + std::string(3072, 'p')}; }},
      {"plugin",
       [](Bytes bytes) {
         if (const auto plugin = plugin_in(bytes)) misfit_of(*plugin);
       },
       [] {
         const ConvscopePlugin plugin{.magic = CONVSCOPE_PLUGIN_MAGIC,
                                      .version = CONVSCOPE_PLUGIN_VERSION,
                                      .size = sizeof plugin};
         return std::vector<std::string>{
             "ELF" + std::string(reinterpret_cast<const char*>(&plugin), sizeof plugin)};
       }},
      {"npy", [](Bytes bytes) { parse_npy(bytes, "fuzz"); },
       [] {
         return std::vector<std::string>{
             npy_header(Tensor::zeros({2, 3})) + std::string(24, 'x'),
             npy_header(Tensor::zeros({5}, DType::u8)) + std::string(5, 'x'),
             npy_header(Tensor::zeros({}, DType::f64)) + std::string(8, 'x')};
       }},
      {"npz", [](Bytes bytes) { parse_npz(bytes, "fuzz"); },
       [] {
         return std::vector<std::string>{
             written([](const std::string& path) { write_npz(path, some_tensors()); }),
             deflated_npz()};
       }},
      {"npz_cloud",
       [](Bytes bytes) {
         voxels_of(parse_npz_cloud(bytes, "fuzz"),
                   {.grid = {4, 4, 4}, .outside = OutsidePoints::clip});
       },
       [] {
         return std::vector<std::string>{written([](const std::string& path) {
           write_npz(path, {{"coordinates", Tensor::full({3, 3}, 1.5)},
                            {"features", Tensor::full({3}, 2)},
                            {"labels", Tensor::zeros({3}, DType::u8)}});
         })};
       }},
      {"ply",
       [](Bytes bytes) {
         voxels_of(parse_ply(bytes, "fuzz"), {.grid = {4, 4, 4}, .outside = OutsidePoints::clip});
       },
       [] {
         const std::string vertex =
             "element vertex 2\nproperty float x\nproperty float y\nproperty float z\n"
             "property uchar red\n";
         const std::string face = "element face 1\nproperty list uchar int vertex_index\n";
         return std::vector<std::string>{
             "ply\nformat ascii 1.0\n" + face + vertex + "end_header\n2 0 1\n0 1 2 3\n1 1 1 9\n",
             "ply\nformat binary_little_endian 1.0\ncomment c\n" + vertex + face + "end_header\n" +
                 std::string(2 * 13, '\0') + std::string("\2\0\0\0\0\1\0\0\0", 9)};
       }},
      {"safetensors", [](Bytes bytes) { parse_safetensors(bytes, "fuzz"); },
       [] {
         return std::vector<std::string>{written([](const std::string& path) {
           write_safetensors(path, some_tensors(), {{"epoch", "3"}});
         })};
       }},
      {"tar",
       [](Bytes bytes) {
         std::size_t at = 0;
         const ByteSource source = [&](std::uint8_t* to, std::size_t want) {
           const std::size_t piece = std::min(want, bytes.size() - at);
           std::copy_n(bytes.data() + at, piece, to);
           at += piece;
           return piece;
         };
         read_tar(source, "fuzz", 1 << 20, [](const std::string&, std::vector<std::uint8_t>) {});
       },
       [] {
         return std::vector<std::string>{tar_of({{"folder/a.bin", "abc"}, {"b", ""}})};
       }},
  };
}

}  // namespace convscope::testing
