// SPDX-License-Identifier: Apache-2.0
// machine.h: the names of this machine's processors, and the folder where what was measured on it
// is kept. Files there hold the answers of several machines: their keys start with these names.
#pragma once

#include <string>

#include "framework/device.h"

namespace convscope {

CONVSCOPE_API std::string cpu_model_name();
CONVSCOPE_API std::string gpu_name(Device device);  // "NVIDIA H200 | driver 13.0"
// CONVSCOPE_CACHE_DIR, or else $XDG_CACHE_HOME/convscope, ~/.cache/convscope, or without a home
// private_folder("/tmp/convscope-cache-<user>"). "": nothing is kept on disk.
CONVSCOPE_API std::string cache_folder();
// A file in it; "" where there is none.
CONVSCOPE_API std::string cache_path(const std::string& file);
// `path`, made when it is not there, if it is a folder of this user (no link) that nobody else may
// enter; else "", because others could leave files in it.
CONVSCOPE_API std::string private_folder(const std::string& path);

}  // namespace convscope
