// SPDX-License-Identifier: Apache-2.0
// machine.h: the names of this machine's processors, and the folder that stores measurements. Files
// in that folder may serve several machines: the keys of a file begin with these names.
#pragma once

#include <string>

#include "framework/device.h"

namespace convscope {

CONVSCOPE_API std::string cpu_model_name();
CONVSCOPE_API std::string gpu_model_name();         // "NVIDIA H200"; "" without a GPU
CONVSCOPE_API std::string gpu_name(Device device);  // "NVIDIA H200 | driver 13.0"
// Returns the cache folder: CONVSCOPE_CACHE_DIR, else $XDG_CACHE_HOME/convscope, else
// ~/.cache/convscope, or without a home folder private_folder("/tmp/convscope-cache-<user>"). ""
// means that nothing is stored on disk.
CONVSCOPE_API std::string cache_folder();
// Returns the path of a file in the cache folder; "" when there is no folder.
CONVSCOPE_API std::string cache_path(const std::string& file);
// Creates the folder `path` if necessary. Returns `path` if it is a folder (not a link) that
// belongs to this user and that nobody else may enter. Otherwise returns "", because other users
// could place files in the folder.
CONVSCOPE_API std::string private_folder(const std::string& path);

}  // namespace convscope
