// SPDX-License-Identifier: Apache-2.0
// tar.cpp: reads the regular files of a tar archive from a stream, for the only data set that is
// published as an archive.
#include "datasets/files/tar.h"

#include <algorithm>
#include <array>

#include "framework/check.h"

namespace convscope {
namespace {

constexpr std::size_t kBlockBytes = 512;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
using Block = std::array<std::uint8_t, kBlockBytes>;

template <class... Words>
void check(bool condition, const std::string& name, const Words&... words) {
  if (!condition) fail(ErrorKind::kData, "tar", cat(name, ": ", words...));
}

// Parses octal digits, terminated by a space, a zero byte or the end of the field.
std::uint64_t octal(const Block& block, std::size_t at, std::size_t bytes,
                    const std::string& name) {
  std::uint64_t value = 0;
  std::size_t i = at;
  while (i < at + bytes && block[i] == ' ') ++i;
  for (; i < at + bytes && block[i] != ' ' && block[i] != 0; ++i) {
    check(block[i] >= '0' && block[i] <= '7', name, "expected octal numbers in a header");
    value = value * 8 + (block[i] - '0');
  }
  return value;
}

// Returns the sum of the header's bytes; its checksum field counts as spaces.
std::uint64_t header_sum(const Block& block) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kBlockBytes; ++i) sum += i >= 148 && i < 156 ? ' ' : block[i];
  return sum;
}

std::string base_name(const Block& block) {
  std::string path;
  for (std::size_t i = 0; i < 100 && block[i] != 0; ++i) path += static_cast<char>(block[i]);
  return path.substr(path.rfind('/') + 1);  // npos + 1 == 0
}

}  // namespace

void read_tar(const ByteSource& source, const std::string& name, std::uint64_t largest,
              const std::function<void(const std::string&, std::vector<std::uint8_t>)>& on_file) {
  while (true) {
    Block block{};
    const std::size_t got = source(block.data(), kBlockBytes);
    check(got == kBlockBytes, name, "expected a header of 512 bytes, got ", got,
          "; the archive is cut short");
    if (std::all_of(block.begin(), block.end(), [](std::uint8_t b) { return b == 0; })) return;
    check(octal(block, 148, 8, name) == header_sum(block), name,
          "expected headers with a matching checksum; this is not a tar archive, or it is damaged");
    const std::uint64_t bytes = octal(block, 124, 12, name);
    const bool is_file = block[156] == '0' || block[156] == 0;
    check(bytes <= largest, name, "expected files of at most ", largest, " bytes, got ", bytes);
    // `content` grows with the received data, so that a wrong size in the header reserves no
    // memory.
    std::vector<std::uint8_t> content;
    while (content.size() < bytes) {
      const std::size_t have = content.size();
      content.resize(std::min<std::uint64_t>(bytes, have + kPieceBytes));
      const std::size_t came = source(content.data() + have, content.size() - have);
      check(came == content.size() - have, name, "expected ", bytes, " bytes of '",
            base_name(block), "', got ", have + came, "; the archive is cut short");
    }
    const std::size_t filler = (kBlockBytes - bytes % kBlockBytes) % kBlockBytes;
    Block ignored{};
    check(source(ignored.data(), filler) == filler, name, "expected whole blocks of 512 bytes");
    if (is_file) on_file(base_name(block), std::move(content));
  }
}

}  // namespace convscope
