// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "campaign/report_parts.hpp"
#include "report/page.hpp"
#include "report/table.hpp"

namespace hybridstate::runtime {

namespace {

constexpr std::string_view more_style = R"css(
a{color:inherit}
main{max-width:1320px}
section{margin-top:44px;border-top:1px solid var(--axis);padding-top:2px}
section h2{margin-top:18px}
h3{font-size:15.5px;margin:22px 0 8px}
details+.figures{margin-top:12px}
.card+.figures{margin-top:16px}
.card+.card,.figures+.card,.figures+h3{margin-top:16px}
.figures.single{grid-template-columns:minmax(0,640px)}
.badge{display:inline-block;border:1px solid var(--axis);border-radius:9px;padding:0 8px;
font-size:12px;font-style:italic;color:var(--soft);font-weight:400;margin-left:8px}
td.text,td.name{white-space:normal}
td.same{color:var(--s2);font-weight:600}
td.zero{color:var(--soft)}
td.other{color:var(--s1);font-weight:600}
td.text,th.text{text-align:left}
tr.group td{background:var(--bg);font-weight:600;text-align:left}
td details{margin:0;font-size:12px}
td .cells{text-align:left;padding:4px 0}
td .cells a{margin-left:7px}
ul.missing{font-size:13px;overflow-wrap:anywhere}
)css";

constexpr std::size_t most_open_rows = 30;  ///< longer tables are folded

std::string cell(const std::string& text, std::string_view css = "") {
  return fmt::format("<td{}{}{}>{}</td>", css.empty() ? "" : " class=\"", css,
                     css.empty() ? "" : "\"", escape_html(text));
}

std::string p_text(std::optional<double> p) {
  return p ? fmt::format("{:.4f}", *p) : std::string();
}

std::string interval_text(const Quantity& q, std::optional<double> low,
                          std::optional<double> high) {
  return low ? fmt::format("{} to {}", value_text(q, low), value_text(q, high)) : std::string();
}

/// A card with a table. The first heading is that of the names; the text columns begin with "|";
/// empty ones are left out. `note` is HTML below it.
std::string table_html(const std::vector<std::string>& headings, const std::string& rows,
                       const std::string& note = "") {
  std::string head;
  for (std::size_t i = 0; i < headings.size(); ++i) {
    std::string_view text = headings[i];
    if (i > 0 && text.empty()) continue;
    std::string_view css = i == 0 ? " class=\"name\"" : "";
    if (text.starts_with('|')) {
      css = " class=\"text\"";
      text.remove_prefix(1);
    }
    head += fmt::format("<th{}>{}</th>", css, escape_html(text));
  }
  return fmt::format(
      "<div class=\"card\"><div class=\"scroll\"><table><thead><tr>{}</tr></thead><tbody>\n{}"
      "</tbody></table></div>{}</div>\n",
      head, rows, note);
}

std::string group_row(std::size_t columns, const std::string& text) {
  return fmt::format("<tr class=\"group\"><td class=\"name\" colspan=\"{}\">{}</td></tr>\n",
                     columns, escape_html(text));
}

class Page {
 public:
  Page(const CampaignReport& report, const std::string& cells)
      : report_(report), results_(*report.results), cells_(cells) {}

  std::string text() {
    std::string body = heading() + verdicts() + summary();
    for (QuestionFindings const& q : report_.questions) body += section(q);
    return page_of("Campaign report", body, more_style);
  }

 private:
  std::string badge() const { return badge_of(results_.figures()); }
  static std::string badge_of(const std::string& figures) {
    return figures.empty() ? "" : fmt::format("<span class=\"badge\">{}</span>", figures);
  }

