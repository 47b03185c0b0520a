// SPDX-License-Identifier: Apache-2.0
// unbacked_memory_test.cpp: tensors without memory, and the memory of the machine.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "framework/machine/machine.h"
#include "framework/memory/memory.h"
#include "framework/memory/memory_room.h"
#include "framework/memory/unbacked.h"
#include "framework/tensor.h"
#include "tests/support/resident_memory.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using testing::TemporaryFolder;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

TEST(UnbackedMemory, HugeTensorsAreCountedAndTakeNothing) {
  const MemoryStats before = memory_stats({});
  Tensor outlives;
  const auto extra = testing::extra_resident_bytes([&] {
    const UnbackedMemory nothing;
    outlives = Tensor::zeros({1024, 1024, 1024}, DType::f64);
    const Tensor ones = Tensor::full({kGiB}, 1.0);
    const Tensor copy = Tensor::empty({kGiB});
    copy.copy_from(ones);
    EXPECT_EQ(nothing.live_bytes({}), (8 + 4 + 4) * kGiB);
  });
  EXPECT_LT(extra, 64 << 20);
  EXPECT_EQ(memory_stats({}).live_bytes, before.live_bytes);
  EXPECT_EQ(memory_stats({}).cached_bytes, before.cached_bytes);
  outlives = Tensor();
  EXPECT_EQ(Tensor::full({2}, 3.0).at(1), 3.0);  // as usual
}

TEST(UnbackedMemory, SmallTensorsHoldWhatTheyShould) {
  const UnbackedMemory nothing;
  EXPECT_EQ(Tensor::full({100}, 3.0).clone().at(99), 3.0);
}

class Groups : public ::testing::Test {
 protected:
  void put(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  MemoryRoom room() const { return host_memory_room({root / "own", root / "cgroup"}); }
  TemporaryFolder root;
  const std::int64_t machine = host_memory_room({"/nowhere", "/nowhere"}).bytes;
};

TEST_F(Groups, WithoutOneThereIsTheMemoryOfTheMachine) {
  EXPECT_GT(machine, 1 << 26);
  EXPECT_EQ(room().bytes, machine);
  EXPECT_EQ(room().source, "this machine has");
  put("own", "0::/job\n");
  put("cgroup/job/memory.max", "max\n");
  EXPECT_EQ(room().bytes, machine);
  put("cgroup/job/memory.max", "9223372036854771712\n");
  EXPECT_EQ(room().bytes, machine);
}

TEST_F(Groups, TheSmallestLimitOfAGroupAndThoseAroundItCounts) {
  put("own", "0::/job/step\n");
  put("cgroup/job/step/memory.max", "50000000\n");
  EXPECT_EQ(room().bytes, 50000000);
  put("cgroup/job/memory.max", "40000000\n");
  EXPECT_EQ(room().bytes, 40000000);
  EXPECT_EQ(room().source, root / "cgroup/job/memory.max" + " allows");
  put("cgroup/memory.max", "30000000\n");  // of a container
  EXPECT_EQ(room().bytes, 30000000);
}

TEST_F(Groups, TheFirstVersionOfTheInterfaceIsReadToo) {
  put("own", "12:cpu,cpuacct:/other\n4:memory:/job\n0::/\n");
  put("cgroup/memory/job/memory.limit_in_bytes", "60000000\n");
  put("cgroup/memory/other/memory.limit_in_bytes", "10\n");
  EXPECT_EQ(room().bytes, 60000000);
}

TEST(CacheFolder, IsPrivateWhereThereIsNoHome) {
  const TemporaryFolder root;
  const std::string path = root / "cache";
  EXPECT_EQ(private_folder(path), path);
  struct stat facts {};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u);
  EXPECT_EQ(private_folder(path), path);
  ASSERT_EQ(chmod(path.c_str(), 0777), 0);  // others could have left files in it
  EXPECT_EQ(private_folder(path), "");
  std::filesystem::create_directory_symlink(path, root / "link");
  ASSERT_EQ(chmod(path.c_str(), 0700), 0);
  EXPECT_EQ(private_folder(root / "link"), "");
  std::ofstream(root / "file") << "";
  EXPECT_EQ(private_folder(root / "file"), "");
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
    EXPECT_EQ(private_folder(path), "");
  }
}

}  // namespace
}  // namespace convscope
