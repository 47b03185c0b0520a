# The emulation of CUDA on the CPU, with which the tests run all kernels on any machine. Off in the
# sanitizers' presets: threads of a kernel are no threads here, and compute-sanitizer looks for kernels'
# wrong addresses on a GPU. `cmake --preset asan-ubsan -DCONVSCOPE_EMULATION=ON` checks the host's side.
option(CONVSCOPE_EMULATION "Build the CUDA kernels for the CPU too, for the tests" ON)
if(CONVSCOPE_TESTS AND CONVSCOPE_EMULATION)
  add_subdirectory(framework/cuda/emulation)
endif()
