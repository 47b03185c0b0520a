#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that each repository check fails on a small bad tree and passes on a good one."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import check_copies
import check_filters
import check_format
import check_headers
import check_headers_parse
import check_layering
import check_markdown
import check_mutants
import check_paths
import check_simd_symbols
import check_sizes
import check_words
import count_results
import generate_tables

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "experiments" / "bench"))
import gpu_record

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
        self.add("framework/a.cpp", SPDX + '// a.cpp: good.\n#include "framework/good.h"\n')
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

    def test_layering_keeps_folders_apart(self):
        folder = "layers/conv2d/"
        for header_file in ("algorithm.h", "shared/tiles.h", "fft/cpu/fft_plan.h",
                            "direct/cpu/direct_plan.h"):
            self.add(folder + header_file, header(pathlib.Path(header_file).name))
        include = "".join(f'#include "{folder}{name}"\n'
                          for name in ("algorithm.h", "shared/tiles.h", "direct/cpu/direct_plan.h"))
        self.add(folder + "direct/cpu/direct_cpu.cpp", SPDX + include)
        self.add("tests/layers/direct_test.cpp", SPDX + include)
        self.expect(check_layering.problems(self.root))
        self.add(folder + "fft/cuda/fft_cuda.cu", SPDX + include)
        self.add(folder + "execute.cpp", SPDX + include)
        self.add(folder + "shared/tiles.cpp", SPDX + f'#include "{folder}fft/cpu/fft_plan.h"\n')
        self.add("quant/q.cpp", SPDX + f'#include "{folder}shared/tiles.h"\n')
        self.expect(check_layering.problems(self.root),
                    "execute.cpp:4: a file outside of the folders includes a header of folder direct",
                    "fft_cuda.cu:4: folder fft includes a header of folder direct",
                    "tiles.cpp:2: shared includes a header of folder fft",
                    "quant/q.cpp:2: a file outside of the folders includes a header of folder shared")

    def test_layering_keeps_the_algorithms_of_a_family_apart(self):
        folder = "layers/conv2d/int8/"
        for header_file in ("shared/cpu/pass.h", "int8_gemm/cuda/tiles.h", "lesson.h"):
            self.add(folder + header_file, header(pathlib.Path(header_file).name))
        self.add(folder + "int8_direct/cpu/int8_direct_cpu.cpp",
                 SPDX + "".join(f'#include "{folder}{name}"\n' for name in
                                ("shared/cpu/pass.h", "lesson.h", "int8_gemm/cuda/tiles.h")))
        self.expect(check_layering.problems(self.root), "folder int8/int8_direct includes a header of "
                    "folder int8/int8_gemm")

    def test_layering_keeps_dispatch_free_of_layers(self):
        for path in ("layers/conv2d/problem.h", "layers/linear/linear.h", "layers/module.h",
                     "layers/dispatch/algorithm.h"):
            self.add(path, header(pathlib.Path(path).name))
        allowed = '#include "framework/good.h"\n#include "layers/dispatch/algorithm.h"\n'
        self.add("layers/dispatch/run.h", header("run.h", allowed))
        self.add("layers/linear/card_user.h", header("card_user.h", allowed))
        self.expect(check_layering.problems(self.root))
        self.add("layers/dispatch/card.cpp", SPDX + allowed +
                 '#include "layers/conv2d/problem.h"\n#include "layers/linear/linear.h"\n'
                 '#include "layers/module.h"\n')
        self.expect(check_layering.problems(self.root),
                    "card.cpp:4: layers/dispatch knows no layer, so it must not include "
                    "layers/conv2d/problem.h",
                    "card.cpp:5: layers/dispatch knows no layer", "layers/module.h")

    def test_layering_keeps_intrinsics_in_one_folder(self):
        body = "#include <immintrin.h>\nvoid f(__m512 a, float* p) { _mm512_storeu_ps(p, a); }\n"
        self.add("framework/simd/avx.h", header("avx.h", body))
        self.expect(check_layering.problems(self.root))
        self.add("layers/l.h", header("l.h", body + "using M = __mmask16;\n// __m is no type\n"
                                                    "#if CONVSCOPE_ISA_IS_AVX2\n#endif\n"))
        self.expect(check_layering.problems(self.root),
                    "layers/l.h:4: immintrin.h belongs in framework/simd", "l.h:5: __m512",
                    "l.h:6: __mmask16", "l.h:8: CONVSCOPE_ISA_IS_AVX2")

    def test_markdown_knows_the_scars_of_clang_format(self):
        good = "# The step\n\n1. **Describe.** see `a/b.h`\n2. x\n\n```\n#include\n.\n```\n"
        self.add("layers/README.md", good)
        self.expect(check_markdown.problems(self.root))
        self.add("layers/README.md", "#The step\nnote * *Rewrite.**Longer\n(`a / b.cpp`)\n    .\n"
                 "`bench net M-- layers`\n")
        self.expect(check_markdown.problems(self.root), ":1: a heading", ":2: bold",
                    ":3: a path", ":4: a line of punctuation", ":5: an option")

    def test_copies_finds_arithmetic_that_stands_elsewhere(self):
        self.add("framework/int_math.h", header("int_math.h", "int x = (a + b - 1) / b;\n"))
        self.add("layers/a.cpp", SPDX + "Index ceil_div(Index a, Index b) { return 0; }\n")
        self.add("layers/b.cpp", SPDX + "int n = (count + kSize - 1) / kSize;\n")
        self.add("layers/c.cpp", SPDX + "int n = (count + kSize - 1) / kOther;\nstruct Divider {\n};\n")
        self.expect(check_copies.problems(self.root), "layers/a.cpp:2", "layers/b.cpp:2",
                    "layers/c.cpp:3")

    def test_paths_names_a_file_that_is_not_there(self):
        self.add("framework/io/npy.h", header("npy.h"))
        self.add("layers/README.md", "[a](../framework/io/npy.h) [b](gone/README.md) `io/npy.h`\n")
        self.add("layers/a.cpp", SPDX + "// Read next  npy.h, io/npy.h, io/gone.h and old_cpu.cpp\n"
                 "// <name>_cpu.cpp, *_simd.cpp and _lesson_cpu.cpp are patterns\n")
        self.expect(check_paths.problems(self.root), "a.cpp:2: names io/gone.h",
                    "a.cpp:2: names old_cpu.cpp", "README.md:1: links to gone/README.md")

    def test_tables_come_from_the_cards(self):
        self.add("layers/conv2d/fft/cpu/fft_cpu.cpp", SPDX + "// fft_cpu.cpp: x.\n"
                 "// Supports   f32; stride 1,\n//            any padding\n// Cost       n\n"
                 'const Conv2dAlgorithm kCard{\n    .name = "fft",\n    .idea =\n        "tiles "\n'
                 '        "of spectra",\n};\n')
        document = generate_tables.DOCUMENTS[0]
        marks = "<!-- generated: algorithms-cpu -->\n{}<!-- /generated -->\n"
        row = "| `fft` | tiles of spectra | f32; stride 1, any padding |\n"
        head = "| name | idea | accepts |\n|---|---|---|\n"
        self.add(document, marks.format(head + row))
        self.expect(generate_tables.problems(self.root))
        self.add(document, marks.format(head + row.replace("stride 1", "every stride")))
        self.expect(generate_tables.problems(self.root), document + ": its tables are not those")
        self.add(document, "no marks\n")
        self.expect(generate_tables.problems(self.root), document + ": expected a table")

    def words(self, path, text):
        self.add(path, text)
        return [f"{line}: {rule}: {message}" for line, rule, message in
                check_words.findings(self.root, pathlib.Path(path))]

    def test_words_names_each_rule(self):
        fine = ("# Cards\n\nThe cost model has no room for `card` names. There is no halo, as in a graphics card.\n"
                "The cache halves the time by a factor of two. It stands for a network's depth of the network.\n")
        self.expect(self.words("layers/a.md", fine), "1: word: 'Cards'")
        for text in ("A card is asked.", "The rooms of a layer.", "The law of the house.", "It is a heavy layer.",
                     "Products of halves are exact.", "Two factors of products, packed.", "Sums stay in registers.",
                     "The depth is cut.", "The copy engine writes.", "From the second cache.", "Each multiprocessor.",
                     "It stands there.", "Codes lie in rows.", "A turned kernel.", "Weights that are out.",
                     "The ceilings of auto.", "It is faster than the peer.", "Layout channels last.",
                     "In the blocked layout.", "Bias and curve.", "It has another form here.", "Kernels of its own.",
                     "Whoever runs it."):
            self.expect(self.words("layers/a.md", text + "\n"), "1: word: ")
        self.expect(self.words("layers/a.md", "sum over d < depth of x, of [taps, depth, 8]. Then w. Then it ends.\n"))
        for text in ("That is no number.", "It runs on f32 alone.", "It starts anew.", "The files beside it.",
                     "A layer in front of it.", "The layer behind it.", "Waits as long as it runs.",
                     "And that is what it says.", "Here it gives a kind of"):
            self.expect(self.words("layers/a.md", text + "\n"), "1: german: ")
        for text in ("Of two layers one wins.", "Who calls it waits.", "As what it runs is said.",
                     "What it reads is copied.", "With its data it ends."):
            self.expect(self.words("layers/a.md", text + "\n"), "1: opening: ")
            self.expect(self.words("layers/a.cpp", SPDX + f"// a.cpp: good. {text}\n"), "2: opening: ")
        for text in ("Since then it is fast.", "Both were mended.", "It is 2 ms; before, it took 3."):
            self.expect(self.words("layers/a.md", text + "\n"), "1: history: ")
            self.expect([found for found in self.words("CHANGELOG.md", text + "\n") if "history" in found])
        self.expect(self.words("layers/a.md", "word " * 35 + "end.\n"), "1: long: a sentence of 36")
        self.expect(self.words("layers/a.md", ("word " * 20 + "end. backward_data takes ") * 3 + "it.\n"))
        self.expect(self.words("layers/a.md", "word " * 20 + "by A. Nam et al. as ... and " + "word " * 20 + "end.\n"),
                    "1: long: ")
        self.expect(self.words("layers/a.md", "```\n" + "word " * 99 + "\n```\n\n| " + "word " * 99 + "|\n"))
        self.expect(self.words("layers/a.py", '"""Text.\n\n' + "word\n" * 36 + '"""\n# a card\nx = "# card"\n'),
                    "3: long: ", "40: word: 'card'")
        self.expect(self.words("a.sh", "#!/bin/sh\n# the cards\necho card\n"), "2: word: 'cards'")
        self.expect(self.words("README.md", "line\n\n" * 61), "121: readme: ")

    def test_words_knows_the_form_of_the_changelog(self):
        good = "# Changes\n\n## [Unreleased]\n\n## [0.1.0] - 2026-11-28\n\n### Added\n\n- A line.\n"
        self.expect(self.words("CHANGELOG.md", good))
        self.expect(self.words("CHANGELOG.md", good.replace("## [Unreleased]\n\n", "")), "first section")
        self.expect(self.words("CHANGELOG.md", good.replace("Added", "News")), "'News': expected one of")
        self.expect(self.words("CHANGELOG.md", good.replace("### Added\n", "")), "an entry without a heading")
        self.expect(self.words("CHANGELOG.md", good.replace("- 2026-11-28", "(soon)")), "expected [Unreleased]")
        self.expect(self.words("CHANGELOG.md", good + "- A line.\n" * 60), "lines, at most 60")

    def test_words_wants_verbs_in_public_headers(self):
        body = ("\n// {}\nCONVSCOPE_API int f(int a);\n\n// The names.\nstruct Names {{\n  int a;  // the label\n"
                "  // {}\n  int g() const {{ return a; }}\n\n private:\n  // the rest\n  int h();\n}};\n")
        self.expect(self.words("optim/a.h", header("a.h", body.format("Returns it.", "Reads a."))))
        self.expect(self.words("optim/a.h", header("a.h", body.format("The sum.", "Rows of a."))),
                    "5: docstring: 'The sum.'", "11: docstring: 'Rows of a.'")

    def test_words_counts_may_only_fall(self):
        self.add("layers/a.md", "A card.\n")
        self.expect(check_words.problems(self.root), "layers/a.md:1: word: ", "layers: 1 findings of 'word'")
        (self.root / "tests/repo").mkdir(parents=True)
        check_words.write_baseline(self.root)
        self.expect(check_words.problems(self.root))
        self.add("layers/a.md", "An algorithm.\n")
        self.expect(check_words.problems(self.root), "--write-baseline")
        self.add("layers/a.md", "A card of halves.\n")
        self.assertEqual(len(check_words.problems(self.root)), 3)

    def test_headers_names_what_is_missing(self):
        self.add("framework/a.h", "#pragma once\n")
        self.add("framework/b.h", SPDX + "// b.h: no guard.\n")
        self.add("framework/c.h", header("c.h", "#include <Eigen/Core>\n#include <omp.h>\n"))
        self.add("framework/d_simd.cpp", SPDX + "// d_simd.cpp: x.\n#include <vector>\n")
        self.add("framework/e.cpp", SPDX + "// other.cpp: x.\n#include <Eigen/Core>\n#pragma omp parallel\n")
        self.expect(check_headers.problems(self.root),
                    "a.h:1: expected '// SPDX", "a.h:2: expected '// a.h: ",
                    "b.h:1: expected '#pragma once'",
                    "c.h:4: a public header must not include <Eigen/Core>",
                    "c.h:5: a public header must not include <omp.h>",
                    "c.h: expected '#define EIGEN_DONT_PARALLELIZE'",
                    "d_simd.cpp:3: a *_simd.cpp file must not include <vector>",
                    "e.cpp:2: expected '// e.cpp: ",
                    "e.cpp: expected '#define EIGEN_DONT_PARALLELIZE'",
                    "e.cpp: OpenMP pragmas")

    def test_headers_wants_all_fields_of_an_algorithm(self):
        fields = "".join(f"// {field}  text\n" for field in check_headers.ALGORITHM_FIELDS)
        register = "CONVSCOPE_REGISTER_CONV2D(x, {});\n"
        path = "layers/conv2d/x/x_cpu.cpp"
        self.add("layers/conv2d/x/x_lesson_cpu.cpp", SPDX + "// x_lesson_cpu.cpp: slowly.\n")
        self.add(path, f"{SPDX}// x_cpu.cpp: by an idea.\n{fields}\n{register}")
        self.expect(check_headers.problems(self.root))
        lacking = fields.replace("// Cost  text\n", "").replace("// Read next  text\n", "")
        self.add(path, f"{SPDX}// x_cpu.cpp: by an idea.\n{lacking}\n{register}")
        self.expect(check_headers.problems(self.root), "its header lacks Cost, Read next")

    def test_headers_wants_a_lesson_or_the_name_of_one(self):
        fields = "".join(f"// {field}  text\n" for field in check_headers.ALGORITHM_FIELDS)
        self.add("layers/conv2d/x/x_lesson_cpu.cpp", SPDX + "// x_lesson_cpu.cpp: slowly.\n")
        self.add("layers/conv2d/x/cpu/x_cpu.cpp",
                 f"{SPDX}// x_cpu.cpp: by an idea.\n{fields}\nCONVSCOPE_CONV2D_ALGORITHM(x)\n")
        path = "layers/conv2d/y/cpu/y_cpu.cpp"
        text = f"{SPDX}// y_cpu.cpp: {{}}.\n{fields}\nCONVSCOPE_CONV2D_ALGORITHM(y)\n"
        self.add(path, text.format("as z_lesson_cpu.cpp"))
        wanted = "expected the name of a lesson"
        self.expect(check_headers.problems(self.root), f"{path}: {wanted}",
                    f"layers/conv2d/y/README.md: {wanted}")
        self.add("layers/conv2d/y/README.md", "The loop nest of x_lesson_cpu.cpp.\n")
        self.expect(check_headers.problems(self.root), f"{path}: {wanted}")
        self.add(path, text.format("as x_lesson_cpu.cpp"))
        self.expect(check_headers.problems(self.root))

    def test_headers_wants_a_way_to_read_on_in_kernel_files(self):
        self.add("layers/conv2d/fft/cuda/fft_passes.cuh", SPDX + "// fft_passes.cuh: passes.\n")
        self.add("layers/conv2d/fft/cpu/fft_simd.cpp",
                 SPDX + "// fft_simd.cpp: passes.\n// Read next  fft_cpu.cpp\n")
        self.expect(check_headers.problems(self.root), "fft_passes.cuh: its header lacks Read next")

    def test_sizes_names_a_long_file_a_long_line_and_a_full_folder(self):
        self.add("optim/long.cpp", SPDX + "int x;\n" * 600)
        self.add("layers/wide.cu", SPDX + "// " + "x" * 98 + "\n")
        for i in range(31):
            self.add(f"quant/q{i}.h", header(f"q{i}.h"))
        self.expect(check_sizes.problems(self.root), "optim/long.cpp: 601 lines",
                    "layers/wide.cu:2: 101 columns", "quant: 31 source files")

    def test_sizes_counts_the_files_of_an_algorithm(self):
        for i in range(7):
            self.add(f"layers/conv2d/fft/cpu/c{i}.h", header(f"c{i}.h"))
            self.add(f"layers/conv2d/int8/shared/s{i}.h", header(f"s{i}.h"))
        for i in range(6):
            self.add(f"layers/conv2d/fft/cuda/d{i}.h", header(f"d{i}.h"))
            self.add(f"layers/conv2d/int8/d{i}.h", header(f"d{i}.h"))  # not those of int8/shared
        for i in range(3):
            self.add(f"layers/conv2d/depthwise/w{i}.h", header(f"w{i}.h"))
        self.expect(check_sizes.problems(self.root), "layers/conv2d/fft: 13 source files",
                    "layers/conv2d/depthwise: 3 source files; remove it from STILL_LARGE")

    @unittest.skipIf(shutil.which("git") is None, "git is not installed")
    def test_sizes_names_a_binary_file_that_git_tracks(self):
        (self.root / "package.whl").write_bytes(b"PK\0\3")
        (self.root / "other.whl").write_bytes(b"PK\0\3")  # not tracked
        for words in (["init", "-q"], ["add", "package.whl"]):
            subprocess.run(["git", "-C", self.root, *words], check=True)
        self.expect(check_sizes.problems(self.root), "package.whl: a binary file")

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

    def test_a_mutant_fits_once_and_names_a_test(self):
        one = "mutant: {}\nfile: {}/a.cpp\nold: {}\nnew: y\nwhat: wrong\ntest: optim {}\n"
        folders = [f for f in check_mutants.FOLDERS if f != "tests"]
        for folder in folders:
            self.add(f"{folder}/a.cpp", "int x = 1;\nint z = z0 + z0;\n")
        self.add("tests/optim/a_test.cpp", "TEST(Sgd, Steps) {}\n")
        good = "".join(one.format(f"of_{f}", f, "x = 1", "Sgd.*") + "\n" for f in folders)
        path = "tests/mutants/list/a.txt"
        self.add(path, good)
        self.expect(check_mutants.problems(self.root))
        for bad, part in ((one.format("gone", "optim", "x = 2", "Sgd.*"), "stands 0 times"),
                          (one.format("twice", "optim", "z0", "Sgd.*"), "stands 2 times"),
                          (one.format("same", "optim", "x", "Sgd.*").replace("new: y", "new: x"),
                           "changes nothing"),
                          (one.format("untested", "optim", "x", "Adam.*"), "'Adam'"),
                          (one.format("of_optim", "optim", "x", "Sgd.*"), "taken twice"),
                          (one.format("nowhere", "optim/b", "x", "Sgd.*"), "there is no file"),
                          ("file: optim/a.cpp\n", "unknown key")):
            self.add(path, bad if bad.startswith("file") else good + bad)
            self.expect(check_mutants.problems(self.root), part)
        self.add(path, one.format("alone", "optim", "x = 1", "Sgd.*"))
        self.assertEqual(len(check_mutants.problems(self.root)), len(folders) - 1)

    def test_a_gpu_record_depends_on_code_and_not_on_comments(self):
        code = 'launch(k, 1\'024, "// no comment", \'"\');\n#define A\nint b;\n'
        self.assertEqual(gpu_record.code_of(code),
                         gpu_record.code_of("// one\n" + code.replace(", 1", ",   /* two\n */ 1")
                                            .replace("A\n", "A  // three\n\n")))
        for old, new in (("// no", "// yes"), ("A\n", "A "), ("1\'0", "1\'1"), ("int b", "int c")):
            self.assertIn(old, code)
            self.assertNotEqual(gpu_record.code_of(code),
                                gpu_record.code_of(code.replace(old, new)))

    def test_filters_finds_patterns_without_a_case(self):
        self.add("tests/CMakeLists.txt", 'x("GTEST_FILTER=A.B*:*Gone*") set(overlaps "C.*:-D.e")\n')
        self.add(".ci/jobs.sh", "long='A.B:Lost.*'\nlong+=\":A.$x\"\nwhere_threads_meet=\"*C*-$y\"\n")
        self.add("tests/mutants/list/a.txt", "mutant: m\ntest: layers A.Bc:Old.Case\n")
        self.assertEqual(check_filters.problems(self.root, ["A.B", "A.Bc", "C.d", "D.e"]),
                         [".ci/jobs.sh: no case matches 'Lost.*'", "tests/CMakeLists.txt: no case matches '*Gone*'",
                          "tests/mutants/list/a.txt: no case matches 'Old.Case'"])

    def test_count_results_counts_cases_entries_and_crashes(self):
        case = {"status": "RUN", "result": "COMPLETED", "name": "Works"}
        cases = [case, {**case, "name": "Breaks", "failures": [{}]}, {**case, "result": "SKIPPED"},
                 {**case, "status": "NOTRUN", "result": "SUPPRESSED"}]
        self.add("test_results/optim.json",
                 json.dumps({"testsuites": [{"name": "Sgd", "testsuite": cases}]}))
        self.add("test_results/ctest.xml", """<testsuite>
            <testcase name="optim" status="fail"><system-out>[ RUN ]
a.cpp:1: Failure
Expected: 1
</system-out></testcase>
            <testcase name="crashed" status="fail"><system-out>one

two
</system-out></testcase>
            <testcase name="repo_x" status="run"/><testcase name="repo_y" status="notrun"/>
            </testsuite>""")
        self.assertEqual(count_results.count(self.root), ([2, 2, 2], ["Sgd.Breaks", "crashed"]))
        self.assertEqual(count_results.shown_of_failures(self.root, 2),
                         ["  a.cpp:1: Failure", "  Expected: 1", "  one", "  two"])


if __name__ == "__main__":
    unittest.main()
