# libconvscope_cuda: all *_cuda.cu files. libconvscope opens it at run time when a driver is present, so nothing links
# against it. Without .cu files or without nvcc there is nothing to build.
set_property(CACHE CONVSCOPE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(convscope_cuda_state "off")
if(CONVSCOPE_CUDA STREQUAL "OFF")
  return()
endif()
if(NOT CONVSCOPE_CUDA MATCHES "^(AUTO|ON)$")
  message(FATAL_ERROR "CONVSCOPE_CUDA: expected AUTO, ON or OFF, got '${CONVSCOPE_CUDA}'")
endif()

include(CheckLanguage)
if(NOT DEFINED CMAKE_CUDA_COMPILER)
  check_language(CUDA)
endif()
if(NOT CMAKE_CUDA_COMPILER)
  if(CONVSCOPE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CONVSCOPE_CUDA=ON needs nvcc, which was not found: put it on the PATH, "
      "set CUDACXX to it, or configure with CONVSCOPE_CUDA=AUTO")
  endif()
  set(convscope_cuda_state "off (no nvcc)")
  return()
endif()

set(convscope_cuda_globs ${convscope_folders})
list(TRANSFORM convscope_cuda_globs PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
list(TRANSFORM convscope_cuda_globs APPEND /*_cuda.cu)
file(GLOB_RECURSE convscope_cuda_sources CONFIGURE_DEPENDS ${convscope_cuda_globs})
list(FILTER convscope_cuda_sources EXCLUDE REGEX "/experiments/baselines/")
if(NOT convscope_cuda_sources)
  set(convscope_cuda_state "nvcc found, no *_cuda.cu file yet")
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  # Builds native code for H100 and H200 (90a has additional instructions). Also builds PTX, which the driver compiles
  # at the first run on any other GPU of compute capability 8.0 or higher.
  set(CMAKE_CUDA_ARCHITECTURES 90a-real 80-virtual CACHE STRING
    "GPU architectures to compile for")
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
  if(CONVSCOPE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CONVSCOPE_CUDA=ON needs nvcc 13.0 or newer, got "
      "${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER})")
  endif()
  set(convscope_cuda_state "off (nvcc ${CMAKE_CUDA_COMPILER_VERSION} is older than 13.0)")
  return()
endif()
find_package(CUDAToolkit REQUIRED)
add_library(convscope_cuda SHARED ${convscope_cuda_sources})
# For a machine without a GPU (.ci/run): compiles every kernel to PTX only, which takes a quarter of the time of
# building the library. The emulation compiles the host code. ptxas compiles the PTX before a kernel is used on a GPU.
add_library(convscope_cuda_ptx OBJECT EXCLUDE_FROM_ALL ${convscope_cuda_sources})
set_target_properties(convscope_cuda_ptx PROPERTIES CUDA_PTX_COMPILATION ON CUDA_STANDARD_REQUIRED OFF)
target_compile_options(convscope_cuda_ptx PRIVATE "SHELL:-Ofc mid")
# CMake 3.25 ignores CUDA_STANDARD 20, because it does not know that nvcc 13 supports C++20. So the flag is passed
# directly. Warning 611 is off: most layers override Module::forward() for one variable and not its overload for lists.
foreach(target convscope_cuda convscope_cuda_ptx)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--expt-relaxed-constexpr;-lineinfo;--diag-suppress=611>"
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-unused-parameter>
    $<$<AND:$<BOOL:${CONVSCOPE_WERROR}>,$<COMPILE_LANGUAGE:CUDA>>:-Werror=all-warnings>)
  target_link_libraries(${target} PRIVATE convscope CUDA::cudart_static CUDA::cublas CUDA::cufft)
endforeach()
set_target_properties(convscope_cuda PROPERTIES CUDA_STANDARD_REQUIRED OFF
  CUDA_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON
  INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON BUILD_WITH_INSTALL_RPATH ON
  VERSION ${PROJECT_VERSION} SOVERSION 0)
set(convscope_cuda_state "on, for ${CMAKE_CUDA_ARCHITECTURES}")
# On a machine without a driver, nothing opens the library, so it is built there only on request.
if(CONVSCOPE_CUDA STREQUAL "AUTO" AND NOT EXISTS /dev/nvidiactl AND NOT EXISTS /dev/dxg)
  set_target_properties(convscope_cuda PROPERTIES EXCLUDE_FROM_ALL ON)
  string(APPEND convscope_cuda_state ", with --target convscope_cuda (there is no driver here)")
endif()
