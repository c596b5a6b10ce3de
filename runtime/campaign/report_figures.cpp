// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// The paper's Figures 2 to 7, redrawn from cells, with what the paper prints as hollow diamonds.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "campaign/report_parts.hpp"
#include "report/chart.hpp"
#include "report/page.hpp"

namespace hybridstate::runtime {

namespace {

using Names = std::vector<std::string>;

const Names budget_names = {"b63", "b83", "b108"};

std::string colour_of(const std::string& organization) {
  if (organization == "S0") return "var(--s0)";
  if (organization == "S1") return "var(--s1)";
  if (organization == "S2") return "var(--s2)";
  if (organization.starts_with("D0")) return "var(--s3)";
  return "var(--s6)";
}

struct PlottedSeries {
  std::string name, colour;
  ChartKind kind = ChartKind::bars;
  bool hollow = false;
  std::vector<Quantity> quantities;  ///< one a category
  std::string ring = {};             ///< the category that is set apart
};

struct Plot {
  std::string title, subtitle;
  std::string x_title, y_title;
  Names categories;
  std::vector<PlottedSeries> series;
  bool from_zero = true;
  int decimals = 0;
};

class Figures {
 public:
  Figures(const CampaignReport& report, const std::string& cells)
      : results_(*report.results), cells_(cells), readouts_(paper_readouts()) {}

  std::string of(const QuestionFindings& q) {
    std::string const& id = q.question->id;
    if (id == "Q1") return q1();
    if (id == "Q2") return q2();
    if (id == "Q3") return q3();
    if (id == "Q4") return q4();
    if (id == "Q5") return q5();
    if (id == "Q6") return q6();
    if (id == "Q7") return q7();
    if (id == "Q8") return q8();
    if (id == "Q9") return q9(q);
    if (id == "caps") return caps();
    if (id == "splits") return splits();
    if (id == "granite") return granite();
    if (id == "pinning") return pinning();
    if (id == "best") return best();
    return "";
  }

 private:
  const PaperReadout* paper_of(const Quantity& q) const {
    auto const found = std::find_if(readouts_.begin(), readouts_.end(), [&](const PaperReadout& r) {
      return r.quantity == q && r.value;
    });
    return found == readouts_.end() ? nullptr : &*found;
  }

  /// The figure with its values, and the cells of each, folded below it.
  std::string draw(const Plot& plot) const {
    Chart chart;
    chart.label = plot.title;
    chart.x_title = plot.x_title;
    chart.y_title = plot.y_title;
    chart.categories = plot.categories;
    chart.from_zero = plot.from_zero;
    chart.decimals = plot.decimals;
    std::string table;
    for (PlottedSeries const& series : plot.series) {
      ChartSeries drawn{series.name, {series.colour, ""}, series.kind, series.hollow, {}};
      for (std::size_t c = 0; c < series.quantities.size(); ++c) {
        Quantity const& q = series.quantities[c];
        Finding const f = find(results_, q);
        if (chart.tag.empty()) chart.tag = f.figures();
        PaperReadout const* const paper = paper_of(q);
        ChartMark mark{f.value, f.low, f.high, {}, {}, plot.categories[c] == series.ring, ""};
        if (f.seeds.size() > 1 && series.kind == ChartKind::bars)
          for (SeedFinding const& s : f.seeds)
            mark.dots.emplace_back(fmt::format("seed {}", s.seed), s.value);
        if (paper != nullptr) mark.published = paper->value;
        std::string const ours = f.value ? value_text(q, f.value) : "not run";
        std::string const papers = paper != nullptr ? value_text(q, paper->value) : "";
        mark.title = fmt::format("{}, {}: {}", series.name, plot.categories[c], ours);
        if (paper != nullptr) mark.title += fmt::format("; paper {} ({})", papers, paper->source);
        drawn.marks.push_back(std::move(mark));
        table += fmt::format(
            "<tr><td class=\"name\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
            "<td>{}</td></tr>\n",
            escape_html(series.name), escape_html(plot.categories[c]), papers, ours,
            f.low ? value_text(q, f.low) + " to " + value_text(q, f.high) : "",
            escape_html(paper != nullptr ? paper->source : ""), cells_html(q, f, cells_));
      }
      chart.series.push_back(std::move(drawn));
    }
    std::string const body =
        chart_legend(chart) + chart_svg(chart) +
        "<details><summary>values and cells</summary><div class=\"scroll\"><table><thead><tr>"
        "<th class=\"name\">series</th><th>at</th><th>paper</th><th>ours</th><th>smallest to "
        "largest seed</th><th>paper’s source</th><th>seeds</th></tr></thead><tbody>" +
        table + "</tbody></table></div></details>";
    return figure(plot.title, plot.subtitle, body);
  }

