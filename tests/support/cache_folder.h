// SPDX-License-Identifier: Apache-2.0
// cache_folder.h: a test has the cache of measurements to itself: a fresh CONVSCOPE_CACHE_DIR.
#pragma once

#include <cstdlib>

#include "framework/machine/ceilings.h"
#include "layers/dispatch/measure.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {

class CacheFolder {
 public:
  CacheFolder() {
    setenv("CONVSCOPE_CACHE_DIR", folder_.path().c_str(), 1);
    forget();
  }
  ~CacheFolder() {
    unsetenv("CONVSCOPE_CACHE_DIR");
    forget();
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  const std::string& path() const { return folder_.path(); }
  static void forget() {
    forget_cpu_ceilings();
    forget_measured();
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace convscope::testing
