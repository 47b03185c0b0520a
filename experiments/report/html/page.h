// SPDX-License-Identifier: Apache-2.0
// page.h: the frame of every page: head, style, contents, sections. A page needs no other file.
#pragma once

#include <string>
#include <vector>

namespace convscope {

struct PageSection {
  std::string id, title, body;  // body is markup; a section with an empty body is left out
  std::vector<std::pair<std::string, std::string>> parts = {};  // id and title, for the contents
};

struct Page {
  std::string title, subtitle = {};
  std::string lead = {};  // markup above the contents
  std::vector<PageSection> sections = {};
  std::string style = {};   // in addition to the common style
  std::string script = {};  // empty: the page forbids scripts
};

std::string to_html(const Page& page);

}  // namespace convscope
