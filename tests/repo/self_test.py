#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each repository check must be seen to fail: small bad trees, and a good one."""
import json
import pathlib
import shutil
import tempfile
import unittest

import check_format
import check_headers
import check_headers_parse
import check_layering
import check_simd_symbols
import check_sizes
import count_results

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


def header(name, body=""):
    return f"{SPDX}// {name}: a header for a test.\n#pragma once\n{body}"


class Tree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.add("framework/good.h", header("good.h"))

    def tearDown(self):
        self.folder.cleanup()

    def add(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def expect(self, found, *parts):
        self.assertEqual(len(found), len(parts), found)
        for problem, part in zip(found, parts):
            self.assertIn(part, problem)

    def test_a_good_tree_passes(self):
        self.add("framework/a.cpp", SPDX + '#include "framework/good.h"\n')
        for check in (check_layering, check_headers, check_sizes, check_headers_parse):
            self.expect(check.problems(self.root))

    def test_layering_names_a_forbidden_include(self):
        self.add("layers/l.h", header("l.h"))
        self.add("framework/bad.cpp", SPDX + '\n#include "layers/l.h"\n')
        self.add("quant/q.cpp", SPDX + '#include "sparsity/s.h"\n')
        self.add("sparsity/s.h", header("s.h"))
        self.add("optim/o.cpp", SPDX + '#include "good.h"\n')
        self.expect(check_layering.problems(self.root),
                    "framework/bad.cpp:3: framework must not include layers",
                    "optim/o.cpp:2: \"good.h\" is not a file",
                    "quant/q.cpp:2: quant must not include sparsity")

    def test_layering_keeps_algorithms_apart(self):
        folder = "layers/conv2d/"
        self.add(folder + "algorithm.h", header("algorithm.h"))
        card = "CONVSCOPE_CONV2D_ALGORITHM(kCard)\n"
        self.add(folder + "fft_cpu.cpp", SPDX + f'#include "{folder}algorithm.h"\n'
                 f'#include "{folder}fft_plan.h"\n#include "{folder}im2col_tiles.h"\n' + card)
        self.add(folder + "fft_rows_cuda.cu", SPDX + f'#include "{folder}fft_plan.h"\n')
        self.add(folder + "fft_plan.h", header("fft_plan.h"))
        self.add(folder + "im2col_tiles.h", header("im2col_tiles.h"))
        self.add(folder + "im2col_cpu.cpp", SPDX + card)
        self.expect(check_layering.problems(self.root), "algorithm fft includes a header of")

    def test_headers_names_what_is_missing(self):
        self.add("framework/a.h", "#pragma once\n")
        self.add("framework/b.h", SPDX + "// b.h: no guard.\n")
        self.add("framework/c.h", header("c.h", "#include <Eigen/Core>\n#include <omp.h>\n"))
        self.add("framework/d_simd.cpp", SPDX + "#include <vector>\n#include <cstdint>\n")
        self.add("framework/e.cpp", SPDX + "#include <Eigen/Core>\n#pragma omp parallel\n")
        self.expect(check_headers.problems(self.root),
                    "a.h:1: expected '// SPDX", "a.h:2: expected '// a.h: ",
                    "b.h:1: expected '#pragma once'",
                    "c.h:4: a public header must not include <Eigen/Core>",
                    "c.h:5: a public header must not include <omp.h>",
                    "c.h: expected '#define EIGEN_DONT_PARALLELIZE'",
                    "d_simd.cpp:2: a *_simd.cpp file must not include <vector>",
                    "e.cpp: expected '#define EIGEN_DONT_PARALLELIZE'",
                    "e.cpp: OpenMP pragmas")

    def test_headers_wants_all_fields_of_an_algorithm(self):
        fields = "".join(f"// {field}  text\n" for field in check_headers.CARD_FIELDS)
        register = "CONVSCOPE_REGISTER_CONV2D(x, {});\n"
        path = "layers/conv2d/x_cpu.cpp"
        self.add(path, f"{SPDX}// x_cpu.cpp: by an idea.\n{fields}\n{register}")
        self.expect(check_headers.problems(self.root))
        lacking = fields.replace("// Cost  text\n", "").replace("// Read next  text\n", "")
        self.add(path, f"{SPDX}// x_cpu.cpp: by an idea.\n{lacking}\n{register}")
        self.expect(check_headers.problems(self.root), "its header lacks Cost, Read next")

    def test_sizes_names_a_long_file(self):
        self.add("optim/long.cpp", SPDX + "int x;\n" * 600)
        self.expect(check_sizes.problems(self.root), "optim/long.cpp: 601 lines")

    @unittest.skipIf(shutil.which("clang-format") is None, "clang-format is not installed")
    def test_format_names_a_badly_formatted_file(self):
        self.add(".clang-format", "BasedOnStyle: Google\n")
        self.add("optim/ugly.cpp", SPDX + "int   x ;\n")
        self.expect(check_format.problems(self.root), "optim/ugly.cpp: run clang-format")

    def test_headers_parse_names_a_header_that_needs_another(self):
        self.add("framework/needs.h", header("needs.h", "std::vector<int> x();\n"))
        self.expect(check_headers_parse.problems(self.root), "framework/needs.h: does not compile")

    def test_simd_symbols_names_weak_symbols_and_start_up_code(self):
        listing = ("0000000000000000 W std::vector<int>::push_back(int&&)\n"
                   "0000000000000000 W convscope::isa_avx2::f()\n"
                   "                 w __cxa_finalize\n"
                   "                 U memcpy\n"
                   "0000000000000010 t _GLOBAL__sub_I_update_simd.cpp\n")
        self.expect(check_simd_symbols.symbol_problems("a.o", "avx2", listing),
                    "weak symbol std::vector", "start-up code")

    def test_count_results_counts_cases_entries_and_crashes(self):
        case = {"status": "RUN", "result": "COMPLETED", "name": "Works"}
        cases = [case, {**case, "name": "Breaks", "failures": [{}]}, {**case, "result": "SKIPPED"},
                 {**case, "status": "NOTRUN", "result": "SUPPRESSED"}]
        self.add("test_results/optim.json",
                 json.dumps({"testsuites": [{"name": "Sgd", "testsuite": cases}]}))
        self.add("test_results/ctest.xml", """<testsuite>
            <testcase name="optim" status="fail"/><testcase name="crashed" status="fail"/>
            <testcase name="repo_x" status="run"/><testcase name="repo_y" status="notrun"/>
            </testsuite>""")
        self.assertEqual(count_results.count(self.root), ([2, 2, 2], ["Sgd.Breaks", "crashed"]))


if __name__ == "__main__":
    unittest.main()
