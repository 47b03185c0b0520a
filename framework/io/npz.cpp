// SPDX-License-Identifier: Apache-2.0
// npz.cpp: NumPy's archive of named arrays: a zip file of .npy files.
#include "framework/io/npz.h"

#include <zlib.h>

#include <algorithm>
#include <set>

#include "framework/io/atomic_file.h"
#include "framework/io/inflater.h"
#include "framework/io/npy.h"

namespace convscope {
namespace {

constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;
constexpr std::uint64_t kZip64Mark = 0xffffffffu;
constexpr int kStored = 0, kDeflated = 8;
constexpr std::uint64_t kLongestHeader = 65536;  // per array; NumPy writes 128 bytes

template <class... Words>
void check(bool condition, const std::string& file, const Words&... words) {
  if (!condition) fail(ErrorKind::kData, "npz", cat(file, ": ", words...));
}

struct Entry {
  std::string name;
  int method = kStored;
  std::uint32_t crc = 0;
  std::uint64_t packed_bytes = 0, bytes = 0;
  std::uint64_t local_at = 0;  // of its local header
  std::uint64_t data_at = 0;
};

class ZipReader {
 public:
  ZipReader(Bytes file, const std::string& name) : file_(file), name_(name) {}

  std::vector<Entry> entries() {
    check(file_.size() >= kEndBytes, name_, "expected a .npz file, got only ", file_.size(),
          " bytes");
    const std::size_t end_at = end_record();
    const std::uint64_t count = number(end_at + 10, 2);
    check(
        number(end_at + 4, 2) == 0 && number(end_at + 6, 2) == 0 && number(end_at + 8, 2) == count,
        name_, "expected an archive in one part");
    const std::uint64_t directory_bytes = number(end_at + 12, 4);
    directory_at_ = number(end_at + 16, 4);
    check(count != 0xffff && directory_at_ != kZip64Mark, name_,
          "expected an archive below 4 GiB, got zip64");
    check(directory_at_ + directory_bytes == end_at, name_,
          "expected the directory of the archive right before its end");
    std::vector<Entry> out;
    std::uint64_t at = directory_at_;
    std::set<std::string> names;
    for (std::uint64_t i = 0; i < count; ++i) {
      out.push_back(central_entry(at, end_at));
      check(names.insert(out.back().name).second, name_, "expected each name once, got '",
            out.back().name, "' twice");
    }
    check(at == end_at, name_, "expected ", count, " entries in the directory, got more");
    for (Entry& entry : out) locate(entry);
    check_overlaps(out);
    return out;
  }

  std::vector<std::uint8_t> content(const Entry& entry) const {
    const Bytes packed = file_.subspan(entry.data_at, entry.packed_bytes);
    std::vector<std::uint8_t> out;
    if (entry.method == kStored) {
      out.assign(packed.begin(), packed.end());
    } else {
      out = inflated(entry, packed);
    }
    uLong crc = crc32(0, nullptr, 0);
    crc = crc32_z(crc, out.data(), out.size());
    check(crc == entry.crc, name_, "expected the checksum of '", entry.name,
          "' to match its content; the file is damaged");
    return out;
  }

 private:
  // Returns the offset of the record that ends the directory. Only a comment of the stated length
  // may follow the record.
  std::size_t end_record() const {
    constexpr std::size_t kMaxComment = 0xffff;
    const std::size_t last = file_.size() - kEndBytes;
    for (std::size_t comment = 0; comment <= std::min(kMaxComment, last); ++comment) {
      const std::size_t at = last - comment;
      if (number(at, 4) == kEndSignature && number(at + 20, 2) == comment) return at;
    }
    check(false, name_,
          "expected a .npz file, which ends with the directory of a zip archive; it is cut short "
          "or not a .npz file");
    return 0;
  }

