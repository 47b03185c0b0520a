// SPDX-License-Identifier: Apache-2.0
// display.h: what a cell of a notebook shows beside text: figures, pictures, tables. Whoever runs
// the notebook says where they go; where nobody does, a line of text stands for each.
//
//   show(Figure{.title = "Loss", .panels = {LinePanel{...}}});
//   show_html("<b>bold</b>");
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "experiments/report/chart/figure.h"
#include "framework/export.h"

namespace convscope {

// Gets what is shown: its MIME type ("image/svg+xml", "text/html", "image/png", "text/plain") and
// its text, which is valid during the call alone. A PNG comes as base64, as notebooks hold it.
using DisplaySink = void (*)(const char* mime, const char* data, std::size_t bytes);

// The place where all that is shown goes from now on, and the one before; null: lines on stdout.
CONVSCOPE_API DisplaySink set_display_sink(DisplaySink sink);

// `data` goes to the sink. An error when the MIME type is empty.
CONVSCOPE_API void display(std::string_view mime, std::string_view data);

CONVSCOPE_API void show_svg(std::string_view svg);
CONVSCOPE_API void show_html(std::string_view html);
CONVSCOPE_API void show_png(std::string_view png);  // the bytes of the file
CONVSCOPE_API void show(const Figure& figure);      // by to_svg(), 720 pixels wide at most

}  // namespace convscope

// set_display_sink() for callers that are not C++: the kernel looks this name up.
extern "C" CONVSCOPE_API void convscope_set_display_sink(convscope::DisplaySink sink);