  static std::string grid(const Names& figures) {
    std::string out =
        fmt::format("<div class=\"figures{}\">\n", figures.size() == 1 ? " single" : "");
    for (std::string const& f : figures) out += f;
    return out + "</div>\n";
  }

  /// Levels of several arms over points.
  static std::vector<PlottedSeries> levels(Metric metric, const std::string& experiment,
                                           const Names& arms, const Names& points,
                                           ChartKind kind = ChartKind::bars) {
    std::vector<PlottedSeries> series;
    for (std::string const& arm : arms) {
      PlottedSeries s{arm, colour_of(arm), kind, false, {}};
      for (std::string const& point : points)
        s.quantities.push_back(level(metric, experiment, point, arm));
      series.push_back(std::move(s));
    }
    return series;
  }
  /// The effect of an arm on a baseline over points.
  static PlottedSeries effects(const std::string& experiment, const std::string& arm,
                               const std::string& baseline, const Names& points,
                               ChartKind kind = ChartKind::bars) {
    PlottedSeries s{arm + " / " + baseline, colour_of(arm), kind, false, {}};
    for (std::string const& point : points)
      s.quantities.push_back(
          effect(Form::relative, Metric::throughput, experiment, point, arm, baseline));
    return s;
  }

  std::string q1() const {
    Names const arms = {"S0", "S1", "S2"};
    Names const low = {"b63", "b108"};
    return grid(
        {draw({"Figure 2(a): main throughput",
               "3 requests/s, cap 63; means over seeds, whiskers: smallest to largest, dots: seeds",
               "", "output tokens/s", budget_names,
               levels(Metric::throughput, "Q1.main", arms, budget_names)}),
         draw({"Figure 2(a), as steps",
               "mean of the seedwise effects",
               "",
               "effect (%)",
               budget_names,
               {effects("Q1.main", "S1", "S0", budget_names),
                effects("Q1.main", "S2", "S1", budget_names)},
               true,
               1}),
         draw({"Figure 2(b): main E2E p99", "means of the runs’ p99", "", "seconds", budget_names,
               levels(Metric::e2e_p99, "Q1.main", arms, budget_names)}),
         draw({"Figure 2(c, d): low load, throughput",
               "0.8 requests/s; b63 cap 63, b108 cap 109; three seeds", "", "output tokens/s", low,
               levels(Metric::throughput, "Q1.low", arms, low), true, 1}),
         draw({"Figure 2(c, d): low load, TTFT p99",
               "means of the runs’ p99; the cells hold no maximum of waiting requests", "",
               "seconds", low, levels(Metric::ttft_p99, "Q1.low", arms, low), true, 2}),
         draw({"Figure 2(c, d): low load, E2E p99", "means of the runs’ p99", "", "seconds", low,
               levels(Metric::e2e_p99, "Q1.low", arms, low), true, 1})});
  }

