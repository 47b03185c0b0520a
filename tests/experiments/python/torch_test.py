# SPDX-License-Identifier: Apache-2.0
"""Tests PyTorch tensors as arguments, and the functions that PyTorch differentiates, on the CPU and on a
GPU if there is one."""
import importlib.util
import unittest

import convscope

try:
    import torch
except ImportError:
    torch = None

# Once, not for each test, because PyTorch asks the driver.
CUDA = torch is not None and torch.cuda.is_available() and convscope.device_status("cuda") is None
CASES = [({"padding": 1}, (2, 4, 9, 8), (6, 4, 3, 3)),
         ({"stride": (2, 1), "padding": (1, 0), "groups": 2}, (2, 4, 9, 8), (6, 2, 3, 2)),
         ({"dilation": 2}, (1, 3, 12, 12), (5, 3, 3, 3))]


def drawn(*shape, device="cpu", dtype=None, grad=False):
    generator = torch.Generator().manual_seed(sum(shape))
    tensor = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return tensor.to(device=device, dtype=dtype or torch.float32).requires_grad_(grad)


def relative(got, want):
    got, want = got.detach().double(), want.detach().double()
    return float((got - want).abs().max() / want.abs().max())


@unittest.skipIf(torch is None, "PyTorch is not installed")
class OnTheCpu(unittest.TestCase):
    device, tolerance = "cpu", 5e-6

    def test_gradients_are_those_of_pytorch(self):
        from convscope.torch import conv2d
        for sizes, x_shape, w_shape in CASES:
            mine = [drawn(*shape, device=self.device, grad=True) for shape in (x_shape, w_shape,
                                                                             w_shape[:1])]
            theirs = [one.detach().double().requires_grad_() for one in mine]
            y = conv2d(*mine, **sizes)
            want = torch.nn.functional.conv2d(*theirs, **sizes)
            self.assertEqual((y.device, y.dtype), (mine[0].device, torch.float32))
            self.assertLess(relative(y, want), self.tolerance)
            dy = drawn(*y.shape, device=self.device)
            y.backward(dy)
            want.backward(dy.double())
            for one, other in zip(mine, theirs):
                self.assertLess(relative(one.grad, other.grad), self.tolerance, msg=str(sizes))

    def test_transposed_gradients_are_those_of_pytorch(self):
        from convscope.torch import conv_transpose2d
        for sizes, x_shape, w_shape in (
                ({"stride": 2, "padding": 1, "output_padding": 1}, (2, 4, 9, 8), (4, 6, 3, 3)),
                ({"stride": (3, 2), "dilation": (1, 2), "groups": 2}, (2, 4, 5, 6), (4, 3, 3, 2))):
            b_shape = (w_shape[1] * sizes.get("groups", 1),)
            mine = [drawn(*shape, device=self.device, grad=True) for shape in (x_shape, w_shape, b_shape)]
            theirs = [one.detach().double().requires_grad_() for one in mine]
            y = conv_transpose2d(*mine, **sizes)
            want = torch.nn.functional.conv_transpose2d(*theirs, **sizes)
            self.assertEqual(y.shape, want.shape)
            dy = drawn(*y.shape, device=self.device)
            y.backward(dy)
            want.backward(dy.double())
            for one, other in zip([y, *(one.grad for one in mine)], [want, *(one.grad for one in theirs)]):
                self.assertLess(relative(one, other), self.tolerance, msg=str(sizes))

    def test_only_wanted_gradients_are_computed(self):
        from convscope.torch import conv2d
        x, w = drawn(1, 2, 5, 5, device=self.device), drawn(3, 2, 3, 3, device=self.device, grad=True)
        conv2d(x, w).sum().backward()
        self.assertIsNone(x.grad)
        self.assertIsNotNone(w.grad)

    def test_layouts_of_pytorch(self):
        from convscope.torch import conv2d
        x, w = drawn(2, 4, 9, 8, device=self.device), drawn(6, 4, 3, 3, device=self.device)
        want = conv2d(x, w)
        last = x.to(memory_format=torch.channels_last)
        torch.testing.assert_close(conv2d(last, w), want, rtol=0, atol=0)

    def test_a_tensor_with_a_history_is_refused(self):
        x, w = drawn(1, 2, 5, 5, device=self.device, grad=True), drawn(3, 2, 3, 3, device=self.device)
        with self.assertRaisesRegex(ValueError, "convscope.torch"):
            convscope.conv2d(x, w)
        self.assertEqual(tuple(convscope.conv2d(x.detach(), w).shape), (1, 3, 3, 3))

    def test_memory_is_shared(self):
        y = convscope.conv2d(drawn(1, 2, 5, 5, device=self.device), drawn(3, 2, 3, 3, device=self.device))
        self.assertIsInstance(y, torch.Tensor)
        self.assertIsNone(convscope.copy_reason(y))
        y.add_(1)  # it belongs to the caller

    def test_deformable_convolution_differentiates(self):
        from convscope.torch import deform_conv2d
        x, w, offset, mask, b = (drawn(*shape, device=self.device, grad=True) for shape in (
            (2, 4, 7, 8), (6, 4, 3, 3), (2, 18, 7, 8), (2, 9, 7, 8), (6,)))
        y = deform_conv2d(x, offset, w, mask, b, padding=1)
        y.square().sum().backward()
        for one in (x, w, offset, mask, b):
            self.assertEqual(one.grad.shape, one.shape)
        if importlib.util.find_spec("torchvision") is None:
            self.skipTest("torchvision is not installed: only shapes were compared")
        from torchvision.ops import deform_conv2d as theirs
        doubles = [one.detach().double().requires_grad_() for one in (x, offset, w, b, mask)]
        want = theirs(doubles[0], doubles[1], doubles[2], doubles[3], padding=1, mask=doubles[4])
        want.square().sum().backward()
        self.assertLess(relative(y.detach(), want.detach()), self.tolerance)
        for one, other in zip((x, offset, w, b, mask), doubles):
            self.assertLess(relative(one.grad, other.grad), 1e-4)

    def test_sparse_convolution_differentiates(self):
        """Compares with PyTorch's convolution of the dense volume."""
        from convscope.torch import sparse_conv
        places = torch.randperm(2 * 5 * 6 * 7, generator=torch.Generator().manual_seed(3))[:90]
        sites = torch.stack(torch.unravel_index(places, (2, 5, 6, 7)), 1).int()
        at = tuple(sites.long().to(self.device).T)
        for sizes in ({"submanifold": True}, {"stride": 2, "padding": 1}, {"inverse": True, "stride": 2}):
            with self.subTest(**sizes):
                made = convscope.SparseMap(sites, 3, sizes["stride"], sizes.get("padding"),
                                           extent=(5, 6, 7)) if "stride" in sizes else None
                rows = len(made.out_sites) if "inverse" in sizes else 90
                mine = [drawn(*shape, device=self.device, grad=True) for shape in ((rows, 4),
                                                                                 (6, 4, 3, 3, 3), (6,))]
                theirs = [one.detach().double().requires_grad_() for one in mine]
                x, w, b = theirs
                if made is not None:
                    to = tuple(made.out_sites.long().to(self.device).T)
                y = sparse_conv(mine[0], sites.to(self.device), *mine[1:], extent=(5, 6, 7), **sizes)
                if "submanifold" in sizes or "padding" in sizes:
                    dense = torch.zeros(2, 5, 6, 7, 4, dtype=torch.float64, device=self.device)
                    dense = dense.index_put(at, x).movedim(4, 1)
                    want = torch.nn.functional.conv3d(dense, w, b, sizes.get("stride", 1), 1)
                    if "stride" in sizes:
                        self.assertEqual(y.out_sites.device.type, self.device)
                        self.assertTrue(torch.equal(y.out_sites.cpu(), made.out_sites))
                        y = y.y
                    want = want.movedim(1, 4)[to if "stride" in sizes else at]
                else:
                    dense = torch.zeros(2, *made.out_extent, 4, dtype=torch.float64, device=self.device)
                    dense = dense.index_put(to, x).movedim(4, 1)
                    want = torch.nn.functional.conv_transpose3d(dense, w.transpose(0, 1), b, 2,
                                                                output_padding=(0, 1, 0))
                    want = want.movedim(1, 4)[at]
                self.assertEqual((y.device, y.dtype), (mine[0].device, torch.float32))
                self.assertLess(relative(y, want), self.tolerance)
                dy = drawn(*y.shape, device=self.device)
                y.backward(dy)
                want.backward(dy.double())
                for one, other in zip(mine, theirs):
                    self.assertLess(relative(one.grad, other.grad), self.tolerance)

    def test_a_sparse_network_makes_its_maps_once(self):
        from convscope.torch import sparse_conv
        sites = torch.tensor([[0, 1, 2], [0, 0, 3], [1, 2, 2], [0, 1, 3]], dtype=torch.int32)
        same = convscope.SparseMap(sites, 3, submanifold=True)
        down = convscope.SparseMap(same, 2, stride=2)
        self.assertIsInstance(down.out_sites, torch.Tensor)
        x = drawn(4, 2, device=self.device)
        w = [drawn(2, 2, n, n, device=self.device, grad=True) for n in (3, 2, 2)]
        y = sparse_conv(sparse_conv(sparse_conv(x, same, w[0]).relu(), down, w[1]), down.inverse(), w[2])
        self.assertEqual(tuple(y.shape), (4, 2))
        y.sum().backward()
        self.assertTrue(all(float(one.grad.abs().sum()) > 0 for one in w))


