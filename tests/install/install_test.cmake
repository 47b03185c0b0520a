# Installs to an empty prefix, builds the consumer project against it, and runs the consumer and the
# program.
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
# The test moves the installed tree. So any stored path into the build folder or to the original
# prefix would fail.
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

# From any folder, the program finds the shipped configs by name. The manual page and the shell
# completions are in the folders that man and the shells search.
run(${CMAKE_COMMAND} -E chdir ${work} ${work}/moved/bin/convscope config show quickstart)
if(NOT output MATCHES "# ${work}/moved/share/convscope/configs/quickstart.yaml:")
  message(FATAL_ERROR "expected the installed quickstart.yaml, got '${output}'")
endif()
foreach(file share/man/man1/convscope.1 share/bash-completion/completions/convscope
    share/zsh/site-functions/_convscope share/fish/vendor_completions.d/convscope.fish)
  file(STRINGS ${work}/moved/${file} found REGEX "convscope" LIMIT_COUNT 1)
  if(NOT found)
    message(FATAL_ERROR "expected ${file} with text about convscope")
  endif()
endforeach()

# Follows the README about custom algorithms: an algorithm is written, built against the installed
# package, checked, explained, timed and used in training.
function(expect text)
  if(NOT output MATCHES "${text}")
    message(FATAL_ERROR "expected '${text}', got '${output}'")
  endif()
endfunction()
run(${CMAKE_COMMAND} -E chdir ${work} ${work}/moved/bin/convscope new algorithm mine)
run(${CMAKE_COMMAND} -S ${work}/mine -B ${work}/mine/build -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=-Werror)
expect("Build files have been written")
run(${CMAKE_COMMAND} --build ${work}/mine/build)
file(STRINGS ${work}/mine/build/CMakeCache.txt found REGEX "^convscope_DIR:PATH=${work}/moved/")
if(NOT found)
  message(FATAL_ERROR "expected the package of the program that wrote the folder")
endif()
set(ENV{CONVSCOPE_MEASURE} off)
set(program ${CMAKE_COMMAND} -E chdir ${work} ${work}/moved/bin/convscope
  --plugin ${work}/mine/build/mine.so)
run(${program} info)
expect("mine  +my own: one product after the other .plug-in ${work}/mine/build/mine.so")
run(${program} check conv2d mine --quick)
expect("ok     mine: [0-9]+ cases of forward, backward_data, backward_weight agree")
run(${program} explain quickstart conv.algorithm=mine --layer c2)
expect("[*] mine ")
run(${program} bench conv2d --ladder mine --problem n=1,c=4,h=8,w=8,k=4,r=3,s=3,pad=1
  --min-time 0.001 --rounds 1)
expect("ladder mine: ")
expect("mine, 1 thread")
run(${program} run quickstart conv.algorithm=mine train.epochs=1 data.train_size=128
  data.test_size=64 expect=null)
expect("report: runs/quickstart/")

# The build folder is a package, too.
run(${CMAKE_COMMAND} -E chdir ${work} ${BUILD_DIR}/bin/convscope new algorithm other)
run(${CMAKE_COMMAND} -S ${work}/other -B ${work}/other/build -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX})
file(STRINGS ${work}/other/build/CMakeCache.txt found REGEX "^convscope_DIR:PATH=${BUILD_DIR}$")
if(NOT found)
  message(FATAL_ERROR "expected the build folder as a package")
endif()
# Tests the installed notebooks: their set-up line must find the moved library.
run(${CMAKE_COMMAND} -E chdir ${work} ${work}/moved/bin/convscope notebook --list)
if(NOT output MATCHES "01_what_a_convolution_is\n")
  message(FATAL_ERROR "expected the installed notebooks, got '${output}'")
endif()
foreach(file set_up.py requirements.txt kernel/kernel.py kernel/cell_guard.inc)
  if(NOT EXISTS ${work}/moved/share/convscope/notebooks/${file})
    message(FATAL_ERROR "expected share/convscope/notebooks/${file}")
  endif()
endforeach()
run(${work}/moved/bin/convscope notebook --paths)
if(NOT output MATCHES "CPLUS_INCLUDE_PATH=${work}/moved/include:${work}/moved/include/convscope\n")
  message(FATAL_ERROR "expected the installed headers, got '${output}'")
endif()
run(${CXX} -std=c++20 -I${work}/moved/include -I${work}/moved/include/convscope
  ${SOURCE_DIR}/tests/install/consumer/notebook_user.cpp -o ${work}/notebook_user -ldl)
run(${work}/notebook_user)
message(STATUS "notebook: ${output}")

# Tests Convscope as a subfolder of another CMake project. Configuration fails if the two projects
# define targets of the same name.
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/install/consumer -B ${work}/subfolder -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX} -DCONSUMER_SUBFOLDER=${SOURCE_DIR} -DCONVSCOPE_CUDA=OFF)