  std::string q2() const {
    Names const arms = {"S0", "S1", "S2"};
    Names const points = {"b63", "b108"};
    PlottedSeries index{"gain over S0", "var(--s2)", ChartKind::bars, false, {}};
    for (char const* arm : {"S1", "S2"})
      index.quantities.push_back(
          effect(Form::relative, Metric::throughput, "Q2.no-sharing", "b83", arm, "S0"));
    PlottedSeries work{"C_once", "var(--attention)", ChartKind::bars, false, {}};
    for (std::string const& arm : arms)
      work.quantities.push_back(level(Metric::c_once, "Q2.no-sharing", "b83", arm));
    return grid(
        {draw({"Figure 3(a): recorded input work",
               "b63 cap 63 at 3 requests/s, b108 cap 109 at 4.5; three seeds", "",
               "C_once (tokens/run)", points, levels(Metric::c_once, "Q2.anchors", arms, points)}),
         draw({"Figure 3(a): throughput", "the same runs", "", "output tokens/s", points,
               levels(Metric::throughput, "Q2.anchors", arms, points)}),
         draw({"Figure 3(b): counterexample at q = 0, throughput",
               "b83, 3 requests/s, cap 63; mean within-seed index of S0 less 100 %",
               "",
               "gain over S0 (%)",
               {"S1", "S2"},
               {index},
               true,
               1}),
         draw({"Figure 3(b): counterexample at q = 0, input work",
               "the same runs",
               "",
               "C_once (tokens/run)",
               arms,
               {work}})});
  }

  std::string q3() const {
    Names const points = {"q=0", "q=0.5", "q=1"};
    return grid({draw(
        {"Figure 4: shared context",
         "b83, 3 requests/s, cap 63; the paper draws q = 0 and 1",
         "part of the requests with a shared context",
         "throughput effect (%)",
         points,
         {effects("Q3.sharing", "S1", "S0", points), effects("Q3.sharing", "S2", "S1", points),
          effects("Q3.sharing", "D0", "S2", points)},
         true,
         1})});
  }

  std::string q4() const {
    return grid(
        {draw({"All organizations by budget", "3 requests/s, cap 63, q = 1, f = 0", "",
               "output tokens/s", budget_names,
               levels(Metric::throughput, "Q4.budget", {"S0", "S1", "S2", "D0"}, budget_names)}),
         draw({"D0 against S2 by budget",
               "mean of the seedwise effects",
               "",
               "D0 / S2 (%)",
               budget_names,
               {effects("Q4.budget", "D0", "S2", budget_names)},
               true,
               1})});
  }

  std::string q5() const {
    Names const arms = {"D0", "S2"};
    Names const low = {"0.8/s", "1.3/s", "1.7/s", "2.2/s", "3/s"};
    Names high = low;
    high.emplace_back("4.5/s");
    auto const curve = [&](const char* title, const char* experiment, const Names& points) {
      return draw({title, "means over seeds 0-2; whiskers: smallest to largest seed",
                   "arrival rate", "output tokens/s", points,
                   levels(Metric::throughput, experiment, arms, points, ChartKind::line)});
    };
    auto const gap = [&](const char* title, const char* experiment, const Names& points) {
      return draw({title,
                   "mean of the seedwise effects, seeds 0-2",
                   "arrival rate",
                   "D0 / S2 (%)",
                   points,
                   {effects(experiment, "D0", "S2", points, ChartKind::line)}});
    };
    Names const expanded = {"b63 3/s", "b108 3/s", "b108 4.5/s"};
    return grid({curve("Figure 5(a): b63, cap 63", "Q5.b63", low),
                 curve("Figure 5(b): b108, cap 109", "Q5.b108", high),
                 gap("Figure 5(a), as D0 against S2", "Q5.b63", low),
                 gap("Figure 5(b), as D0 against S2", "Q5.b108", high),
                 draw({"Expanded high-load comparisons",
                       "six seeds, nine at 4.5 requests/s",
                       "",
                       "D0 / S2 (%)",
                       expanded,
                       {effects("Q5.high-load", "D0", "S2", expanded)},
                       true,
                       1})});
  }

  std::string q6() const {
    Names figures;
    for (Metric const metric : {Metric::throughput, Metric::request_rate})
      for (std::string const& b : budget_names) {
        Names points, labels;
        for (double const f : {0.0, 0.10, 0.19, 0.27, 0.35}) {
          points.push_back(headroom_point(b, f));
          labels.push_back(fmt::format("{:.2f}", f));
        }
        Plot plot{fmt::format("Figure 6: {}{}", b,
                              metric == Metric::throughput ? "" : ", completed requests"),
                  "12 fresh seeds; rings: our choices before the confirmation",
                  "headroom f",
                  info(metric).title,
                  labels,
                  levels(metric, "Q6.confirmation", {"D0", "S2"}, points, ChartKind::line),
                  false};
        for (PlottedSeries& series : plot.series)
          for (HeadroomChoice const& choice : results_.choices())
            if (choice.budget == b && choice.arm == series.name)
              series.ring = fmt::format("{:.2f}", choice.headroom);
        figures.push_back(draw(plot));
      }
    return grid(figures);
  }

