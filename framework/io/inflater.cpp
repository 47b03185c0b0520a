// SPDX-License-Identifier: Apache-2.0
// inflater.cpp: decompresses deflate streams (gzip files, entries of zip archives) in steps, so
// that a caller can check a header before it decides how much to unpack.
#include "framework/io/inflater.h"

#include <zlib.h>

#include <algorithm>

namespace convscope {

struct Inflater::Impl {
  z_stream stream{};
  Bytes rest;  // not yet passed to zlib, whose counters have 32 bits
  std::string name;
  bool is_gzip = false, ended = false;

  void refill() {
    if (stream.avail_in > 0) return;
    constexpr std::size_t kPiece = std::size_t{1} << 30;
    const std::size_t piece = std::min(rest.size(), kPiece);
    stream.next_in = const_cast<Bytef*>(rest.data());
    stream.avail_in = static_cast<uInt>(piece);
    rest = rest.subspan(piece);
  }

  // A gzip file may consist of several members (RFC 1952, section 2.2): `cat a.gz b.gz` writes two.
  void end_member() {
    const Bytes left(stream.next_in, stream.avail_in + rest.size());  // contiguous memory
    const bool more = is_gzip && convscope::is_gzip(left);
    ended = !more || inflateReset(&stream) != Z_OK;
  }
};

Inflater::Inflater(Bytes compressed, DeflateFormat format, std::string name)
    : impl_(std::make_unique<Impl>()) {
  impl_->rest = compressed;
  impl_->name = std::move(name);
  impl_->is_gzip = format == DeflateFormat::gzip;
  const int window_bits = format == DeflateFormat::gzip ? 15 + 16 : -15;
  if (inflateInit2(&impl_->stream, window_bits) != Z_OK) {
    fail(ErrorKind::kRun, "inflate", "expected memory for zlib, got none");
  }
}

Inflater::~Inflater() { inflateEnd(&impl_->stream); }

std::size_t Inflater::read(std::uint8_t* to, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  z_stream& stream = impl_->stream;
  std::size_t have = 0;
  while (have < bytes && !impl_->ended) {
    impl_->refill();
    const auto want = static_cast<uInt>(std::min(bytes - have, kPiece));
    stream.next_out = to + have;
    stream.avail_out = want;
    const int code = inflate(&stream, Z_NO_FLUSH);
    have += want - stream.avail_out;
    if (code == Z_STREAM_END) {
      impl_->end_member();
    } else if (code == Z_BUF_ERROR || (code == Z_OK && stream.avail_out > 0)) {
      if (stream.avail_in == 0 && impl_->rest.empty()) {
        fail(ErrorKind::kData, "inflate",
             cat(impl_->name, ": expected more compressed data, the file is cut short"));
      }
    } else if (code != Z_OK) {
      fail(ErrorKind::kData, "inflate",
           cat(impl_->name, ": expected valid compressed data, got: ",
               stream.msg != nullptr ? stream.msg : "an error of zlib"));
    }
  }
  return have;
}

std::size_t Inflater::left() const { return impl_->stream.avail_in + impl_->rest.size(); }

}  // namespace convscope
