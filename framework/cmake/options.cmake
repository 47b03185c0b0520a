# Compiler flags that all targets of the project share, as an interface library instead of global
# variables.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

# Headers of the standard library are parsed once for many files. Every file still includes what it uses: .ci/run
# compiles recently changed files without the precompiled header (tests/repo/compile_alone.py).
option(CONVSCOPE_PCH "Precompile the headers of the standard library (ON in the presets)" OFF)
set(convscope_std_headers <algorithm> <array> <atomic> <bit> <cmath> <cstdint> <cstring> <functional>
  <initializer_list> <limits> <map> <memory> <optional> <span> <stdexcept> <string> <string_view>
  <type_traits> <utility> <variant> <vector>)
# convscope_precompile(TARGET [<header>...] | TARGET REUSE_FROM OTHER)
function(convscope_precompile target)
  if(NOT CONVSCOPE_PCH)
    return()
  elseif("${ARGV1}" STREQUAL "REUSE_FROM")
    target_precompile_headers(${target} REUSE_FROM ${ARGV2})
  else()
    target_precompile_headers(${target} PRIVATE ${convscope_std_headers} ${ARGN})
  endif()
  # ccache compares the contents of files, not their times. It needs these options for precompiled
  # headers.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  else()
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()

find_program(CONVSCOPE_CCACHE ccache)
if(CONVSCOPE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CONVSCOPE_CCACHE})
  if(CONVSCOPE_PCH)  # ccache requires this setting for files with a precompiled header
    list(PREPEND CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros)
  endif()
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CONVSCOPE_CCACHE})
endif()

add_library(convscope_flags INTERFACE)
target_compile_options(convscope_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion>
  $<$<AND:$<BOOL:${CONVSCOPE_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns about overlapping copies inside std::string where there are none (GCC bug 105651).
  target_compile_options(convscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
# A target with the property CONVSCOPE_NO_UNDEFINED is compiled without the undefined-behaviour sanitizer. The options of
# a target come before those of the libraries it links, so its own -fno-sanitize=undefined would have no effect.
if(CONVSCOPE_SANITIZE)
  string(REPLACE "," ";" kinds ${CONVSCOPE_SANITIZE})
  foreach(kind IN LISTS kinds)
    set(wanted 1)
    if(kind STREQUAL "undefined")
      set(wanted "$<NOT:$<BOOL:$<TARGET_PROPERTY:CONVSCOPE_NO_UNDEFINED>>>")
    endif()
    target_compile_options(convscope_flags INTERFACE
      $<$<AND:${wanted},$<COMPILE_LANGUAGE:CXX>>:-fsanitize=${kind}>)
  endforeach()
  target_compile_options(convscope_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  target_link_options(convscope_flags INTERFACE -fsanitize=${CONVSCOPE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # GCC's macro, for both compilers
    # At -O1, some loops with an unroll pragma are not unrolled, and clang would warn.
    target_compile_options(convscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-pass-failed>)
    foreach(kind IN ITEMS address thread)
      if(CONVSCOPE_SANITIZE MATCHES ${kind})
        string(TOUPPER ${kind} kind)
        target_compile_definitions(convscope_flags INTERFACE __SANITIZE_${kind}__=1)
      endif()
    endforeach()
  endif()
endif()
