// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "campaign/paper_readouts.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

namespace hybridstate::runtime {

namespace {

constexpr bool headline = true;

class List {
 public:
  std::vector<PaperReadout> readouts;

  void printed(const PaperValue& v) {
    std::optional<Metric> const metric = metric_named(v.metric);
    if (!metric) return;
    Quantity q;
    if (*v.baseline != '\0') {
      q = effect(Form::relative, *metric, v.experiment, v.point, v.arm, v.baseline);
      readouts.push_back({q, v.value, 0, {}, {}, v.source});
      return;
    }
    q = level(*metric, v.experiment, v.point, v.arm);
    // Tables G-5 and G-6: bars are geometric means.
    if (std::strcmp(v.experiment, "Q9.retention") == 0) q.form = Form::geometric;
    readouts.push_back({q, v.value * info(*metric).factor, 0, {}, {}, v.source});
  }

  PaperReadout& add(Quantity q, double value, const char* source, bool shown = false) {
    readouts.push_back({std::move(q), value, 0, {}, {}, source, shown});
    return readouts.back();
  }
  void seed(Metric metric, const char* experiment, const char* point, const char* arm,
            std::uint64_t seed, double value, const char* source) {
    Quantity q = level(metric, experiment, point, arm);
    q.seed = seed;
    add(std::move(q), value, source);
  }
};

Quantity between(Form form, Metric metric, const char* experiment, const char* arm,
                 const char* arm_point, const char* baseline, const char* baseline_point) {
  return {form, metric, {experiment, arm, arm_point, baseline, baseline_point}};
}

void add_q1_to_q5(List& list) {
  Form const relative = Form::relative;
  list.add(effect(relative, Metric::c_once, "Q1.low", "b63", "S2", "S1"), 73.5306, "Appendix E.1",
           headline);
  list.add(effect(relative, Metric::c_once, "Q1.low", "b108", "S2", "S1"), 99.8321, "Appendix E.1",
           headline);
  list.add(effect(relative, Metric::throughput, "Q1.low", "b63", "S2", "S1"), -0.0086,
           "Appendix E.1");
  list.add(effect(relative, Metric::throughput, "Q1.low", "b108", "S2", "S1"), -0.0266,
           "Appendix E.1");
  list.add(effect(Form::difference, Metric::c_once, "Q4.budget", "b63", "D0", "S2"), -34'090.667,
           "Appendix E.2", headline);
  list.add(effect(Form::difference, Metric::c_once, "Q4.budget", "b108", "D0", "S2"), 403'200,
           "Appendix E.2", headline);
  Quantity load = effect(relative, Metric::throughput, "Q5.high-load", "b108 4.5/s", "D0", "S2");
  load.less = Contrast{"Q5.high-load", "D0", "b108 3/s", "S2", "b108 3/s"};
  list.add(load, 8.43, "Section 5.3", headline);
  // The runs of Figure 5 at the loads where other tables print them.
  struct Load {
    const char* experiment;
    const char* point;
    const char* arm;
    double rate;
    const char* source;
  };
  constexpr Load loads[] = {{"Q5.b63", "0.8/s", "S2", 190.608, "Table E-3"},
                            {"Q5.b108", "0.8/s", "S2", 190.621, "Table E-3"},
                            {"Q5.b63", "3/s", "S2", 470.308, "Table E-1"},
                            {"Q5.b108", "4.5/s", "S2", 667.210, "Table E-1"},
                            {"Q5.b108", "3/s", "S2", 655.681, "Table E-6, traced"},
                            {"Q5.b63", "3/s", "D0", 483.282, "Table E-6, traced"},
                            {"Q5.b108", "3/s", "D0", 593.082, "Table E-6, traced"},
                            {"Q5.b108", "4.5/s", "D0", 609.826, "Table E-6, traced"}};
  for (Load const& l : loads)
    list.add(level(Metric::throughput, l.experiment, l.point, l.arm), l.rate, l.source);
  auto const gap = [&](const char* experiment, const char* point, double value,
                       const char* source) {
    list.add(effect(relative, Metric::throughput, experiment, point, "D0", "S2"), value, source);
  };
  gap("Q5.b63", "1.7/s", -0.98, "Table E-11");
  gap("Q5.b63", "3/s", 4.129, "Table E-7");
  gap("Q5.b108", "1.7/s", -0.43, "Table E-11");
  gap("Q5.b108", "3/s", -8.935, "Table E-7");
  gap("Q5.b108", "4.5/s", -7.451, "Table E-7");
  Quantity cap = effect(relative, Metric::throughput, "caps.cap8", "cap 8", "D0", "S2");
  cap.less = Contrast{"caps.cap8", "D0", "cap 63", "S2", "cap 63"};
  list.add(cap, -7.74, "Appendix E.3", headline);
}

/// Table E-13: ratios of p99 latencies.
void add_latency_ratios(List& list) {
  struct Row {
    const char* experiment;
    const char* point;
    const char* baseline;
    double e2e, tpot;
  };
  constexpr Row rows[] = {{"Q5.high-load", "b63 3/s", "S2", 0.944, 1.155},
                          {"Q5.high-load", "b108 4.5/s", "S2", 1.159, 1.367},
                          {"caps.cap8", "cap 8", "S2", 1.464, 1.167},
                          {"bursts.on-off", "on/off", "S2", 1.171, 1.857},
                          {"granite.high-load", "8/s", "S0", 1.023, 1.243}};
  for (Row const& r : rows) {
    list.add(effect(Form::relative, Metric::e2e_p99, r.experiment, r.point, "D0", r.baseline),
             100 * (r.e2e - 1), "Table E-13");
    list.add(effect(Form::relative, Metric::tpot_p99, r.experiment, r.point, "D0", r.baseline),
             100 * (r.tpot - 1), "Table E-13");
  }
}

void add_depths(List& list) {
  struct Q7 {
    std::uint64_t seed;
    double none, some;
  };
  constexpr Q7 q7[] = {{76600, 1338.0, 2123.1}, {76601, 1583.8, 2234.0}, {76602, 1705.0, 2259.6}};
  for (Q7 const& row : q7)
    for (Metric const metric : {Metric::adopt_depth, Metric::recurrent_depth}) {
      list.seed(metric, "Q7.trace", "f=0 ON", "S2", row.seed, row.none, "Appendix G.2");
      list.seed(metric, "Q7.trace", "f=0.19 ON", "S2", row.seed, row.some, "Appendix G.2");
    }
  list.add(
      between(Form::difference, Metric::adopt_depth, "Q7.trace", "S2", "f=0.19 ON", "S2", "f=0 ON"),
      (785.1 + 650.2 + 554.7) / 3, "Section 5.5", headline);
  for (char const* point : {"f=0 ON", "f=0.19 ON"})
    list.add(level(Metric::gap_depth, "Q7.trace", point, "S2"), 0, "Section 5.5");

  struct Q8 {
    std::uint64_t seed;
    const char* arm;
    double adopt, recurrent, attention_m0, attention;
  };
  constexpr Q8 q8[] = {{79010, "S2", 2266.45, 2266.45, 2918.40, 2918.40},
                       {79010, "S2+Retention", 2969.60, 2969.60, 2969.60, 2969.60},
                       {79011, "S2", 1472.85, 1472.85, 2809.17, 2816.00},
                       {79011, "S2+Retention", 2911.57, 2916.69, 2928.64, 2938.88},
                       {79012, "S2", 1846.61, 1846.61, 2856.96, 2867.20},
                       {79012, "S2+Retention", 2938.88, 2938.88, 2938.88, 2938.88}};
  for (Q8 const& r : q8) {
    list.seed(Metric::adopt_depth, "Q8.depth", "SHARE", r.arm, r.seed, r.adopt, "Table G-3");
    list.seed(Metric::recurrent_depth, "Q8.depth", "SHARE", r.arm, r.seed, r.recurrent,
              "Table G-3");
    list.seed(Metric::attention_depth, "Q8.depth", "SHARE", r.arm, r.seed, r.attention,
              "Table G-3");
    list.seed(Metric::attention_depth_m0, "Q8.depth", "SHARE", r.arm, r.seed, r.attention_m0,
              "Table G-3");
  }
  auto const change = [](Metric metric) {
    return effect(Form::difference, metric, "Q8.depth", "SHARE", "S2+Retention", "S2");
  };
  constexpr const char* g4 = "Table G-4";
  list.add(change(Metric::adopt_depth), (703.15 + 1438.72 + 1092.27) / 3, g4, headline);
  list.add(change(Metric::recurrent_depth), (703.15 + 1443.84 + 1092.27) / 3, g4, headline);
  list.add(change(Metric::attention_depth), (51.20 + 122.88 + 71.68) / 3, g4, headline);
}

void add_retention(List& list) {
  struct Row {
    std::uint64_t seed;
    double isolate, isolate_retention, share, share_retention;
  };
  constexpr Row rows[] = {
      {88001, 367.534, 369.327, 522.152, 560.830}, {88002, 381.056, 381.056, 498.836, 715.721739},
      {88003, 374.522, 374.522, 529.497, 568.719}, {88004, 384.449, 384.449, 477.648, 583.793},
      {88005, 376.463, 374.636, 571.667, 571.667}, {88006, 345.845, 363.490, 487.973, 565.429}};
  auto const add = [&](const char* mode, const char* arm, std::uint64_t seed, double value) {
    list.seed(Metric::ledger_throughput, "Q9.retention", mode, arm, seed, value, "Table G-5");
  };
  for (Row const& r : rows) {
    add("ISOLATE", "S2", r.seed, r.isolate);
    add("ISOLATE", "S2+Retention", r.seed, r.isolate_retention);
    add("SHARE", "S2", r.seed, r.share);
    add("SHARE", "S2+Retention", r.seed, r.share_retention);
  }
  auto const span = [](const char* mode) {
    return effect(Form::log_percent, Metric::throughput, "Q9.retention", mode, "S2+Retention",
                  "S2");
  };
  constexpr const char* g7 = "Table G-7";
  auto const with_interval = [&](Quantity q, double value, double low, double high) {
    PaperReadout& readout = list.add(std::move(q), value, g7);
    readout.low = low;
    readout.high = high;
  };
  Quantity interaction = span("SHARE");
  interaction.less = span("ISOLATE").contrast;
  with_interval(interaction, 18.8776, 1.9768, 38.5794);
  with_interval(span("SHARE"), 18.8179, 2.0241, 38.3760);
  with_interval(span("ISOLATE"), -0.0503, -0.1875, 0.0872);
  list.add(level(Metric::eligible, "Q9.retention", "SHARE", "S2+Retention"), 48, "Appendix G.3");
  list.add(level(Metric::eligible, "Q9.retention", "ISOLATE", "S2+Retention"), 0, "Appendix G.3");
}

/// Tables E-8 and E-10.
void add_work(List& list) {
  struct Row {
    const char* point;
    double prefill, decode, mixed, all;
    double some_free, none_free, recurrent;
  };
  constexpr Row rows[] = {{"L", 0.0003, -7.8407, 3.5827, -4.2573, 3024.0, 47.3, 0.3},
                          {"M", -0.0113, -27.0173, 38.9873, 11.9580, 974.7, 21.0, 0.3},
                          {"H", -0.0043, -4.9233, 14.9197, 9.9927, 1384.0, 31.7, 0.3}};
  for (Row const& r : rows) {
    auto const seconds = [&](Metric metric, double value) {
      list.add(effect(Form::difference, metric, "work.steps", r.point, "D0", "S2"), value,
               "Table E-8", headline);
    };
    seconds(Metric::prefill_seconds, r.prefill);
    seconds(Metric::decode_seconds, r.decode);
    seconds(Metric::mixed_seconds, r.mixed);
    seconds(Metric::busy_seconds, r.all);
    auto const failures = [&](Metric metric, double value) {
      list.add(level(metric, "work.steps", r.point, "D0"), value, "Table E-10");
    };
    failures(Metric::attention_some_free, r.some_free);
    failures(Metric::attention_none_free, r.none_free);
    failures(Metric::recurrent_some_free, r.recurrent);
  }
}

void add_appendices(List& list) {
  for (char const* arm : {"S1", "S2"}) {
    PaperReadout& readout =
        list.add(effect(Form::relative, Metric::throughput, "granite.four-arms", "8/s", arm, "S0"),
                 0, "Appendix E.7", headline);
    readout.value.reset();
    readout.sign = -1;
  }
  struct Row {
    const char* arm;
    double share, isolate;
  };
  constexpr Row rows[] = {{"S2", 10.41, -11.50}, {"D0-M512", -1.25, -6.39}};
  for (Row const& r : rows) {
    auto const headroom = [&](const char* some, const char* none, double value) {
      list.add(between(Form::relative, Metric::throughput, "matched-grid.isolation", r.arm, some,
                       r.arm, none),
               value, "Appendix C.1", headline);
    };
    headroom("SHARE f=0.19", "SHARE f=0", r.share);
    headroom("ISOLATE f=0.19", "ISOLATE f=0", r.isolate);
  }
  // Table C-4: adopted share of the input.
  struct Adopted {
    const char* point;
    const char* arm;
    double percent;
  };
  constexpr Adopted adopted[] = {
      {"low f=0", "D0-M512", 39.802},  {"low f=0.19", "D0-M512", 46.850},
      {"low f=0", "S2", 34.527},       {"low f=0.19", "S2", 54.982},
      {"high f=0", "D0-M512", 41.203}, {"high f=0.19", "D0-M512", 48.600},
      {"high f=0", "S2", 35.212},      {"high f=0.19", "S2", 56.073}};
  for (Adopted const& a : adopted)
    list.add(level(Metric::hit_rate, "matched-grid.input", a.point, a.arm), a.percent, "Table C-4");
}

}  // namespace

std::vector<PaperReadout> paper_readouts() {
  List list;
  for (PaperValue const& value : paper_values()) list.printed(value);
  add_q1_to_q5(list);
  add_latency_ratios(list);
  add_depths(list);
  add_retention(list);
  add_work(list);
  add_appendices(list);
  return std::move(list.readouts);
}

}  // namespace hybridstate::runtime
