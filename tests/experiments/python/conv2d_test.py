# SPDX-License-Identifier: Apache-2.0
"""Compares convscope.conv2d and its gradients with NumPy, for every algorithm and for arrays with any
strides."""
import threading
import time
import unittest

import numpy as np
import reference

import convscope

CASES = [
    # x, w, arguments
    ((2, 3, 9, 8), (4, 3, 3, 3), {}),
    ((2, 3, 9, 8), (4, 3, 3, 3), {"padding": 1}),
    ((1, 4, 11, 7), (6, 2, 3, 2), {"stride": (2, 1), "padding": (1, 0), "groups": 2}),
    ((2, 2, 10, 10), (2, 1, 3, 3), {"padding": (0, 1, 2, 0), "dilation": 2, "groups": 2}),
    ((3, 8, 5, 5), (16, 8, 1, 1), {"stride": 1}),
]


def drawn(shape, dtype=np.float32, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


class Conv2d(unittest.TestCase):
    def test_every_algorithm_agrees_with_numpy(self):
        ran = 0
        for x_shape, w_shape, sizes in CASES:
            x, w, b = drawn(x_shape), drawn(w_shape), drawn(w_shape[:1])
            want = reference.conv2d(x, w, b, **sizes)
            dy = drawn(want.shape)
            gradients = reference.conv2d_backward(dy, x, w, **sizes)
            for one in convscope.algorithms(x, w, device="cpu", **sizes):
                for direction in one.directions:
                    if direction in one.refusals:
                        continue
                    ran += 1
                    # Winograd's larger tiles round more (framework/docs/explanation/numerics.md).
                    limit = 2e-5 if one.name.startswith("winograd") else 4e-6
                    with self.subTest(one.name, direction=direction, x=x_shape, **sizes):
                        if direction == "forward":
                            y = convscope.conv2d(x, w, b, algorithm=one.name, **sizes)
                            self.assertEqual((type(y), y.dtype), (np.ndarray, np.float32))
                            self.assertLess(reference.relative(y, want), limit)
                            continue
                        name, expected = {"backward_data": ("dx", gradients[0]),
                                          "backward_weight": ("dw", gradients[1])}[direction]
                        got = convscope.conv2d_backward(dy, x, w, algorithm=one.name, needs=[name],
                                                        **sizes)
                        self.assertLess(reference.relative(getattr(got, name), expected), limit)
        self.assertGreater(ran, 60)

    def test_float64_is_computed_in_double(self):
        x, w, b = drawn((2, 3, 6, 6), float), drawn((4, 3, 3, 3), float), drawn((4,), float)
        y = convscope.conv2d(x, w, b, padding=1)
        self.assertEqual(y.dtype, np.float64)
        self.assertLess(reference.relative(y, reference.conv2d(x, w, b, padding=1)), 1e-14)
        got = convscope.conv2d_backward(y, x, w, padding=1)
        for one, want in zip(got, reference.conv2d_backward(y, x, w, padding=1)):
            self.assertLess(reference.relative(one, want), 1e-14)

    def test_gradients_that_nobody_asks_for_are_none(self):
        x, w = drawn((1, 2, 5, 5)), drawn((3, 2, 3, 3))
        got = convscope.conv2d_backward(drawn((1, 3, 3, 3)), x, w, needs=("db",))
        self.assertIsNone(got.dx)
        self.assertIsNone(got.dw)
        self.assertEqual(got.db.shape, (3,))
        with self.assertRaisesRegex(ValueError, "expected needs with some of dx, dw, db, got 'dq'"):
            convscope.conv2d_backward(drawn((1, 3, 3, 3)), x, w, needs=["dq"])

    def test_contiguous_arrays_are_read_where_they_lie(self):
        x = drawn((2, 3, 6, 8))
        self.assertIsNone(convscope.copy_reason(x))
        self.assertIsNone(convscope.copy_reason(x[1:]))
        self.assertIn("row-major", convscope.copy_reason(x[:, :, ::2]))
        self.assertIn("row-major", convscope.copy_reason(x.transpose(0, 1, 3, 2)))
        raw = np.zeros(4 * 12 + 1, np.uint8)[1:].view(np.float32)
        self.assertIn("aligned", convscope.copy_reason(raw))

    def test_other_layouts_give_the_same_bits(self):
        x, w = drawn((2, 3, 9, 8)), drawn((4, 3, 3, 3))
        want = convscope.conv2d(x, w, algorithm="direct")
        wide = np.zeros((2, 3, 9, 16), np.float32)
        wide[:, :, :, ::2] = x
        unaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
        unaligned[:] = x
        read_only = x.copy()
        read_only.flags.writeable = False
        for name, other in {"fortran": np.asfortranarray(x), "every second": wide[:, :, :, ::2],
                            "reversed": x[:, :, ::-1].copy()[:, :, ::-1], "unaligned": unaligned,
                            "read-only": read_only}.items():
            with self.subTest(name):
                np.testing.assert_array_equal(convscope.conv2d(other, w, algorithm="direct"), want)
        np.testing.assert_array_equal(convscope.conv2d(x, np.asfortranarray(w), algorithm="direct"),
                                      want)
        ones = np.broadcast_to(np.float32(1), x.shape)
        np.testing.assert_array_equal(convscope.conv2d(ones, w, algorithm="direct"),
                                      convscope.conv2d(np.ones_like(x), w, algorithm="direct"))

    def test_other_libraries_hand_over_by_dlpack(self):
        class Foreign:
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()
        x, w = drawn((2, 3, 9, 8)), drawn((4, 3, 3, 3))
        y = convscope.conv2d(Foreign(x), Foreign(w), algorithm="direct")
        np.testing.assert_array_equal(np.from_dlpack(y), convscope.conv2d(x, w, algorithm="direct"))

    def test_answers_outlive_what_they_were_computed_from(self):
        def answer():
            return convscope.conv2d(drawn((4, 3, 16, 16)), drawn((8, 3, 3, 3)), algorithm="direct")
        kept = answer()
        copy = kept.copy()
        for _ in range(20):
            answer()
        np.testing.assert_array_equal(kept, copy)
        kept[:] = 0  # it belongs to the caller
        np.testing.assert_array_equal(answer(), copy)

    def test_empty_batches_are_computed(self):
        y = convscope.conv2d(np.zeros((0, 3, 8, 8), np.float32), drawn((4, 3, 3, 3)))
        self.assertEqual(y.shape, (0, 4, 6, 6))
        got = convscope.conv2d_backward(y, np.zeros((0, 3, 8, 8), np.float32), drawn((4, 3, 3, 3)))
        self.assertEqual([one.shape for one in got], [(0, 3, 8, 8), (4, 3, 3, 3), (4,)])
        self.assertEqual(np.abs(got.dw).max(), 0)

    def test_check_compares_two_algorithms(self):
        convscope.forget_check_results()
        x, w = drawn((2, 8, 9, 8)), drawn((8, 8, 3, 3))
        convscope.conv2d(x, w, algorithm="check:winograd_f4x3,direct")
        lines = convscope.check_results()
        self.assertEqual(len(lines), 1)
        self.assertIn("winograd_f4x3 against direct", lines[0])

    def test_the_interpreter_goes_on_during_the_work(self):
        x, w = drawn((4, 32, 48, 48)), drawn((32, 32, 3, 3))
        ticks, done = 0, threading.Event()

        def work():
            try:
                for _ in range(3):
                    convscope.conv2d(x, w, padding=1, algorithm="reference")
            finally:
                done.set()
        thread = threading.Thread(target=work)
        thread.start()
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)
        thread.join()
        self.assertGreater(ticks, 20)

    def test_threads_do_not_disturb_each_other(self):
        problems = [(drawn((2, 4 + i, 12, 12)), drawn((8, 4 + i, 3, 3))) for i in range(4)]
        wants = [convscope.conv2d(x, w, padding=1) for x, w in problems]
        wrong = []

        def work(i):
            for _ in range(40):
                if not np.array_equal(convscope.conv2d(*problems[i], padding=1), wants[i]):
                    wrong.append(i)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class ConvTranspose2d(unittest.TestCase):
    CASES = [
        # x, w, arguments
        ((2, 3, 5, 4), (3, 4, 2, 2), {"stride": 2}),
        ((2, 3, 6, 5), (3, 4, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
        ((1, 4, 5, 6), (4, 3, 3, 2), {"stride": (3, 2), "padding": (1, 0), "dilation": (1, 2), "groups": 2,
                                      "output_padding": (2, 1)}),
        ((2, 8, 5, 5), (8, 16, 3, 3), {"padding": (0, 1, 2, 0)}),
    ]

    def test_every_algorithm_agrees_with_numpy(self):
        ran = 0
        for x_shape, w_shape, sizes in self.CASES:
            x, w, b = drawn(x_shape), drawn(w_shape), drawn((w_shape[1] * sizes.get("groups", 1),))
            want = {"y": reference.conv_transpose2d(x, w, b, **sizes)}
            dy = drawn(want["y"].shape)
            want.update(zip(("dx", "dw", "db"), reference.conv_transpose2d_backward(dy, x, w, **sizes)))
            listed = convscope.algorithms(x, w, operation="conv_transpose2d", device="cpu", **sizes)
            for one in listed:
                for direction in set(one.directions) - set(one.refusals):
                    ran += 1
                    limit = 2e-5 if one.name.startswith("winograd") else 4e-6
                    with self.subTest(one.name, direction=direction, x=x_shape, **sizes):
                        if direction == "forward":
                            y = convscope.conv_transpose2d(x, w, b, algorithm=one.name, **sizes)
                            self.assertLess(reference.relative(y, want["y"]), limit)
                            continue
                        name = {"backward_data": "dx", "backward_weight": "dw"}[direction]
                        got = convscope.conv_transpose2d_backward(
                            dy, x, w, algorithm=one.name, needs=[name, "db"], **sizes)
                        for result in (name, "db"):
                            self.assertLess(reference.relative(getattr(got, result), want[result]), limit)
        self.assertGreater(ran, 40)

    def test_sizes_that_do_not_fit_are_named(self):
        x, w = drawn((1, 2, 5, 5)), drawn((2, 3, 3, 3))
        for sentence, arguments, more in (
                (r"expected x \[N,C,H,W\] and w \[C,K/G,R,S\]", (x, w[:1]), {}),
                (r"expected b \[3\] because y has that many channels", (x, w, drawn((2,))), {}),
                ("expected an output_padding below the stride", (x, w), {"output_padding": 1})):
            with self.assertRaisesRegex(ValueError, r"\[conv_transpose2d\] " + sentence):
                convscope.conv_transpose2d(*arguments, **more)
        with self.assertRaisesRegex(ValueError, r"expected dy \[1,3,7,7\] because that is y"):
            convscope.conv_transpose2d_backward(x, x, w)
        with self.assertRaisesRegex(TypeError, "expected output_padding as a whole number"):
            convscope.conv_transpose2d(x, w, stride=2, output_padding="same")
        with self.assertRaisesRegex(ValueError, "expected output_padding only with operation="):
            convscope.explain(x, drawn((3, 2, 3, 3)), output_padding=1)


class DeformConv2d(unittest.TestCase):
    def test_without_offsets_it_is_a_convolution(self):
        x, w, b = drawn((2, 4, 7, 8)), drawn((6, 2, 3, 3)), drawn((6,))
        sizes = {"padding": 1, "groups": 2}
        want = reference.conv2d(x, w, b, **sizes)
        offset = np.zeros((2, 18, 7, 8), np.float32)
        y = convscope.deform_conv2d(x, offset, w, None, b, **sizes)
        self.assertLess(reference.relative(y, want), 2e-6)
        half = np.full((2, 9, 7, 8), 0.5, np.float32)
        y = convscope.deform_conv2d(x, offset, w, half, b, **sizes)
        self.assertLess(reference.relative(2 * y - b[None, :, None, None], want), 4e-6)

    def test_gradients_are_those_of_differences(self):
        x, w = drawn((1, 2, 5, 5), float), drawn((2, 2, 3, 3), float)
        offset, mask = 0.3 * drawn((1, 18, 5, 5), float), drawn((1, 9, 5, 5), float)
        dy = drawn((1, 2, 5, 5), float)
        arrays = {"x": x, "offset": offset, "w": w, "mask": mask}

        def loss(**changed):
            return (dy * convscope.deform_conv2d(**{**arrays, **changed}, padding=1)).sum()
        got = convscope.deform_conv2d_backward(dy, x, offset, w, mask, padding=1)
        for name, array in arrays.items():
            step = drawn(array.shape, float, seed=7)
            h = 1e-6
            difference = (loss(**{name: array + h * step}) - loss(**{name: array - h * step})) / (2 * h)
            self.assertAlmostEqual(float((getattr(got, "d" + name) * step).sum()), difference,
                                   delta=1e-5 * abs(difference) + 1e-6, msg=name)
        np.testing.assert_allclose(got.db, dy.sum((0, 2, 3)))

    def test_sizes_that_do_not_fit_are_named(self):
        x, w = drawn((1, 2, 5, 5)), drawn((2, 2, 3, 3))
        with self.assertRaisesRegex(ValueError, r"\[deform_conv2d\] expected offset \[1,18,3,3\] because"):
            convscope.deform_conv2d(x, drawn((1, 9, 3, 3)), w)


if __name__ == "__main__":
    unittest.main()
