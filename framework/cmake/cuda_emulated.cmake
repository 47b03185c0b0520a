# The emulation of CUDA on the CPU, with which the tests run all kernels on any machine. The sanitizer presets
# switch the emulation off: its kernel threads are not system threads, and compute-sanitizer finds invalid addresses
# of kernels on a GPU. `cmake --preset asan-ubsan -DCONVSCOPE_EMULATION=ON` checks the host code.
option(CONVSCOPE_EMULATION "Build the CUDA kernels for the CPU too, for the tests" ON)
if(CONVSCOPE_TESTS AND CONVSCOPE_EMULATION)
  add_subdirectory(framework/cuda/emulation)
endif()