@unittest.skipUnless(CUDA, "no CUDA device, or a build without CUDA")
class OnAGpu(OnTheCpu):
    device, tolerance = "cuda", 2e-5

    def test_half_precision(self):
        for dtype, tolerance in ((torch.float16, 2e-3), (torch.bfloat16, 1.6e-2)):
            x = drawn(2, 16, 9, 8, device="cuda", dtype=dtype)
            w = drawn(32, 16, 3, 3, device="cuda", dtype=dtype)
            y = convscope.conv2d(x, w, padding=1)
            self.assertEqual(y.dtype, dtype)
            want = torch.nn.functional.conv2d(x.double(), w.double(), padding=1)
            self.assertLess(relative(y, want), tolerance)
            got = convscope.conv2d_backward(y, x, w, padding=1)
            self.assertEqual({one.dtype for one in got}, {dtype})
            sites = torch.stack(torch.meshgrid(*map(torch.arange, (2, 9, 8)), indexing="ij"), 3)
            rows = x.movedim(1, 3).reshape(-1, 16).contiguous()
            y = convscope.sparse_conv(rows, sites.reshape(-1, 3).int().cuda(), w, submanifold=True)
            self.assertEqual((y.dtype, y.device), (dtype, x.device))
            self.assertLess(relative(y, want.movedim(1, 3).reshape(-1, 32)), tolerance)

    def test_pointers_of_the_device_are_read_and_given(self):
        x, w = drawn(2, 16, 9, 8, device="cuda"), drawn(32, 16, 3, 3, device="cuda")
        y = convscope.conv2d(x, w)
        self.assertEqual(y.device.type, "cuda")
        self.assertIsNone(convscope.copy_reason(x))
        with self.assertRaisesRegex(ValueError, "contiguous"):
            convscope.conv2d(x.transpose(2, 3), w)
        with self.assertRaisesRegex(ValueError, "on one device"):
            convscope.conv2d(x, w.cpu())

    def test_it_waits_for_what_pytorch_queued(self):
        x, w = torch.zeros(8, 16, 64, 64, device="cuda"), drawn(32, 16, 3, 3, device="cuda")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            big = torch.randn(4096, 4096, device="cuda")
            for _ in range(20):
                big = big @ big / 4096
            x.add_(1)
            y = convscope.conv2d(x, w)
        want = torch.nn.functional.conv2d(torch.ones_like(x).double(), w.double())
        self.assertLess(relative(y, want), self.tolerance)

    def test_numpy_arrays_go_there_and_back(self):
        x, w = drawn(2, 16, 9, 8).numpy(), drawn(32, 16, 3, 3).numpy()
        y = convscope.conv2d(x, w, device="cuda")
        self.assertEqual(type(y), type(x))
        self.assertLess(abs(y - convscope.conv2d(x, w)).max(), 1e-3)


if __name__ == "__main__":
    unittest.main()
