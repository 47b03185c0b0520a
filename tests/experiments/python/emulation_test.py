# SPDX-License-Identifier: Apache-2.0
"""Tests CUDA arrays without a GPU. In the emulation, device memory is CPU memory, so a NumPy array can be passed
through DLPack as a device array. Requires that CONVSCOPE_CUDA_LIBRARY names the emulation."""
import ctypes
import os
import unittest

import numpy as np
import reference
import sparse_reference

import convscope

IS_EMULATED = "emulated" in os.environ.get("CONVSCOPE_CUDA_LIBRARY", "")
CUDA = 2  # DLPack's number


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype = ctypes.c_void_p
capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class OnDevice:
    """An array that claims to be on the device."""

    def __init__(self, array):
        self.array = array
        self.managed = []  # referenced by capsules

    def __dlpack_device__(self):
        return (CUDA, 0)

    def __dlpack__(self, **_):
        array = self.array
        sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
        strides = (ctypes.c_int64 * array.ndim)(*(one // array.itemsize for one in array.strides))
        code, bits = (0 if array.dtype.kind == "i" else 2), 8 * array.itemsize
        managed = DLManagedTensor(DLTensor(array.ctypes.data, CUDA, 0, array.ndim, code, bits, 1, sizes,
                                           strides, 0), None, None)
        self.managed.append((managed, sizes, strides))
        return new_capsule(ctypes.addressof(managed), b"dltensor", None)


def from_device(answer):
    """Returns the elements of a result on the device."""
    if answer.__dlpack_device__() != (CUDA, 0):
        raise AssertionError(answer.__dlpack_device__())
    capsule = answer.__dlpack__()
    tensor = DLManagedTensor.from_address(capsule_pointer(capsule, b"dltensor")).tensor
    kind = {(2, 32): np.float32, (2, 16): np.float16}[tensor.code, tensor.bits]
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    count = int(np.prod(shape))
    raw = (ctypes.c_uint8 * (count * np.dtype(kind).itemsize)).from_address(tensor.data)
    return np.frombuffer(bytes(raw), kind).reshape(shape)


def drawn(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@unittest.skipUnless(IS_EMULATED, "CONVSCOPE_CUDA_LIBRARY does not name the emulation")
class OnTheEmulation(unittest.TestCase):
    x, w, b = drawn(2, 8, 7, 8), drawn(8, 8, 3, 3), drawn(8)

    def test_numpy_arrays_go_there_and_back(self):
        want = reference.conv2d(self.x, self.w, self.b, padding=1)
        y = convscope.conv2d(self.x, self.w, self.b, padding=1, device="cuda", algorithm="direct")
        self.assertIsInstance(y, np.ndarray)
        self.assertLess(reference.relative(y, want), 4e-6)
        got = convscope.conv2d_backward(y, self.x, self.w, padding=1, device="cuda", algorithm="direct")
        for one, other in zip(got, reference.conv2d_backward(y, self.x, self.w, padding=1)):
            self.assertIsInstance(one, np.ndarray)
            self.assertLess(reference.relative(one, other), 4e-6)
        self.assertNotEqual(convscope.algorithms(device="cuda"), [])

    def test_pointers_of_the_device_are_read_and_given(self):
        y = convscope.conv2d(OnDevice(self.x), OnDevice(self.w), OnDevice(self.b), algorithm="direct")
        self.assertLess(reference.relative(from_device(y), reference.conv2d(self.x, self.w, self.b)), 4e-6)
        self.assertIsNone(convscope.copy_reason(OnDevice(self.x)))
        got = convscope.conv2d_backward(y, OnDevice(self.x), OnDevice(self.w), algorithm="direct",
                                        needs=["dw"])
        want = reference.conv2d_backward(from_device(y), self.x, self.w)[1]
        self.assertLess(reference.relative(from_device(got.dw), want), 4e-6)

    def test_half_precision(self):
        x, w = self.x.astype(np.float16), self.w.astype(np.float16)
        want = reference.conv2d(x, w)
        y = convscope.conv2d(OnDevice(x), OnDevice(w), algorithm="im2col_gemm,auto")
        self.assertEqual(from_device(y).dtype, np.float16)
        self.assertLess(reference.relative(from_device(y), want), 2e-3)
        y = convscope.conv2d(self.x, self.w, device="cuda", precision="bf16")
        self.assertEqual(y.dtype, np.float32)
        self.assertLess(reference.relative(y, reference.conv2d(self.x, self.w)), 2e-2)

    def test_transposed_convolution(self):
        sizes = {"stride": 2, "padding": 1, "output_padding": 1}
        want = reference.conv_transpose2d(self.x, self.w, self.b, **sizes)
        y = convscope.conv_transpose2d(*map(OnDevice, (self.x, self.w, self.b)), **sizes)
        self.assertLess(reference.relative(from_device(y), want), 4e-6)
        got = convscope.conv_transpose2d_backward(y, OnDevice(self.x), OnDevice(self.w), **sizes)
        gradients = reference.conv_transpose2d_backward(from_device(y), self.x, self.w, **sizes)
        for one, other in zip(got, gradients):
            self.assertLess(reference.relative(from_device(one), other), 4e-6)
        y = convscope.conv_transpose2d(*(OnDevice(one.astype(np.float16)) for one in (self.x, self.w, self.b)),
                                       **sizes)
        self.assertEqual(from_device(y).dtype, np.float16)
        self.assertLess(reference.relative(from_device(y), want), 4e-3)

    def test_sparse_convolution(self):
        """Tests sites in random order. The rows of x and dy are first on the host, then on the
        device."""
        places = np.random.default_rng(1).permutation(2 * 6 * 7 * 8)[:200]
        sites = np.stack(np.unravel_index(places, (2, 6, 7, 8)), 1).astype(np.int32)
        x, w, b, dy = drawn(200, 8), drawn(16, 8, 3, 3, 3), drawn(16), drawn(200, 16)
        want = sparse_reference.sparse_conv(x, sites, w, b, submanifold=True)[0]
        gradients = sparse_reference.sparse_conv(x, sites, w, b, dy, submanifold=True)
        made = convscope.SparseMap(sites, 3, submanifold=True)
        y = convscope.sparse_conv(x, made, w, b, device="cuda")
        self.assertIsInstance(y, np.ndarray)
        self.assertLess(reference.relative(y, want), 4e-6)
        got = convscope.sparse_conv_backward(dy, x, made, w, device="cuda")
        for one, other in zip(got, gradients):
            self.assertLess(reference.relative(one, other), 4e-6)
        self.assertGreater(made.pairs, 200)
        order = np.lexsort(sites.T[::-1])
        for of, rows in ((sites, slice(None)), (sites[order], order)):
            made = convscope.SparseMap(of, 3, submanifold=True)
            y = convscope.sparse_conv(OnDevice(x[rows]), made, OnDevice(w), OnDevice(b))
            self.assertLess(reference.relative(from_device(y), want[rows]), 4e-6)
            got = convscope.sparse_conv_backward(OnDevice(dy[rows]), OnDevice(x[rows]), made, OnDevice(w))
            for one, other in zip(got, (gradients[0][rows], *gradients[1:])):
                self.assertLess(reference.relative(from_device(one), other), 4e-6)
            half = convscope.sparse_conv(OnDevice(x[rows].astype(np.float16)), made,
                                         OnDevice(w.astype(np.float16)))
            self.assertEqual(from_device(half).dtype, np.float16)
            self.assertLess(reference.relative(from_device(half), want[rows] - b), 4e-3)
        self.assertIn("native", convscope.algorithms(made, w, device="cuda").names())

    def test_what_lies_elsewhere_or_in_another_order_is_refused(self):
        with self.assertRaisesRegex(ValueError, "on one device, got x f32.* cuda.* and w f32.* cpu"):
            convscope.conv2d(OnDevice(self.x), self.w)
        scores, classes = np.zeros((2, 3), np.float32), np.zeros(2, np.int32)
        self.assertAlmostEqual(convscope.loss(OnDevice(scores), OnDevice(classes)), np.log(3), delta=1e-6)
        with self.assertRaisesRegex(ValueError, "on one device, got x f32.* cuda.* and labels i32.* cpu"):
            convscope.loss(OnDevice(scores), classes)
        with self.assertRaisesRegex(ValueError, r"row-major on cuda.*contiguous"):
            convscope.conv2d(OnDevice(self.x[:, :, ::2]), OnDevice(self.w))


if __name__ == "__main__":
    unittest.main()
