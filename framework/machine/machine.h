// SPDX-License-Identifier: Apache-2.0
// machine.h: the names of this machine's processors, and the folder that stores measurements. Files
// in that folder may serve several machines: their keys begin with these names.
#pragma once

#include <string>

#include "framework/device.h"

namespace convscope {

CONVSCOPE_API std::string cpu_model_name();
CONVSCOPE_API std::string gpu_name(Device device);  // "NVIDIA H200 | driver 13.0"
// Returns CONVSCOPE_CACHE_DIR, else $XDG_CACHE_HOME/convscope or ~/.cache/convscope, or without a
// home private_folder("/tmp/convscope-cache-<user>"). "": nothing is stored on disk.
CONVSCOPE_API std::string cache_folder();
// Returns the path of a file in it; "" when there is no folder.
CONVSCOPE_API std::string cache_path(const std::string& file);
// Creates `path` if necessary. Returns it if it is a folder of this user (not a link) that nobody
// else may enter; else "", because others could place files in it.
CONVSCOPE_API std::string private_folder(const std::string& path);

}  // namespace convscope
