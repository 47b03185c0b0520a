// SPDX-License-Identifier: Apache-2.0
// channel_slice_cuda.cu: copies a range of channels of images, and computes the gradient of the
// copy.
//
// Method     One thread writes one element. The elements of the range are contiguous within an
//            image: element i of the range is element `before` + i of the image.
#include "framework/cuda/launch.cuh"
#include "layers/deform_conv2d/channel_slice.h"

namespace convscope {
namespace {

using Index = std::int64_t;

// Element counts of one image: in total, before the first channel of the range, and in the range.
struct Parts {
  Parts(const Tensor& whole, Index first, const Tensor& part)
      : image(whole.dim(1) * whole.dim(2) * whole.dim(3)),
        before(first * whole.dim(2) * whole.dim(3)),
        own(part.dim(1) * part.dim(2) * part.dim(3)) {}
  Index image, before, own;
};

template <class T>
__global__ void slice_kernel(const T* x, Parts parts, Index count, T* y) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    y[i] = x[i / parts.own * parts.image + parts.before + i % parts.own];
  }
}

template <class T>
__global__ void gradient_kernel(const T* dy, Parts parts, Index count, T* dx) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    const Index at = i % parts.image - parts.before;
    const bool is_own = at >= 0 && at < parts.own;
    dx[i] = is_own ? dy[i / parts.image * parts.own + at] : T{};
  }
}

// Calls body(T{}), where T is any type with the size of an element: a copy needs only the bits.
template <class Body>
void with_size(const Tensor& tensor, const Body& body) {
  switch (size_of(tensor.dtype())) {
    case 8:
      return body(std::uint64_t{});
    case 4:
      return body(std::uint32_t{});
    default:
      CONVSCOPE_CHECK(size_of(tensor.dtype()) == 2, "channel_slice",
                      "expected elements of 2, 4 or 8 bytes, got ", tensor.str());
      return body(std::uint16_t{});
  }
}

void slice(const Tensor& x, Index first, const Tensor& y) {
  with_size(x, [&](auto zero) {
    using T = decltype(zero);
    launch(slice_kernel<T>, grid_for(y.numel()), static_cast<const T*>(x.raw_data()),
           Parts(x, first, y), y.numel(), static_cast<T*>(y.raw_data()));
  });
}

void gradient(const Tensor& dy, Index first, const Tensor& dx) {
  with_size(dy, [&](auto zero) {
    using T = decltype(zero);
    launch(gradient_kernel<T>, grid_for(dx.numel()), static_cast<const T*>(dy.raw_data()),
           Parts(dx, first, dy), dx.numel(), static_cast<T*>(dx.raw_data()));
  });
}

}  // namespace

CONVSCOPE_KERNEL(channel_slice_kernel, cuda, slice)
CONVSCOPE_KERNEL(channel_slice_gradient_kernel, cuda, gradient)

}  // namespace convscope
