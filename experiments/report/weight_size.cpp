// SPDX-License-Identifier: Apache-2.0
// weight_size.cpp: bytes of a trained network's parameters: as stored, and nominal.
#include "experiments/report/weight_size.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "experiments/run_folder/run_folder.h"
#include "framework/check.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace {

using json = nlohmann::json;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Reads only the header of a safetensors file (framework/io/safetensors.h): names, types and
// shapes.
json header_of(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};  // opening a pipe would block
  std::ifstream in(path, std::ios::binary);
  std::array<char, 8> length{};
  const auto size = std::filesystem::file_size(path, error);
  if (error || size < 8 || !in.read(length.data(), 8)) return {};
  std::array<std::uint8_t, 8> bytes{};
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::uint8_t>(length[i]);
  const std::uint64_t count = little_endian(bytes, 0, 8);
  if (count > size - 8 || count > (1u << 26)) return {};
  std::string text(static_cast<std::size_t>(count), ' ');
  if (!in.read(text.data(), static_cast<std::streamsize>(text.size()))) return {};
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// State of the optimiser, masks and quantisers are not parameters of the network.
bool is_parameter(const std::string& name) {
  return !name.starts_with("__") && name.find('/') == std::string::npos &&
         name.find(".mask.") == std::string::npos && name.find("_quantizer.") == std::string::npos;
}

// Returns the number of unpruned weights of a layer that has `count` weights in the checkpoint. The
// result is limited to `count`, because sparsity.csv also counts weights of removed filters, which
// are not in the checkpoint.
double weights_left(const RunData& run, const std::string& layer, double count) {
  for (std::size_t row = run.sparsity.rows.size(); row-- > 0;) {
    if (run.sparsity.text(row, "layer") != layer) continue;
    return std::min(count, run.sparsity.number(row, "weights") - run.sparsity.number(row, "zeros"));
  }
  return count;
}

double bits_of(const RunData& run, const std::string& layer) {
  for (std::size_t row = run.quant.rows.size(); row-- > 0;) {
    if (run.quant.text(row, "layer") == layer && run.quant.text(row, "tensor") == "weight") {
      return run.quant.number(row, "bits");
    }
  }
  return 32;
}

// Returns the size of a quantised or sparse model file, which holds the quantised or unpruned
// weights, f32 parameters, and a header with the config. Returns NaN for a missing file.
double model_file_bytes(const RunData& run, const char* name) {
  const std::string path = cat(run.path, "/", name);
  if (!header_of(path).is_object()) return kUnknown;
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? kUnknown : static_cast<double>(size);
}

double bytes_of_type(const std::string& dtype) {
  if (dtype == "F64" || dtype == "I64") return 8;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16") return 2;
  return dtype == "I8" || dtype == "U8" ? 1 : 4;
}

}  // namespace

WeightSize weight_size(const RunData& run) {
  WeightSize out{kUnknown, kUnknown};
  json header = header_of(run.path + "/ckpt/last.safetensors");
  if (!header.is_object()) header = header_of(run.path + "/ckpt/best.safetensors");
  // True when the config quantises weights, but quant.csv, which has the bits per weight, is
  // missing.
  const bool unknown_bits = run.config.contains("quant.w_bits") && run.quant.empty();
  if (header.is_object()) {
    double stored = 0, nominal = 0;
    for (const auto& [name, tensor] : header.items()) {
      if (!is_parameter(name) || !tensor.is_object()) continue;
      const json shape = tensor.value("shape", json::array());
      const json dtype = tensor.value("dtype", json());
      if (!shape.is_array() || !dtype.is_string()) return out;
      double count = 1;
      for (const json& size : shape) count *= size.is_number() ? size.get<double>() : kUnknown;
      const double bytes = bytes_of_type(dtype.get<std::string>());
      stored += count * bytes;
      const std::size_t tail = name.rfind(".weight");
      const bool is_weight =
          tail != std::string::npos && tail + 7 == name.size() && shape.size() >= 2;
      const std::string layer = name.substr(0, is_weight ? tail : 0);
      nominal +=
          is_weight ? weights_left(run, layer, count) * bits_of(run, layer) / 8 : count * bytes;
    }
    out.stored_bytes = stored > 0 ? stored : kUnknown;
    out.nominal_bytes = stored > 0 && !unknown_bits ? nominal : kUnknown;
  }
  for (const char* const name : {kSparseModel, kQuantizedModel}) {
    if (const double real = model_file_bytes(run, name); real > 0) out.stored_bytes = real;
  }
  if (std::isnan(out.stored_bytes) && run.summary && run.summary->weight_bytes) {
    out.stored_bytes = *run.summary->weight_bytes;
  }
  return out;
}

}  // namespace convscope
