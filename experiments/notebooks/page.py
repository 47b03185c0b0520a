# SPDX-License-Identifier: Apache-2.0
"""Writes an executed notebook as one self-contained HTML page."""
from html import escape

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 Georgia, 'Times New Roman', serif; color: #222; background: #fff;
       max-width: 760px; margin: 0 auto; padding: 16px; }
h1, h2, h3 { font-family: Helvetica, Arial, sans-serif; line-height: 1.25; }
.cell { margin: 0 0 14px; }
pre, code { font: 13px/1.45 'DejaVu Sans Mono', Menlo, Consolas, monospace; }
pre { overflow-x: auto; margin: 0; }
.in { border: 1px solid #ddd; border-radius: 4px; background: #f7f7f7; padding: 8px 10px; }
.text pre, .md pre { background: #f7f7f7; padding: 8px 10px; }
.out { padding: 6px 0 0 10px; }
.out pre, .in pre { white-space: pre-wrap; }
.anchor-link { display: none; }
.stderr pre { background: #fdeeee; } .error pre { background: #fdeeee; color: #8b0000; }
.out svg, .out img { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font: 13px/1.4 Helvetica, Arial, sans-serif; }
.md table { display: block; overflow-x: auto; width: max-content; max-width: 100%; }
.md code { overflow-wrap: anywhere; } .md pre code { overflow-wrap: normal; }
th, td { border: 1px solid #ccc; padding: 2px 8px; text-align: left; }
.out td { text-align: right; }
figure { margin: 4px; } figcaption { font: 12px Helvetica, Arial, sans-serif; }
details { margin: 4px 0; } summary { cursor: pointer; }
"""


def code_html(source):
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import CppLexer
    return highlight(source, CppLexer(), HtmlFormatter())


def markdown_html(source):
    from nbconvert.filters.markdown_mistune import markdown2html_mistune
    return markdown2html_mistune(source)


def output_html(output):
    kind = output.output_type
    if kind == "stream":
        return f'<div class="out {output.name}"><pre>{escape(output.text)}</pre></div>'
    if kind == "error":
        return f'<div class="out error"><pre>{escape(output.ename)}: {escape(output.evalue)}</pre></div>'
    data = output.data
    if "image/svg+xml" in data:
        body = data["image/svg+xml"]
    elif "text/html" in data:
        body = data["text/html"]
    elif "image/png" in data:
        body = f'<img alt="" src="data:image/png;base64,{data["image/png"].strip()}">'
    else:
        body = f"<pre>{escape(data.get('text/plain', ''))}</pre>"
    return f'<div class="out wide" tabindex="0">{body}</div>'


def to_html(notebook, title):
    from pygments.formatters import HtmlFormatter
    body = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            body.append(f'<div class="cell md">{markdown_html(cell.source)}</div>')
        elif cell.cell_type == "code" and cell.source.strip():
            outputs = "".join(output_html(output) for output in cell.get("outputs", []))
            body.append(f'<div class="cell"><div class="in">{code_html(cell.source)}</div>{outputs}</div>')
    colors = HtmlFormatter().get_style_defs(".highlight")
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(title)}</title><style>{STYLE}{colors}</style></head>\n"
            f"<body>\n{chr(10).join(body)}\n</body></html>\n")