  /// Levels of each seed by itself.
  static PlottedSeries by_seed(const std::string& name, const std::string& colour, bool hollow,
                               const Quantity& q, const std::vector<std::uint64_t>& seeds) {
    PlottedSeries series{name, colour, ChartKind::points, hollow, {}};
    for (std::uint64_t const seed : seeds) {
      series.quantities.push_back(q);
      series.quantities.back().seed = seed;
    }
    return series;
  }
  static Names names(const std::vector<std::uint64_t>& seeds) {
    Names text;
    for (std::uint64_t const seed : seeds) text.push_back(fmt::format("{}", seed));
    return text;
  }

  struct Depth {
    const char* name;
    const char* colour;
    Metric metric;
  };
  static constexpr Depth depths[] = {{"J_adopt", "var(--s5)", Metric::adopt_depth},
                                     {"R_max", "var(--ssm)", Metric::recurrent_depth},
                                     {"A_max", "var(--r1)", Metric::attention_depth}};

  std::string q7() const {
    std::vector<std::uint64_t> const seeds = {76600, 76601, 76602};
    std::vector<PlottedSeries> series;
    for (Depth const& d : depths)
      for (auto const& [point, f] :
           {std::pair{"f=0 ON", "f = 0"}, std::pair{"f=0.19 ON", "f = 0.19"}})
        series.push_back(by_seed(fmt::format("{}, {}", d.name, f), d.colour,
                                 std::string_view(f) == "f = 0",
                                 level(d.metric, "Q7.trace", point, "S2"), seeds));
    return grid({draw({"Figure 7(a): state availability in S2",
                       "means over INITIAL episodes; A_max and R_max under M1; the paper prints "
                       "J_adopt = R_max",
                       "seed", "tokens", names(seeds), series, false})});
  }

  std::string q8() const {
    std::vector<std::uint64_t> const seeds = {79010, 79011, 79012};
    std::vector<PlottedSeries> series;
    for (Depth const& d : depths)
      for (char const* arm : {"S2", "S2+Retention"})
        series.push_back(by_seed(fmt::format("{}, {}", d.name, arm), d.colour,
                                 std::string_view(arm) == "S2",
                                 level(d.metric, "Q8.depth", "SHARE", arm), seeds));
    return grid({draw({"Figure 7(b): checkpoint retention",
                       "254 pages; means over INITIAL episodes; A_max and R_max under M1", "seed",
                       "tokens/request", names(seeds), series, false})});
  }

  std::string q9(const QuestionFindings& q) const {
    Names const modes = {"ISOLATE", "SHARE"};
    std::vector<PlottedSeries> series;
    for (auto const& [arm, colour] :
         {std::pair{"S2", "var(--s2)"}, std::pair{"S2+Retention", "var(--s5)"}}) {
      PlottedSeries s{arm, colour, ChartKind::bars, false, {}};
      for (std::string const& mode : modes) {
        Quantity quantity = level(Metric::ledger_throughput, "Q9.retention", mode, arm);
        quantity.form = Form::geometric;
        s.quantities.push_back(quantity);
      }
      series.push_back(std::move(s));
    }
    std::string text = "geometric means; dots: seeds";
    for (TestFinding const& t : q.tests)
      if (t.finding.value && t.finding.low)
        text += fmt::format(
            "; {} {} % [{}, {}]", t.test->id, value_text(t.quantity, t.finding.value),
            value_text(t.quantity, t.finding.low), value_text(t.quantity, t.finding.high));
    return grid({draw({"Figure 7(c): throughput confirmation", text, "reuse mode",
                       "output tokens/s, ledger", modes, series})});
  }

