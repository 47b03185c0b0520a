// SPDX-License-Identifier: Apache-2.0
// safetensors.cpp: reads and writes safetensors files, which hold named tensors: the format of
// checkpoints.
#include "framework/io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "framework/io/atomic_file.h"
#include "framework/io/file_start.h"
#include "framework/io/json_text.h"

namespace convscope {
namespace {

constexpr std::uint64_t kLargestHeaderBytes = 100'000'000;
constexpr std::string_view kMetadata = "__metadata__";

struct DTypeName {
  DType dtype;
  std::string_view name;
};
constexpr std::array<DTypeName, kDTypeCount> kDTypeNames = {{{DType::f32, "F32"},
                                                             {DType::f64, "F64"},
                                                             {DType::f16, "F16"},
                                                             {DType::bf16, "BF16"},
                                                             {DType::i32, "I32"},
                                                             {DType::i8, "I8"},
                                                             {DType::u8, "U8"}}};

template <class... Words>
void check(bool condition, const std::string& file, const Words&... words) {
  if (!condition) fail(ErrorKind::kData, "safetensors", cat(file, ": ", words...));
}

// Parses JSON with unique names in each object and no deeper nesting than the format needs.
nlohmann::json parse_json(std::string_view text, const std::string& file) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) {
      check(depth <= 1, file, "expected a header of names and entries, got deeper objects");
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::array_start) {
      check(depth <= 2, file, "expected a header of names and entries, got deeper lists");
    } else if (event == Json::parse_event_t::key) {
      const std::string& key = value.get_ref<const std::string&>();
      check(keys.back().insert(key).second, file, "expected each name once, got '", key, "' twice");
    }
    return true;
  };
  // The JSON parser treats a zero byte as the end of the text, and ignores the text after the byte.
  check(text.find('\0') == std::string_view::npos, file,
        "expected a text header padded with spaces, got a byte 0");
  Json header;
  try {
    header = Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::exception& error) {
    check(false, file, "expected a JSON header, got: ", json_problem(error.what()));
  }
  check(header.is_object(), file, "expected a JSON object as header");
  return header;
}

std::int64_t whole_number(const nlohmann::json& value, const std::string& file,
                          const std::string& name) {
  check(value.is_number_unsigned() && value.get<std::uint64_t>() < std::uint64_t{1} << 62, file,
        "expected whole numbers in shape and data_offsets of '", name, "', got ",
        value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 40));
  return value.get<std::int64_t>();
}

using Entry = SafetensorsHeader::Entry;

Entry parse_entry(const std::string& name, const nlohmann::json& value, const std::string& file) {
  check(value.is_object() && value.size() == 3 && value.contains("dtype") &&
            value.contains("shape") && value.contains("data_offsets") &&
            value["dtype"].is_string() && value["shape"].is_array() &&
            value["data_offsets"].is_array() && value["data_offsets"].size() == 2,
        file, "expected dtype, shape and two data_offsets, and nothing else, for '", name, "'");
  Entry entry;
  entry.name = name;
  const std::string& dtype = value["dtype"].get_ref<const std::string&>();
  const auto* known = std::find_if(kDTypeNames.begin(), kDTypeNames.end(),
                                   [&](const DTypeName& d) { return d.name == dtype; });
  check(known != kDTypeNames.end(), file, "expected dtype F32, F64, F16, BF16, I32, I8 or U8 for '",
        name, "', got '", dtype, "'");
  entry.dtype = known->dtype;
  check(value["shape"].size() <= Shape::kMaxRank, file, "expected at most ", Shape::kMaxRank,
        " axes for '", name, "', got ", value["shape"].size());
  auto bytes = static_cast<std::int64_t>(size_of(entry.dtype));
  for (const nlohmann::json& size : value["shape"]) {
    entry.shape.push_back(whole_number(size, file, name));
    check(!__builtin_mul_overflow(bytes, entry.shape[entry.shape.rank() - 1], &bytes), file,
          "expected fewer than 2^63 bytes for '", name, "'");
  }
  entry.begin = whole_number(value["data_offsets"][0], file, name);
  entry.end = whole_number(value["data_offsets"][1], file, name);
  check(entry.begin <= entry.end && entry.end - entry.begin == bytes, file,
        "expected data_offsets that are ", bytes, " bytes apart because '", name, "' is ", dtype,
        entry.shape, ", got [", entry.begin, ",", entry.end, "]");
  return entry;
}

std::map<std::string, std::string> parse_metadata(const nlohmann::json& value,
                                                  const std::string& file) {
  check(value.is_object(), file, "expected an object for __metadata__");
  std::map<std::string, std::string> out;
  for (const auto& [key, text] : value.items()) {
    check(text.is_string(), file, "expected only text in __metadata__, got another type for '", key,
          "'");
    out[key] = text.get<std::string>();
  }
  return out;
}

}  // namespace

const Tensor* SafetensorsFile::find(const std::string& name) const {
  for (const NamedTensor& entry : tensors) {
    if (entry.name == name) return &entry.tensor;
  }
  return nullptr;
}

