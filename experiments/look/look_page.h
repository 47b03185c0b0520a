// SPDX-License-Identifier: Apache-2.0
// look_page.h: one page that plays a lesson on a small problem, step by step: what it reads and
// writes, its sums, its multiplications, a cache, and the line of its source that runs.
//
//   const std::string page = look_page("winograd");        // a whole page, no other file
//   std::ofstream("look.html") << page;
//
// In a notebook the page stands in a frame of its own: look_frame() gives markup, which a kernel of
// C++ shows as its output of type text/html.
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

// A page holds every read and write, so it takes small problems.
inline constexpr std::int64_t kMostLookEvents = 60'000;

// What one look saw, and its page.
struct Look {
  std::string lesson;  // "winograd_lesson"
  // Where the algorithm that was asked for has no lesson of its own: what the lesson of its family
  // shows, and what that algorithm is. "" where the lesson is its own.
  std::string other_algorithm;
  Conv2dProblem problem;
  Direction direction = Direction::forward;
  std::int64_t events = 0, reads = 0, writes = 0;
  std::int64_t products = 0;      // multiplications of two numbers that stand in arrays
  std::int64_t scalings = 0;      // with a constant: the factors of transforms, 0 in the padding
  std::int64_t textbook = 0;      // N K P Q C/G R S
  double largest_difference = 0;  // of the result to `reference` in f64
  double step = 0;                // of a result in codes; 0: it has none
  std::string page;
};

// `algorithm` is a room ("winograd") or a lesson ("winograd_lesson"). `problem` is a text as
// Conv2dProblem::parse() takes it; "" means the small problem that the lesson names itself. Refuses
// with a sentence: an algorithm without a lesson, a problem or direction that it does not take, a
// problem that makes too many events.
CONVSCOPE_API Look look_at(const std::string& algorithm, const std::string& problem = "",
                           Direction direction = Direction::forward);
// The page alone.
CONVSCOPE_API std::string look_page(const std::string& algorithm, const std::string& problem = "",
                                    Direction direction = Direction::forward);
// A page inside of another one, as a notebook shows it.
CONVSCOPE_API std::string look_frame(const std::string& page, int height_px = 900);

// "direct", "fft", ...: what can be looked at.
CONVSCOPE_API std::vector<std::string> lessons_to_look_at();

}  // namespace convscope
