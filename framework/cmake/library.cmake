# libconvscope: one shared library from all folders. New files are found automatically.
#   *.cpp        compiled once
#   *_simd.cpp   compiled once per instruction set (framework/simd/cpu_isa.h); *_int8_simd.cpp also
#                with VNNI
#   *_cuda.cu    go into libconvscope_cuda
set(convscope_folders framework layers optim quant sparsity datasets experiments)
set(convscope_globs ${convscope_folders})
list(TRANSFORM convscope_globs PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
list(TRANSFORM convscope_globs APPEND /*.cpp)
file(GLOB_RECURSE convscope_sources CONFIGURE_DEPENDS ${convscope_globs})
list(FILTER convscope_sources EXCLUDE REGEX
  "/(experiments/(cli/main\\.cpp|baselines/|python/)|framework/cuda/emulation/)")
if(NOT CONVSCOPE_EXPERIMENTS)
  # The library contains all files except the test matrix, which only the tests of layers use.
  set(convscope_matrix_sources ${convscope_sources})
  list(FILTER convscope_matrix_sources INCLUDE REGEX "/experiments/check/matrix/")
  list(FILTER convscope_sources EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/experiments/")
  list(APPEND convscope_sources ${convscope_matrix_sources})
endif()
set(convscope_simd_sources ${convscope_sources})
list(FILTER convscope_simd_sources INCLUDE REGEX "_simd\\.cpp$")
list(FILTER convscope_sources EXCLUDE REGEX "_simd\\.cpp$")

# Synthetic data sets must be the same on every machine, so no compiler may fuse a product and a sum into one FMA.
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/datasets/synthetic_digits.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/datasets/synthetic_segmentation.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/datasets/points/synthetic_shapes.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/datasets/points/shape_surfaces.cpp
  PROPERTIES COMPILE_OPTIONS -ffp-contract=off SKIP_PRECOMPILE_HEADERS ON)

# A run's env.json names the commit of the build, so CMake configures again after a new commit.
execute_process(COMMAND git -C ${CMAKE_CURRENT_SOURCE_DIR} rev-parse HEAD --git-path logs/HEAD
  OUTPUT_VARIABLE convscope_git ERROR_QUIET RESULT_VARIABLE convscope_git_failed)
if(NOT convscope_git_failed AND convscope_git MATCHES "^([0-9a-f]+)\n([^\n]+)\n$")
  set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/experiments/run_folder/environment.cpp
    PROPERTIES COMPILE_DEFINITIONS "CONVSCOPE_GIT_SHA=\"${CMAKE_MATCH_1}\"")
  cmake_path(ABSOLUTE_PATH CMAKE_MATCH_2 BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
    OUTPUT_VARIABLE convscope_git_log)
  if(EXISTS ${convscope_git_log})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${convscope_git_log})
  endif()
endif()

# The program finds configs by name, in the source tree and in the install location.
include(GNUInstallDirs)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_DATADIR BASE_DIRECTORY ${CMAKE_INSTALL_FULL_BINDIR}
  OUTPUT_VARIABLE convscope_bin_to_data)
set_source_files_properties(
  ${CMAKE_CURRENT_SOURCE_DIR}/experiments/config/shipped/shipped_configs.cpp PROPERTIES
  COMPILE_DEFINITIONS "CONVSCOPE_SOURCE_CONFIGS=\"${CMAKE_CURRENT_SOURCE_DIR}/experiments/configs\";\
CONVSCOPE_CONFIGS_FROM_PROGRAM=\"${convscope_bin_to_data}/convscope/configs\"")
# The program finds the CMake package in the same two locations: `convscope new algorithm` prints its
# path.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_FULL_BINDIR}
  OUTPUT_VARIABLE convscope_bin_to_package)
set_source_files_properties(
  ${CMAKE_CURRENT_SOURCE_DIR}/experiments/plugins/starter/starter_plugin.cpp PROPERTIES
  COMPILE_DEFINITIONS
  "CONVSCOPE_PACKAGE_FROM_PROGRAM=\"${convscope_bin_to_package}/cmake/convscope\"")

# The program finds the notebooks in the same two locations. Their kernel includes a header that CMake writes
# into the build folder.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR BASE_DIRECTORY ${CMAKE_INSTALL_FULL_BINDIR}
  OUTPUT_VARIABLE convscope_bin_to_include)
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/experiments/notebooks/places.cpp PROPERTIES
  COMPILE_DEFINITIONS "CONVSCOPE_SOURCE_NOTEBOOKS=\"${CMAKE_CURRENT_SOURCE_DIR}/experiments/notebooks\";\
CONVSCOPE_NOTEBOOKS_FROM_PROGRAM=\"${convscope_bin_to_data}/convscope/notebooks\";\
CONVSCOPE_INCLUDE_FROM_PROGRAM=\"${convscope_bin_to_include}\";\
CONVSCOPE_NOTEBOOK_INCLUDE=\"${PROJECT_BINARY_DIR}/notebook/include\"")

# The code of commands, configs, tables and plots takes little CPU time. So these files are compiled without
# optimisation, which saves more than half of the build time.
set(convscope_quick_sources ${convscope_sources})
list(FILTER convscope_quick_sources INCLUDE REGEX
  "/experiments/(cli|compare|config|explain|export|launchers|look|notebooks|operators|plugins|report|run_folder|sweep|watch)/")
list(REMOVE_ITEM convscope_sources ${convscope_quick_sources})
convscope_unite(quick convscope_quick_sources)
# The precompiled header is for optimised files.
function(convscope_compile_quickly)
  set_property(SOURCE ${ARGV} APPEND PROPERTY COMPILE_OPTIONS -O0)
  set_property(SOURCE ${ARGV} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
endfunction()
convscope_compile_quickly(${convscope_quick_sources})
# Files whose code takes most of the time of a training step, or draws millions of weights, are compiled one by one, not
# in units of several files (unity.cmake).
set(convscope_kernel_sources ${convscope_sources})
list(FILTER convscope_kernel_sources INCLUDE REGEX
  "(_cpu\\.cpp|/layers/init\\.cpp|/layers/((deform_)?conv2d|sparse_conv)/.+/.*|/framework/simd/.*)$")
list(REMOVE_ITEM convscope_sources ${convscope_kernel_sources})
# Sanitizer checks multiply the code size. In a sanitizer build, the tests spend most time in kernels, in generating
# synthetic digits, and above all in the reference implementations and in comparing results with them. These loops make
# many small calls, which are fast only at -O2.
if(CONVSCOPE_SANITIZE)
  set(convscope_reference_sources ${convscope_kernel_sources} ${convscope_sources})
  list(FILTER convscope_reference_sources INCLUDE REGEX "/(reference|check/matrix)/")
  list(REMOVE_ITEM convscope_sources ${convscope_reference_sources})
endif()
convscope_unite(core convscope_sources)
if(CONVSCOPE_SANITIZE)
  # The speed of these kernels does not matter in a sanitizer build. So they are compiled in units of several files,
  # too, except for the reference implementations.
  list(REMOVE_ITEM convscope_kernel_sources ${convscope_reference_sources})
  convscope_unite(kernel convscope_kernel_sources)
  list(APPEND convscope_kernel_sources ${convscope_reference_sources})
  set(convscope_plain_sources ${convscope_sources})
  list(FILTER convscope_plain_sources EXCLUDE REGEX "/datasets/")
  convscope_compile_quickly(${convscope_plain_sources})
  set_property(SOURCE ${convscope_reference_sources} APPEND PROPERTY COMPILE_OPTIONS -O2)
  set_property(SOURCE ${convscope_reference_sources} PROPERTY SKIP_PRECOMPILE_HEADERS ON)  # the header is for -O1
endif()
# libFuzzer instruments the branches of file readers, but leaves the kernels out.
if(CONVSCOPE_FUZZERS)
  set(convscope_reading_sources ${convscope_sources} ${convscope_quick_sources})
  set_property(SOURCE ${convscope_reading_sources} APPEND PROPERTY COMPILE_OPTIONS -fsanitize=fuzzer-no-link)
  set_property(SOURCE ${convscope_reading_sources} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
endif()

# Notebook cells define CUDA kernels, so the library contains the emulation of CUDA (without
# kernels). The compiler of the cells looks up the functions of the emulation in the library. The
# emulation's headers, which replace CUDA's, export no symbols, so all symbols of these files are
# exported here.
set(convscope_emulation_sources fiber threads cluster overlap host_api)
list(TRANSFORM convscope_emulation_sources
  REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/framework/cuda/emulation/\\1.cpp")
set_source_files_properties(${convscope_emulation_sources} PROPERTIES
  COMPILE_OPTIONS -fvisibility=default SKIP_PRECOMPILE_HEADERS ON)

# Pages show the lines of running lessons.
if(CONVSCOPE_EXPERIMENTS)
  include(lesson_texts)
endif()

include(device_texts)
include(rule_lists)
add_library(convscope SHARED
  ${convscope_device_texts} ${convscope_lesson_texts} ${convscope_sources} ${convscope_kernel_sources} ${convscope_quick_sources}
  ${convscope_emulation_sources})
add_library(convscope::convscope ALIAS convscope)
set_target_properties(convscope PROPERTIES
  CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
  VERSION ${PROJECT_VERSION} SOVERSION 0)
target_include_directories(convscope PUBLIC
  $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}> $<INSTALL_INTERFACE:include/convscope>
  $<BUILD_INTERFACE:${convscope_generated_includes}>)
target_compile_features(convscope PUBLIC cxx_std_20)
target_compile_definitions(convscope PRIVATE CONVSCOPE_VERSION="${PROJECT_VERSION}"
  CONVSCOPE_BUILD_TYPE="${CMAKE_BUILD_TYPE}")
target_link_libraries(convscope PRIVATE $<BUILD_INTERFACE:convscope_flags> OpenMP::OpenMP_CXX
  Eigen3::Eigen yaml-cpp::yaml-cpp CLI11::CLI11 fmt::fmt nlohmann_json::nlohmann_json ZLIB::ZLIB
  Threads::Threads ${CMAKE_DL_LIBS})
# Only libcurl's header is needed: libcurl is opened when data is fetched
# (datasets/files/download.cpp).
target_include_directories(convscope PRIVATE
  $<TARGET_PROPERTY:CURL::libcurl,INTERFACE_INCLUDE_DIRECTORIES>)
convscope_precompile(convscope)

# Adds one object library per instruction set, without a precompiled header, because these files do
# not use the standard library.
set(convscope_isa_flags_scalar "")
set(convscope_isa_flags_vector4 "")
set(convscope_isa_flags_avx2 -mavx2 -mfma)
set(convscope_isa_flags_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma
    -mprefer-vector-width=512)
set(convscope_isas scalar)
set(on_x86 FALSE)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(on_x86 TRUE)
endif()
# On x86-64, only tests run vector4, unless it is the only vector.
if(CONVSCOPE_ISAS STREQUAL "vector4" OR (NOT CONVSCOPE_ISAS STREQUAL "scalar" AND (NOT on_x86 OR CONVSCOPE_TESTS)))
  list(APPEND convscope_isas vector4)
endif()
if(on_x86 AND NOT CONVSCOPE_ISAS MATCHES "^(scalar|vector4)$")
  list(APPEND convscope_isas avx2 avx512)
endif()
# The values `here` and `widest` are for programs that run only on the machine that builds them.
if(CONVSCOPE_ISAS MATCHES "here|widest" AND EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo cpu_flags REGEX "^flags" LIMIT_COUNT 1)
  foreach(isa IN ITEMS avx2 avx512)
    foreach(flag IN LISTS convscope_isa_flags_${isa})
      string(REGEX REPLACE "^-m" "" flag ${flag})
      if(NOT flag MATCHES "^prefer" AND NOT "${cpu_flags} " MATCHES " ${flag} ")
        list(REMOVE_ITEM convscope_isas ${isa})
      endif()
    endforeach()
  endforeach()
endif()
list(GET convscope_isas -1 convscope_widest_isa)
# `widest` skips the vectors between scalar and the widest: they are compiled from the same source.
if(CONVSCOPE_ISAS STREQUAL "widest")
  set(convscope_isas scalar ${convscope_widest_isa})
  list(REMOVE_DUPLICATES convscope_isas)
endif()
list(TRANSFORM convscope_isas PREPEND "Isa::" OUTPUT_VARIABLE convscope_compiled_isas)
list(JOIN convscope_compiled_isas "," convscope_compiled_isas)
# Files that multiply int8 values are compiled a second time, with VNNI, for each instruction set that may have VNNI.
set(convscope_isa_flags_avx2_vnni ${convscope_isa_flags_avx2} -mavxvnni)
set(convscope_isa_flags_avx512_vnni ${convscope_isa_flags_avx512} -mavx512vnni)
set(convscope_int8_simd_sources ${convscope_simd_sources})
list(FILTER convscope_int8_simd_sources INCLUDE REGEX "_int8_simd\\.cpp$")
foreach(isa IN ITEMS avx2 avx512)
  string(REPLACE "avx2" "avx" flag ${isa}_vnni)
  set(here TRUE)
  if(CONVSCOPE_ISAS MATCHES "here|widest" AND NOT "${cpu_flags} " MATCHES " ${flag} ")
    set(here FALSE)
  endif()
  if(isa IN_LIST convscope_isas AND here)
    list(APPEND convscope_isas ${isa}_vnni)
  endif()
endforeach()
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/framework/simd/cpu_isa.cpp
  PROPERTIES COMPILE_DEFINITIONS "CONVSCOPE_COMPILED_ISAS=${convscope_compiled_isas}")
# The sanitizers add checks to each of the many inlined loads; clang even checks each lane of a masked load. So
# compiling one file takes minutes. If a function call checks each address, compiling takes a third of that time. These
# calls find the errors that the checks of null pointers, alignment and sizes would find here, so those checks are
# switched off.
set(convscope_simd_optimize -O3)
if(CONVSCOPE_SANITIZE)
  set(convscope_simd_optimize -O1)
  set(checks -fno-sanitize=null,alignment,object-size,pointer-overflow)  # after -fsanitize
  if(CONVSCOPE_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND checks "SHELL:--param asan-instrumentation-with-call-threshold=0")
  elseif(CONVSCOPE_SANITIZE MATCHES "address")
    list(APPEND checks -fsanitize-address-outline-instrumentation)
  endif()
  set_property(SOURCE ${convscope_simd_sources} APPEND PROPERTY COMPILE_OPTIONS ${checks})
  # These files contain unrolled tiles, and optimising one file takes half a minute. Their tests
  # take only seconds without optimisation. The undefined-behaviour sanitizer checks only the scalar copy: the copies
  # share the arithmetic of indices and sizes, in which it finds errors, and it takes a fifth of their compile time.
  set(slow ${convscope_simd_sources})
  list(FILTER slow INCLUDE REGEX
    "/(block_sparse|depthwise_(forward|backward|nchw16c|nchw16c_weight)|batch_lanes_gradient)_simd")
  set_property(SOURCE ${slow} APPEND PROPERTY COMPILE_OPTIONS -O0)
endif()
# The loop over pixels of this file has conditions. GCC converts conditions to masks only if it may
# compute both alternatives, which -fno-trapping-math permits.
set_property(SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/layers/deform_conv2d/fused/cpu/deform_fused_simd.cpp
  APPEND PROPERTY COMPILE_OPTIONS -fno-trapping-math)
foreach(isa IN LISTS convscope_isas)
  string(REPLACE "_vnni" "" plain_isa ${isa})
  string(TOUPPER ${plain_isa} isa_upper)
  if(isa STREQUAL plain_isa)
    add_library(convscope_simd_${isa} OBJECT ${convscope_simd_sources})
  else()
    add_library(convscope_simd_${isa} OBJECT ${convscope_int8_simd_sources})
    target_compile_definitions(convscope_simd_${isa} PRIVATE CONVSCOPE_ISA_VNNI=true)
  endif()
  set_target_properties(convscope_simd_${isa} PROPERTIES POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  if(NOT isa STREQUAL "scalar")
    set_target_properties(convscope_simd_${isa} PROPERTIES CONVSCOPE_NO_UNDEFINED ON)
  endif()
  target_include_directories(convscope_simd_${isa} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}
    ${convscope_generated_includes})
  target_compile_definitions(convscope_simd_${isa} PRIVATE CONVSCOPE_ISA=isa_${isa}
    CONVSCOPE_ISA_ENUM=${plain_isa} CONVSCOPE_ISA_IS_${isa_upper}=1)
  set(optimize ${convscope_simd_optimize})
  if(isa STREQUAL "vector4" AND NOT convscope_widest_isa STREQUAL "vector4")
    set(optimize -O1)  # takes 60 % of the time of -O3; only tests run this copy
  endif()
  target_compile_options(convscope_simd_${isa} PRIVATE ${optimize}
    -fno-math-errno ${convscope_isa_flags_${isa}})
  target_link_libraries(convscope_simd_${isa} PRIVATE convscope_flags)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 warns about its own _mm512_undefined_ps (GCC bug 105593).
    target_compile_options(convscope_simd_${isa} PRIVATE -Wno-maybe-uninitialized)
  endif()
  target_sources(convscope PRIVATE $<TARGET_OBJECTS:convscope_simd_${isa}>)
endforeach()
