// SPDX-License-Identifier: Apache-2.0
// places.h: where the notebooks are, and what their kernel includes and opens: in the source tree,
// or where `cmake --install` put it.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct NotebookPlaces {
  std::string folder;                // notebooks, kernel, set_up.py
  std::vector<std::string> include;  // that of <convscope/notebook.h>, that of "framework/tensor.h"
  std::string library;               // libconvscope.so
  bool installed = false;
};
// An error of kind kIo that names the folders looked at when none holds notebooks.
CONVSCOPE_API NotebookPlaces notebook_places();

struct ShippedNotebook {
  std::string name;      // "01_what_a_convolution_is"
  std::string question;  // of its first cell, in one line
};
// Sorted.
CONVSCOPE_API std::vector<std::string> notebook_names(const std::string& folder);
// The same with their questions, which are read from the files.
CONVSCOPE_API std::vector<ShippedNotebook> shipped_notebooks(const std::string& folder);

}  // namespace convscope
