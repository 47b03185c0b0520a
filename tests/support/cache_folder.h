// SPDX-License-Identifier: Apache-2.0
// cache_folder.h: gives a test a private cache for measurements, by setting CONVSCOPE_CACHE_DIR to
// a new folder.
#pragma once

#include "framework/machine/peaks.h"
#include "layers/dispatch/measure.h"
#include "tests/support/environment_variable.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {

class CacheFolder {
 public:
  CacheFolder() : variable_("CONVSCOPE_CACHE_DIR", folder_.path().c_str()) { forget(); }
  ~CacheFolder() { forget(); }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  const std::string& path() const { return folder_.path(); }
  static void forget() {
    forget_cpu_peaks();
    forget_measured();
  }

 private:
  TemporaryFolder folder_;
  EnvironmentVariable variable_;
};

}  // namespace convscope::testing