  std::string heading() const {
    CampaignSettings const& s = results_.settings();
    std::string out;
    if (results_.figures() == "simulated")
      out +=
          "<p class=\"soft\">Figures are simulated: the memory management is real, the step times "
          "come from a model fitted to an A100 40GB. The paper’s are measured.</p>\n";
    std::size_t declared = 0;
    std::size_t present = 0;
    for (QuestionFindings const& q : report_.questions) {
      declared += q.declared;
      present += q.present;
    }
    auto const item = [](const std::string& name, const std::string& value) {
      return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, escape_html(value));
    };
    return out + "<div class=\"card\"><dl>" + item("executor", s.executor) +
           item("cells", fmt::format("{} files, {} of {} declared uses", results_.cell_count(),
                                     present, declared)) +
           item("requests", s.requests == 0 ? "as declared" : fmt::format("{}", s.requests)) +
           item("policies of the question best", fmt::format("{}", fmt::join(s.policies, ", "))) +
           (s.model.empty() ? "" : item("model", s.model)) + "</dl></div>\n";
  }

  std::string verdicts() const {
    std::string rows;
    for (QuestionFindings const& q : report_.questions)
      rows += fmt::format(
          "<tr><td class=\"name\"><a href=\"#{0}\">{0}</a></td>{1}<td>{2} of {3}</td>{4}{5}</tr>\n",
          q.question->id, cell(q.question->text, "text"), q.present, q.declared,
          cell(q.compared > 0 ? fmt::format("{}", q.compared) : "none"),
          cell(q.compared > 0 ? fmt::format("{}", q.same_sign) : "") +
              cell(q.zero > 0 ? fmt::format("{}", q.zero) : ""));
    return "<h2>Questions" + badge() + "</h2>\n" +
           table_html({"question", "|", "cells", "effects of the paper", "same sign", "ours is 0"},
                      rows);
  }

  static std::string sign_cell(const ComparisonRow& row) {
    std::string const verdict = row.verdict();
    if (verdict.empty()) return cell("");
    return cell(verdict + (row.paper_inconclusive() ? "*" : ""), verdict);
  }

  std::string summary() const {
    std::string rows;
    std::string last;
    for (ComparisonRow const& row : report_.summary()) {
      if (row.question != last) rows += group_row(8, row.question);
      last = row.question;
      // The names of differences end in their unit.
      bool const percent = row.quantity->form == Form::difference || row.unit == "%";
      std::string decision = row.test != nullptr ? row.test->decision : "";
      if (row.test != nullptr && row.test->adjusted)
        decision += fmt::format(", p = {:.4f}", *row.test->adjusted);
      rows += "<tr>" + cell(row.full_name() + (percent ? "" : ", " + row.unit), "name") +
              cell(paper_text(row)) +
              cell(row.finding->value ? value_text(*row.quantity, row.finding->value) : "not run") +
              cell(interval_text(*row.quantity, row.finding->low, row.finding->high)) +
              cell(decision) + sign_cell(row) + cell(row.source) + "<td>" +
              cells_html(*row.quantity, *row.finding, cells_) + "</td></tr>\n";
    }
    return "<h2>Paper and ours" + badge() + "</h2>\n" +
           table_html({"effect", "paper", "ours", "interval or seed range", "decision", "sign",
                       "paper’s source", "seeds"},
                      rows,
                      "<p class=\"soft\">Means of the seedwise effects, in percent unless the name "
                      "says otherwise; the sections say how each interval is formed. A row without "
                      "a decision is no declared test, or its family is not complete. * The "
                      "paper’s own result is inconclusive.</p>");
  }

  std::string section(const QuestionFindings& q) const {
    std::string const badge = badge_of(q.present > 0 ? results_.figures() : "");
    std::string out = fmt::format("<section id=\"{0}\"><h2>{0}: {1}{2}</h2>\n", q.question->id,
                                  escape_html(q.question->text), badge);
    out += fmt::format("<p>{}</p>\n", verdict_sentence(q));
    out += design(q);
    if (q.present == 0) return out + missing(q) + "</section>\n";
    out += aims(q, badge) + figures_html(report_, q, cells_);
    out += tests(q, badge) + effects(q, badge) + levels(q, badge) + absolute(q, badge) + missing(q);
    if (q.question->id == "Q6") out += choices();
    return out + "</section>\n";
  }

  static std::string verdict_sentence(const QuestionFindings& q) {
    if (q.present == 0) return "None of its cells were run.";
    std::string text = q.compared == 0 ? "The paper prints no effect to compare with."
                                       : fmt::format("{} of {} effects have the paper’s sign.",
                                                     q.same_sign, q.compared);
    if (q.present < q.declared)
      text += fmt::format(" {} of {} declared cells are there.", q.present, q.declared);
    return text;
  }

