# SPDX-License-Identifier: Apache-2.0
# The stages of .ci/run and .ci/nightly. They install packages that only CI needs, run the tests with sanitizers, check
# packages, CUDA and Python, fuzz, and compile files one by one.
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

# install COMMAND PACKAGES...: installs packages that only CI needs, if the command is missing.
install() {
  if command -v "$1" >/dev/null || ((EUID != 0)) || ! command -v apt-get >/dev/null; then return; fi
  [[ -n ${updated:-} ]] || apt-get update -qq >"$logs/apt.log" 2>&1
  updated=yes
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${@:2}" \
    >>"$logs/apt.log" 2>&1 || echo "ci: could not install ${*:2} ($logs/apt.log)"
}

# The sanitizers and the fuzzers need clang 16. The other packages are optional: a browser, a
# converter of pictures, a reader of manual pages, shells, clang-repl and MPI. Tests that need a
# missing package are skipped.
install_tools() {
  install clang++-16 clang-16 libclang-rt-16-dev libomp-16-dev llvm-16 # llvm-symbolizer names lines
  install chromium chromium
  install rsvg-convert librsvg2-bin
  install mandoc mandoc
  install zsh zsh
  install fish fish
  install clang-repl-19 clang-tools-19
  install mpirun openmpi-bin
  export ASAN_SYMBOLIZER_PATH=${ASAN_SYMBOLIZER_PATH:-$(command -v llvm-symbolizer-16)}
  address_preset=asan-ubsan
  if command -v clang++-16 >/dev/null; then address_preset=clang-asan-ubsan; fi
}

# Installs the packages of the notebooks (experiments/notebooks/requirements.txt), once. Without a network, or with
# another version of Python, the installation fails, and the tests that need these packages are skipped.
install_notebooks() { python3 experiments/notebooks/set_up.py --packages --environment build/notebooks/env; }
install_python() {  # the modules of Python that Debian packages separately
  ((EUID == 0)) && command -v apt-get >/dev/null &&
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv python3-dev
}
notebook_packages() { install_notebooks || { install_python && install_notebooks; }; }

# Runs the test programs of a preset and prints the counts of their cases. Without FOLDER, runs all
# programs. With folders, runs only the test programs of these folders, and builds without
# experiments/.
sanitized_tests() { # PRESET FILTER [FOLDER...]
  local preset=$1 filter=$2
  shift 2
  local targets=() only=() experiments=ON
  if (($# > 0)); then
    targets=(--target "${@/#/test_}")
    only=(-R "^($(IFS='|' && echo "$*"))(_[0-9])?\$")
    experiments=OFF
  fi
  cmake --preset "$preset" -DCONVSCOPE_EXPERIMENTS=$experiments &&
    cmake --build --preset "$preset" "${targets[@]}" || return 1
  rm -f "build/$preset"/test_results/*.json
  local status=0
  GTEST_FILTER=$filter ctest --preset "$preset" -L unit "${only[@]}" \
    --output-junit test_results/ctest.xml || status=$?
  python3 tests/repo/count_results.py "build/$preset" || status=1
  return "$status"
}

# .ci/run tests these folders under the address sanitizer and the undefined-behaviour sanitizer. The commands and file
# readers in experiments/ and the fuzzers take longer to build, so .ci/nightly tests them.
folders_under_address=(framework layers optim quant sparsity datasets)
# .ci/run skips tests that take minutes and whose code other tests run, too. They test layers of whole networks, long
# sums, large transforms, a decompression bomb of 300 MiB, and repeated values.
long='*HostileBytes.ChangedBits*:*HoldTheirBoundWhereAllErrors*:*SparseConv.HoldsItsBound*:'
long+='*SparseConv.HasTheGradients*:*SparseConv.HasTheSameBits*:Parsers/*EveryBeginning*/sweep'
long+=':*UnpacksToVeryMuch*:*LongSumsOfOneSign'
long+=':DepthwiseNchw16c.HoldsItsBound*:DepthwiseNchw16c.AgreesOnRandom*:DepthwiseNchw16c.*EveryWidth:DepthwiseNchw16c.*AnyNumber*'
long+=':Nchw16cGroups.AgreeWhere*:Nchw16cGroups.HoldTheirBound*:Nchw16cGroups.AgreeOnRows*:Nchw16cGroups.*OnRandom*'
long+=':Nchw16cCuts.OfThisMachine*:Nchw16cCuts.OfSmall*:Nchw16cLayout.Winograd*:*WinogradTransformsMany*:Fft.OutputsOneBelow*'
long+=':BlockSparse.*OnManyChannels:BlockSparse.*OnFirstLayers:Int8.*OnLayersOfNetworks:Int8.CodesNextToTies*:Int8.*OfEveryWidth'
long+=':IntegerExecution.Residual*:IntegerExecution.LeNet*:SparseLinear.OfChanging*:Optimizer.Follows*'
long+=':Conv2dEpilogueOfEveryAlgorithm.*:MobileNetV2.GradientsOf*:Isas/GemmOnEachIsa*:DeformConv2d.HasTheGradients*'
deform=''  # its larger problems, and two that other tests of Deform cover
for problem in 3 4 5 7 8 9 10 11 14; do deform+=":Small/Deform.*/$problem"; done
long+="$deform:Small/DeformOutside.*/1"
for list in gpu_ lenet mobilenet resnet resnext vgg googlenet pointwise depthwise large_kernels deform; do
  long+=":*ShapesFile*/$list*"
done

short_under_address=-$long
# Two tests of optimisers are skipped, because others run the same updates with several threads.
where_threads_meet="*Thread*:*Parallel*:*Loader*:*Memory*:*Optimizer*-$deform"
where_threads_meet+=':Optimizer.FollowsTheFormulasInFloat*:Optimizer.ContinuesFromASaved*'

# Makes and checks the packages. tests/install/clean_root.sh installs them in a minimal system, which takes longer.
packages() {
  ./bootstrap.sh package --yes --preset ci-units && python3 tests/install/check_packages.py build/ci-units/packages
}

# Compiles the kernels to PTX only. Without a driver no kernel runs here, and the tests do not need the CUDA
# library.
cuda() { cmake --preset ci-units && cmake --build --preset ci-units --target convscope_cuda_ptx; }

# Tests the Python package on the emulation of CUDA, with the library of the first stage, so that no file is compiled
# twice. Then runs two networks in ONNX Runtime. Skipped if the required packages cannot be installed.
python=build/python/env
python_packages() {
  [[ -x $python/bin/python ]] || python3 -m venv "$python" || return 1
  "$python/bin/pip" install -q --disable-pip-version-check scikit-build-core 'nanobind>=3.1,<4' numpy pandas \
    onnxruntime onnx
}
python_package() {
  export CONVSCOPE_MEASURE=off CONVSCOPE_CACHE_DIR=$PWD/build/python/cache OMP_WAIT_POLICY=passive
  "$python/bin/pip" install -q --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall . \
    -C cmake.define.CONVSCOPE_BUILT=build/ci-units -C cmake.define.CONVSCOPE_WERROR=ON || return 1
  "$python/bin/python" experiments/baselines/onnx_models.py --program build/ci-units/bin/convscope \
    --only lenet5,mobilenet_v1 || return 1
  CONVSCOPE_CUDA_LIBRARY=$PWD/build/ci-units/lib/libconvscope_cuda_emulated.so \
    "$python/bin/python" tests/experiments/python/run_tests.py
}

alone() {
  cmake --preset clang -DCONVSCOPE_CUDA=OFF && python3 tests/repo/compile_alone.py build/clang
}
export logs
export -f alone sanitized_tests
