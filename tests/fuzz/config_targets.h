// SPDX-License-Identifier: Apache-2.0
// config_targets.h: configs and sweeps.
#pragma once

#include <filesystem>
#include <map>

#include "experiments/config/experiment_config.h"
#include "experiments/config/sweep_block.h"
#include "framework/check.h"
#include "tests/fuzz/target.h"

namespace convscope::testing {

// Returns the configs of the repository by file name. `extends` in a fuzzed config can read only
// these files.
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

// Returns the text that `extends: path` reads.
inline std::string shipped_text(const std::string& path) {
  const auto found = shipped_configs().find(path);
  if (found == shipped_configs().end()) fail("fuzz", "no such file");
  return found->second;
}

inline bool is_sweep(const std::string& config) {
  return config.find("\nsweep:\n") != std::string::npos;
}

inline std::vector<FuzzTarget> config_targets() {
  return {
      {"config",
       [](Bytes bytes) {
         parse_config_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "fuzz.yaml",
                           shipped_text);
       },
       [] {
         std::vector<std::string> out;
         for (const auto& [name, text] : shipped_configs()) {
           // Base configs are only extended.
           if (!name.starts_with("base_") && !is_sweep(text)) out.push_back(text);
         }
         out.push_back(
             "data: {set: mnist}\n"
             "blocks: {b: {parameters: {n: 4, m: $n * 2}, layers: [{type: dropout, p: -(1e0 - 0.5) "
             "+ "
             "$n / 8.0}, {type: conv2d, out_channels: 2*$m-1, kernel_size: [$m / $n, 3]}]}}\n"
             "layers: [{block: b, repeat: 2}]\n");
         return out;
       }},
      {"sweep",
       [](Bytes bytes) {
         parse_sweep_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "fuzz.yaml",
                          shipped_text);
       },
       [] {
         std::vector<std::string> out;
         for (const auto& [name, text] : shipped_configs()) {
           if (is_sweep(text)) out.push_back(text);
         }
         return out;
       }},
  };
}

}  // namespace convscope::testing
