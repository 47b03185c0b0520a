// SPDX-License-Identifier: Apache-2.0
// stdout.cpp: files and texts on stdout.
#include "experiments/cli/screen/stdout.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "experiments/report/table/fit_text.h"
#include "experiments/trainer/ranks/rank_order.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace {

struct Taken {
  ScratchFolder folder;
  int stdout_copy = -1;  // the original stdout
};
std::unique_ptr<Taken>& taken() {
  static std::unique_ptr<Taken> one;
  return one;
}

std::string path_in(const Taken& one) { return one.folder.path() + "/stdout"; }

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

bool StdoutFile::is_taken() { return taken() != nullptr; }

std::string StdoutFile::take() {
  auto one = std::make_unique<Taken>();
  std::cout.flush();
  std::fflush(stdout);
  one->stdout_copy = dup(STDOUT_FILENO);
  if (one->stdout_copy < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    fail(ErrorKind::kIo, "stdout", "expected to write a file to stdout, which is closed");
  }
  taken() = std::move(one);
  return path_in(*taken());
}

StdoutFile::~StdoutFile() {
  if (taken() == nullptr) return;
  std::cout.flush();
  std::fflush(stdout);
  dup2(taken()->stdout_copy, STDOUT_FILENO);
  close(taken()->stdout_copy);
  // The file is missing when the command failed before writing it.
  const std::string text = text_if_there(path_in(*taken())).value_or("");
  std::fwrite(text.data(), 1, text.size(), stdout);
  taken().reset();
}

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
