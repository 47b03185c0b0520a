// SPDX-License-Identifier: Apache-2.0
// xml_check.h: a minimal check that the XML of charts is well-formed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

namespace convscope::testing {

// Checks that tags are closed in the right order, attributes are quoted and unique, and every &
// begins an entity.
inline void expect_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = xml.find('&'); at != std::string::npos; at = xml.find('&', at + 1)) {
    const std::string entity = xml.substr(at, xml.find(';', at) - at);
    EXPECT_TRUE(entity == "&amp" || entity == "&lt" || entity == "&gt" || entity == "&quot" ||
                entity == "&#39")
        << xml.substr(at, 20);
  }
  for (std::size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const std::size_t end = xml.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = xml.substr(at + 1, end - at - 1);
    ASSERT_EQ(tag.find('<'), std::string::npos) << tag;
    ASSERT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty()) << tag;
      ASSERT_EQ(open.back(), tag.substr(1));
      open.pop_back();
      continue;
    }
    std::vector<std::string> names;
    for (std::size_t equals = tag.find("=\""); equals != std::string::npos;
         equals = tag.find("=\"", tag.find('"', equals + 2))) {
      std::size_t from = equals;
      while (from > 0 && std::isspace(static_cast<unsigned char>(tag[from - 1])) == 0) --from;
      names.push_back(tag.substr(from, equals - from));
    }
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end()) << tag;
    if (tag.back() != '/') open.push_back(tag.substr(0, tag.find(' ')));
  }
  EXPECT_TRUE(open.empty());
  for (const char* bad : {"nan", "inf "}) {
    EXPECT_EQ(xml.find(bad), std::string::npos) << bad;
  }
}

}  // namespace convscope::testing
