// SPDX-License-Identifier: Apache-2.0
// targets.h: every parser that reads files of others, as a function of bytes, with sound inputs to
// begin from. libFuzzer drives them (fuzz_main.cpp), and so does a short test in every test run
// (tests/datasets/hostile_bytes_test.cpp). A parser may throw convscope::Error and nothing else.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/cifar10.h"
#include "datasets/files/idx.h"
#include "datasets/files/tar.h"
#include "experiments/config/experiment_config.h"
#include "experiments/config/sweep_block.h"
#include "framework/io/inflater.h"
#include "framework/io/npy.h"
#include "framework/io/npz.h"
#include "framework/io/safetensors.h"
#include "tests/support/idx_files.h"
#include "tests/support/tar_files.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {

struct FuzzTarget {
  std::string_view name;
  void (*run)(Bytes bytes);
  std::vector<std::string> (*seeds)();
};

inline std::string text_of(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

inline NamedTensors some_tensors() {
  return {{"w", Tensor::full({2, 3}, 1.5)},
          {"labels", Tensor::full({4}, 7, DType::u8)},
          {"empty", Tensor::zeros({0, 2}, DType::i32)}};
}

template <class Write>
std::string written(Write&& write) {
  const TemporaryFolder folder;
  write(folder / "file");
  return text_of(read_file(folder / "file"));
}

inline std::string deflated_npz() {  // what np.savez_compressed writes, cut down to one entry
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

// The configs of the repository by file name; nothing else can be reached by `extends`.
inline const std::map<std::string, std::string>& shipped_configs() {
  static const std::map<std::string, std::string> configs = [] {
    std::map<std::string, std::string> out;
    const std::filesystem::path folder(CONVSCOPE_SOURCE_DIR "/experiments/configs");
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".yaml") {
        out[entry.path().filename().string()] = text_of(read_file(entry.path().string()));
      }
    }
    return out;
  }();
  return configs;
}

inline bool is_sweep(const std::string& config) {
  return config.find("\nsweep:\n") != std::string::npos;
}

inline const std::vector<FuzzTarget>& fuzz_targets() {
  static const std::vector<FuzzTarget> targets = {
      {"idx", [](Bytes bytes) { parse_idx(bytes, "fuzz"); },
       [] {
         const Dataset data = numbered_dataset(3, 1, 4);
         return std::vector<std::string>{image_bytes(data), label_bytes(data),
                                         gzipped(image_bytes(data)), gzipped(label_bytes(data))};
       }},
      {"cifar", [](Bytes bytes) { parse_cifar10(bytes, "fuzz"); },
       [] { return std::vector<std::string>{std::string(1, '\7') + std::string(3072, 'p')}; }},
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
      {"config",
       [](Bytes bytes) {
         parse_config_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "fuzz.yaml",
                           [](const std::string& path) {
                             const auto found = shipped_configs().find(path);
                             if (found == shipped_configs().end()) fail("fuzz", "no such file");
                             return found->second;
                           });
       },
       [] {
         std::vector<std::string> out;
         for (const auto& [name, text] : shipped_configs()) {
           // Those are only to be extended.
           if (!name.starts_with("base_") && !is_sweep(text)) out.push_back(text);
         }
         return out;
       }},
      {"sweep",
       [](Bytes bytes) {
         parse_sweep_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "fuzz.yaml",
                          [](const std::string& path) {
                            const auto found = shipped_configs().find(path);
                            if (found == shipped_configs().end()) fail("fuzz", "no such file");
                            return found->second;
                          });
       },
       [] {
         std::vector<std::string> out;
         for (const auto& [name, text] : shipped_configs()) {
           if (is_sweep(text)) out.push_back(text);
         }
         return out;
       }},
  };
  return targets;
}

inline const FuzzTarget* find_fuzz_target(std::string_view name) {
  for (const FuzzTarget& target : fuzz_targets()) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

// Runs one input; an Error is an answer, anything else is a finding.
inline void run_target(const FuzzTarget& target, Bytes bytes) {
  try {
    target.run(bytes);
  } catch (const Error&) {
  }
}

}  // namespace convscope::testing