  // A small archive may claim or contain huge data. So the array's header must agree with the
  // directory before the data is unpacked, and memory is reserved only for data that exists.
  std::vector<std::uint8_t> inflated(const Entry& entry, Bytes packed) const {
    const std::string name = cat(name_, ": ", entry.name);
    Inflater inflater(packed, DeflateFormat::raw, name);
    const std::uint64_t most = entry.bytes + 1;  // one more, to detect excess data
    std::vector<std::uint8_t> out(std::min<std::uint64_t>(most, kLongestHeader));
    std::size_t got = inflater.read(out.data(), out.size());
    if (got == out.size() && got < most) {
      const std::uint64_t bytes = npy_file_bytes(out, name);
      check(bytes == entry.bytes, name_, "expected ", entry.bytes, " bytes in '", entry.name,
            "' because the directory says so, got ", bytes, " by the header of the array");
    }
    while (got == out.size() && got < most) {
      out.resize(std::min<std::uint64_t>(most, 2 * out.size()));
      got += inflater.read(out.data() + got, out.size() - got);
    }
    check(got == entry.bytes && inflater.left() == 0, name_, "expected ", entry.bytes,
          " bytes in '", entry.name, "', got ", got > entry.bytes ? "more" : "fewer");
    out.resize(got);
    return out;
  }

  std::uint64_t number(std::uint64_t at, std::size_t bytes) const {
    return little_endian(file_, at, bytes);
  }
  std::string text(std::uint64_t at, std::uint64_t bytes) const {
    return {reinterpret_cast<const char*>(file_.data()) + at, bytes};
  }

  Entry central_entry(std::uint64_t& at, std::uint64_t end) const {
    check(end - at >= kCentralBytes && number(at, 4) == kCentralSignature, name_,
          "expected an entry in the directory at byte ", at);
    Entry entry;
    const std::uint64_t flags = number(at + 8, 2);
    entry.method = static_cast<int>(number(at + 10, 2));
    entry.crc = static_cast<std::uint32_t>(number(at + 16, 4));
    entry.packed_bytes = number(at + 20, 4);
    entry.bytes = number(at + 24, 4);
    entry.local_at = number(at + 42, 4);
    const std::uint64_t name_bytes = number(at + 28, 2);
    const std::uint64_t rest_bytes = number(at + 30, 2) + number(at + 32, 2);
    check(end - at - kCentralBytes >= name_bytes + rest_bytes, name_,
          "expected complete entries in the directory");
    entry.name = text(at + kCentralBytes, name_bytes);
    at += kCentralBytes + name_bytes + rest_bytes;
    check((flags & 1u) == 0, name_, "expected entries without encryption");
    check(entry.packed_bytes != kZip64Mark && entry.bytes != kZip64Mark, name_,
          "expected entries below 4 GiB, got zip64 for '", entry.name, "'");
    check(entry.method == kStored || entry.method == kDeflated, name_, "expected '", entry.name,
          "' stored or deflated, got method ", entry.method);
    check(entry.method == kDeflated ? entry.bytes <= largest_inflated(entry.packed_bytes)
                                    : entry.bytes == entry.packed_bytes,
          name_, "expected '", entry.name, "' to hold ", entry.bytes, " bytes, got only ",
          entry.packed_bytes, " in the archive");
    return entry;
  }

  void locate(Entry& entry) const {
    check(entry.local_at < directory_at_ && directory_at_ - entry.local_at >= kLocalBytes &&
              number(entry.local_at, 4) == kLocalSignature,
          name_, "expected the data of '", entry.name, "' at byte ", entry.local_at);
    const std::uint64_t name_bytes = number(entry.local_at + 26, 2);
    const std::uint64_t extra_bytes = number(entry.local_at + 28, 2);
    entry.data_at = entry.local_at + kLocalBytes + name_bytes + extra_bytes;
    check(entry.data_at <= directory_at_ && entry.packed_bytes <= directory_at_ - entry.data_at,
          name_, "expected ", entry.packed_bytes, " bytes of '", entry.name,
          "' before the directory");
    check(text(entry.local_at + kLocalBytes, name_bytes) == entry.name &&
              static_cast<int>(number(entry.local_at + 8, 2)) == entry.method,
          name_, "expected directory and data to agree about '", entry.name, "'");
  }

  // Refuses entries that share bytes, because they would let a small archive unpack to a huge one.
  void check_overlaps(const std::vector<Entry>& entries) const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
    for (const Entry& entry : entries) {
      ranges.emplace_back(entry.local_at, entry.data_at + entry.packed_bytes);
    }
    std::sort(ranges.begin(), ranges.end());
    for (std::size_t i = 1; i < ranges.size(); ++i) {
      check(ranges[i].first >= ranges[i - 1].second, name_,
            "expected entries that do not overlap, got an overlap at byte ", ranges[i].first);
    }
  }

