# The packages that `cpack` makes (./bootstrap.sh package): a .deb for the system of the build, and a .tar.gz that runs
# from any folder. Both contain what framework/cmake/install.cmake installs, without the CUDA library and the baseline
# plug-ins, because a package cannot depend on their libraries.
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME convscope)
set(CPACK_PACKAGE_VENDOR Convscope)
set(CPACK_PACKAGE_CONTACT "The authors of Convscope <authors@convscope.invalid>")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_STRIP_FILES ON)
string(TOLOWER "convscope-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}"
  CPACK_PACKAGE_FILE_NAME)

# Library names differ between releases of a system, so the package's file name states the release
# on which it was built.
set(convscope_system "")
if(EXISTS /etc/os-release)
  file(STRINGS /etc/os-release lines REGEX "^(ID|VERSION_ID)=")
  list(SORT lines)  # ID=debian VERSION_ID="12"
  string(REGEX REPLACE "(VERSION_)?ID=|[\";]" "" convscope_system "${lines}")
endif()
set(CPACK_DEBIAN_PACKAGE_RELEASE "1~${convscope_system}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "instrument for looking at convolution")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Computes two-dimensional convolution by different algorithms, forward and
backward, trains networks from YAML configs, and measures both. Holds the
program, its configs, shapes and notebooks, the shared library and its headers.")
# dpkg-shlibdeps computes the dependencies from the binaries. libcurl is not among them, because the
# program opens it by name when it fetches data.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libcurl4t64 | libcurl4 | libcurl3-gnutls")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ca-certificates")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
  "g++, cmake, ninja-build, python3-venv, python3-dev, librsvg2-bin, bash-completion")

set(CPACK_CONVSCOPE_LIBDIR ${CMAKE_INSTALL_LIBDIR})
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/finish_package.cmake)
include(CPack)
