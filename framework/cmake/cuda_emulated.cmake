# The emulation of CUDA on the CPU, with which the tests run all kernels on any machine. Not under
# the thread sanitizer: one thread of the machine runs all emulated ones.
if(CONVSCOPE_TESTS AND NOT CONVSCOPE_SANITIZE MATCHES "thread")
  add_subdirectory(framework/cuda/emulation)
endif()
