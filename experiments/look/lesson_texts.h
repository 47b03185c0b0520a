// SPDX-License-Identifier: Apache-2.0
// lesson_texts.h: the source files of the lessons as compiled (lesson_texts.cmake).
#pragma once

#include <span>
#include <string_view>

namespace convscope {

struct LessonText {
  std::string_view file;  // "direct_lesson_cpu.cpp"
  std::string_view text;
};
std::span<const LessonText> lesson_texts();

}  // namespace convscope
