// SPDX-License-Identifier: Apache-2.0
// fitted_stdout.cpp: wraps std::cout to the terminal's width.
#include "experiments/cli/screen/fitted_stdout.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "experiments/report/table/fit_text.h"

namespace convscope {
namespace {

// Keeps all text until a flush, because the width of a table is known only when the table is
// complete.
class FittingBuffer final : public std::streambuf {
 public:
  explicit FittingBuffer(std::size_t width) : width_(width) {}

 protected:
  int_type overflow(int_type c) override {
    if (c != traits_type::eof()) text_ += traits_type::to_char_type(c);
    return traits_type::not_eof(c);
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    text_.append(text, static_cast<std::size_t>(count));
    return count;
  }
  int sync() override {
    const std::string fitted = fit_text(text_, width_);
    text_.clear();
    const bool complete = std::fwrite(fitted.data(), 1, fitted.size(), stdout) == fitted.size();
    return complete && std::fflush(stdout) == 0 ? 0 : -1;
  }

 private:
  std::size_t width_;
  std::string text_;
};

}  // namespace

FittedStdout::FittedStdout() {
  const std::size_t width = screen_width(STDOUT_FILENO);
  if (width == 0) return;
  std::cout.flush();
  buffer_ = std::make_unique<FittingBuffer>(width);
  before_ = std::cout.rdbuf(buffer_.get());
}

FittedStdout::~FittedStdout() {
  if (buffer_ == nullptr) return;
  std::cout.flush();
  const std::ios::iostate state = std::cout.rdstate();
  std::cout.rdbuf(before_);  // clears the state; a full disk is reported later
  std::cout.setstate(state);
}

}  // namespace convscope
