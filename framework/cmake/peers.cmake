# Plug-ins that let `convscope bench --peer NAME` time another library beside ours, each built when
# its library is found. Nothing links against them: experiments/bench/peer.h says how they are used.
option(CONVSCOPE_PEERS "Build the plug-ins for other libraries that are found" ON)
if(NOT CONVSCOPE_PEERS OR CONVSCOPE_SANITIZE)
  return()
endif()

find_package(dnnl CONFIG QUIET)
if(dnnl_FOUND)
  add_library(convscope_peer_onednn MODULE
    ${CMAKE_CURRENT_SOURCE_DIR}/experiments/peers/onednn_peer.cpp)
  set_target_properties(convscope_peer_onednn PROPERTIES
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON INSTALL_RPATH_USE_LINK_PATH ON
    BUILD_WITH_INSTALL_RPATH ON)
  target_include_directories(convscope_peer_onednn PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_features(convscope_peer_onednn PRIVATE cxx_std_20)
  target_link_libraries(convscope_peer_onednn PRIVATE convscope_flags DNNL::dnnl OpenMP::OpenMP_CXX)
  message(STATUS "convscope: peer onednn ${dnnl_VERSION}")
endif()
