# Runs in CPack after the files are installed into CPack's folder and before they are packed.
cmake_policy(VERSION 3.25)
set(root ${CPACK_TEMPORARY_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX})
if(NOT EXISTS ${root}/bin/convscope)
  message(FATAL_ERROR "convscope: expected bin/convscope in ${root}; build the target `program`")
endif()

set(libraries ${root}/${CPACK_CONVSCOPE_LIBDIR})
file(GLOB own ${libraries}/libconvscope.so.*.*)
if(NOT own)
  message(FATAL_ERROR "convscope: expected libconvscope.so.* in ${libraries}, found none")
endif()

# Removes plug-ins for libraries on which a package cannot depend; they must be built on the target machine.
file(GLOB others ${libraries}/libconvscope_*)
if(others)
  file(REMOVE ${others})
  list(TRANSFORM others REPLACE "^.*/" "")
  message(STATUS "convscope: left out of the package: ${others}")
endif()

# Adds the licences of compiled-in header libraries, because a binary must include their notices. The
# build system has the licence files.
set(doc ${root}/share/doc/convscope)
function(convscope_add_licence package)
  if(EXISTS /usr/share/doc/${package}/copyright)
    file(COPY_FILE /usr/share/doc/${package}/copyright ${doc}/licences/${package}.txt)
  elseif(CPACK_GENERATOR STREQUAL "DEB")
    message(FATAL_ERROR "convscope: expected /usr/share/doc/${package}/copyright, because the "
      "package has to carry this licence, found none; install the system's package ${package}")
  endif()
endfunction()
file(MAKE_DIRECTORY ${doc}/licences)
foreach(package IN ITEMS libeigen3-dev libcli11-dev nlohmann-json3-dev)
  convscope_add_licence(${package})
endforeach()

function(convscope_run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE output
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

if(CPACK_GENERATOR STREQUAL "DEB")
  # The locations that Debian expects.
  convscope_run(gzip -9n ${root}/share/man/man1/convscope.1)
  string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)
  file(WRITE ${doc}/changelog.Debian "convscope (${CPACK_PACKAGE_VERSION}-\
${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n  * Packed from the source by cpack; \
CHANGELOG.md says what changed.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${now}\n")
  convscope_run(gzip -9n ${doc}/changelog.Debian)
  file(WRITE ${doc}/copyright "Convscope. Copyright: the authors of Convscope.\n\nLicence: \
Apache-2.0; on Debian systems its text is in /usr/share/common-licenses/Apache-2.0.\nWhat is \
compiled in from other projects: the folder licences beside this file.\n")
  file(REMOVE ${doc}/LICENSE)
  return()
endif()

# The .tar.gz contains the libraries that a small system lacks, in a separate folder, so that no other program finds
# them. The C and C++ libraries and zlib come from the system, because they must match the system's other libraries.
find_program(patchelf patchelf)
if(NOT patchelf)
  message(FATAL_ERROR "convscope: expected patchelf, because libraries in the .tar.gz find each "
    "other by their places, found none; on Debian: apt-get install patchelf")
endif()
file(GET_RUNTIME_DEPENDENCIES LIBRARIES ${own} RESOLVED_DEPENDENCIES_VAR needed
  UNRESOLVED_DEPENDENCIES_VAR unresolved
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s|z)\\.so")
if(unresolved)
  message(FATAL_ERROR "convscope: expected every library that libconvscope needs, found no "
    "${unresolved}")
endif()
file(MAKE_DIRECTORY ${libraries}/convscope)
foreach(library IN LISTS needed)
  file(REAL_PATH ${library} file)
  get_filename_component(name ${library} NAME)
  file(COPY_FILE ${file} ${libraries}/convscope/${name})
  convscope_run(${patchelf} --set-rpath $ORIGIN ${libraries}/convscope/${name})
  execute_process(COMMAND dpkg-query -S ${file} OUTPUT_VARIABLE owner ERROR_QUIET)
  if(NOT owner)  # /usr/lib is also called /lib
    string(REGEX REPLACE "^/usr" "" file ${file})
    execute_process(COMMAND dpkg-query -S ${file} OUTPUT_VARIABLE owner ERROR_QUIET)
  endif()
  string(REGEX REPLACE ":.*" "" owner "${owner}")
  if(owner)
    convscope_add_licence(${owner})
  endif()
endforeach()
convscope_run(${patchelf} --set-rpath $ORIGIN/convscope ${own})
list(TRANSFORM needed REPLACE "^.*/" "")
message(STATUS "convscope: in ${CPACK_CONVSCOPE_LIBDIR}/convscope: ${needed}")
