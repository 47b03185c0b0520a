// SPDX-License-Identifier: Apache-2.0
// look_page.h: a page that replays a lesson on a small problem, step by step. It shows the reads,
// writes, sums and multiplications, a cache, and the current line of the source.
//
//   const std::string page = look_page("winograd");        // a whole page, no other file
//   std::ofstream("look.html") << page;
//
// In a notebook the page is shown in its own frame: look_frame() returns markup, which a C++ kernel
// shows as its output of type text/html.
//
//   const std::string cell = look_frame(look_page("fft"));  // <iframe srcdoc="...">
//
// From Python: `convscope look fft`, then IPython.display.IFrame("look-fft.html", "100%", 900).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/export.h"
#include "layers/conv2d/problem.h"
#include "layers/dispatch/direction.h"

namespace convscope {

// A page holds every read and write, so the problem must be small.
inline constexpr std::int64_t kMaxLookEvents = 60'000;

// The recorded facts of one lesson, and its page.
struct Look {
  std::string lesson;  // "winograd_lesson"
  // If the requested algorithm has no lesson, a sentence that compares it with the lesson of its
  // folder; otherwise "".
  std::string other_algorithm;
  Conv2dProblem problem;
  Direction direction = Direction::forward;
  std::int64_t events = 0, reads = 0, writes = 0;
  std::int64_t products = 0;      // multiplications of two array elements
  std::int64_t scalings = 0;      // multiplications by a constant (transforms, padding)
  std::int64_t textbook = 0;      // N K P Q C/G R S
  double largest_difference = 0;  // between the result and `reference` in f64
  double step = 0;                // quantisation step of the result; 0: it is not quantised
  std::string page;
};

// Records a lesson. `algorithm` is a folder ("winograd") or a lesson ("winograd_lesson"). `problem`
// is a text for Conv2dProblem::parse(); "" is the lesson's small default problem. Throws an error
// for an algorithm without a lesson, for a problem or direction that the lesson refuses, and for a
// problem with too many events.
CONVSCOPE_API Look look_at(const std::string& algorithm, const std::string& problem = "",
                           Direction direction = Direction::forward);
// Returns only the page.
CONVSCOPE_API std::string look_page(const std::string& algorithm, const std::string& problem = "",
                                    Direction direction = Direction::forward);
// Returns the markup of a page inside another one, as a notebook shows it.
CONVSCOPE_API std::string look_frame(const std::string& page, int height_px = 900);

// Returns "direct", "fft", ...: the lessons that can be replayed.
CONVSCOPE_API std::vector<std::string> lessons_to_look_at();

}  // namespace convscope
