// SPDX-License-Identifier: Apache-2.0
// tensorboard.cpp: scalars as an event file for TensorBoard (config: log.tensorboard: true).
#include "experiments/run_folder/tensorboard.h"

#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "experiments/run_folder/run_folder.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, bits reversed
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t rest = i;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? kPolynomial : 0);
    table[i] = rest;
  }
  return table;
}

constexpr std::size_t kHead = 12, kTail = 4;  // bytes of a record around its data

// Appends the fields of a message to a buffer on the stack.
class Message {
 public:
  void varint(int field, std::uint64_t value) {
    key(field, 0);
    raw_varint(value);
  }
  void fixed64(int field, double value) {
    key(field, 1);
    fixed(std::bit_cast<std::uint64_t>(value), 8);
  }
  void fixed32(int field, float value) {
    key(field, 5);
    fixed(std::bit_cast<std::uint32_t>(value), 4);
  }
  void bytes(int field, std::string_view value) {
    key(field, 2);
    raw_varint(value.size());
    for (char c : value) put(static_cast<std::uint8_t>(c));
  }
  void fixed(std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i) put(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  void raw(std::string_view value) {
    for (char c : value) put(static_cast<std::uint8_t>(c));
  }
  std::string_view view() const { return {data_.data(), size_}; }

 private:
  void key(int field, int type) { raw_varint(static_cast<std::uint64_t>(field * 8 + type)); }
  void raw_varint(std::uint64_t value) {
    for (; value >= 128; value >>= 7) put(static_cast<std::uint8_t>(value | 128));
    put(static_cast<std::uint8_t>(value));
  }
  void put(std::uint8_t byte) {
    CONVSCOPE_CHECK(size_ < data_.size(), "tensorboard", "expected an event of at most ",
                    data_.size(), " bytes, got a longer one");
    data_[size_++] = static_cast<char>(byte);
  }
  std::array<char, 1024> data_;
  std::size_t size_ = 0;
};

void append_record(AppendFile& file, std::string_view data) {
  Message record;
  record.fixed(data.size(), 8);
  record.fixed(masked_crc32c(record.view()), 4);
  record.raw(data);
  record.fixed(masked_crc32c(data), 4);
  file.append(record.view());
}

// Returns the step of an event as add() writes it: wall_time (9 bytes), then key 0x10 and a varint.
std::int64_t step_of(Bytes event) {
  std::uint64_t step = 0;
  if (event.size() < 11 || event[9] != 0x10) return 0;  // the first record has no step
  for (std::size_t i = 10, shift = 0; i < event.size() && shift < 63; ++i, shift += 7) {
    step |= static_cast<std::uint64_t>(event[i] & 127) << shift;
    if (event[i] < 128) break;
  }
  return static_cast<std::int64_t>(step);
}

// Returns the length of the complete, valid records up to this step.
std::int64_t bytes_until(const std::string& path, std::int64_t steps) {
  if (steps == 0) return 0;
  std::error_code error;
  const bool there = std::filesystem::is_regular_file(path, error);
  const std::string text = there ? read_text(path, kMaxTextBytes) : "";
  const Bytes file(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  std::size_t at = 0;
  while (at + kHead <= file.size()) {
    const std::uint64_t size = little_endian(file, at, 8);
    if (size > file.size() - at - kHead || size + kHead + kTail > file.size() - at) break;
    const std::string_view data(text.data() + at + kHead, static_cast<std::size_t>(size));
    if (little_endian(file, at + 8, 4) != masked_crc32c({text.data() + at, 8}) ||
        little_endian(file, at + kHead + size, 4) != masked_crc32c(data) ||
        step_of(file.subspan(at + kHead, size)) > steps) {
      break;
    }
    at += kHead + size + kTail;
  }
  return static_cast<std::int64_t>(at);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = make_crc_table();
  std::uint32_t rest = 0xffffffff;
  for (char c : bytes) rest = kTable[(rest ^ static_cast<std::uint8_t>(c)) & 255] ^ (rest >> 8);
  return ~rest;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return std::rotr(crc, 15) + 0xa282ead8u;
}

TensorboardLog::TensorboardLog(const std::string& path, std::int64_t steps)
    : file_(path, bytes_until(path, steps)) {
  if (file_.size_bytes() > 0) return;
  Message event;
  event.fixed64(1, unix_seconds_now());
  event.bytes(3, "brain.Event:2");
  append_record(file_, event.view());
}

void TensorboardLog::add(std::int64_t step, std::initializer_list<Scalar> scalars) {
  Message summary;
  for (const Scalar& scalar : scalars) {
    Message value;
    value.bytes(1, scalar.tag);
    value.fixed32(2, static_cast<float>(scalar.value));
    summary.bytes(1, value.view());
  }
  Message event;
  event.fixed64(1, unix_seconds_now());
  event.varint(2, static_cast<std::uint64_t>(step));
  event.bytes(5, summary.view());
  append_record(file_, event.view());
}

}  // namespace convscope
