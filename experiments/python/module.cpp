// SPDX-License-Identifier: Apache-2.0
// module.cpp: the compiled half of the Python package: convscope._native.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "experiments/python/arrays.h"
#include "experiments/python/errors.h"
#include "experiments/python/functions.h"
#include "experiments/run_folder/check_lines.h"
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"

NB_MODULE(_native, module) {
  namespace nb = nanobind;
  using namespace nb::literals;       // NOLINT(google-build-using-namespace): "x"_a
  using namespace convscope;          // NOLINT(google-build-using-namespace)
  using namespace convscope::python;  // NOLINT(google-build-using-namespace)
  module.doc() = "The compiled part of convscope; use the functions of the package itself.";
  translate_errors(module);
  add_conv2d(module);
  add_conv_transpose2d(module);
  add_deform_conv2d(module);
  add_sparse_conv(module);
  add_algorithms(module);
  add_explain(module);
  add_losses(module);
  add_runs(module);
  module.def(
      "copy_reason",
      [](const nb::object& array) {
        const Array taken = array_of(array, "copy_reason", "the array");
        return taken.why_copied.empty() ? nb::object(nb::none())
                                        : nb::object(nb::str(taken.why_copied.c_str()));
      },
      "array"_a, nb::sig("def copy_reason(array: object) -> str | None"),
      "Returns why a function would copy this array first, or None if it is read in place.");
  module.def("set_num_threads", &set_num_threads, "threads"_a,
             "Sets the number of threads of the CPU's algorithms; 0: one for each core.");
  module.def("num_threads", &num_threads, "Returns the number of threads of the CPU's algorithms.");
  module.def(
      "instruction_set", [] { return std::string(name_of(current_isa())); },
      "Returns the instruction set of the CPU's kernels: scalar, vector4, avx2 or avx512.");
  module.def(
      "check_results", &check_lines,
      "Returns what algorithm=\"check:a,b\" has compared so far in this process, a line for each.");
  module.def("forget_check_results", &forget_check_results, "Clears check_results().");
}
