# Stores the tables of layers/dispatch/cost/devices in the library. Called as a script:
# cmake -DOUT=FILE -DDEVICES="a;b" -P device_texts.cmake
if(NOT CMAKE_SCRIPT_MODE_FILE)
  file(GLOB convscope_devices CONFIGURE_DEPENDS
    ${CMAKE_CURRENT_SOURCE_DIR}/layers/dispatch/cost/devices/*.json)
  set(convscope_device_texts ${CMAKE_CURRENT_BINARY_DIR}/device_texts.cpp)
  add_custom_command(OUTPUT ${convscope_device_texts} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DOUT=${convscope_device_texts} "-DDEVICES=${convscope_devices}"
      -P ${CMAKE_CURRENT_LIST_FILE}
    DEPENDS ${convscope_devices} ${CMAKE_CURRENT_LIST_FILE})
  return()
endif()
set(text "// device_texts.cpp: made by device_texts.cmake.\n#include \"layers/dispatch/cost/device_texts.h\"\n
namespace convscope {
namespace {
const DeviceText kTexts[] = {\n")
foreach(device IN LISTS DEVICES)
  cmake_path(GET device STEM name)
  file(READ ${device} content)
  string(APPEND text "{\"${name}\",\n")
  string(LENGTH "${content}" left)
  set(at 0)
  while(at LESS left)  # a string literal has at most 64 KiB, so the text is cut into several
    string(SUBSTRING "${content}" ${at} 8192 piece)
    string(APPEND text "R\"device(${piece})device\"\n")
    math(EXPR at "${at} + 8192")
  endwhile()
  string(APPEND text "},\n")
endforeach()
string(APPEND text "};\n}  // namespace
std::span<const DeviceText> device_texts() { return kTexts; }
}  // namespace convscope\n")
file(WRITE ${OUT} "${text}")
