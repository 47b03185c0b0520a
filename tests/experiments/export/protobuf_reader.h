// SPDX-License-Identifier: Apache-2.0
// protobuf_reader.h: reads a protobuf message field by field, for tests of the code that writes
// such messages.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/check.h"

namespace convscope::testing {

// Maps each field number of a message to the values of the field, in order.
class ProtobufMessage {
 public:
  explicit ProtobufMessage(const std::string& bytes) : bytes_(bytes) {
    while (at_ < bytes_.size()) {
      const std::uint64_t tag = varint();
      const int field = static_cast<int>(tag >> 3);
      if ((tag & 7) == 0) {
        numbers_[field].push_back(static_cast<std::int64_t>(varint()));
      } else if ((tag & 7) == 2) {
        const std::uint64_t size = varint();
        CONVSCOPE_CHECK(size <= bytes_.size() - at_, "protobuf", "a field ends after its message");
        texts_[field].push_back(bytes_.substr(at_, size));
        at_ += size;
      } else if ((tag & 7) == 5) {
        CONVSCOPE_CHECK(bytes_.size() - at_ >= 4, "protobuf", "a number ends after its message");
        std::uint32_t bits = 0;
        for (int i = 3; i >= 0; --i) {
          bits = bits << 8 | static_cast<std::uint8_t>(bytes_[at_ + static_cast<std::size_t>(i)]);
        }
        reals_[field].push_back(std::bit_cast<float>(bits));
        at_ += 4;
      } else {
        fail("protobuf", cat("a field of another type, ", tag & 7));
      }
    }
  }

  std::vector<std::string> texts(int field) const { return all(texts_, field); }
  std::vector<std::int64_t> numbers(int field) const { return all(numbers_, field); }
  std::vector<float> reals(int field) const { return all(reals_, field); }
  std::string text(int field) const { return one(texts_, field); }
  std::int64_t number(int field) const { return one(numbers_, field); }
  float real(int field) const { return one(reals_, field); }
  ProtobufMessage message(int field) const { return ProtobufMessage(text(field)); }
  std::vector<ProtobufMessage> messages(int field) const {
    std::vector<ProtobufMessage> out;
    for (const std::string& bytes : texts(field)) out.emplace_back(bytes);
    return out;
  }
  // Returns every field, so that a test sees unexpected ones.
  std::vector<int> fields() const {
    std::map<int, bool> there;
    for (const auto& [field, values] : texts_) there[field] = true;
    for (const auto& [field, values] : numbers_) there[field] = true;
    for (const auto& [field, values] : reals_) there[field] = true;
    std::vector<int> out;
    for (const auto& [field, yes] : there) out.push_back(field);
    return out;
  }

 private:
  template <class T>
  static std::vector<T> all(const std::map<int, std::vector<T>>& from, int field) {
    const auto at = from.find(field);
    return at == from.end() ? std::vector<T>() : at->second;
  }
  template <class T>
  static T one(const std::map<int, std::vector<T>>& from, int field) {
    const std::vector<T> values = all(from, field);
    CONVSCOPE_CHECK(values.size() == 1, "protobuf", "expected field ", field, " once, got it ",
                    values.size(), " times");
    return values[0];
  }
  std::uint64_t varint() {
    std::uint64_t out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      CONVSCOPE_CHECK(at_ < bytes_.size(), "protobuf", "a number without an end");
      const auto byte = static_cast<std::uint8_t>(bytes_[at_++]);
      out |= static_cast<std::uint64_t>(byte & 127) << shift;
      if (byte < 128) return out;
    }
    fail("protobuf", "a number of more than 64 bits");
  }

  std::string bytes_;
  std::size_t at_ = 0;
  std::map<int, std::vector<std::string>> texts_;
  std::map<int, std::vector<std::int64_t>> numbers_;
  std::map<int, std::vector<float>> reals_;
};

}  // namespace convscope::testing
