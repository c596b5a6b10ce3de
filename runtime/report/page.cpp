// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/page.hpp"

#include <fmt/format.h>

namespace hybridstate::runtime {

namespace {

constexpr std::string_view style = R"css(
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1b1f24;--soft:#5a6470;--grid:#e2e6ea;
--axis:#9aa4af;--s0:#0072b2;--s1:#d55e00;--s2:#00875f;--s3:#b4559b;--s4:#8c6d00;--s5:#3a9bd6;
--s6:#6b4fc9;--s7:#7a4a2b;--r0:#4a525b;--r1:#8b949e;--attention:#2b6a80;--ssm:#e3a12c;
--conv:#c0527a;--cached:#aebccb;--keyless:#eef1f4;--fenced:#3f3a37;--running:#1b1f24;
--waiting:#c2410c;--tip:#1b1f24;--tipink:#fff}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--card:#1c2026;--ink:#e7eaee;--soft:#a3adb8;
--grid:#2e343c;--axis:#66707b;--s0:#4da6e0;--s1:#ff8a4c;--s2:#2fc79a;--s3:#e08cc8;--s4:#e3c04a;
--s5:#9ad8ff;--s6:#a896f5;--s7:#c99a76;--r0:#c3cad2;--r1:#87909a;--attention:#4f9db8;--ssm:#e8b04a;
--conv:#d9789c;--cached:#5b6878;--keyless:#262b32;--fenced:#d8d2cc;--running:#e7eaee;
--waiting:#ff9a5c;--tip:#e7eaee;--tipink:#14171b}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,
"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1240px;margin:0 auto;padding:28px 20px 48px}
h1{font-size:25px;line-height:1.25;margin:0 0 4px}
h2{font-size:18px;margin:34px 0 10px}
p{margin:6px 0;max-width:80ch}
.soft{color:var(--soft)}
.card,figure{background:var(--card);border:1px solid var(--grid);border-radius:8px;margin:0;
padding:14px 16px;min-width:0}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(190px,1fr));gap:6px 22px;margin:0}
dl div{min-width:0;overflow-wrap:anywhere}
dl .wide{grid-column:1/-1}
dt{color:var(--soft);font-size:13px}
dd{margin:0}
.scroll{overflow-x:auto}
.scroll+.scroll{margin-top:18px}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;white-space:nowrap}
th{font-weight:600;color:var(--soft)}
th,td{padding:4px 7px;text-align:right}
th.name,td.name{text-align:left;position:sticky;left:0;background:var(--card);font-weight:600;
color:var(--ink)}
thead tr:last-child th{border-bottom:1px solid var(--axis)}
th[colspan]{text-align:center}
th[title]{cursor:help}
tbody tr+tr td{border-top:1px solid var(--grid)}
tbody tr.first-reference td{border-top:2px solid var(--axis)}
tr.reference td{color:var(--soft)}
.key{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:7px}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:16px}
.figures.one{grid-template-columns:minmax(0,1fr)}
figcaption{margin-bottom:6px}
figcaption b{display:block;font-size:15.5px}
figcaption span{color:var(--soft);font-size:13px}
svg.plot{display:block;width:100%;height:auto;min-width:440px}
.one svg.plot{min-width:720px}
svg text{font-size:12px;fill:var(--ink);font-family:inherit}
svg .soft{fill:var(--soft)}
svg .tag{fill:var(--soft);font-style:italic}
svg .small{font-size:11px}
.grid{stroke:var(--grid);stroke-width:1;fill:none}
.axis{stroke:var(--axis);stroke-width:1;fill:none}
.whisker{stroke:var(--ink);stroke-width:1.5;fill:none}
.seed{fill:var(--card);stroke:var(--ink);stroke-width:1;fill-opacity:.75}
.published{fill:none;stroke:var(--ink);stroke-width:1.7}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.band{stroke:none}
.area{stroke:var(--card);stroke-width:.6}
.cross{stroke:var(--ink);stroke-width:1;stroke-dasharray:3 3;visibility:hidden;pointer-events:none}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:0 0 6px;padding:0;list-style:none;
font-size:13px}
.legend svg{vertical-align:-1px;margin-right:6px}
#tip{position:fixed;z-index:9;display:none;background:var(--tip);color:var(--tipink);
border-radius:6px;padding:7px 10px;font-size:12.5px;line-height:1.4;pointer-events:none;
white-space:pre;font-variant-numeric:tabular-nums}
details{margin-top:10px;font-size:13.5px}
summary{cursor:pointer;color:var(--soft)}
@media (max-width:560px){main{padding:18px 10px}.card,figure{padding:10px}.figures{gap:12px}
figure{overflow-x:auto}}
@media print{figure,.card{break-inside:avoid}}
)css";