  Bytes file_;
  const std::string& name_;
  std::uint64_t directory_at_ = 0;
};

// Returns the fields that local and central headers share: version, flags, method, date, checksum,
// sizes.
std::string common_fields(std::uint32_t crc, std::uint64_t bytes, const std::string& name) {
  std::string out;
  append_little_endian(out, 20, 2);  // needs version 2.0
  append_little_endian(out, 0, 2);   // no flags
  append_little_endian(out, kStored, 2);
  append_little_endian(out, 0, 2);                        // 00:00:00
  append_little_endian(out, (0 << 9) | (1 << 5) | 1, 2);  // 1980-01-01
  append_little_endian(out, crc, 4);
  append_little_endian(out, bytes, 4);
  append_little_endian(out, bytes, 4);
  append_little_endian(out, name.size(), 2);
  append_little_endian(out, 0, 2);  // no extra field
  return out;
}

}  // namespace

NamedTensors parse_npz(Bytes file, const std::string& name) {
  ZipReader zip(file, name);
  NamedTensors out;
  for (const Entry& entry : zip.entries()) {
    const std::string_view ending = ".npy";
    check(entry.name.ends_with(ending), name, "expected only .npy files, got '", entry.name, "'");
    const std::vector<std::uint8_t> content = zip.content(entry);
    out.push_back({entry.name.substr(0, entry.name.size() - ending.size()),
                   parse_npy(content, cat(name, ": ", entry.name))});
  }
  return out;
}

NamedTensors read_npz(const std::string& path) { return parse_npz(read_file(path), path); }

void write_npz(const std::string& path, const NamedTensors& tensors) {
  AtomicFile file(path);
  std::string directory;
  std::uint64_t at = 0;
  std::set<std::string> names;
  for (const NamedTensor& entry : tensors) {
    const std::string name = entry.name + ".npy";
    CONVSCOPE_CHECK(!entry.name.empty() && name.size() < 0xffff && names.insert(name).second, "npz",
                    "expected a different name for each tensor, got '", entry.name, "'");
    const Tensor host = entry.tensor.to(Device{});
    const std::string npy = npy_header(host);
    const auto data_bytes = static_cast<std::size_t>(host.size_bytes());
    const std::uint64_t bytes = npy.size() + data_bytes;
    CONVSCOPE_CHECK(at + bytes < kZip64Mark - (1u << 20) && names.size() < 0xffff, "npz",
                    "expected an archive below 4 GiB, got more with '", entry.name, "'");
    uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(npy.data()), npy.size());
    if (data_bytes > 0) {
      crc = crc32_z(crc, static_cast<const Bytef*>(host.raw_data()), data_bytes);
    }
    const std::string fields = common_fields(static_cast<std::uint32_t>(crc), bytes, name);

    std::string local;
    append_little_endian(local, kLocalSignature, 4);
    local += fields + name;
    append_little_endian(directory, kCentralSignature, 4);
    append_little_endian(directory, 20, 2);  // made by version 2.0
    directory += fields;
    append_little_endian(directory, 0, 2);  // no comment
    append_little_endian(directory, 0, 2);  // disk 0
    append_little_endian(directory, 0, 2);  // internal attributes
    append_little_endian(directory, 0, 4);  // external attributes
    append_little_endian(directory, at, 4);
    directory += name;

    file.write(local);
    file.write(npy);
    file.write(host.raw_data(), data_bytes);
    at += local.size() + bytes;
  }
  std::string end;
  append_little_endian(end, kEndSignature, 4);
  append_little_endian(end, 0, 4);  // disk 0
  append_little_endian(end, tensors.size(), 2);
  append_little_endian(end, tensors.size(), 2);
  append_little_endian(end, directory.size(), 4);
  append_little_endian(end, at, 4);
  append_little_endian(end, 0, 2);  // no comment
  file.write(directory);
  file.write(end);
  file.commit();
}

}  // namespace convscope
