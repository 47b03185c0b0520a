# Plug-ins with which `convscope bench --baseline NAME` times another library as a baseline. Each plug-in is built when
# the library that it times is found. Nothing links against them: experiments/bench/baseline.h describes their use.
foreach(end "S" "S_DIR") # former names, accepted for one version
  if(DEFINED CONVSCOPE_PEER${end})
    message(WARNING "CONVSCOPE_PEER${end} is now called CONVSCOPE_BASELINE${end}")
    set(CONVSCOPE_BASELINE${end} "${CONVSCOPE_PEER${end}}" CACHE STRING "" FORCE)
    unset(CONVSCOPE_PEER${end} CACHE)
  endif()
endforeach()
option(CONVSCOPE_BASELINES "Build the plug-ins for other libraries that are found" ON)
set(CONVSCOPE_BASELINES_DIR "${PROJECT_SOURCE_DIR}/build/baselines" CACHE PATH
  "Where experiments/baselines/setup.py laid the other libraries; the system's are taken without it")
if(NOT CONVSCOPE_BASELINES OR CONVSCOPE_SANITIZE)
  return()
endif()

# Takes oneDNN 3.2 from CONVSCOPE_BASELINES_DIR, even if an earlier configuration has found Debian's oneDNN 2.6.3.
if(EXISTS "${CONVSCOPE_BASELINES_DIR}/lib/cmake/dnnl/dnnl-config.cmake")
  set(dnnl_DIR "${CONVSCOPE_BASELINES_DIR}/lib/cmake/dnnl" CACHE PATH "oneDNN's CMake files" FORCE)
endif()
find_package(dnnl CONFIG QUIET)
if(dnnl_FOUND)
  add_library(convscope_baseline_onednn MODULE
    ${CMAKE_CURRENT_SOURCE_DIR}/experiments/baselines/onednn_baseline.cpp)
  # Sets the RPATH to oneDNN's folder, because CMake sets no RPATH for a folder below the project's folder.
  set_target_properties(convscope_baseline_onednn PROPERTIES
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$<TARGET_FILE_DIR:DNNL::dnnl>")
  target_include_directories(convscope_baseline_onednn PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_features(convscope_baseline_onednn PRIVATE cxx_std_20)
  target_link_libraries(convscope_baseline_onednn PRIVATE convscope_flags DNNL::dnnl OpenMP::OpenMP_CXX)
  set(convscope_baseline_remark "")
  if(dnnl_VERSION VERSION_LESS 3.2)
    set(convscope_baseline_remark " (older than 3.2, which experiments/baselines/setup.py fetches)")
  endif()
  message(STATUS "convscope: baseline onednn ${dnnl_VERSION} of ${dnnl_DIR}${convscope_baseline_remark}")
else()
  message(STATUS "convscope: no baseline onednn; experiments/baselines/setup.py fetches it")
endif()