// Reads the values under the pointer back from the drawn curves, so that no number is stored twice.
constexpr std::string_view script = R"js(
(()=>{const tip=document.getElementById('tip');
const num=v=>{const a=Math.abs(v);return a>=1000?Math.round(v).toLocaleString('en'):
a===0?'0':String(+v.toPrecision(3))};
const at=(el,x)=>{const p=el.points,n=p.length;let lo=0,hi=n-1;
while(lo<hi){const m=(lo+hi+1)>>1;if(p[m].x<=x)lo=m;else hi=m-1}
const a=p[lo],b=p[Math.min(lo+1,n-1)];
return b.x>a.x?a.y+(b.y-a.y)*Math.min(1,Math.max(0,(x-a.x)/(b.x-a.x))):a.y};
document.querySelectorAll('svg[data-x]').forEach(svg=>{
const d=JSON.parse(svg.dataset.x),cross=svg.querySelector('.cross');
const hide=()=>{tip.style.display='none';cross.style.visibility='hidden'};
svg.addEventListener('pointerleave',hide);
svg.addEventListener('pointermove',e=>{
const q=new DOMPoint(e.clientX,e.clientY).matrixTransform(svg.getScreenCTM().inverse());
const t=(q.x-d.x)/d.w;if(t<0||t>1){hide();return}
const v=d.log?d.lo*Math.pow(d.hi/d.lo,t):d.lo+(d.hi-d.lo)*t;
const out=[num(v)+' '+d.unit];
const rows=[...svg.querySelectorAll('[data-n]')].map(el=>{const s=JSON.parse(el.dataset.y);
return{s,n:el.dataset.n,y:s.hi*(s.y-at(el,q.x))/s.h}});
rows.forEach((r,i)=>{const b=rows[i+1],y=r.s.stack&&b&&b.s.stack?r.y-b.y:r.y;
out.push(r.n+'  '+num(Math.max(0,y))+' '+r.s.unit)});
cross.setAttribute('x1',q.x);cross.setAttribute('x2',q.x);cross.style.visibility='visible';
tip.textContent=out.join('\n');tip.style.display='block';
const r=tip.getBoundingClientRect();
tip.style.left=Math.min(e.clientX+14,innerWidth-r.width-8)+'px';
tip.style.top=Math.min(e.clientY+14,innerHeight-r.height-8)+'px'})})})();
)js";

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
        break;
    }
  }
  return out;
}

std::string page_of(std::string_view title, std::string_view body, std::string_view more_style) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<title>hybridstate: {0}</title>\n<style>{1}{2}</style></head>\n<body><main>\n"
      "<h1>{0}</h1>\n{3}<div id=\"tip\"></div>\n<script>{4}</script>\n</main></body></html>\n",
      escape_html(title), style, more_style, body, script);
}

std::string figure(std::string_view title, std::string_view subtitle, std::string_view body) {
  return fmt::format("<figure><figcaption><b>{}</b><span>{}</span></figcaption>{}</figure>\n",
                     escape_html(title), escape_html(subtitle), body);
}

std::string swatch_line(const Look& look) {
  return fmt::format(
      "<svg width=\"26\" height=\"10\" aria-hidden=\"true\"><line x1=\"1\" y1=\"5\" x2=\"25\" "
      "y2=\"5\" style=\"stroke:{}\" stroke-width=\"2.5\"{}{}{}/></svg>",
      look.colour, look.dash.empty() ? "" : " stroke-dasharray=\"", look.dash,
      look.dash.empty() ? "" : "\"");
}

std::string swatch_box(std::string_view colour) {
  return fmt::format(
      "<svg width=\"12\" height=\"12\" aria-hidden=\"true\"><rect x=\".5\" y=\".5\" width=\"11\" "
      "height=\"11\" rx=\"2\" style=\"fill:{};stroke:var(--axis)\"/></svg>",
      colour);
}

std::string legend(const std::vector<LegendEntry>& entries) {
  std::string out = "<ul class=\"legend\">";
  for (const LegendEntry& entry : entries) {
    out += "<li>" + entry.swatch + escape_html(entry.text) + "</li>";
  }
  return out + "</ul>";
}

}  // namespace hybridstate::runtime
