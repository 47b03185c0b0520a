// SPDX-License-Identifier: Apache-2.0
// tensorboard.h: scalars as an event file for TensorBoard (config: log.tensorboard: true).
//
// The file is a sequence of TFRecords, each with a protocol buffers message; a few numbers need no
// library:
//   u64 length of the data | u32 masked CRC-32C of these 8 bytes | data | u32 masked CRC of data
//   data = Event   { 1: double wall_time, 2: int64 step, 3: string file_version or 5: Summary }
//   Summary        { 1: Value, repeated }
//   Value          { 1: string tag, 2: float simple_value }
// All numbers little-endian. A field is a varint key, field number * 8 + wire type, then its value:
// type 0 varint, 1 eight bytes, 2 a varint length and that many bytes, 5 four bytes. Formats:
// tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto; CRC-32C: RFC 3720,
// appendix B.4.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "experiments/run_folder/append_file.h"

namespace convscope {

// Returns CRC-32C (Castagnoli): crc32c("123456789") is 0xe3069283.
CONVSCOPE_API std::uint32_t crc32c(std::string_view bytes);
// Returns the CRC in the masked form of TFRecords, which keeps a CRC meaningful over data that
// contains CRCs.
CONVSCOPE_API std::uint32_t masked_crc32c(std::string_view bytes);

struct Scalar {
  std::string_view tag;  // "loss/train": TensorBoard groups by the part before the slash
  double value;
};

inline constexpr const char* kTensorboardFile = "events.out.tfevents.convscope";

class CONVSCOPE_API TensorboardLog {
 public:
  // Opens the log. `steps` is the number of finished training steps; 0 starts a new file. When a
  // run resumes from a checkpoint, events of steps after the checkpoint are dropped, and so is a
  // truncated record.
  TensorboardLog(const std::string& path, std::int64_t steps);
  // Adds one event with all scalars. Allocates nothing.
  void add(std::int64_t step, std::initializer_list<Scalar> scalars);

 private:
  AppendFile file_;
};

}  // namespace convscope
