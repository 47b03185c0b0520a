// SPDX-License-Identifier: Apache-2.0
// functions.h: the parts of the module, one file for each.
#pragma once

#include <nanobind/nanobind.h>

namespace convscope::python {

void add_conv2d(nanobind::module_& module);
void add_conv_transpose2d(nanobind::module_& module);
void add_deform_conv2d(nanobind::module_& module);
void add_sparse_map(nanobind::module_& module);
void add_sparse_conv(nanobind::module_& module);
void add_algorithms(nanobind::module_& module);
void add_explain(nanobind::module_& module);
void add_losses(nanobind::module_& module);
void add_runs(nanobind::module_& module);

}  // namespace convscope::python
