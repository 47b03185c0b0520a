// SPDX-License-Identifier: Apache-2.0
// display.h: shows figures, pictures and tables of a notebook cell. The notebook's kernel sets
// their destination. Without a destination, a line of text replaces each picture.
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

// Receives the MIME type ("image/svg+xml", "text/html", "image/png", "text/plain") and the data,
// which is valid only during the call. A PNG comes as base64, as notebooks store it.
using DisplaySink = void (*)(const char* mime, const char* data, std::size_t bytes);

// Sets the destination of everything shown, and returns the previous destination. With null,
// pictures become lines of text on stdout.
CONVSCOPE_API DisplaySink set_display_sink(DisplaySink sink);

// Sends `data` to the sink. Throws an error when the MIME type is empty.
CONVSCOPE_API void display(std::string_view mime, std::string_view data);

CONVSCOPE_API void show_svg(std::string_view svg);
CONVSCOPE_API void show_html(std::string_view html);
CONVSCOPE_API void show_png(std::string_view png);  // the bytes of the file
CONVSCOPE_API void show(const Figure& figure);      // with to_svg(), at most 720 pixels wide

}  // namespace convscope

// Calls set_display_sink() for callers that are not C++: the kernel looks this name up.
extern "C" CONVSCOPE_API void convscope_set_display_sink(convscope::DisplaySink sink);
