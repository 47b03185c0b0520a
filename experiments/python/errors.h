// SPDX-License-Identifier: Apache-2.0
// errors.h: converts errors of the library to Python exceptions with the same message.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace convscope::python {

// Raises convscope.ArgumentError, which is a TypeError: the function does not accept the argument.
[[noreturn]] void fail_type(const std::string& sentence);

// From this call on, each convscope::Error is raised as the matching class of the Python module
// convscope._errors.
void translate_errors(nanobind::module_& module);

}  // namespace convscope::python
