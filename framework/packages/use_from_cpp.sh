#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# use_from_cpp.sh SOURCE [PREFIX]: a program of somebody else is built by find_package(convscope)
# and run, and so is what the first cell of a notebook does. SOURCE: tests/install/consumer. PREFIX:
# where the .tar.gz was unpacked. Works in the current folder.
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