namespace {

// Parses the header. `file` holds the whole file of `file_bytes` bytes, or at least its header.
SafetensorsHeader parse_header(Bytes file, std::uint64_t file_bytes, const std::string& name) {
  check(file.size() >= 8, name, "expected a safetensors file, got only ", file.size(), " bytes");
  // The format is checked before the sizes, which are meaningless in a file of another format.
  check(file.size() == 8 || static_cast<char>(file[8]) == '{', name,
        "expected a safetensors file, whose header begins with '{' at byte 8, got another format");
  const std::uint64_t header_bytes = little_endian(file, 0, 8);
  check(header_bytes <= kLargestHeaderBytes, name, "expected a header of at most ",
        kLargestHeaderBytes, " bytes, got ", header_bytes);
  check(header_bytes <= file_bytes - 8 && header_bytes <= file.size() - 8, name,
        "expected a header of ", header_bytes, " bytes, got only ", file_bytes - 8,
        "; the file is cut short");
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
  check(!text.empty() && text.front() == '{', name, "expected the header to begin with '{'");
  const nlohmann::json header = parse_json(text, name);
  const std::uint64_t data_bytes = file_bytes - 8 - header_bytes;

  SafetensorsHeader out;
  std::vector<Entry>& entries = out.tensors;
  for (const auto& [key, value] : header.items()) {
    if (key == kMetadata) {
      out.metadata = parse_metadata(value, name);
    } else {
      entries.push_back(parse_entry(key, value, name));
    }
  }
  // In the order of their positions, each tensor must begin where the previous tensor ends.
  std::vector<std::size_t> order(entries.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(entries[a].begin, entries[a].end) <
           std::pair(entries[b].begin, entries[b].end);
  });
  std::int64_t next = 0;
  for (std::size_t i : order) {
    const Entry& entry = entries[i];
    check(entry.begin == next, name, "expected '", entry.name, "' to begin at byte ", next,
          entry.begin < next ? ", got an overlap at " : ", got a hole before ", entry.begin);
    next = entry.end;
  }
  check(static_cast<std::uint64_t>(next) == data_bytes, name, "expected ", next,
        " bytes of data because the header says so, got ", data_bytes);
  out.data_bytes = next;
  return out;
}

}  // namespace

SafetensorsHeader read_safetensors_header(const std::string& path) {
  FileStart start = read_start(path, 9);
  if (start.bytes.size() == 9) {
    const std::uint64_t bytes = little_endian(start.bytes, 0, 8);
    if (bytes <= kLargestHeaderBytes)
      start = read_start(path, static_cast<std::size_t>(8 + std::max<std::uint64_t>(1, bytes)));
  }
  return parse_header(start.bytes, start.size, path);
}

SafetensorsFile parse_safetensors(Bytes file, const std::string& name) {
  const SafetensorsHeader header = parse_header(file, file.size(), name);
  const Bytes data = file.last(static_cast<std::size_t>(header.data_bytes));
  SafetensorsFile out;
  out.metadata = header.metadata;
  for (const Entry& entry : header.tensors) {
    Tensor tensor = Tensor::empty(entry.shape, entry.dtype);
    if (entry.end > entry.begin) {
      std::memcpy(tensor.raw_data(), data.data() + entry.begin,
                  static_cast<std::size_t>(entry.end - entry.begin));
    }
    out.tensors.push_back({entry.name, tensor});
  }
  return out;
}

SafetensorsFile read_safetensors(const std::string& path) {
  read_safetensors_header(path);
  return parse_safetensors(read_file(path), path);
}

void write_safetensors(const std::string& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<const NamedTensor*> order;
  std::set<std::string> names;
  for (const NamedTensor& entry : tensors) {
    CONVSCOPE_CHECK(entry.tensor.defined() && entry.name != kMetadata, "safetensors",
                    "expected a tensor and a name for each entry, got '", entry.name, "'");
    CONVSCOPE_CHECK(names.insert(entry.name).second, "safetensors",
                    "expected each name once, got '", entry.name, "' twice");
    order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const std::size_t a_size = size_of(a->tensor.dtype());
    const std::size_t b_size = size_of(b->tensor.dtype());
    return a_size != b_size ? a_size > b_size : a->name < b->name;  // keeps all of them aligned
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  std::int64_t next = 0;
  for (const NamedTensor* entry : order) {
    std::vector<std::int64_t> shape(entry->tensor.shape().begin(), entry->tensor.shape().end());
    const std::int64_t end = next + entry->tensor.size_bytes();
    std::string_view dtype;
    for (const DTypeName& known : kDTypeNames) {
      if (known.dtype == entry->tensor.dtype()) dtype = known.name;
    }
    header[entry->name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {next, end}}};
    next = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    fail("safetensors", "expected names and metadata in UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string length;
  append_little_endian(length, text.size(), 8);

  AtomicFile file(path);
  file.write(length);
  file.write(text);
  for (const NamedTensor* entry : order) {
    const Tensor host = entry->tensor.to(Device{});
    file.write(host.raw_data(), static_cast<std::size_t>(host.size_bytes()));
  }
  file.commit();
}

}  // namespace convscope
