// SPDX-License-Identifier: Apache-2.0
// check.cpp: the error type and its exit codes.
#include "framework/check.h"

#include <cmath>
#include <cstdio>

#include "framework/io/clean_text.h"

namespace convscope {

Error::Error(ErrorKind kind, std::string_view operation, std::string_view sentence)
    : std::runtime_error(clean_text(cat("[", operation, "] ", sentence))), kind_(kind) {}

Error::~Error() = default;

int exit_code(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::kRun:
      return 1;
    case ErrorKind::kInvalid:
      return 2;
    case ErrorKind::kConfig:
      return 3;
    case ErrorKind::kData:
      return 4;
    case ErrorKind::kUnavailable:
      return 5;
    case ErrorKind::kIo:
      return 6;
  }
  return 1;
}

void fail(ErrorKind kind, std::string_view operation, std::string_view sentence) {
  throw Error(kind, operation, sentence);
}

void fail(std::string_view operation, std::string_view sentence) {
  throw Error(ErrorKind::kInvalid, operation, sentence);
}

namespace detail {
void append(std::string& out, double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", std::isnan(value) ? std::fabs(value) : value);
  out.append(text);
}
}  // namespace detail

}  // namespace convscope
