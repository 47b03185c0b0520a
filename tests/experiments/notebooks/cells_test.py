#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests how a cell is split into pieces (experiments/notebooks/kernel/cells.py)."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "experiments/notebooks/kernel"))
import cells  # noqa: E402


def texts(code):
    return [piece.text for piece in cells.split(code)]


class Split(unittest.TestCase):
    def whole(self, *pieces):
        """Checks that each is one piece, also together with the others."""
        self.assertEqual(texts("\n".join(pieces)), list(pieces))
        for piece in pieces:
            self.assertEqual(texts(piece), [piece])

    def test_functions_classes_and_includes(self):
        self.whole("#include <vector>", "int f(int x) { return x; }", "int g(int x) {\n  return 2 * x;\n}",
                   "struct S { int a; int get() const { return a; } };", "struct T { int a; } t;",
                   "template <class T> struct Q { T a; };", "int S::get() const { return 3; }",
                   "S::S() : a{1}, b{2} { c = 1; }", "namespace a { int z; }",
                   "namespace b::c { void f() {} }", 'extern "C" { int puts(const char*); }',
                   "auto h(int x) -> int { return x; }", "P operator+(P a, P b) { return a; }",
                   "bool operator==(P a, P b) { return true; }", "enum class E { a, b };",
                   "Tensor mine(const Shape& z = {}, int b = 3) { return x; }")

    def test_templates_with_requirements(self):
        self.whole("template <class T>\nrequires requires(T t) { t.x; }\nint h(T t) { return t.x; }",
                   "template <class T> concept Big = requires(T a) { a.x; } && sizeof(T) > 4;",
                   "template <Big T> T twice(T a) { return 2 * a; }")

    def test_statements(self):
        self.whole("if (a) { b(); } else if (c) { d(); } else e();", "if (a) b(); else c();",
                   "do { x(); } while (y);", "while (a) { b(); }", "for (int i = 0; i < 3; ++i) f(i);",
                   "for (auto x : v) { f(x); }", "{ int z = 3; }", "++i;", "*p = 3;",
                   "try { f(); } catch (...) { g(); }", "switch (a) { case 1: b(); }")

    def test_braces_that_end_nothing(self):
        self.whole("auto lam = [](int x) { return x; };", "int a[] = {1, 2, 3};", "std::vector<int> v{1, 2};",
                   "[](int x) { return x; }(3);", "race(\"n=1\", {{\"mine\", mine}}, {\"direct\"});")

    def test_texts_hide_what_is_in_them(self):
        self.whole('const char* r = R"(a { ; )";', "char c = '{';", "int big = 1'000'000;",
                   'puts("; { \\" }");')

    def test_comments_and_directives(self):
        self.assertEqual(texts("// a; {\n/* b { */ int x = 3; // c }\nx // d"), ["int x = 3;", "x // d"])
        self.whole("#define A(x) \\\n   (x)", "#ifdef A\nint q = 3;\n#endif")

    def test_words_of_cuda_are_blanks(self):
        self.assertEqual(texts("__global__ void f(int) {}\nint a;\n__host__ __device__ int g() { return 1; }"),
                         ["           void f(int) {}", "int a;", "                    int g() { return 1; }"])
        self.whole("template <class T>\n__global__ void f(T) {}", "void g() { __device__ int h; }")

    def test_places(self):
        code = "int a = 1; int b = 2;\n\n// c\n  int d = 3;"
        self.assertEqual([(p.line, p.column) for p in cells.split(code)], [(1, 1), (1, 12), (4, 3)])

    def test_what_is_open_is_unfinished(self):
        for code in ("int f() {", '"abc', "/* x", "f((", "#if 1\nint a;", 'R"(abc'):
            with self.assertRaises(cells.Unfinished, msg=code):
                cells.split(code)

    def test_a_bracket_too_many_reaches_the_compiler(self):
        self.assertEqual(texts("int f() { return 3; } }"), ["int f() { return 3; }", "}"])


if __name__ == "__main__":
    unittest.main()
