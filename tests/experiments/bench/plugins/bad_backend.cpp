// SPDX-License-Identifier: Apache-2.0
// bad_backend.cpp: replaces libconvscope_cuda.so by a library with one mistake: BAD_BACKEND.
#include <string_view>

#include "framework/device.h"

namespace {

constexpr std::string_view kMistake = BAD_BACKEND;

const bool registered = [] {
  if (kMistake == "registers_nothing") return false;
  convscope::DeviceBackend backend;
  backend.name = "bad";
  if (kMistake == "half_a_table") backend.device_count = [] { return 1; };
  convscope::register_device_backend(convscope::DeviceType::cuda, backend);
  return true;
}();

}  // namespace
