#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# use_from_cpp.sh SOURCE [PREFIX]: builds and runs an external program with find_package(convscope), and the code of a
# notebook's first cell. SOURCE: tests/install/consumer. PREFIX: the folder of the unpacked .tar.gz. Works in the
# current folder.
set -euo pipefail
source=$1 prefix=${2:-}
here=$PWD
cmake -S "$source" -B consumer ${prefix:+-DCMAKE_PREFIX_PATH="$prefix"} >cmake.log ||
  { cat cmake.log; exit 1; }
cmake --build consumer >build.log || { cat build.log; exit 1; }
"$here/consumer/consumer"
include=${prefix:-/usr}/include
c++ -std=c++20 -I"$include" -I"$include/convscope" "$source/notebook_user.cpp" -o notebook_user -ldl
"$here/notebook_user"
