# SPDX-License-Identifier: Apache-2.0
"""Tests that each mistake of a caller raises an exception of the usual Python class, with a
one-sentence message."""
import os
import subprocess
import sys
import unittest

import numpy as np

import convscope

X, W = np.ones((1, 3, 8, 8), np.float32), np.ones((4, 3, 3, 3), np.float32)


class Mistakes(unittest.TestCase):
    def refused(self, type_, sentence, *arguments, **options):
        with self.assertRaisesRegex(type_, sentence) as caught:
            convscope.conv2d(*arguments, **options)
        self.assertIsInstance(caught.exception, convscope.Error)
        self.assertTrue(str(caught.exception).startswith("[conv2d] ") or "device" in sentence)

    def test_shapes(self):
        self.refused(ValueError, "expected x with 3 channels because w is", X[:, :2], W)
        self.refused(ValueError, "expected x of rank 4", X[0], W)
        self.refused(ValueError, "at most 6 axes, got 7", np.ones((1,) * 7, np.float32), W)
        self.refused(ValueError, "kernel", X[:, :, :2, :2], W)
        self.refused(ValueError, r"expected b \[4\] because w has that many kernels, got \[3\]", X, W,
                     np.ones(3, np.float32))
        self.refused(ValueError, "groups", X, W, groups=0)
        self.refused(ValueError, "stride", X, W, stride=0)
        self.refused(ValueError, "padding", X, W, padding=-1)

    def test_types_of_elements(self):
        self.refused(ValueError, "one type on one device, got x f32.* and w f64", X, W.astype(float))
        self.refused(ValueError, "of type f32, f64, f16 or bf16, got int64", X.astype(int), W)
        self.refused(ValueError, "expected x of type f32", X.astype(np.int8), W.astype(np.int8))
        self.refused(ValueError, "complex", X.astype(complex), W)
        self.refused(ValueError, "bool", X > 0, W)
        self.refused(TypeError, "expected x as an array .* got elements of type >f4", X.astype(">f4"), W)
        self.refused(TypeError, "got elements of type object", X.astype(object), W)

    def test_what_is_no_array(self):
        self.refused(TypeError, "expected x as an array .* got an object of type list", X.tolist(), W)
        self.refused(TypeError, "expected w as an array .* got an object of type NoneType", X, None)
        self.refused(TypeError, "got an object of type str", "x.npy", W)
        self.refused(TypeError, "one with a mask", np.ma.array(X), W)

    def test_sizes_that_are_no_numbers(self):
        self.refused(TypeError, "expected stride as a whole number or 2 of them, got 1.5", X, W, stride=1.5)
        self.refused(TypeError, "expected padding as .* got 'same'", X, W, padding="same")
        self.refused(TypeError, r"expected dilation as .* got \(1, 2, 3\)", X, W, dilation=(1, 2, 3))
        self.refused(ValueError, "expected precision f32, tf32, bf16 or f16, got 'fp8'", X, W,
                     precision="fp8")

    def test_numbers_of_numpy_are_numbers(self):
        y = convscope.conv2d(X, W, stride=np.int64(2), padding=[np.int32(1), 0], groups=np.int64(1))
        self.assertEqual(y.shape, convscope.conv2d(X, W, stride=2, padding=(1, 0)).shape)
        self.refused(TypeError, "expected stride as a whole number", X, W, stride=True)
        self.assertIsInstance(convscope.conv2d(memoryview(X), W), np.ndarray)

    def test_algorithms(self):
        self.refused(RuntimeError, "winograd_f4x3.*", X, W, algorithm="winograd_f4x3", stride=2)
        self.refused(convscope.UnavailableError, "did you mean 'direct'", X, W, algorithm="dirrect")
        self.refused(convscope.UnavailableError, "no units for f16; convert them to float32",
                     X.astype(np.float16), W.astype(np.float16))
        self.refused(convscope.UnavailableError, "no units for tf32; leave precision out", X, W,
                     precision="tf32")

    def test_devices(self):
        self.refused(ValueError, "device", X, W, device="tpu")
        why = convscope.device_status("cuda")
        if why is not None:
            with self.assertRaisesRegex(convscope.UnavailableError, r"\[.*\]"):
                convscope.conv2d(X, W, device="cuda")

    def test_sizes_beyond_all_memory(self):
        huge = np.broadcast_to(np.float32(0), (1 << 20, 1, 1 << 12, 1 << 12))
        with self.assertRaisesRegex(MemoryError, r"\[memory\] out of memory"):
            convscope.conv2d(huge, np.ones((1, 1, 1, 1), np.float32))
        self.refused(ValueError, "expected a padding of 0 to 2147483647", X, W, padding=1 << 31)
        self.refused(TypeError, "expected padding as a whole number", X, W, padding=1 << 64)

    def test_explain_and_algorithms(self):
        with self.assertRaisesRegex(convscope.ConfigError, "did you mean 'quickstart'"):
            convscope.explain("quickstrat")
        with self.assertRaisesRegex(TypeError, "expected x and w"):
            convscope.explain(X)
        with self.assertRaises(ValueError):
            convscope.explain("n=1,q=2")
        with self.assertRaisesRegex(ValueError, "expected conv2d, conv_transpose2d, deform_conv2d or sparse_conv"):
            convscope.algorithms(operation="conv3d")

    def test_every_class_is_an_error_of_ours(self):
        for name in ("ArgumentError", "ConfigError", "DataError", "FileError", "InvalidError",
                     "OutOfMemoryError", "RunError", "UnavailableError"):
            self.assertTrue(issubclass(getattr(convscope, name), convscope.Error))
            self.assertEqual(str(getattr(convscope, name)("[a] b")), "[a] b")


class Processes(unittest.TestCase):
    def run_python(self, code, **environment):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_fork_computes_too(self):
        """A forked child has no copies of its parent's OpenMP threads. Without a special case in
        the library, the child would wait for them forever."""
        out = self.run_python(
            "import os, numpy as np, convscope\n"
            "x, w = np.ones((8, 16, 32, 32), 'f4'), np.ones((16, 16, 3, 3), 'f4')\n"
            "convscope.set_num_threads(2)\n"
            "want = convscope.conv2d(x, w, algorithm='direct')\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    os._exit(0 if (convscope.conv2d(x, w, algorithm='direct') == want).all() else 3)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n")
        self.assertEqual(out, "0\n")

    def test_the_environment_of_children_stays_as_it_was(self):
        code = "import os, convscope; print(os.environ.get('GOMP_SPINCOUNT'))"
        environment = {key: value for key, value in os.environ.items() if key not in
                       ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                              env=environment)
        self.assertEqual(done.stdout, "None\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
