// SPDX-License-Identifier: Apache-2.0
// look_markup.cpp: the frame of a page that replays a lesson.
#include "experiments/look/look_markup.h"

#include <fmt/format.h>

#include <cctype>

#include "experiments/report/chart/svg_text.h"
#include "experiments/report/html/markup.h"
#include "experiments/report/html/page.h"
#include "framework/check.h"

namespace convscope {
namespace {

constexpr const char* kStyle = R"(
:root{--read:#0b5a8a;--readtext:#fff;--write:#8a3a00;--writetext:#fff;--h0:#fff;--h1:#edf3f7;
--h2:#d8e6f0;--h3:#bdd6e6;--h4:#9fc6df;--kept:#1d6b36}
@media(prefers-color-scheme:dark){:root{--read:#8ccbf2;--readtext:#10151a;--write:#f5b07a;
--writetext:#1a120a;--h0:#16181b;--h1:#1c252d;--h2:#203240;--h3:#234055;--h4:#264e69;
--kept:#7fd19a}}
body{max-width:1560px}h2{margin:8px 0 0;padding-top:4px}header p{margin:6px 0}
#player{position:sticky;top:0;z-index:2;background:var(--page);padding:6px 0;
border-bottom:1px solid var(--line)}
.row{display:flex;flex-wrap:wrap;gap:6px;align-items:center;margin:3px 0}
.row button,.row select{font:inherit;font-size:14px;padding:3px 9px;color:inherit;
background:var(--box);border:1px solid var(--soft);border-radius:5px}
.row button{cursor:pointer}.row button:hover{border-color:var(--link)}
.row button:focus-visible,.row select:focus-visible,#at:focus-visible{outline:2px solid var(--link)}
.row label{font-size:14px}#at{flex:1 1 200px;min-width:120px;accent-color:var(--link)}
#where{font-size:14px;font-variant-numeric:tabular-nums}
#steps button[aria-current=true]{background:var(--link);color:var(--page);font-weight:bold}
#steps small{font-size:12px;color:inherit}
#now{font-size:15px;margin:6px 0;min-height:1.5em;font-weight:bold}
.facts{grid-template-columns:repeat(auto-fill,minmax(min(100%,152px),1fr));gap:6px 18px;
margin:4px 0 8px}
.facts dd{font-variant-numeric:tabular-nums}
.count{display:block;height:8px;background:var(--line);margin-top:3px}
.count i{display:block;height:8px;background:var(--bar)}.count i.book{background:var(--bar2)}
#board{display:grid;grid-template-columns:minmax(0,9fr) minmax(0,11fr);gap:20px;margin-top:8px}
#arrays{display:flex;flex-wrap:wrap;gap:10px 26px;align-content:flex-start}
.array{max-width:100%}.array h3{margin:4px 0 2px;font-size:15px}
.array h3 small{font-weight:normal;font-size:12px}
.planes{display:flex;flex-wrap:wrap;gap:6px 14px;max-width:100%;overflow-x:auto;padding:3px}
.plane small{display:block;font-size:12px;line-height:1.3}
.grid{display:grid;gap:1px;width:max-content;background:var(--line);border:1px solid var(--line)}
.grid span{font-size:12px;line-height:19px;height:21px;text-align:center;white-space:nowrap;
background:var(--h0);border-bottom:2px solid transparent;font-variant-numeric:tabular-nums}
.grid.pairs span:nth-child(even){margin-right:3px}
.grid .h1{background:var(--h1)}.grid .h2{background:var(--h2)}.grid .h3{background:var(--h3)}
.grid .h4{background:var(--h4)}.grid .o{box-shadow:inset 0 0 0 2px var(--read)}
.grid .k{border-bottom-color:var(--kept)}
.grid .r{background:var(--read);color:var(--readtext);font-weight:bold}
.grid .w{background:var(--write);color:var(--writetext);font-weight:bold}
#code{position:sticky;top:150px;max-height:calc(100vh - 170px);overflow:auto;margin:0;padding:8px 0;
font-size:12px;line-height:1.5;overflow-wrap:normal}
#code div{white-space:pre;padding:0 10px;width:max-content;min-width:100%}
#code div b{display:inline-block;width:30px;font-weight:normal;color:var(--soft)}
#code .on{background:var(--mark);font-weight:bold}
#lesson h3{margin:2px 0 6px}
.key{display:inline-block;min-width:26px;text-align:center;font-size:12px;margin-right:6px}
#words li{margin:3px 0}
@media(max-width:800px){#played{display:flex;flex-direction:column}
#played>*{order:2;min-width:0}
#played>h2,#played>noscript,#player,#now,#wrong{order:0}#board{order:1;margin-top:0}
#board{grid-template-columns:minmax(0,1fr)}#steps{flex-wrap:nowrap;overflow-x:auto}
#steps button{flex:none}#code{position:static;max-height:190px}
.row button,.row select{padding:3px 7px;font-size:13px}
.facts{grid-template-columns:repeat(2,minmax(0,1fr))}})";

constexpr const char* kPlayer = R"(<noscript><p class="note">A script of this page plays the lesson;
this browser does not run scripts.</p></noscript>
<div id="player" role="group" aria-label="Play the lesson"><div class="row">
<button id="start" type="button" title="Home">Start</button>
<button id="back" type="button" title="arrow left">Back</button>
<button id="play" type="button" title="space">Play</button>
<button id="step" type="button" title="arrow right">Step</button>
<button id="end" type="button" title="End">End</button>
<label>speed <select id="speed"><option value="2">2 a second</option>
<option value="8">8</option><option value="32" selected>32</option><option value="128">128</option>
<option value="512">512</option><option value="2048">2048</option></select></label>
<label class="hidden" for="at">Position</label><input id="at" type="range" min="0" value="0">
<output id="where" for="at"></output></div>
<div class="row" id="steps" role="group" aria-label="Go to the next turn of a step"></div>
</div>
<p id="now" role="status"></p>
<p id="wrong" class="note" role="alert" hidden></p>
)";

constexpr const char* kFacts = R"(<dl class="facts">
<div><dt>multiplications so far</dt><dd id="products"></dd></div>
<div><dt>multiplications of the textbook</dt><dd id="textbook"></dd></div>
<div><dt>running sum</dt><dd id="sum"></dd></div>
<div><dt>reads, writes so far</dt><dd id="touches"></dd></div>
<div><dt>cache lines touched</dt><dd id="lines"></dd></div>
<div><dt>cache misses, hits</dt><dd id="loads"></dd></div>
<div id="threads" hidden><dt>thread of the block</dt><dd id="thread"></dd></div>
</dl>
<div class="row"><label>cache <select id="cache"><option value="128">128 bytes</option>
<option value="256">256 bytes</option><option value="512" selected>512 bytes</option>
<option value="1024">1 KiB</option><option value="2048">2 KiB</option>
<option value="4096">4 KiB</option>
<option value="32768">32 KiB</option></select></label>
<label>associativity <select id="ways"><option value="0" selected>fully associative</option>
<option value="8">8-way</option><option value="2">2-way</option><option value="1">1-way</option>
</select></label>
<label>colour <select id="heat"><option value="all" selected>reads and writes</option>
<option value="reads">reads</option><option value="writes">writes</option>
<option value="none">none</option></select></label>
<span id="cell"></span></div>
)";

