# The emulation of CUDA on the CPU, with which the tests run all kernels on any machine. The sanitizer presets switch
# the emulation off, because its kernel threads are fibers instead of system threads. Invalid addresses in kernels are
# found by compute-sanitizer on a GPU instead. `cmake --preset asan-ubsan -DCONVSCOPE_EMULATION=ON` checks the host
# code.
option(CONVSCOPE_EMULATION "Build the CUDA kernels for the CPU too, for the tests" ON)
if(CONVSCOPE_TESTS AND CONVSCOPE_EMULATION)
  add_subdirectory(framework/cuda/emulation)
endif()
