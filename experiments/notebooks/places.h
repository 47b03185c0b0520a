// SPDX-License-Identifier: Apache-2.0
// places.h: finds the notebooks, and the files that their kernel includes and loads, in the source
// tree or where `cmake --install` put them.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct NotebookPaths {
  std::string folder;                // notebooks, kernel, set_up.py
  std::vector<std::string> include;  // folders of <convscope/notebook.h> and "framework/tensor.h"
  std::string library;               // libconvscope.so
  bool installed = false;
};
// Throws an error of kind kIo that names the searched folders when none holds notebooks.
CONVSCOPE_API NotebookPaths notebook_paths();

struct ShippedNotebook {
  std::string name;      // "01_what_a_convolution_is"
  std::string question;  // of its first cell, in one line
};
// Returns the names, sorted.
CONVSCOPE_API std::vector<std::string> notebook_names(const std::string& folder);
// Returns the notebooks with their questions, which are read from the files.
CONVSCOPE_API std::vector<ShippedNotebook> shipped_notebooks(const std::string& folder);

}  // namespace convscope
