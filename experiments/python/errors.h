// SPDX-License-Identifier: Apache-2.0
// errors.h: errors of the library as exceptions of Python, with the same sentence.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace convscope::python {

// Raises convscope.ArgumentError, which is a TypeError: the argument is none of what is taken.
[[noreturn]] void fail_type(const std::string& sentence);

// From now on convscope::Error becomes one of the classes of the module convscope._errors.
void translate_errors(nanobind::module_& module);

}  // namespace convscope::python
