// SPDX-License-Identifier: Apache-2.0
// npy.cpp: NumPy's file format for a single array.
#include "framework/io/npy.h"

#include <bit>
#include <cstring>
#include <optional>

#include "framework/io/atomic_file.h"

namespace convscope {
namespace {

static_assert(std::endian::native == std::endian::little, "the formats here are little-endian");

constexpr std::string_view kMagic = "\x93NUMPY";

// The header is a Python dict literal: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  struct Result {
    std::string descr;
    bool fortran_order = false;
    Shape shape;
  };

  Result parse() {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<Shape> shape;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !descr) {
        if (peek() == '[') refuse("expected one plain dtype, got a structured one");
        descr = quoted();
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = boolean();
      } else if (key == "shape" && !shape) {
        shape = tuple();
      } else {
        refuse("expected the keys descr, fortran_order and shape, once each, got '" + key + "'");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (peek() != '\0' || at_ != text_.size()) refuse("expected nothing after the closing brace");
    if (!descr || !fortran_order || !shape) {
      refuse("expected the keys descr, fortran_order and shape in the header");
    }
    return {*descr, *fortran_order, *shape};
  }

 private:
  [[noreturn]] void refuse(const std::string& sentence) const {
    fail(ErrorKind::kData, "npy", cat(name_, ": ", sentence));
  }

  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || c == '\0') return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) refuse(cat("expected '", c, "' at position ", at_, " of the header"));
  }
  std::string quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') {
      refuse(cat("expected a quoted word at position ", at_, " of the header"));
    }
    const std::size_t end = text_.find(quote, ++at_);
    if (end == std::string_view::npos) refuse("expected a closing quote in the header");
    std::string word(text_.substr(at_, end - at_));
    for (char c : word) {
      if (c < ' ' || c > '~' || word.size() > 64) refuse("expected a short plain word in quotes");
    }
    at_ = end + 1;
    return word;
  }
  bool boolean() {
    peek();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return value;
      }
    }
    refuse("expected True or False for fortran_order");
  }
  Shape tuple() {
    Shape shape;
    expect('(');
    while (!accept(')')) {
      if (shape.rank() == Shape::kMaxRank) {
        refuse(cat("expected at most ", Shape::kMaxRank, " axes"));
      }
      shape.push_back(whole_number());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }
  std::int64_t whole_number() {
    peek();
    std::int64_t value = 0;
    const std::size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[at_] - '0', &value)) {
        refuse("expected sizes below 2^63 in the shape");
      }
    }
    if (at_ == begin) refuse(cat("expected a whole number at position ", at_, " of the header"));
    return value;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

DType dtype_from(const std::string& descr, const std::string& name) {
  if (descr == "<f4") return DType::f32;
  if (descr == "<f8") return DType::f64;
  if (descr == "<f2") return DType::f16;
  if (descr == "<i4") return DType::i32;
  if (descr == "|i1" || descr == "<i1") return DType::i8;
  if (descr == "|u1" || descr == "<u1") return DType::u8;
  const bool big_endian = !descr.empty() && descr[0] == '>';
  fail(ErrorKind::kData, "npy",
       cat(name, ": expected dtype <f4, <f8, <f2, <i4, |i1 or |u1, got ",
           big_endian ? "big-endian '" : "'", descr, "'; convert it in NumPy, for example with ",
           "array.astype('<f4')"));
}

std::string_view descr_of(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::f32:
      return "<f4";
    case DType::f64:
      return "<f8";
    case DType::f16:
      return "<f2";
    case DType::i32:
      return "<i4";
    case DType::i8:
      return "|i1";
    case DType::u8:
      return "|u1";
    case DType::bf16:
      break;
  }
  fail("npy", cat("expected a dtype that NumPy has, got ", tensor.str(), "; convert it to f32"));
}

// The contents of a file's header. `file` may be only the beginning of the file.
struct NpyHeader {
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t data_at = 0, data_bytes = 0;
};

template <class... Words>
void check(bool condition, const std::string& name, const Words&... sentence) {
  if (!condition) fail(ErrorKind::kData, "npy", cat(name, ": ", sentence...));
}

NpyHeader parse_header(Bytes file, const std::string& name) {
  check(file.size() >= 10 && std::memcmp(file.data(), kMagic.data(), kMagic.size()) == 0, name,
        "expected a .npy file, which begins with \\x93NUMPY, got ", file.size(),
        " bytes with another beginning");
  const int major = file[6];
  const int minor = file[7];
  check((major == 1 || major == 2) && minor == 0, name, "expected format version 1.0 or 2.0, got ",
        major, ".", minor);
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t header_at = 8 + length_bytes;
  check(file.size() >= header_at, name, "expected a header, got only ", file.size(), " bytes");
  const std::uint64_t header_bytes = little_endian(file, 8, length_bytes);
  check(header_bytes <= file.size() - header_at, name, "expected a header of ", header_bytes,
        " bytes, got only ", file.size() - header_at, "; the file is cut short");

  const std::string_view text(reinterpret_cast<const char*>(file.data()) + header_at, header_bytes);
  const auto header = HeaderParser(text, name).parse();
  NpyHeader out{.dtype = dtype_from(header.descr, name), .shape = header.shape};
  check(!header.fortran_order, name,
        "expected C (row-major) order, got Fortran order; save it again with "
        "np.save(path, np.ascontiguousarray(array))");
  auto data_bytes = static_cast<std::int64_t>(size_of(out.dtype));
  for (std::int64_t size : header.shape) {
    check(!__builtin_mul_overflow(data_bytes, size, &data_bytes), name,
          "expected fewer than 2^63 bytes of data, got shape ", header.shape);
  }
  out.data_at = header_at + header_bytes;
  out.data_bytes = static_cast<std::uint64_t>(data_bytes);
  return out;
}

}  // namespace

std::uint64_t npy_file_bytes(Bytes beginning, const std::string& name) {
  const NpyHeader header = parse_header(beginning, name);
  return header.data_at + header.data_bytes;
}

Tensor parse_npy(Bytes file, const std::string& name) {
  const NpyHeader header = parse_header(file, name);
  const Bytes data = file.subspan(header.data_at);
  check(header.data_bytes == data.size(), name, "expected ", header.data_bytes,
        " bytes of data because it is ", name_of(header.dtype), header.shape, ", got ",
        data.size());
  Tensor out = Tensor::empty(header.shape, header.dtype);
  if (!data.empty()) std::memcpy(out.raw_data(), data.data(), data.size());
  return out;
}

Tensor read_npy(const std::string& path) { return parse_npy(read_file(path), path); }

std::string npy_header(const Tensor& tensor) {
  std::string shape = "(";
  for (int i = 0; i < tensor.rank(); ++i) {
    shape += cat(i == 0 ? "" : " ", tensor.dim(i), i + 1 < tensor.rank() || i == 0 ? "," : "");
  }
  std::string text =
      cat("{'descr': '", descr_of(tensor), "', 'fortran_order': False, 'shape': ", shape, "), }");
  text.append(63 - (10 + text.size()) % 64, ' ');  // the data begins at a multiple of 64
  text += '\n';
  std::string out(kMagic);
  out += '\1';
  out += '\0';
  append_little_endian(out, text.size(), 2);
  return out + text;
}

void write_npy(const std::string& path, const Tensor& tensor) {
  const std::string header = npy_header(tensor);
  const Tensor host = tensor.to(Device{});
  AtomicFile file(path);
  file.write(header);
  file.write(host.raw_data(), static_cast<std::size_t>(host.size_bytes()));
  file.commit();
}

}  // namespace convscope
