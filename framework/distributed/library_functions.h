// SPDX-License-Identifier: Apache-2.0
// library_functions.h: a table of functions from a library that is opened by name.
#pragma once

#include <dlfcn.h>

#include <string>

namespace convscope {

// Fills a pointer of the table. Sets `missing` to the first name that the library lacks.
template <class F>
void find_function(void* library, const char* name, F& out, std::string& missing) {
  out = reinterpret_cast<F>(dlsym(library, name));
  if (out == nullptr && missing.empty()) missing = name;
}

}  // namespace convscope