  static std::string design(const QuestionFindings& q) {
    std::string rows;
    for (Experiment const& e : q.question->experiments) {
      auto const line = [&](const char* name, const std::string& value) {
        if (!value.empty())
          rows += fmt::format("<div class=\"wide\"><dt>{}</dt><dd>{}</dd></div>", name,
                              escape_html(value));
      };
      line("experiment", fmt::format("{}, {} ({})", e.id, role_name(e.role), e.source));
      line("design", e.design);
      line("primary readout", e.primary);
      line("rule", e.rule);
      line("our inference", e.inferred);
    }
    return "<details><summary>declared design and rules</summary><div class=\"card\"><dl>" + rows +
           "</dl></div></details>\n";
  }

  std::string tests(const QuestionFindings& q, const std::string& badge) const {
    if (q.tests.empty()) return "";
    bool const intervals = std::any_of(q.tests.begin(), q.tests.end(), [](const TestFinding& t) {
      return t.paper != nullptr && t.paper->low;
    });
    std::string rows;
    std::string last;
    for (TestFinding const& t : q.tests) {
      Family const& family = *t.family;
      if (family.id != last)
        rows += group_row(
            13, fmt::format("family {}, {} tests: {}; {}{}; {} timebase; interval: {}", family.id,
                            family.tests.size(), statistic_name(family.statistic),
                            family.holm ? "Holm" : "no correction",
                            family.two_looks ? ", two looks" : "", family.timebase,
                            interval_name(t.finding.interval)));
      last = family.id;
      ComparisonRow const row = row_of(q.question->id, t);
      Finding const& f = t.finding;
      rows += "<tr>" + cell(t.test->id, "name") + cell(t.shown.text(), "text") + cell(row.unit) +
              cell(paper_text(row)) +
              (intervals ? cell(interval_text(t.quantity, row.paper_low, row.paper_high)) : "") +
              cell(p_text(row.paper_p)) +
              cell(f.value ? value_text(t.quantity, f.value) : "not run") +
              cell(interval_text(t.quantity, f.low, f.high)) +
              cell(fmt::format("{}/{}", f.positive(), f.negative())) + cell(p_text(t.adjusted)) +
              cell(decision(t)) + sign_cell(row) + "<td>" + cells_html(t.quantity, f, cells_) +
              "</td></tr>\n";
    }
    return "<h3>Declared tests" + badge + "</h3>" +
           table_html({"test", "|contrast", "unit", "paper", intervals ? "paper’s interval" : "",
                       "paper’s p", "ours", "interval", "seeds +/-", "adjusted p", "decision",
                       "sign", "seeds"},
                      rows);
  }

  std::string aims(const QuestionFindings& q, const std::string& badge) const {
    std::string rows;
    for (AimFinding const& a : q.aims) {
      Contrast const& c = a.quantity.contrast;
      std::string const verdict = verdict_text(a);
      rows += "<tr>" + cell(a.aim->name, "name") + cell(bound_text(a)) + cell(found_text(a)) +
              cell(interval_text(a.quantity, a.finding.low, a.finding.high)) +
              cell(verdict, !a.reached   ? "soft"
                            : *a.reached ? "same"
                                         : "other") +
              cell(fmt::format("{}: {}", c.experiment, a.quantity.text()), "text") +
              cell(fmt::format("{}", a.aim->places.size())) + "<td>" +
              cells_html(a.quantity, a.finding, cells_) + "</td></tr>\n";
    }
    if (rows.empty()) return "";
    return "<h3>Aims of S2 under best" + badge + "</h3>" +
           table_html(
               {"aim", "asked for", "found", "seed range", "verdict", "|at", "places", "seeds"},
               rows,
               "<p class=\"soft\">Means over seeds of the seedwise shares or gains. Where an "
               "aim has several places, the one that is worst for it is shown; all others "
               "are in the tables below. Compared as shown.</p>");
  }

  static std::string decision(const TestFinding& t) {
    if (!t.decision.empty()) return t.decision;
    if (!t.finding.complete())
      return fmt::format("none: {} of {} seeds", t.finding.seeds.size(), t.finding.declared);
    return "none: other tests of the family lack seeds";
  }

