// SPDX-License-Identifier: Apache-2.0
// numpy_files_test.cpp: tests that NumPy reads files written by Convscope, and the reverse. Without
// NumPy the test is skipped.
#include <cstdlib>

#include "framework/io/atomic_file.h"
#include "framework/io/npy.h"
#include "framework/io/npz.h"
#include "framework/io/safetensors.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

class NumpyFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* program : {"python3", "/usr/bin/python3"}) {
      python_ = program;
      if (run("import numpy") == 0) return;
    }
    GTEST_SKIP() << "python3 with NumPy is not installed";
  }
  int run(const std::string& script) const {
    write_file(folder_ / "script.py", script);
    return std::system(
        cat("cd ", folder_.path(), " && ", python_, " script.py 2>/dev/null").c_str());
  }
  testing::TemporaryFolder folder_;
  std::string python_;
};

TEST_F(NumpyFiles, ReadsOurFiles) {
  const Tensor x = Tensor::from({0, 1, 2, 3, 4, 5}, {2, 3});
  NamedTensors tensors;
  for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::i32, DType::i8, DType::u8}) {
    tensors.push_back({std::string(name_of(dtype)), x.to(dtype)});
    write_npy(folder_ / cat(name_of(dtype), ".npy"), x.to(dtype));
  }
  write_npz(folder_ / "all.npz", tensors);
  write_safetensors(folder_ / "all.safetensors", tensors, {{"epoch", "3"}});
  EXPECT_EQ(run(R"(
import json, struct, numpy as np
names = dict(f32='<f4', f64='<f8', f16='<f2', i32='<i4', i8='|i1', u8='|u1')
archive = np.load('all.npz')
raw = open('all.safetensors', 'rb').read()
length = struct.unpack('<Q', raw[:8])[0]
header = json.loads(raw[8:8 + length])
data = raw[8 + length:]
assert header.pop('__metadata__') == {'epoch': '3'}
assert sorted(archive.files) == sorted(names) == sorted(header)
expected = np.arange(6).reshape(2, 3)
for name, dtype in names.items():
    begin, end = header[name]['data_offsets']
    third = np.frombuffer(data[begin:end], dtype).reshape(header[name]['shape'])
    assert header[name]['dtype'] == name.upper()
    for array in (np.load(name + '.npy'), archive[name], third):
        assert array.dtype == np.dtype(dtype) and (array == expected).all()
    np.save('again.npy', expected.astype(dtype))
    assert open('again.npy', 'rb').read() == open(name + '.npy', 'rb').read()
)"),
            0);
}

TEST_F(NumpyFiles, WritesFilesThatWeRead) {
  ASSERT_EQ(run(R"(
import numpy as np
x = np.arange(12, dtype='f4').reshape(3, 4)
np.savez('stored.npz', x=x, y=x.astype('u1'))
np.savez_compressed('deflated.npz', x=x, y=x.astype('u1'))
np.save('fortran.npy', np.asfortranarray(x))
np.save('long.npy', x.astype('i8'))
np.save('scalar.npy', np.float64(2.5))
)"),
            0);
  for (const char* name : {"stored.npz", "deflated.npz"}) {
    const NamedTensors tensors = read_npz(folder_ / name);
    ASSERT_EQ(tensors.size(), 2u);
    EXPECT_EQ(tensors[0].name, "x");
    EXPECT_EQ(tensors[0].tensor.str(), "f32[3,4] cpu");
    EXPECT_EQ(tensors[1].tensor.at(11), 11);
  }
  EXPECT_ERROR(ErrorKind::kData, "np.ascontiguousarray", read_npy(folder_ / "fortran.npy"));
  EXPECT_ERROR(ErrorKind::kData, "got '<i8'", read_npy(folder_ / "long.npy"));
  EXPECT_EQ(read_npy(folder_ / "scalar.npy").item(), 2.5);
}

}  // namespace
}  // namespace convscope
