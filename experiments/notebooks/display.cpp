// SPDX-License-Identifier: Apache-2.0
// display.cpp: sends figures, pictures and tables of a notebook to their destination.
#include "experiments/notebooks/display.h"

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "experiments/look/look_data.h"
#include "framework/check.h"

namespace convscope {
namespace {

constexpr int kColumnWidth = 720;  // width of a notebook's column, pixels

// Without a front end, one line says what would be shown.
void print_line(const char* mime, const char* data, std::size_t bytes) {
  if (std::string_view(mime) == "text/plain") {
    std::printf("%.*s\n", static_cast<int>(bytes), data);
  } else {
    std::printf("[%s, %zu bytes]\n", mime, bytes);
  }
  std::fflush(stdout);
}

std::atomic<DisplaySink> current{nullptr};

}  // namespace

DisplaySink set_display_sink(DisplaySink sink) { return current.exchange(sink); }

void display(std::string_view mime, std::string_view data) {
  CONVSCOPE_CHECK(!mime.empty(), "display", "expected a MIME type such as text/html, got none");
  const DisplaySink sink = current.load();
  (sink == nullptr ? print_line : sink)(std::string(mime).c_str(), data.data(), data.size());
}

void show_svg(std::string_view svg) { display("image/svg+xml", svg); }
void show_html(std::string_view html) { display("text/html", html); }
void show_png(std::string_view png) { display("image/png", base64(png)); }

void show(const Figure& figure) {
  Figure narrow = figure;
  narrow.width = std::min(narrow.width, kColumnWidth);
  show_svg(to_svg(narrow));
}

}  // namespace convscope

void convscope_set_display_sink(convscope::DisplaySink sink) { convscope::set_display_sink(sink); }
