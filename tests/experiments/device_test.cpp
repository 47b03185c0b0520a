// SPDX-License-Identifier: Apache-2.0
// device_test.cpp: tests the error sentence and exit code 5 for devices and precisions that this
// machine lacks.
#include <cstdlib>

#include "tests/experiments/program.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

const std::string kQuickstart =
    std::string(CONVSCOPE_SOURCE_DIR) + "/experiments/configs/quickstart.yaml";

// Sets the CUDA library of started processes.
class CudaLibrary {
 public:
  explicit CudaLibrary(const char* path) {
    const char* before = std::getenv(kName);
    had_ = before != nullptr;
    if (had_) before_ = before;
    setenv(kName, path, 1);
  }
  ~CudaLibrary() {
    if (had_) {
      setenv(kName, before_.c_str(), 1);
    } else {
      unsetenv(kName);
    }
  }

 private:
  static constexpr const char* kName = "CONVSCOPE_CUDA_LIBRARY";
  bool had_;
  std::string before_;
};

struct Ended {
  int code;
  std::string out, err;
};

Ended call(const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  std::vector<std::string> words = {kProgram};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::string output = folder.path() + "/output";
  const int code = Program(words, output).wait();
  return {code, text_of(output + ".out"), text_of(output + ".err")};
}

TEST(Device, cuda_without_its_library_is_exit_code_5_and_one_sentence) {
  const CudaLibrary none("/nowhere/libconvscope_cuda.so");
  const TemporaryFolder folder;
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"run", kQuickstart, "device=cuda", "-o", folder.path()},
        std::vector<std::string>{"bench", "conv2d", "--problem", "n=1,c=1,h=8,w=8,k=1,r=3,s=3",
                                 "--device", "cuda"}}) {
    const Ended ended = call(command);
    EXPECT_EQ(ended.code, 5) << ended.err;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    EXPECT_NE(
        ended.err.find("[device] expected device cuda:0 to be available, but this build has no "
                       "CUDA library (looked for /nowhere/libconvscope_cuda.so)"),
        std::string::npos)
        << ended.err;
    EXPECT_NE(ended.err.find("use device cpu"), std::string::npos) << ended.err;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));  // no run was created
}

TEST(Device, info_says_why_there_is_no_gpu) {
  const CudaLibrary none("/nowhere/libconvscope_cuda.so");
  const Ended ended = call({"info"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_NE(ended.out.find("cuda          not available: this build has no CUDA library"),
            std::string::npos)
      << ended.out;
}

TEST(Device, a_half_precision_on_the_cpu_is_exit_code_5) {
  for (const char* precision : {"tf32", "bf16", "f16"}) {
    const Ended ended = call({"run", kQuickstart, std::string("precision=") + precision});
    EXPECT_EQ(ended.code, 5);
    EXPECT_NE(ended.err.find("[precision] expected precision f32 because the CPU multiplies in f32 "
                             "only, got "),
              std::string::npos)
        << ended.err;
  }
}

TEST(Device, an_unknown_precision_is_a_mistake_of_the_config) {
  const Ended ended = call({"run", kQuickstart, "precision=f8"});
  EXPECT_EQ(ended.code, 3);
  EXPECT_NE(ended.err.find("precision"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace convscope::testing