  std::string caps() const {
    auto const curve = [&](const char* title, const char* experiment, const Names& points) {
      return draw({title,
                   "1.7 requests/s, three seeds; the last cap is the reference",
                   "",
                   "D0 / S2 (%)",
                   points,
                   {effects(experiment, "D0", "S2", points)},
                   true,
                   1});
    };
    return grid({curve("D0 against S2 by cap, b63", "caps.b63",
                       {"cap 3", "cap 5", "cap 6", "cap 8", "cap 63"}),
                 curve("D0 against S2 by cap, b108", "caps.b108",
                       {"cap 5", "cap 8", "cap 10", "cap 13", "cap 109"})});
  }

  std::string splits() const {
    Names const settings = {"RM10", "RM05", "RP05", "RP10"};
    std::vector<PlottedSeries> series;
    for (auto const& [budget, colour] :
         {std::pair{"b63", "var(--s3)"}, std::pair{"b108", "var(--s6)"}}) {
      PlottedSeries s{budget, colour, ChartKind::bars, false, {}};
      for (std::string const& setting : settings)
        s.quantities.push_back(
            effect(Form::relative, Metric::throughput, "splits.sweep", budget, setting, "R00"));
      series.push_back(std::move(s));
    }
    return grid({draw({"D0's split against the calibrated one",
                       "attention fraction r0 = 0.527383 less or plus 0.05, 0.10", "", "effect (%)",
                       settings, series, true, 1})});
  }

  std::string granite() const {
    Names const points = {"2/s", "4/s", "8/s"};
    return grid({draw(
        {"Granite-4.0-H-Micro at b160", "cap 136, three seeds", "arrival rate", "output tokens/s",
         points,
         levels(Metric::throughput, "granite.four-arms", {"S0", "S1", "S2", "D0"}, points)})});
  }

  std::string pinning() const {
    Names const rules = {"Roff", "R0", "R1", "R2"};
    std::vector<PlottedSeries> series;
    for (auto const& [point, name, colour] :
         {std::tuple{"A", "A: b108, 4.5 requests/s", "var(--s3)"},
          std::tuple{"B", "B: b63, 3 requests/s", "var(--s6)"}}) {
      PlottedSeries s{name, colour, ChartKind::bars, false, {}};
      for (std::string const& rule : rules)
        s.quantities.push_back(effect(Form::relative, Metric::throughput, "pinning.sweep",
                                      fmt::format("{} {}", point, rule), "D0", "S2"));
      series.push_back(std::move(s));
    }
    return grid({draw({"D0 against S2 by pinning rule", "six seeds; pinning off, K = 3, 2, 1", "",
                       "D0 / S2 (%)", rules, series, true, 1})});
  }

  std::string best() const {
    Names figures;
    Names const& policies = results_.settings().policies;
    for (char const* rate : {"0.8", "3", "4.5", "6"}) {
      Names points;
      for (std::string const& b : budget_names)
        points.push_back(fmt::format("{} {}/s q=1", b, rate));
      std::vector<PlottedSeries> series;
      int slot = 0;
      Names arms;
      for (std::string const organization : {"S2", "D0"})
        for (std::string const& policy : policies) arms.push_back(organization + ' ' + policy);
      arms.emplace_back("byte-exact");
      for (std::string const& arm : arms) {
        PlottedSeries s = effects("best.paper-workload", arm, "infinite", points);
        s.name = arm;
        s.colour = arm == "byte-exact" ? "var(--r1)" : fmt::format("var(--s{})", slot++ % 8);
        series.push_back(std::move(s));
      }
      figures.push_back(
          draw({fmt::format("Against infinite memory at {} requests/s", rate),
                "q = 1, skewed contexts, cap 109", "",
                "output tokens/s against infinite memory (%)", budget_names, series, true, 1}));
    }
    return grid(figures);
  }

  const Results& results_;
  const std::string& cells_;
  std::vector<PaperReadout> readouts_;
};

}  // namespace

std::string figures_html(const CampaignReport& report, const QuestionFindings& question,
                         const std::string& cells) {
  return Figures(report, cells).of(question);
}

}  // namespace hybridstate::runtime
