// SPDX-License-Identifier: Apache-2.0
// library_functions.h: a table of function pointers to a library that is opened by name.
#pragma once

#include <dlfcn.h>

#include <string>

namespace convscope {

// Fills one pointer of the table. If the library lacks the function, and `missing` is empty, sets
// `missing` to the function's name.
template <class F>
void find_function(void* library, const char* name, F& out, std::string& missing) {
  out = reinterpret_cast<F>(dlsym(library, name));
  if (out == nullptr && missing.empty()) missing = name;
}

}  // namespace convscope
