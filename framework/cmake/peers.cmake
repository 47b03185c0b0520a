# Plug-ins with which `convscope bench --peer NAME` times another library as a baseline. Each is built when its library
# is found. Nothing links against them: experiments/bench/peer.h describes their use.
option(CONVSCOPE_PEERS "Build the plug-ins for other libraries that are found" ON)
set(CONVSCOPE_PEERS_DIR "${PROJECT_SOURCE_DIR}/build/peers" CACHE PATH
  "Where experiments/peers/setup.py laid the other libraries; the system's are taken without it")
if(NOT CONVSCOPE_PEERS OR CONVSCOPE_SANITIZE)
  return()
endif()

# oneDNN 3.2 from CONVSCOPE_PEERS_DIR, even if an earlier configuration has found Debian's 2.6.3.
if(EXISTS "${CONVSCOPE_PEERS_DIR}/lib/cmake/dnnl/dnnl-config.cmake")
  set(dnnl_DIR "${CONVSCOPE_PEERS_DIR}/lib/cmake/dnnl" CACHE PATH "oneDNN's CMake files" FORCE)
endif()
find_package(dnnl CONFIG QUIET)
if(dnnl_FOUND)
  add_library(convscope_peer_onednn MODULE
    ${CMAKE_CURRENT_SOURCE_DIR}/experiments/peers/onednn_peer.cpp)
  # Sets the RPATH to oneDNN's folder, because CMake sets no RPATH for a folder below the project's.
  set_target_properties(convscope_peer_onednn PROPERTIES
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$<TARGET_FILE_DIR:DNNL::dnnl>")
  target_include_directories(convscope_peer_onednn PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_features(convscope_peer_onednn PRIVATE cxx_std_20)
  target_link_libraries(convscope_peer_onednn PRIVATE convscope_flags DNNL::dnnl OpenMP::OpenMP_CXX)
  set(convscope_peer_remark "")
  if(dnnl_VERSION VERSION_LESS 3.2)
    set(convscope_peer_remark " (older than 3.2, which experiments/peers/setup.py fetches)")
  endif()
  message(STATUS "convscope: peer onednn ${dnnl_VERSION} of ${dnnl_DIR}${convscope_peer_remark}")
else()
  message(STATUS "convscope: no peer onednn; experiments/peers/setup.py fetches it")
endif()
