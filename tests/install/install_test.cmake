# Installs to an empty prefix, builds the consumer against it, and runs consumer and program.
set(work ${BUILD_DIR}/install_test)
file(REMOVE_RECURSE ${work})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${status}): ${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${work}/prefix)
# Moved, so that a path into the build folder or to the first prefix would not be found.
file(RENAME ${work}/prefix ${work}/moved)
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/install/consumer -B ${work}/consumer -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${work}/moved)
run(${CMAKE_COMMAND} --build ${work}/consumer)
run(${work}/consumer/consumer)
message(STATUS "consumer: ${output}")
find_program(python3 python3 REQUIRED)
run(${python3} ${SOURCE_DIR}/tests/repo/check_runpath.py ${work}/moved)
run(${work}/moved/bin/convscope --version)
message(STATUS "installed program: ${output}")
if(NOT output MATCHES "${VERSION}")
  message(FATAL_ERROR "expected the installed program to print ${VERSION}, got '${output}'")
endif()

# The other way to use it: as a subfolder of a project; configuring shows that names do not clash.
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/install/consumer -B ${work}/subfolder -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX} -DCONSUMER_SUBFOLDER=${SOURCE_DIR} -DCONVSCOPE_CUDA=OFF)
