# Stores the source text of the lessons in the library, for pages that show the running line. Called
# as a script: cmake -DOUT=FILE -DLESSONS="a;b" -P lesson_texts.cmake
if(NOT CMAKE_SCRIPT_MODE_FILE)
  file(GLOB_RECURSE convscope_lessons CONFIGURE_DEPENDS
    ${CMAKE_CURRENT_SOURCE_DIR}/layers/*_lesson_cpu.cpp ${CMAKE_CURRENT_SOURCE_DIR}/layers/*_lesson.h)
  set(convscope_lesson_texts ${CMAKE_CURRENT_BINARY_DIR}/lesson_texts.cpp)
  add_custom_command(OUTPUT ${convscope_lesson_texts} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DOUT=${convscope_lesson_texts} "-DLESSONS=${convscope_lessons}"
      -P ${CMAKE_CURRENT_LIST_FILE}
    DEPENDS ${convscope_lessons} ${CMAKE_CURRENT_LIST_FILE})
  return()
endif()
set(text "// lesson_texts.cpp: made by lesson_texts.cmake.\n#include \"experiments/look/lesson_texts.h\"\n
namespace convscope {
namespace {
const LessonText kTexts[] = {\n")
foreach(lesson IN LISTS LESSONS)
  cmake_path(GET lesson FILENAME name)
  file(READ ${lesson} content)
  string(APPEND text "{\"${name}\", R\"lesson(${content})lesson\"},\n")
endforeach()
string(APPEND text "};\n}  // namespace
std::span<const LessonText> lesson_texts() { return kTexts; }
}  // namespace convscope\n")
file(WRITE ${OUT} "${text}")