constexpr const char* kBoard =
    R"(<div id="board"><div id="arrays"></div><div id="lesson"><h3 id="file"></h3>
<pre id="code" tabindex="0" role="group" aria-label="Source of the lesson"></pre></div></div>
)";

constexpr const char* kWords = R"(<details id="words"><summary>How to read it</summary><ul>
<li><span class="key grid"><span class="r">3</span></span>is read now,
<span class="key grid"><span class="w">3</span></span>is written now,
<span class="key grid"><span class="o">3</span></span>was read since the last write.</li>
<li><span class="key grid"><span class="h1">3</span></span><span class="key grid"><span
class="h4">3</span></span>a stronger colour means more reads and writes, relative to
the number of the same array with the most. <span class="key
grid"><span>&middot;</span></span>is not written yet. <span class="key grid"><span
class="k">3</span></span>its line is in the cache.</li>
<li>Multiplications count products of two numbers from arrays. Products with a constant are
counted separately: the constants of a transform, and the 0 of the padding, which is in no array.
The textbook makes N K P Q C/G R S multiplications, including those with padding.</li>
<li>The cache has lines of 64 bytes and replaces the least recently used line. A write also loads
its line. The arrays follow one another in memory, and each begins on a new line. Shared memory
and registers of a GPU do not pass through this cache.</li>
<li>Keys: arrow left and right (one read, write or sum), space (play), N and P (next and previous
step of the lesson), Home and End. A click on a number shows its index and how often it was
read and written.</li></ul></details>
)";

}  // namespace

std::string look_markup(const Look& look, const Conv2dAlgorithm& algorithm,
                        const std::string& data) {
  constexpr std::string_view kPrefix = "lesson: ";
  std::string idea = algorithm.idea;
  if (idea.starts_with(kPrefix)) idea.erase(0, kPrefix.size());
  if (!idea.empty()) idea[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(idea[0])));
  Page page{.title = look.lesson,
            .subtitle = cat(name_of(look.direction), " of ", look.problem.text())};
  page.lead = fmt::format(
      "<p>{}. ({})</p>\n<p>At the end the result differs by at most {:.3g} from the seven loops of "
      "<code>reference</code>{}.</p>\n",
      escape_markup(idea), escape_markup(algorithm.paper), look.largest_difference,
      look.step == 0 ? "" : fmt::format("; a step of its codes is {:.3g}", look.step));
  if (!look.other_algorithm.empty()) {
    page.lead =
        cat("<p class=\"note\">", escape_markup(look.other_algorithm), ".</p>\n", page.lead);
  }
  page.sections = {
      {.id = "played", .title = "Step by step", .body = cat(kPlayer, kFacts, kBoard, kWords)}};
  page.style = kStyle;
  page.script = data + kLookScript;
  return to_html(page);
}

}  // namespace convscope