  std::string readouts(const char* title, const std::vector<ReadoutFinding>& list,
                       const QuestionFindings& q, const std::string& badge) const {
    if (list.empty()) return "";
    bool const levels = !list.front().paper.quantity.effect();
    bool const intervals = std::any_of(
        list.begin(), list.end(), [](const ReadoutFinding& r) { return r.paper.low.has_value(); });
    std::string rows;
    for (ReadoutFinding const& r : list) {
      ComparisonRow const row = row_of(q.question->id, r);
      Quantity const& quantity = *row.quantity;
      Finding const& f = r.finding;
      std::string of = row.unit;
      if (quantity.effect() && quantity.form != Form::difference)
        of = fmt::format("{}, {}", info(quantity.metric).title, row.unit);
      std::string ratio;
      if (f.value && row.paper && *row.paper > 0)
        ratio = fmt::format("{:.2f}", *f.value / *row.paper);
      rows += "<tr>" + cell(quantity.text(), "name") + cell(quantity.contrast.experiment, "text") +
              cell(of, "text") + cell(paper_text(row)) +
              (intervals ? cell(interval_text(quantity, row.paper_low, row.paper_high)) : "") +
              cell(f.value ? value_text(quantity, f.value) : "not run") +
              cell(interval_text(quantity, f.low, f.high) +
                   (f.low && f.interval != IntervalKind::range
                        ? fmt::format(" ({})", interval_name(f.interval))
                        : "")) +
              (levels ? cell(ratio) : sign_cell(row)) + cell(row.source) + "<td>" +
              cells_html(quantity, f, cells_) + "</td></tr>\n";
    }
    std::string const table = table_html(
        {"quantity", "|experiment", "|of", "paper", intervals ? "paper’s interval" : "", "ours",
         "seed range", levels ? "ours / paper" : "sign", "paper’s source", "seeds"},
        rows);
    if (list.size() <= most_open_rows) return fmt::format("<h3>{}{}</h3>{}", title, badge, table);
    return fmt::format("<details><summary>{}: {} rows</summary><h3>{}{}</h3>{}</details>\n", title,
                       list.size(), title, badge, table);
  }
  std::string effects(const QuestionFindings& q, const std::string& badge) const {
    return readouts("Other effects", q.effects, q, badge);
  }
  std::string levels(const QuestionFindings& q, const std::string& badge) const {
    return readouts("Absolute figures that the paper prints", q.levels, q, badge);
  }

  /// Every arm at every point.
  std::string absolute(const QuestionFindings& q, const std::string& badge) const {
    constexpr Metric columns[] = {
        Metric::throughput,      Metric::ttft_p99,    Metric::e2e_p99,
        Metric::tpot_p99,        Metric::c_once,      Metric::submitted,
        Metric::running,         Metric::waiting,     Metric::hit_rate,
        Metric::preemptions,     Metric::adopt_depth, Metric::recurrent_depth,
        Metric::attention_depth, Metric::gap_depth,   Metric::replay_different,
        Metric::stranded,        Metric::pins};
    std::string out;
    for (Experiment const& e : q.question->experiments) {
      auto const places = places_of(e);
      std::vector<std::vector<Finding>> found;
      std::vector<Metric> shown;
      for (Metric const metric : columns) {
        std::vector<Finding> column;
        column.reserve(places.size());
        for (auto const& [point, arm] : places)
          column.push_back(find(results_, level(metric, e.id, point, arm)));
        if (std::any_of(column.begin(), column.end(),
                        [](const Finding& f) { return f.value.has_value(); })) {
          shown.push_back(metric);
          found.push_back(std::move(column));
        }
      }
      if (shown.empty()) continue;
      std::vector<std::string> headings = {"point, arm"};
      for (Metric const metric : shown) headings.emplace_back(info(metric).title);
      headings.emplace_back("seeds");
      std::string rows;
      for (std::size_t i = 0; i < places.size(); ++i) {
        auto const& [point, arm] = places[i];
        rows += "<tr>" + cell(fmt::format("{}, {}", point, arm), "name");
        for (std::size_t m = 0; m < shown.size(); ++m)
          rows += cell(found[m][i].value
                           ? value_text(level(shown[m], e.id, point, arm), found[m][i].value)
                           : "");
        rows += "<td>" + cells_html(level(shown[0], e.id, point, arm), found[0][i], cells_) +
                "</td></tr>\n";
      }
      out += fmt::format(
          "<details><summary>{}: every arm at every point</summary><h3>Means over seeds{}</h3>{}"
          "</details>\n",
          escape_html(e.id), badge, table_html(headings, rows));
    }
    return out;
  }

