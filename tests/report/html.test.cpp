// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/html.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "fixtures.hpp"

using namespace hybridstate::runtime;
using namespace hybridstate::runtime::testing;

namespace {

/// The name of the first element that is closed in the wrong place or never; "" for a sound page.
std::string first_unbalanced(const std::string& page) {
  std::vector<std::string> open;
  for (std::size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at + 1)) {
    if (page.compare(at, 2, "<!") == 0) continue;
    const bool closing = page[at + 1] == '/';
    std::size_t end = at + (closing ? 2 : 1);
    std::string name;
    while (std::isalnum(static_cast<unsigned char>(page[end])) != 0) name += page[end++];
    const std::size_t close = page.find('>', at);
    if (close == std::string::npos || name.empty()) return "<";
    if (closing) {
      if (open.empty() || open.back() != name) return name;
      open.pop_back();
    } else if (page[close - 1] != '/' && name != "meta") {
      open.push_back(name);
      if (name == "script" || name == "style") at = page.find("</" + name, close) - 1;
    }
  }
  return open.empty() ? "" : open.back();
}

/// The page without its style and script, where "inf" or "nan" may stand inside words.
std::string body_of(const std::string& page) {
  const std::size_t begin = page.find("<main>");
  return page.substr(begin, page.find("<script>") - begin);
}

void check_sound(const std::string& page) {
  CHECK(first_unbalanced(page) == "");
  std::string body = body_of(page);
  for (std::size_t at = body.find("infinite"); at != std::string::npos;
       at = body.find("infinite")) {
    body.erase(at, 8);
  }
  for (const char* bad : {"nan", "NaN", "inf,", "inf\"", "inf ", "1e+300", "1e300"}) {
    CAPTURE(bad);
    CHECK(body.find(bad) == std::string::npos);
  }
  for (const char* external : {"http:", "https:", "src=", "href=", "url(", "@import"}) {
    CAPTURE(external);
    CHECK(page.find(external) == std::string::npos);
  }
}

}  // namespace

TEST_CASE("the page names every organization and says simulated on every figure") {
  const std::string page = render_html(small_comparison());
  check_sound(page);
  for (const char* part : {">S0<", ">S2<", ">D0<", "infinite memory", "byte-exact bound",
                           "falcon-h1-1.5b", "prefers-color-scheme:dark", "b63", "+37.5"}) {
    CAPTURE(part);
    CHECK(page.find(part) != std::string::npos);
  }
  CHECK(occurrences(page, "<figure>") == 11);  // six plots and five timelines
  CHECK(occurrences(page, ">simulated</text>") == 11);
  CHECK(page == render_html(small_comparison()));
}

TEST_CASE("text from outside is escaped") {
  CHECK(escape_html("<a href=\"x\">&'\n") == "&lt;a href=&quot;x&quot;&gt;&amp;&#39; ");
  Comparison comparison = small_comparison();
  comparison.runs[0].organization = comparison.runs[1].organization = "<b>&S0</b>";
  comparison.model = "</title><script>x</script>";
  comparison.heading.emplace_back("note <i>&amp;</i>");
  const std::string page = render_html(comparison);
  check_sound(page);
  CHECK(page.find("<b>&S0") == std::string::npos);
  CHECK(page.find("&lt;b&gt;&amp;S0&lt;/b&gt;") != std::string::npos);
  CHECK(page.find("&lt;made&gt; &amp; &quot;small&quot;") != std::string::npos);
  CHECK(page.find("<script>x") == std::string::npos);
  CHECK(page.find("&lt;i&gt;&amp;amp;&lt;/i&gt;") != std::string::npos);
}

TEST_CASE("measured figures do not say simulated") {
  Comparison comparison = small_comparison();
  for (RunResult& run : comparison.runs) run.executor = "cpu";
  const std::string page = render_html(comparison);
  check_sound(page);
  CHECK(page.find("imulated") == std::string::npos);
  comparison.runs[0].executor = "simulated";
  CHECK(render_html(comparison).find("simulated in part") != std::string::npos);
}

TEST_CASE("empty and tiny comparisons make a page") {
  check_sound(render_html(Comparison{}));

  Comparison comparison;
  comparison.runs.emplace_back();
  comparison.runs[0].organization = "S2";
  check_sound(render_html(comparison));

  comparison.runs[0] = small_run("S2", 1, 2);  // one token each: no time per output token
  comparison.runs[0].requests.resize(1);
  comparison.runs[0].timeline.resize(1);
  check_sound(render_html(comparison));

  for (RequestRecord& request : comparison.runs[0].requests) {
    request.first_token_ns = request.arrival_ns;  // a TTFT of 0 on a logarithmic axis
  }
  check_sound(render_html(comparison));
}

TEST_CASE("many rows, seeds and samples stay a small page") {
  Comparison comparison;
  for (const char* organization : {"S0", "S1", "S2", "D0", "D0-M512", "X", "Y", "infinite"}) {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      RunResult run = small_run(organization, seed, 200 + static_cast<hybridstate::Tokens>(seed));
      const TimelineSample sample = run.timeline.back();
      for (std::uint32_t i = 0; i < 20'000 && seed == 0; ++i) {
        TimelineSample next = sample;
        next.time_ns += (i + 1) * 1'000'000;
        next.attention_referenced = (i % 977) * 10'000;
        next.running = i % 61;
        run.timeline.push_back(next);
      }
      for (std::uint32_t i = 0; i < 300; ++i) {
        run.requests.push_back(request(i, i + 0.01 * (i + 1), i + 3 + 0.37 * i, 3000, 250));
      }
      comparison.runs.push_back(std::move(run));
    }
  }
  const std::string page = render_html(comparison);
  check_sound(page);
  CHECK(page.size() < 1'500'000);
  CHECK(page.find("20,004 samples drawn as 1,000 means") != std::string::npos);
}

TEST_CASE("the page is written as a file") {
  const TemporaryFolder folder;
  write_html(folder.path() / "page.html", small_comparison());
  CHECK(read_file(folder.path() / "page.html") == render_html(small_comparison()));
}
