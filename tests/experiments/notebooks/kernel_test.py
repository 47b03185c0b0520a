#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the notebooks' kernel through Jupyter's client. Each test checks one promise of
experiments/notebooks/README.md."""
import base64
import pathlib
import signal
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "experiments/notebooks"))
from run_notebooks import kernel_manager  # noqa: E402

TIMEOUT_S = 120  # a busy machine


class Answer:
    """The output of a cell: text by stream, displayed data, and the error."""

    def __init__(self):
        self.out = self.err = ""
        self.shown, self.error, self.status = [], None, None
        self.arrivals = []  # (seconds since the start of the cell, text)


class Session:
    def __init__(self):
        self.manager = kernel_manager(asynchronous=False)
        self.manager.start_kernel()
        self.connect()

    def connect(self):
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=TIMEOUT_S)

    def run(self, code, interrupt_when=None):
        """Runs a cell. If `interrupt_when` is given, interrupts the cell when it prints this
        text."""
        answer, begin, interrupted = Answer(), time.monotonic(), False
        request = self.client.execute(code)
        while True:
            message = self.client.get_iopub_msg(timeout=TIMEOUT_S)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream" and content["name"] == "stdout":
                answer.out += content["text"]
                answer.arrivals.append((time.monotonic() - begin, content["text"]))
            elif kind == "stream":
                answer.err += content["text"]
            elif kind == "display_data":
                answer.shown.append((answer.out, content["data"]))
            elif kind == "error":
                answer.error = content
            elif kind == "status" and content["execution_state"] == "idle":
                break
            if interrupt_when and not interrupted and interrupt_when in answer.out:
                interrupted = True
                self.manager.interrupt_kernel()
        while True:
            reply = self.client.get_shell_msg(timeout=TIMEOUT_S)
            if reply["parent_header"].get("msg_id") == request:
                answer.status = reply["content"]["status"]
                return answer

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel()


def setUpModule():
    global session
    session = Session()


def tearDownModule():
    session.close()


class Kernel(unittest.TestCase):
    def ok(self, code, **options):
        answer = session.run(code, **options)
        self.assertEqual(answer.status, "ok", answer.error and answer.error["evalue"])
        return answer

    def fails(self, code, kind, **options):
        answer = session.run(code, **options)
        self.assertEqual((answer.status, answer.error["ename"]), ("error", kind), answer.error)
        return answer.error["evalue"]

    def alive(self):
        self.assertEqual(self.ok("int(6 * 7)").out, "(int) 42\n")


class Cells(Kernel):
    def test_whole_cells_run(self):
        out = self.ok("#include <vector>\n#include <numeric>\n"
                      "int square(int x) { return x * x; }\nint cube(int x) { return x * square(x); }\n"
                      "struct Pair { int a; int sum() const; };\nint Pair::sum() const { return a + 1; }\n"
                      "template <class T> T twice(T x) { return 2 * x; }\n"
                      "std::vector<int> many{square(2), cube(2), Pair{2}.sum(), twice(5)};\n"
                      "std::accumulate(many.begin(), many.end(), 0)").out
        self.assertEqual(out, "(int) 25\n")

    def test_the_last_expression_prints_and_a_semicolon_is_silent(self):
        self.assertEqual(self.ok("int seven = 7;\nseven").out, "(int) 7\n")
        self.assertEqual(self.ok("seven + 1;").out, "")

    def test_it_is_cpp20(self):
        self.assertEqual(self.ok("__cplusplus").out, "(long) 202002\n")
        self.ok("template <class T> concept Small = sizeof(T) < 8;\n"
                "template <Small T> T same(T x) { return x; }\nsame(3);")

    def test_a_cell_can_be_changed_and_run_again(self):
        for number in (1, 2):
            self.ok(f"struct Box {{ int x{number}; }};\n"
                    f"template <class T> int answer(T) {{ return {number}; }}\ndouble value = {number};")
            self.assertEqual(self.ok(f"Box b{number}; b{number}.x{number} = 5; answer(1)").out,
                             f"(int) {number}\n")

    def test_code_is_optimised(self):
        self.assertEqual(self.ok("__OPTIMIZE__").out, "(int) 1\n")


class Output(Kernel):
    def test_stdout_and_stderr_stream_while_a_cell_runs(self):
        answer = self.ok("#include <cstdio>\n#include <unistd.h>\n"
                         "for (int i = 0; i < 3; ++i) { printf(\"line %d\\n\", i); fflush(stdout); "
                         "usleep(400000); }\nfprintf(stderr, \"to stderr\\n\");")
        self.assertEqual(answer.out, "line 0\nline 1\nline 2\n")
        self.assertEqual(answer.err, "to stderr\n")
        first, last = answer.arrivals[0][0], answer.arrivals[-1][0]
        self.assertGreater(last - first, 0.5, "all of it came together, at the end")

    def test_letters_of_several_bytes_stay_whole(self):
        self.assertEqual(self.ok('for (int i = 0; i < 20000; ++i) printf("\u00e4\u2192");').out,
                         "\u00e4\u2192" * 20000)
        halves = r'{ printf("\xc3"); fflush(stdout); usleep(300000); printf("\xa4"); }'
        self.assertEqual(self.ok(halves).out, "\u00e4")

    def test_a_line_that_looks_like_a_message_is_output(self):
        self.assertEqual(self.ok('fprintf(stderr, "cell of a battery\\n");').err, "cell of a battery\n")


class Errors(Kernel):
    def test_a_compile_error_names_the_line_of_the_cell(self):
        text = self.fails("int fine = 1;\n\nint bad(int x) {\n  return x + unknown;\n}", "compile error")
        self.assertRegex(text, r"^cell \d+, line 4: error: use of undeclared identifier 'unknown'\n"
                               r"      return x \+ unknown;\n {17}\^")
        self.assertEqual(self.ok("fine").out, "(int) 1\n")

    def test_an_unknown_name_in_a_statement_too(self):
        text = self.fails("int ok = 1;\nfor (int i = 0; i < 2; ++i) {\n  nowhere(i);\n}", "compile error")
        self.assertRegex(text, r"^cell \d+, line 3: error: use of undeclared identifier 'nowhere'")

    def test_a_column_counts_from_the_line(self):
        text = self.fails("int one = 1; int two = three;", "compile error")
        self.assertIn("    int one = 1; int two = three;\n" + " " * 27 + "^", text)

    def test_a_function_without_a_body_is_named(self):
        text = self.fails("int written_nowhere(int x);\nwritten_nowhere(1)", "compile error")
        self.assertRegex(text, r"written_nowhere")

    def test_what_ends_too_early(self):
        self.assertIn("ends inside a '{'", self.fails("int f() {", "compile error"))

    def test_an_exception_is_text_and_the_session_lives(self):
        text = self.fails("#include <stdexcept>\nint before = 3;\nthrow std::runtime_error(\"too hot\");\n"
                          "int after = 4;", "exception")
        self.assertEqual(text, "too hot\n(statement in line 3)")
        self.assertEqual(self.ok("before").out, "(int) 3\n")
        self.assertIn("no std::exception", self.fails("throw 5;", "exception"))
        self.alive()

    def test_a_warning_is_said_and_runs(self):
        answer = self.ok("int nothing(int x) { if (x > 0) return 1; }\nnothing(1)")
        self.assertIn("does not return a value", answer.err)
        self.assertEqual(answer.out, "(int) 1\n")


class Interrupt(Kernel):
    INCLUDES = "#include <cstdio>\n#include <cstdlib>\n#include <unistd.h>\n"

    def interrupted(self, code):
        """Runs `code`, a single statement, and interrupts it. The word READY in the code is replaced by a statement
        that prints the text at which the cell is interrupted."""
        ready = 'puts("ready"); fflush(stdout);'
        text = self.fails(self.INCLUDES + code.replace("READY", ready), "interrupted", interrupt_when="ready")
        self.assertRegex(text, r"^the cell was interrupted (in|below) line \d+( or below)?$")
        self.alive()
        return text

    def test_an_empty_loop(self):
        self.assertIn("in line 4 or below", self.interrupted("{ READY while (true) {} }"))

    def test_a_loop_that_calculates(self):
        self.interrupted("{ volatile double sum = 0; READY for (;;) sum = sum + 1; }")

    def test_a_loop_that_allocates(self):
        self.interrupted("{ volatile long n = 0; READY for (;;) { n = n + 1; free(malloc(100)); } }")

    def test_a_loop_that_sleeps(self):
        self.interrupted("{ READY for (;;) sleep(1); }")

    def test_a_loop_inside_of_a_function_of_the_library(self):
        self.ok("#include <convscope/notebook.h>")
        self.interrupted("convscope::time_ms([] { READY for (;;) {} });")
        # The library still works.
        self.assertEqual(self.ok("convscope::normal_tensor({2, 3}).str()").out,
                         '(std::string) "f32[2,3] cpu"\n')

    def test_between_two_statements(self):
        self.interrupted("{ READY }\nvolatile long many = 0;\n" + "many = many + 1;\n" * 400)

    def test_what_was_there_stays(self):
        self.ok("int kept = 11;")
        self.interrupted("{ READY while (true) {} }")
        self.assertEqual(self.ok("kept").out, "(int) 11\n")


class Crash(Kernel):
    def crashed(self, code, words):
        text = self.fails(code, "crash")
        self.assertIn(words, text)
        self.assertIn("restart the kernel when in doubt", text)
        self.alive()

    def test_a_wrong_pointer(self):
        self.crashed("*(volatile int*)16 = 3;", "segmentation fault")

    def test_calls_that_go_too_deep(self):
        self.crashed("int deep(int x) { volatile int y[100]; y[0] = x; return deep(x + 1) + y[0]; }\ndeep(1)",
                     "too deep")

    def test_division_by_zero(self):
        self.crashed("volatile int zero = 0; 5 / zero", "divided by 0")

    def test_abort(self):
        self.crashed("#include <cstdlib>\nabort();", "abort")


class Names(Kernel):
    def complete(self, code):
        return session.client.complete(code, len(code), reply=True, timeout=TIMEOUT_S)["content"]

    def inspect(self, code):
        return session.client.inspect(code, len(code), reply=True, timeout=TIMEOUT_S)["content"]

    def setUp(self):
        self.ok("#include <convscope/notebook.h>\n#include <vector>\nusing namespace convscope;\n"
                "Tensor my_tensor = normal_tensor({2, 3});\nstd::vector<int> my_numbers{1};\n"
                "int my_function(int x) { return x; }")

    def test_completion(self):
        self.assertEqual(self.complete("int y = my_func")["matches"], ["my_function"])
        self.assertEqual(self.complete("my_tensor.resh")["matches"], ["reshape"])
        self.assertEqual(self.complete("my_numbers.push")["matches"], ["push_back"])
        self.assertEqual(self.complete("Tensor::zer")["matches"], ["zero", "zeros"])
        self.assertIn("draw_window", self.complete("draw_w")["matches"])
        self.assertIn("Tensor", self.complete("convscope::Tens")["matches"])
        content = self.complete("foo(my_func")
        self.assertEqual((content["cursor_start"], content["cursor_end"]), (4, 11))
        self.assertEqual(self.complete("no_such_name_")["matches"], [])

    def test_inspection(self):
        text = self.inspect("draw_window")["data"]["text/plain"]
        self.assertIn("void convscope::draw_window(const convscope::Conv2dProblem& problem", text)
        self.assertIn("how many outputs of the tile read it", text)  # the comment of its header
        text = self.inspect("my_tensor.reshape")["data"]["text/plain"]
        self.assertIn("convscope::Tensor::reshape(", text)
        self.assertIn("Same elements, other shape", text)
        self.assertIn("int my_function(int x)", self.inspect("my_function")["data"]["text/plain"])
        self.assertFalse(self.inspect("no_such_name")["found"])

    def test_a_console_knows_when_a_cell_is_complete(self):
        for code, status in (("int f() {", "incomplete"), ("int f() { return 1; }", "complete")):
            request = session.client.is_complete(code)
            while True:
                reply = session.client.get_shell_msg(timeout=TIMEOUT_S)
                if reply["parent_header"].get("msg_id") == request:
                    break
            self.assertEqual(reply["content"]["status"], status)


class Display(Kernel):
    def setUp(self):
        self.ok("#include <convscope/notebook.h>\nusing namespace convscope;")

    def test_svg_html_and_png(self):
        answer = self.ok('#include "experiments/notebooks/png.h"\n'
                         'draw_window(Conv2dProblem::parse("h=5,w=5,r=3,s=3"));\n'
                         'show_table(normal_tensor({2, 2}));\n'
                         'show_png(to_png({.height = 1, .width = 2, .values = {0, 255}}));')
        svg, html, png = (data for _, data in answer.shown)
        self.assertTrue(svg["image/svg+xml"].startswith("<svg"))
        self.assertIn("<table>", html["text/html"])
        self.assertEqual(base64.b64decode(png["image/png"])[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual([data["text/plain"] for _, data in answer.shown],
                         ["[image/svg+xml]", "[text/html]", "[image/png]"])

    def test_what_is_shown_stands_where_it_was_shown(self):
        answer = self.ok('{ printf("before\\n"); show_html("<b>x</b>"); printf("behind\\n"); }')
        self.assertEqual([out for out, _ in answer.shown], ["before\n"])
        self.assertEqual(answer.out, "before\nbehind\n")

    def test_values_of_the_library_print_as_text(self):
        self.assertEqual(self.ok("Tensor printed = normal_tensor({2, 3});\nprinted").out,
                         "(convscope::Tensor &) f32[2,3] cpu\n")
        self.assertIn("[2,3]", self.ok("printed.shape()").out)
        self.assertIn("h=5,w=5", self.ok('Conv2dProblem::parse("h=5,w=5,r=3,s=3")').out)

    def test_errors_of_the_library_are_text(self):
        text = self.fails("normal_tensor({2, 2}).reshape({3, 3});", "exception")
        self.assertRegex(text, r"^\[reshape\] expected a shape of 4 elements")


class EmulatedGpu(Kernel):
    """Tests GPU kernels in the cells of a notebook. The emulation runs each GPU thread on a
    separate stack. An exception must nevertheless reach the cell's output."""

    def setUp(self):
        self.ok('#include <convscope/notebook.h>\nusing namespace convscope;\n'
                '#include "experiments/notebooks/emulated_gpu.h"\n'
                '__global__ void turned(int* y) {\n'
                '  __shared__ int near[64];\n'
                '  near[threadIdx.x] = threadIdx.x;\n'
                '  __syncthreads();\n'
                '  y[threadIdx.x] = near[63 - threadIdx.x];\n'
                '}\n'
                'int turned_64(int* y) { launch(turned, {.block = dim3(64)}, y); return y[0]; }\n'
                'int turned_y[64];')

    def runs(self):
        self.assertEqual(self.ok("turned_64(turned_y)").out, "(int) 63\n")

    def test_barriers_and_shared_memory(self):
        self.runs()
        self.runs()

    def test_who_waits_for_whom(self):
        text = self.fails("__global__ void leaves(int from) { if (threadIdx.x < from) __syncthreads(); }\n"
                          "launch(leaves, {.block = dim3(64)}, 48);", "exception")
        self.assertIn("[0 to 47] wait at __syncthreads; [48 to 63] have left the kernel", text)
        self.runs()

    def test_a_wrong_pointer(self):
        self.assertIn("segmentation fault", self.fails("turned_64(nullptr);", "crash"))
        self.runs()

    def test_what_a_kernel_throws(self):
        self.assertIn("five", self.fails(
            '__global__ void throws(int i) { __syncthreads(); if (threadIdx.x == i) throw std::runtime_error("five"); }\n'
            'launch(throws, {.block = dim3(64)}, 5);', "exception"))
        self.runs()

    def test_an_endless_kernel(self):
        self.fails('__global__ void endless(int) { __syncthreads(); puts("ready"); fflush(stdout); while (true) {} }\n'
                   'launch(endless, {.block = dim3(64)}, 0);', "interrupted", interrupt_when="ready")
        self.runs()


class ZRestart(Kernel):
    """Runs last, because it restarts the session of all others."""

    def test_restart_forgets_all_and_is_clean(self):
        self.ok("#include <convscope/notebook.h>\nint old_name = 3;")
        process = session.manager.provisioner.process
        session.client.stop_channels()
        session.manager.restart_kernel()
        self.assertIsNotNone(process.poll())
        self.assertIn(process.returncode, (0, -signal.SIGKILL, -signal.SIGTERM))
        session.connect()
        self.assertIn("undeclared identifier", self.fails("old_name", "compile error"))
        self.ok("#include <convscope/notebook.h>\nint old_name = 4;")


if __name__ == "__main__":
    unittest.main()