  /// Q6's choices beside the paper's (Appendix C.1).
  std::string choices() const {
    struct Printed {
      const char* budget;
      const char* arm;
      double headroom;
    };
    constexpr Printed printed[] = {{"b63", "D0", 0},    {"b63", "S2", 0.27},  {"b83", "D0", 0.10},
                                   {"b83", "S2", 0.35}, {"b108", "D0", 0.10}, {"b108", "S2", 0}};
    std::string rows;
    for (HeadroomChoice const& choice : results_.choices()) {
      auto const paper = std::find_if(
          std::begin(printed), std::end(printed),
          [&](const Printed& p) { return p.budget == choice.budget && p.arm == choice.arm; });
      rows += "<tr>" + cell(fmt::format("{}, {}", choice.budget, choice.arm), "name") +
              cell(paper == std::end(printed) ? "" : fmt::format("{:.2f}", paper->headroom)) +
              cell(fmt::format("{:.2f}", choice.headroom)) +
              cell(fmt::format("{:.2f}", choice.best)) + cell(choice.experiment) + "</tr>\n";
    }
    if (rows.empty()) return "";
    return "<h3>Chosen headroom" + badge() + "</h3>" +
           table_html({"budget, arm", "paper’s f", "our f", "highest mean at", "from the cells of"},
                      rows);
  }

  std::string missing(const QuestionFindings& q) const {
    std::string items;
    for (Experiment const& e : q.question->experiments) {
      Coverage const& coverage = results_.coverage(e.id);
      if (coverage.present == coverage.declared) continue;
      std::size_t const left_out = coverage.declared - coverage.present - coverage.missing.size();
      items += fmt::format("<li><b>{}</b>: {} of {} cells are there", e.id, coverage.present,
                           coverage.declared);
      if (left_out > 0) items += fmt::format("; {} were not selected for this campaign", left_out);
      if (!coverage.missing.empty())
        items += fmt::format("<details><summary>{} not run yet</summary>{}</details>",
                             coverage.missing.size(),
                             escape_html(fmt::format("{}", fmt::join(coverage.missing, ", "))));
      items += "</li>\n";
    }
    return items.empty() ? "" : "<h3>Missing</h3><ul class=\"missing\">" + items + "</ul>\n";
  }

  const CampaignReport& report_;
  const Results& results_;
  const std::string& cells_;
};

}  // namespace

std::string cells_html(const Quantity& q, const Finding& f, const std::string& cells) {
  if (f.seeds.empty()) return "none";
  std::string list;
  std::vector<std::string> names = {q.contrast.arm};
  if (!q.contrast.baseline.empty()) names.push_back(q.contrast.baseline);
  if (q.less) names.insert(names.end(), {"less " + q.less->arm, q.less->baseline});
  for (SeedFinding const& s : f.seeds) {
    list += fmt::format("{}{}: {}", list.empty() ? "" : "<br>", s.seed, value_text(q, s.value));
    for (std::size_t i = 0; i < s.cells.size(); ++i)
      list += fmt::format("<a href=\"{}/{}\">{}</a>", escape_html(cells),
                          escape_html(s.cells[i]->file), escape_html(names[i]));
  }
  std::string const count = f.complete() ? fmt::format("{}", f.seeds.size())
                                         : fmt::format("{} of {}", f.seeds.size(), f.declared);
  return fmt::format("<details><summary>{}</summary><div class=\"cells\">{}</div></details>", count,
                     list);
}

std::string report_html(const CampaignReport& report, const std::string& cells) {
  return Page(report, cells).text();
}

}  // namespace hybridstate::runtime
