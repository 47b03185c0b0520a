// SPDX-License-Identifier: Apache-2.0
// quantized_file.h: a trained quantised network as integer codes and step sizes, in a safetensors
// file (framework/io/safetensors.h). Each weight is packed in its number of bits.
//
//   tensor                  type  shape
//   "c1.weight.codes"       I8    shape of the weight: 5 to 8 bits, a code in each byte
//                           U8    [ceil(count / 2)]: 3 and 4 bits, two codes in a byte
//                           U8    [ceil(count / 4)]: 2 bits, four codes in a byte
//   "c1.weight.kept"        U8    [ceil(count / 8)], if it saves bytes: a bit for each code; then
//                                 codes holds only the [kept] codes whose bit is 1
//   "c1.weight.step"        F32   [1], or [K], one for each output channel
//   "c1.input.step"         F32   [1]; for a residual block "layer2.0.input.step" and
//                                 "layer2.0.shortcut.step" (quantize_network.h)
//   "c1.bias", "bn1.running_mean"  F32  all other parameters and buffers, as in the network
//   metadata
//   "format"                "convscope-quantised-1"
//   "quantisers"            JSON, for each step: {"c1.weight": {"bits": 4, "signed": true,
//                           "by_channel": false, "shape": [6,1,5,5]}, "c1.input": {"bits": 8,
//                           "signed": true, "by_channel": false}, ...}
//   "version" "config" "progress" "crc32"  as in a checkpoint (experiments/trainer/checkpoint.h)
//
// Value       weight[k,...] = step[k] code; an input x is step round(clip(x / step))
//             (integer_grid.h)
// Packing     codes in the row-major order of the weight, two's complement, the first code in the
//             lowest bits of a byte; unused bits of the last byte are 0. A masked weight has the
//             code 0; the file holds no masks. Zero codes are omitted where the bits of "kept" take
//             less space
// Loading     fills a network that the config builds with w = step code and the same steps. Its
//             quantisers compute the same codes, so the network computes the same bits
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/io/safetensors.h"
#include "quant/quantize_network.h"

namespace convscope {

// Packs the codes of a signed grid as described above. `shape` is the shape of the weight.
CONVSCOPE_API Tensor pack_codes(const std::vector<std::int8_t>& codes, int bits,
                                const Shape& shape);
// Returns the `count` codes in `packed`. Throws kind kData when `packed` has another type or
// length, or a code is outside its grid. The message begins with `name`.
CONVSCOPE_API std::vector<std::int8_t> unpack_codes(const Tensor& packed, int bits,
                                                    const Shape& shape, const std::string& name);

// The integer codes of a layer's weight, and their step sizes [1] or [K]. quantized_weight() throws
// an error of kind kConfig if the quantiser is not calibrated or a weight is not finite. The
// message contains `name`.
struct QuantizedWeight {
  std::vector<std::int8_t> codes;
  Tensor steps;
  Shape shape;
};
CONVSCOPE_API QuantizedWeight quantized_weight(Module& layer, const Quantizer& quantizer,
                                               const std::string& name);
// Throws an error of kind kConfig if the quantiser still waits for begin(), or has no step sizes
// yet.
CONVSCOPE_API void check_calibrated(const Quantizer& quantizer, const std::string& name);

// Returns the tensors of a network, and the metadata "format" and "quantisers". Throws an error of
// kind kConfig if a quantiser still waits for begin() or is not calibrated. Omits parameters and
// buffers for which leave_out(name) is true.
CONVSCOPE_API SafetensorsFile
to_quantized_file(Module& network, const std::function<bool(std::string_view)>& leave_out);

// Returns whether `file` is a quantised network, of any version.
CONVSCOPE_API bool is_quantized_file(const SafetensorsFile& file);
inline constexpr std::string_view kQuantizedFormats = "convscope-quantised-";

// Fills parameters, buffers and quantisers. Throws kind kData when the file has another version, or
// its contents do not match the network. `path` is for the message.
CONVSCOPE_API void load_quantized_file(const SafetensorsFile& file, const std::string& path,
                                       Module& network);

}  // namespace convscope
