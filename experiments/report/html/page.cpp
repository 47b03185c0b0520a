// SPDX-License-Identifier: Apache-2.0
// page.cpp: the frame of every page: head, style, contents, sections.
#include "experiments/report/html/page.h"

#include <fmt/format.h>

#include "experiments/report/chart/svg_text.h"

namespace convscope {
namespace {

// Figures are 960 pixels wide with letters of 11 pixels. The page shows them 1152 wide, so letters
// have 13 pixels. On a narrow screen they scroll in a box. They are drawn for white paper; a dark
// page swaps light and dark and keeps the hues.
constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--text:#222;--soft:#565656;--line:#ddd;--page:#fff;--box:#f5f6f7;
--link:#0b5a8a;--good:#1d6b36;--bad:#a4231d;--note:#7a4a00;--notebox:#fff5e2;--mark:#fff0c2;
--bar:#0b5a8a;--bar2:#e0983a}
@media(prefers-color-scheme:dark){:root{--text:#e4e6e8;--soft:#a9adb2;--line:#3a3f45;--page:#16181b;
--box:#212428;--link:#7cc0ee;--good:#7fd19a;--bad:#ff9c94;--note:#f3c77c;--notebox:#33290f;
--mark:#4a3c10;--bar:#5aa9dd;--bar2:#e0a458}.plot svg{filter:invert(.91) hue-rotate(180deg)}}
*{box-sizing:border-box}
body{font:16px/1.5 Helvetica,Arial,sans-serif;max-width:1184px;margin:0 auto;padding:16px;
color:var(--text);background:var(--page);overflow-wrap:anywhere}
h1{font-size:26px;line-height:1.2;margin:8px 0 0}h1 small{display:block;font-size:15px;
font-weight:normal;color:var(--soft);margin-top:4px}
h2{font-size:20px;margin:36px 0 8px;padding-top:8px;border-top:1px solid var(--line)}
h3{font-size:16px;margin:20px 0 6px}a{color:var(--link)}small{font-size:13px;color:var(--soft)}
nav ul{margin:0;padding:0;display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none}
nav li{display:inline}nav{margin:20px 0;padding:10px 14px;background:var(--box);border-radius:6px}
.state{display:inline-block;font-weight:bold;padding:1px 9px;border:1px solid;border-radius:11px;
font-size:14px;white-space:nowrap}.good{color:var(--good)}.bad{color:var(--bad)}
.going{color:var(--note)}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,170px),1fr));
gap:12px 24px;margin:14px 0}.facts dt{font-size:13px;color:var(--soft)}.facts dd{margin:0}
.facts small{display:block;line-height:1.35}
.note{background:var(--notebox);border-left:4px solid var(--note);padding:8px 14px;margin:14px 0;
border-radius:4px}.note ul,.note p{margin:0}.note ul{padding-left:20px}
figure{margin:0 0 28px;break-inside:avoid}.plot,.wide{overflow-x:auto;max-width:100%}
.plot svg{display:block;width:100%;min-width:1152px;height:auto}
.plot:focus-visible,.wide:focus-visible{outline:2px solid var(--link)}
table{border-collapse:collapse;font-size:14px}th,td{text-align:left;padding:3px 14px 3px 0;
border-bottom:1px solid var(--line);font-variant-numeric:tabular-nums;white-space:nowrap;
vertical-align:top}th.n,td.n{text-align:right}th small{display:block;font-weight:normal;
font-size:12px}tbody tr:hover{background:var(--box)}
pre{background:var(--box);padding:12px;overflow-x:auto;font-size:13px;line-height:1.45;
border-radius:6px}mark{background:var(--mark);color:inherit;font-weight:bold}
summary{cursor:pointer;color:var(--link);padding:4px 0}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);
white-space:nowrap}
.bar{display:inline-block;height:9px;background:var(--bar);margin-left:8px;min-width:1px}
.bar.b{background:var(--bar2)}td.m{white-space:nowrap}td small{font-size:12px}
@media(max-width:600px){.facts{grid-template-columns:repeat(2,minmax(0,1fr));gap:8px 14px}
.note{font-size:14px}nav ul{flex-wrap:nowrap;overflow-x:auto}nav li{flex:none}}
@media print{nav{display:none}.plot svg{min-width:0}}
)";

std::string contents(const std::vector<PageSection>& sections) {
  std::string out;
  std::size_t count = 0;
  for (const PageSection& section : sections) {
    if (section.body.empty()) continue;
    const auto add = [&](const std::string& id, const std::string& title) {
      out +=
          fmt::format("<li><a href=\"#{}\">{}</a></li>\n", escape_markup(id), escape_markup(title));
      ++count;
    };
    if (section.parts.empty()) add(section.id, section.title);
    for (const auto& [id, title] : section.parts) add(id, title);
  }
  if (count < 2) return "";
  return "<nav aria-label=\"Contents\"><ul>\n" + out + "</ul></nav>\n";
}

}  // namespace

std::string to_html(const Page& page) {
  const std::string title = escape_markup(page.title);
  const std::string subtitle =
      page.subtitle.empty() ? "" : "<small>" + escape_markup(page.subtitle) + "</small>";
  // If the page has no script, its content security policy forbids all scripts, even those that the
  // files of a run may contain.
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"generator\" content=\"convscope\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'{}\">\n<title>{}{}</title>\n<style>{}{}</style></head>\n<body>\n"
      "<header><h1>{}{}</h1>\n{}</header>\n{}<main>\n",
      page.script.empty() ? "" : "; script-src 'unsafe-inline'", title,
      page.subtitle.empty() ? "" : ", " + escape_markup(page.subtitle), kStyle, page.style, title,
      subtitle, page.lead, contents(page.sections));
  for (const PageSection& section : page.sections) {
    if (section.body.empty()) continue;
    out += fmt::format("<section id=\"{}\"><h2>{}</h2>\n{}</section>\n", escape_markup(section.id),
                       escape_markup(section.title), section.body);
  }
  out += "</main>\n";
  if (!page.script.empty()) out += "<script>" + page.script + "</script>\n";
  return out + "</body></html>\n";
}

}  // namespace convscope
