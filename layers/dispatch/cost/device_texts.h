// SPDX-License-Identifier: Apache-2.0
// device_texts.h: the files of devices/, which the build stores in the library
// (framework/cmake/device_texts.cmake).
#pragma once

#include <span>

namespace convscope {

struct DeviceText {
  const char* name;  // "zen4"
  const char* text;  // JSON
};
std::span<const DeviceText> device_texts();

}  // namespace convscope
