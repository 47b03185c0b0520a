# SPDX-License-Identifier: Apache-2.0
"""Compares convscope.sparse_conv and its gradients with a dense convolution in NumPy, for every algorithm.
Also tests the order of rows, reused maps and mistakes of callers."""
import gc
import pathlib
import textwrap
import threading
import unittest

import numpy as np
import reference
import sparse_reference

import convscope


def drawn(shape, dtype=np.float32, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def sites_of(count, batch, *extent, seed=1):
    """Returns `count` sites in random order, including the last site of the grid."""
    shape = (batch, *extent)
    places = np.random.default_rng(seed).permutation(np.prod(shape) - 1)[:count - 1]
    places = np.insert(places, count // 2, np.prod(shape) - 1)
    return np.stack(np.unravel_index(places, shape), 1).astype(np.int32)


PLANE, VOLUME = sites_of(60, 2, 9, 11), sites_of(150, 2, 6, 7, 8)
CASES = [
    # sites, size of the kernel, arguments
    (PLANE, (3, 3), {"submanifold": True}),
    (PLANE, (5, 3), {"submanifold": True, "dilation": (1, 2)}),
    (PLANE, (3, 3), {"stride": 2, "padding": 1}),
    (PLANE, (2, 3), {"stride": (2, 1), "padding": (0, 1), "extent": (10, 15), "batch": 3}),
    (PLANE, (2, 2), {"stride": 2, "inverse": True}),
    (VOLUME, (3, 3, 3), {"submanifold": True}),
    (VOLUME, (3, 3, 3), {"stride": (1, 2, 2), "padding": (1, 1, 0), "dilation": (2, 1, 1)}),
    (VOLUME, (2, 2, 2), {"stride": 2, "inverse": True, "extent": 8}),
    (VOLUME, (1, 1, 1), {"submanifold": True}),
]


def map_of(sites, size, sizes):
    words = {key: value for key, value in sizes.items() if key != "inverse"}
    made = convscope.SparseMap(sites, size, **words)
    return made.inverse() if sizes.get("inverse") else made


def problem(sites, size, sizes, dtype=np.float32):
    made = map_of(sites, size, sizes)
    x = drawn((len(made.in_sites), 5), dtype)
    return made, x, drawn((6, 5, *size), dtype), drawn((6,), dtype), drawn((len(made.out_sites), 6), dtype)


class SparseConv(unittest.TestCase):
    def test_every_algorithm_agrees_with_a_dense_convolution(self):
        ran = 0
        for sites, size, sizes in CASES:
            made, x, w, b, dy = problem(sites, size, sizes)
            want, out_sites = sparse_reference.sparse_conv(x, sites, w, b, **sizes)
            gradients = sparse_reference.sparse_conv(x, sites, w, b, dy, **sizes)
            np.testing.assert_array_equal(made.out_sites, out_sites)
            for one in convscope.algorithms(made, w, device="cpu"):
                for direction in one.directions:
                    if direction in one.refusals:
                        continue
                    ran += 1
                    with self.subTest(one.name, direction=direction, size=size, **sizes):
                        if direction == "forward":
                            y = convscope.sparse_conv(x, made, w, b, algorithm=one.name)
                            self.assertEqual((type(y), y.dtype), (np.ndarray, np.float32))
                            self.assertLess(reference.relative(y, want), 2e-6)
                            continue
                        name, expected = {"backward_data": ("dx", gradients[0]),
                                          "backward_weight": ("dw", gradients[1])}[direction]
                        got = convscope.sparse_conv_backward(dy, x, made, w, algorithm=one.name,
                                                             needs=[name])
                        self.assertLess(reference.relative(getattr(got, name), expected), 4e-6)
        self.assertGreaterEqual(ran, 3 * 3 * len(CASES))

    def test_sites_in_the_place_of_a_map_give_the_same_bits(self):
        for sites, size, sizes in CASES:
            made, x, w, b, dy = problem(sites, size, sizes)
            want = convscope.sparse_conv(x, made, w, b)
            got = convscope.sparse_conv(x, sites, w, b, **sizes)
            if not sizes.get("submanifold") and not sizes.get("inverse"):
                self.assertIsInstance(got, convscope.SparseOutput)
                np.testing.assert_array_equal(got.out_sites, made.out_sites)
                self.assertEqual(got.out_sites.dtype, np.int32)
                got = got.y
            np.testing.assert_array_equal(got, want)
            for one, other in zip(convscope.sparse_conv_backward(dy, x, sites, w, **sizes),
                                  convscope.sparse_conv_backward(dy, x, made, w)):
                np.testing.assert_array_equal(one, other)

    def test_rows_stand_in_the_order_of_their_sites(self):
        made, x, w, b, dy = problem(VOLUME, (3, 3, 3), {"submanifold": True})
        order = np.lexsort(VOLUME.T[::-1])
        self.assertFalse((order == np.arange(len(order))).all())
        by_place = convscope.SparseMap(VOLUME[order], 3, submanifold=True)
        np.testing.assert_array_equal(convscope.sparse_conv(x, made, w, b)[order],
                                      convscope.sparse_conv(x[order], by_place, w, b))
        got = convscope.sparse_conv_backward(dy, x, made, w)
        want = convscope.sparse_conv_backward(dy[order], x[order], by_place, w)
        np.testing.assert_array_equal(got.dx[order], want.dx)
        np.testing.assert_array_equal(got.dw, want.dw)
        np.testing.assert_array_equal(made.in_sites, VOLUME)

    def test_float64_is_computed_in_double(self):
        for sites, size, sizes in CASES:
            made, x, w, b, dy = problem(sites, size, sizes, float)
            y = convscope.sparse_conv(x, made, w, b)
            self.assertEqual(y.dtype, np.float64)
            want = sparse_reference.sparse_conv(x, sites, w, b, **sizes)[0]
            self.assertLess(reference.relative(y, want), 1e-14)
            for one, other in zip(convscope.sparse_conv_backward(dy, x, made, w),
                                  sparse_reference.sparse_conv(x, sites, w, b, dy, **sizes)):
                self.assertLess(reference.relative(one, other), 1e-14)

    def test_gradients_that_nobody_asks_for_are_none(self):
        made, x, w, _, dy = problem(PLANE, (3, 3), {"submanifold": True})
        got = convscope.sparse_conv_backward(dy, x, made, w, needs=("db",))
        self.assertEqual((got.dx, got.dw), (None, None))
        self.assertLess(reference.relative(got.db, dy.sum(0, dtype=float)), 1e-6)
        with self.assertRaisesRegex(ValueError, "expected needs with some of dx, dw, db, got 'dq'"):
            convscope.sparse_conv_backward(dy, x, made, w, needs=["dq"])

    def test_arrays_of_other_layouts_give_the_same_bits(self):
        made, x, w, _, _ = problem(PLANE, (3, 3), {"submanifold": True})
        want = convscope.sparse_conv(x, PLANE, w, submanifold=True)
        got = convscope.sparse_conv(np.asfortranarray(x), np.asfortranarray(PLANE), np.asfortranarray(w),
                                    submanifold=True)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(convscope.sparse_conv(memoryview(x), made, w), want)

    def test_no_sites_are_legal(self):
        none, w = np.zeros((0, 4), np.int32), drawn((6, 5, 3, 3, 3))
        x = np.zeros((0, 5), np.float32)
        for sizes in ({"submanifold": True}, {"padding": 1}, {"padding": 1, "inverse": True}):
            y = convscope.sparse_conv(x, none, w, **sizes)
            y = getattr(y, "y", y)
            self.assertEqual(y.shape, (0, 6))
            got = convscope.sparse_conv_backward(y, x, none, w, **sizes)
            self.assertEqual([one.shape for one in got], [(0, 5), w.shape, (6,)])
            self.assertEqual((np.abs(got.dw).max(), np.abs(got.db).max()), (0, 0))
        # With stride 2 no window contains this site, so there are no outputs and dx is 0.
        lonely = np.array([[0, 1, 1, 1]], np.int32)
        y, where = convscope.sparse_conv(drawn((1, 5)), lonely, w[:, :, :1, :1, :1], stride=2)
        self.assertEqual((y.shape, where.shape), ((0, 6), (0, 4)))
        got = convscope.sparse_conv_backward(y, drawn((1, 5)), lonely, w[:, :, :1, :1, :1], stride=2)
        self.assertEqual(np.abs(got.dx).max(), 0)

    def test_check_compares_two_algorithms(self):
        convscope.forget_check_results()
        made, x, w, _, _ = problem(VOLUME, (3, 3, 3), {"submanifold": True})
        convscope.sparse_conv(x, made, w, algorithm="check:native,implicit_gemm")
        lines = convscope.check_results()
        self.assertEqual(len(lines), 1)
        self.assertIn("native against implicit_gemm", lines[0])

    def test_threads_share_a_map(self):
        made, x, w, _, dy = problem(VOLUME, (3, 3, 3), {"submanifold": True})
        fresh = convscope.SparseMap(VOLUME, 3, submanifold=True)
        want, gradients = convscope.sparse_conv(x, made, w), convscope.sparse_conv_backward(dy, x, made, w)
        wrong = []

        def work():
            for _ in range(20):
                got = convscope.sparse_conv_backward(dy, x, fresh, w)
                if not (np.array_equal(convscope.sparse_conv(x, fresh, w), want)
                        and np.array_equal(got.dx, gradients.dx) and np.array_equal(got.dw, gradients.dw)):
                    wrong.append(1)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class SparseMap(unittest.TestCase):
    def test_what_it_says(self):
        made = convscope.SparseMap(PLANE, (3, 3), 2, 1)
        self.assertEqual((made.kind, made.kernel_size), ("strided", (3, 3)))
        self.assertEqual((made.in_extent, made.out_extent), ((9, 11), (5, 6)))
        self.assertIn(f"strided,kernel=3x3,stride=2x2,pad=1x1,grid=2x9x11: 60 sites to "
                      f"{len(made.out_sites)}", repr(made))
        ones = np.ones((60, 1), np.float32)
        y = convscope.sparse_conv(ones, made, np.ones((1, 1, 3, 3), np.float32))
        self.assertEqual(made.pairs, y.sum())
        back = made.inverse()
        self.assertEqual((back.kind, back.pairs), ("inverse", made.pairs))
        np.testing.assert_array_equal(back.out_sites, PLANE)

    def test_maps_follow_each_other_through_a_network(self):
        """Applies strided, submanifold and inverse maps in sequence. The grid of each map follows
        from the previous map."""
        down = convscope.SparseMap(VOLUME, 2, 2, extent=(8, 8, 8), batch=3)
        same = convscope.SparseMap(down, 3, submanifold=True)
        deeper = convscope.SparseMap(same, 2, 2)
        self.assertEqual((down.out_extent, same.in_extent, deeper.out_extent),
                         ((4, 4, 4), (4, 4, 4), (2, 2, 2)))
        x, steps = drawn((150, 4)), [down, same, deeper, deeper.inverse(), down.inverse()]
        sizes = [{"stride": 2, "extent": 8, "batch": 3}, {"submanifold": True, "extent": 4, "batch": 3},
                 {"stride": 2, "extent": 4, "batch": 3}]
        w = [drawn((4, 4, *step.kernel_size), seed=i) for i, step in enumerate(steps)]
        y = want = x
        sites = VOLUME
        for i in range(3):
            y = convscope.sparse_conv(y, steps[i], w[i])
            want, sites = sparse_reference.sparse_conv(want, sites, w[i], **sizes[i])
            np.testing.assert_array_equal(steps[i].out_sites, sites)
        want = sparse_reference.sparse_conv(want, same.out_sites, w[3], inverse=True, **sizes[2])[0]
        want = sparse_reference.sparse_conv(want, VOLUME, w[4], inverse=True, **sizes[0])[0]
        for i in range(3, 5):
            y = convscope.sparse_conv(y, steps[i], w[i])
        self.assertLess(reference.relative(y, want), 4e-6)

    def test_it_lives_while_somebody_needs_it(self):
        made = convscope.SparseMap(PLANE.copy(), 2, 2)
        back = made.inverse()
        want = made.in_sites
        del made
        gc.collect()
        np.testing.assert_array_equal(back.out_sites, want)

    def test_algorithms_and_explain(self):
        made = convscope.SparseMap(PLANE, 3, submanifold=True)
        found = convscope.algorithms(made, (32, 16, 3, 3), device="cpu")
        self.assertEqual(found.names(), convscope.algorithms(operation="sparse_conv", device="cpu").names())
        self.assertTrue(any(one.estimated_ms for one in found))
        text = convscope.explain(made, drawn((32, 16, 3, 3)))
        self.assertIn("sparse_conv  submanifold,kernel=3x3", text)
        self.assertIn("c=16,k=32", text)
        self.assertIn("dtype=f64", convscope.explain(made, drawn((32, 16, 3, 3), float)))
        with self.assertRaisesRegex(TypeError, "expected w with a map"):
            convscope.explain(made)
        with self.assertRaisesRegex(TypeError, "expected no stride, padding"):
            convscope.explain(made, (32, 16, 3, 3), stride=2)


class Readme(unittest.TestCase):
    def test_its_lines_run(self):
        readme = pathlib.Path(__file__).resolve().parents[3] / "experiments/python/README.md"
        text = readme.read_text(encoding="utf-8").split("## Sparse convolutions")[1].split("\n## ")[0]
        code = textwrap.dedent("".join(line for line in text.splitlines(keepends=True)
                                       if line.startswith("    ") or not line.strip()))
        volumes = drawn((2, 3, 6, 7, 8)) * (drawn((2, 1, 6, 7, 8), seed=1) > 1)
        names = {"np": np, "convscope": convscope, "volumes": volumes, "w": drawn((3, 3, 3, 3, 3)),
                 "w1": drawn((4, 3, 3, 3, 3)), "w2": drawn((8, 4, 2, 2, 2)), "w3": drawn((4, 8, 2, 2, 2))}
        names["dy"] = drawn((int(volumes.any(1).sum()), 4))
        exec(code, names)
        self.assertEqual(names["y"].shape, (len(names["sites"]), 4))
        self.assertEqual(names["dw"].shape, names["w1"].shape)
        dense = np.zeros((2, 4, 6, 7, 8), np.float32)
        at = names["sites"].T
        dense[at[0], :, at[1], at[2], at[3]] = names["dy"]
        self.assertLess(reference.relative(names["db"], dense.sum((0, 2, 3, 4), dtype=float)), 1e-6)


class Mistakes(unittest.TestCase):
    x, w = np.ones((60, 5), np.float32), np.ones((6, 5, 3, 3), np.float32)

    def refused(self, type_, sentence, *arguments, **options):
        with self.assertRaisesRegex(type_, sentence) as caught:
            convscope.sparse_conv(*arguments, **options)
        self.assertIsInstance(caught.exception, convscope.Error)

    def test_sites(self):
        x, w = self.x, self.w
        self.refused(ValueError, r"\[sparse_conv\] expected sites of type i32, got int64; convert it, e.g. to "
                     "int32", x, PLANE.astype(np.int64), w)
        self.refused(ValueError, r"\[sites\] expected coordinates .* of type i32, got f32", x,
                     PLANE.astype(np.float32), w)
        self.refused(ValueError, r"\[sites\] expected coordinates \[n,3\]", x, PLANE[:, :2].copy(), w)
        self.refused(TypeError, "expected sites as an array .* got an object of type list", x,
                     PLANE.tolist(), w)
        self.refused(TypeError, "expected sites as an array .* got an object of type NoneType", x, None, w)
        self.refused(TypeError, "expected w as an array .* got an object of type list", x, PLANE, w.tolist())
        twice = PLANE.copy()
        twice[7] = twice[3]
        self.refused(ValueError, r"\[sites\] expected each place once, got .* row 3 and again in row 7", x,
                     twice, w)
        below = PLANE.copy()
        below[5, 1] = -1
        self.refused(ValueError, "expected h from 0 to 8 in the grid .*, got -1 in row 5", x, below, w)
        self.refused(ValueError, "expected w from 0 to 3 in the grid 2x9x4", x, PLANE, w, extent=(9, 4))
        self.refused(ValueError, "expected a batch index from 0 to 0", x, PLANE, w, batch=1)
        self.refused(TypeError, "expected extent as a whole number or 2 of them", x, PLANE, w,
                     extent=(9, 9, 9))
        self.refused(TypeError, "expected batch as a whole number, got 'all'", x, PLANE, w, batch="all")

    def test_shapes(self):
        x, w = self.x, self.w
        self.refused(ValueError, r"\[sparse_conv\] expected x \[60,C\], a row for each input site", x[:7],
                     PLANE, w)
        self.refused(ValueError, r"expected w \[K,5,R,S\] because x is \[60,5\]", x, PLANE, w[:, :3])
        self.refused(ValueError, r"expected w \[K,C,R,S\] because the sites have 2 axes, got w \[6,5,3,3,1\]",
                     x, PLANE, w[..., None])
        self.refused(ValueError, r"expected b \[6\] because w has that many kernels", x, PLANE, w, x[0])
        self.refused(ValueError, "one type on one device", x, PLANE, w.astype(float))
        self.refused(ValueError, "expected x of type f32", x.astype(np.int32), PLANE, w.astype(np.int32))
        made = convscope.SparseMap(PLANE, 3, submanifold=True)
        self.refused(ValueError, r"expected w \[6,5,3,3\] because the map is submanifold", x, made,
                     w[:, :, :1])
        with self.assertRaisesRegex(ValueError, r"expected dy \[60,6\] because that is y, got \[60,5\]"):
            convscope.sparse_conv_backward(x, x, made, w)

    def test_kernels(self):
        x, w = self.x, self.w
        self.refused(ValueError, "expected submanifold or inverse, got both", x, PLANE, w, submanifold=True,
                     inverse=True)
        self.refused(ValueError, "expected no padding with submanifold .* got padding 1", x, PLANE, w,
                     padding=1, submanifold=True)
        self.refused(ValueError, "expected odd sizes and stride 1", x, PLANE, w, stride=2, submanifold=True)
        self.refused(ValueError, "expected strides and dilations of at least 1", x, PLANE, w, stride=0)
        self.refused(ValueError, "expected a kernel that fits", x, PLANE, w, dilation=9)
        self.refused(TypeError, "expected stride as a whole number or 2 of them, got 1.5", x, PLANE, w,
                     stride=1.5)
        made = convscope.SparseMap(PLANE, 3, submanifold=True)
        for words in ({"stride": 2}, {"padding": 0}, {"dilation": (1, 1)}, {"submanifold": True},
                      {"inverse": True}, {"extent": 9}, {"batch": 2}):
            self.refused(ValueError, "together with a map, which has them: submanifold,kernel=3x3", x, made, w,
                         **words)
        with self.assertRaisesRegex(ValueError, "expected a strided map to invert"):
            made.inverse()
        with self.assertRaisesRegex(ValueError, "expected no extent and no batch"):
            convscope.SparseMap(made, 3, extent=9)
        with self.assertRaisesRegex(TypeError, "expected kernel_size as a whole number or 2 of them"):
            convscope.SparseMap(PLANE, (3, 3, 3))
        with self.assertRaisesRegex(ValueError, "expected kernel sizes from 1 to 7"):
            convscope.SparseMap(PLANE, 9)

    def test_algorithms_and_devices(self):
        x, w = self.x, self.w
        self.refused(convscope.UnavailableError, "did you mean 'native'", x, PLANE, w, algorithm="nativ")
        self.refused(convscope.UnavailableError, "no units for f16", x.astype(np.float16), PLANE,
                     w.astype(np.float16))
        self.refused(convscope.UnavailableError, "no units for tf32", x, PLANE, w, precision="tf32")
        self.refused(ValueError, "device", x, PLANE, w, device="tpu")
        if convscope.device_status("cuda") is not None:
            self.refused(convscope.UnavailableError, r"\[.*\]", x, PLANE, w, device="cuda")


if __name__ == "__main__":
    unittest.main()
