// SPDX-License-Identifier: Apache-2.0
// ladder.h: the ladder of a room: its cards from the lesson to the fastest, a sentence for each.
//
// A rung is a card, sometimes with a switch: one thread, or an instruction set below the best.
// Two neighbours differ in one idea, so the factor between their times is the worth of it. Every
// room with a lesson has one file <room>_ladder.cpp; `convscope bench conv2d --ladder <room>`, the
// room's README and the tests take the sentences from there.
#pragma once

#include <string>
#include <vector>

#include "framework/registry.h"
#include "layers/conv2d/algorithm.h"

namespace convscope {

struct Conv2dRung {
  const char* card = "";           // a name in conv2d_algorithms(ladder.device)
  const char* isa = "";            // "scalar", "avx2", "avx512"; "" = the best of this CPU
  int threads = 0;                 // 0 = all threads
  MathMode math = MathMode::f32;   // tf32: factors rounded, one product in place of three
  bool prepare_each_call = false;  // weights are packed or transformed anew in every call
  const char* sentence = "";       // what this rung does that the rung below does not
};

struct Conv2dLadder {
  const char* name = "";  // of the room
  DeviceType device = DeviceType::cpu;
  const char* problem = "";  // shows the steps well, and the lesson needs about a second at most
  std::vector<Conv2dRung> rungs;  // the lesson first, the fastest last
};

// The ladders of one kind of device, by the name of their room.
CONVSCOPE_API Registry<Conv2dLadder>& conv2d_ladders(DeviceType device);
CONVSCOPE_API bool register_conv2d_ladder(const Conv2dLadder& ladder, const char* file);

// "winograd_f2x3, avx2, 1 thread": what a table or a plot calls the rung.
CONVSCOPE_API std::string label_of(const Conv2dRung& rung);

}  // namespace convscope

#define CONVSCOPE_CONV2D_LADDER(ladder)                                   \
  namespace {                                                             \
  const bool registered_##ladder =                                        \
      ::convscope::register_conv2d_ladder(::convscope::ladder, __FILE__); \
  }
