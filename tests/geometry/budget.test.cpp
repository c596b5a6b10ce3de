// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <hybridstate/geometry/budget.hpp>
#include <hybridstate/geometry/presets.hpp>
#include <string>

namespace hs = hybridstate;
using Kind = hs::OrganizationKind;

namespace {

constexpr hs::ModelGeometry falcon_geometry = hs::find_preset("falcon-h1-7b")->geometry;
constexpr hs::StateLayout falcon = hs::make_layout(falcon_geometry);
constexpr hs::StateLayout granite =
    hs::make_layout(hs::find_preset("granite-4.0-h-micro")->geometry);

hs::BudgetPlan plan(Kind kind, const hs::StateLayout& layout, hs::Budget budget,
                    hs::PoolSplit split = hs::falcon_split) {
  auto result = hs::plan_budget(kind, layout, budget, split);
  REQUIRE_MESSAGE(static_cast<bool>(result), result.sentence());
  return result.value();
}

std::string refusal(Kind kind, const hs::StateLayout& layout, hs::Budget budget,
                    hs::PoolSplit split = hs::falcon_split) {
  return hs::plan_budget(kind, layout, budget, split).sentence();
}

bool says(const std::string& sentence, const char* part) {
  return sentence.find(part) != std::string::npos;
}

double percent_more(hs::Bytes a, hs::Bytes b) {
  return (static_cast<double>(a) / static_cast<double>(b) - 1.0) * 100.0;
}

}  // namespace

TEST_CASE("planned units and bytes of Table B-2") {
  struct Row {
    hs::Units number;
    hs::Bytes nominal;
    hs::Units s0, s1;
    hs::Units d0_attention, d0_recurrent;
    hs::Bytes d0_attention_bytes, d0_recurrent_bytes, d0_bytes, s0_bytes, s1_bytes;
  };
  for (Row const& r :
       {Row{63, 101154816, 63, 193, 3256, 29, 53346304, 46236672, 99582976, 100445184, 101187584},
        Row{83, 133267456, 84, 254, 4289, 39, 70270976, 62180352, 132451328, 133926912, 133169152},
        Row{108, 173408256, 109, 331, 5581, 51, 91439104, 81312768, 172751872, 173786112,
            173539328}}) {
    CAPTURE(r.number);
    auto const budget = hs::nominal_budget(falcon, r.number);
    CHECK(budget.bytes == r.nominal);
    auto const s0 = plan(Kind::coarse_page, falcon, budget);
    CHECK(s0.units == hs::PoolUnits{{r.s0, 0}});
    CHECK(s0.layer_bytes() == r.s0_bytes);
    CHECK(s0.total_bytes() == r.s0_bytes * 44);
    for (Kind const kind : {Kind::recurrent_paged, Kind::conv_slab_packed}) {
      auto const s = plan(kind, falcon, budget);
      CHECK(s.units == hs::PoolUnits{{r.s1, 0}});
      CHECK(s.layer_bytes() == r.s1_bytes);
      CHECK(s.unit_bytes[0] == 524288);
      CHECK(s.unit_bytes[1] == 0);
    }
    auto const d0 = plan(Kind::native_dual_pool, falcon, budget);
    CHECK(d0.units == hs::PoolUnits{{r.d0_attention, r.d0_recurrent}});
    CHECK(d0.pool_bytes(0) == r.d0_attention_bytes);
    CHECK(d0.pool_bytes(1) == r.d0_recurrent_bytes);
    CHECK(d0.layer_bytes() == r.d0_bytes);
    CHECK(d0.total_bytes() == r.d0_bytes * 44);
  }
}

TEST_CASE("D0 plans 1.5858 % less than S2 at b63") {
  auto const budget = hs::nominal_budget(falcon, 63);
  auto const d0 = plan(Kind::native_dual_pool, falcon, budget);
  auto const s2 = plan(Kind::conv_slab_packed, falcon, budget);
  CHECK(percent_more(d0.layer_bytes(), s2.layer_bytes()) == doctest::Approx(-1.5858).epsilon(5e-5));
}

TEST_CASE("moving the split changes the rounded totals") {
  CHECK(hs::shifted(hs::falcon_split, -10).attention_ppm == 427383);
  CHECK(hs::shifted(hs::falcon_split, -5).attention_ppm == 477383);
  CHECK(hs::shifted(hs::falcon_split, 5).attention_ppm == 577383);
  CHECK(hs::shifted(hs::falcon_split, 10).attention_ppm == 627383);
  CHECK(hs::shifted(hs::falcon_split, -60).attention_ppm == 1);
  CHECK(hs::shifted(hs::falcon_split, 60).attention_ppm == 999999);
  CHECK(hs::falcon_split.recurrent_ppm() == 472617);
  CHECK(hs::granite_split.recurrent_ppm() == 800301);

  auto change = [](hs::Units number) {
    auto const budget = hs::nominal_budget(falcon, number);
    auto const base = plan(Kind::native_dual_pool, falcon, budget);
    auto const moved =
        plan(Kind::native_dual_pool, falcon, budget, hs::shifted(hs::falcon_split, -5));
    return percent_more(moved.layer_bytes(), base.layer_bytes());
  };
  CHECK(change(63) == doctest::Approx(1.320).epsilon(4e-4));
  CHECK(change(108) == doctest::Approx(-0.402).epsilon(1.5e-3));
}

TEST_CASE("published splits and page bytes of Table B-3") {
  CHECK(hs::find_preset("falcon-h1-7b")->attention_ppm == hs::falcon_split.attention_ppm);
  CHECK(hs::find_preset("granite-4.0-h-micro")->attention_ppm == hs::granite_split.attention_ppm);
  CHECK(hs::unit_bytes(Kind::native_dual_pool, falcon, 0) == 16384);
  CHECK(hs::unit_bytes(Kind::native_dual_pool, falcon, 1) == 1594368);
  CHECK(hs::unit_bytes(Kind::native_dual_pool, granite, 0) == 32768);
  CHECK(hs::unit_bytes(Kind::native_dual_pool, granite, 1) == 1074688);
  CHECK(hs::unit_bytes(Kind::conv_slab_packed, falcon, 1) == 0);
  CHECK(hs::unit_bytes(Kind::native_dual_pool, falcon, 2) == 0);
  CHECK(hs::unit_bytes(Kind::native_dual_pool, falcon, -1) == 0);
}

TEST_CASE("Granite's nominal budget has its own unit") {
  CHECK(hs::nominal_budget(granite, 160).bytes == 173015040);
  auto const s0 = plan(Kind::coarse_page, granite, hs::nominal_budget(granite, 160));
  CHECK(s0.units[0] == 161);
  CHECK(s0.group_layers == 4);
  CHECK(s0.total_bytes() == hs::Bytes{161} * 1074688 * 4);
}

TEST_CASE("a block of all layers") {
  CHECK(hs::unit_bytes(Kind::native_dual_pool, falcon, 1) * falcon.group_layers() == 70152192);
  hs::BudgetPlan eight;
  eight.kind = Kind::coarse_page;
  eight.units[0] = 8;
  eight.unit_bytes[0] = falcon.coarse_page_bytes();
  eight.group_layers = falcon.group_layers();
  CHECK(eight.total_bytes() == 561217536);
}

TEST_CASE("a per-layer budget rounds to the nearest unit, half up") {
  hs::Bytes const page = falcon.page_bytes();
  for (hs::Bytes const n : {hs::Bytes{2}, hs::Bytes{3}}) {
    CHECK(plan(Kind::recurrent_paged, falcon, hs::bytes_per_layer(n * page)).units[0] == n);
    CHECK(plan(Kind::recurrent_paged, falcon, hs::bytes_per_layer(n * page + page / 2 - 1))
              .units[0] == n);
    CHECK(plan(Kind::recurrent_paged, falcon, hs::bytes_per_layer(n * page + page / 2)).units[0] ==
          n + 1);
  }
}

TEST_CASE("a total is never exceeded") {
  for (const hs::StateLayout* layout : {&falcon, &granite}) {
    for (Kind const kind : hs::organization_kinds) {
      for (hs::Bytes const bytes :
           {hs::Bytes{1} << 30, hs::Bytes{3999999999}, hs::Bytes{40} << 30}) {
        CAPTURE(hs::organization_name(kind));
        CAPTURE(bytes);
        auto const p = plan(kind, *layout, hs::bytes_over_all_layers(bytes));
        CHECK(p.total_bytes() <= bytes);
        hs::Bytes slack = 0;  // less than one unit of each pool is left
        for (int pool = 0; pool < hs::pool_count(kind); ++pool)
          slack += p.unit_bytes[pool] * layout->group_layers();
        CHECK(p.total_bytes() + slack > bytes - 2);
      }
    }
  }
  // Where the nearest unit would be one more.
  hs::Bytes const whole = falcon.page_bytes() * 44;
  CHECK(plan(Kind::recurrent_paged, falcon, hs::bytes_over_all_layers(3 * whole - 1)).units[0] ==
        2);
  CHECK(plan(Kind::recurrent_paged, falcon, hs::bytes_over_all_layers(3 * whole)).units[0] == 3);
}

TEST_CASE("the matched grid changes D0's attention unit alone") {
  constexpr auto matched =
      hs::make_layout(falcon_geometry, hs::with_matched_native_grid(hs::LayoutOptions{}));
  auto const d0 = plan(Kind::native_dual_pool, matched, hs::nominal_budget(matched, 63));
  CHECK(d0.units == hs::PoolUnits{{101, 29}});  // 3,256 native units hold 101.75 blocks
  CHECK(hs::block_tokens(Kind::native_dual_pool, matched) == 512);
  CHECK(hs::checkpoint_tokens(Kind::native_dual_pool, matched) == 512);
}

TEST_CASE("grids and pools of the organizations") {
  for (Kind const kind : {Kind::coarse_page, Kind::recurrent_paged, Kind::conv_slab_packed}) {
    CHECK(hs::block_tokens(kind, falcon) == 512);
    CHECK(hs::checkpoint_tokens(kind, falcon) == 512);
    CHECK(hs::pool_count(kind) == 1);
    CHECK(hs::state_pool(kind) == 0);
  }
  CHECK(hs::block_tokens(Kind::native_dual_pool, falcon) == 16);
  CHECK(hs::checkpoint_tokens(Kind::native_dual_pool, falcon) == 1792);
  CHECK(hs::pool_count(Kind::native_dual_pool) == 2);
  CHECK(hs::state_pool(Kind::native_dual_pool) == 1);
  CHECK(std::string(hs::paper_name(Kind::conv_slab_packed)) == "S2");
  CHECK(std::string(hs::organization_name(Kind::coarse_page)) == "coarse-page");
}

TEST_CASE("units of one state") {
  CHECK(hs::own_state_units(Kind::coarse_page, falcon) == 1);
  CHECK(hs::own_state_units(Kind::recurrent_paged, falcon) == 4);
  CHECK(hs::own_state_units(Kind::conv_slab_packed, falcon) == 3);
  CHECK(hs::own_state_units(Kind::native_dual_pool, falcon) == 1);
  CHECK(hs::own_state_units(Kind::coarse_page, granite) == 9);
  CHECK(hs::own_state_units(Kind::recurrent_paged, granite) == 18);
  CHECK(hs::own_state_units(Kind::conv_slab_packed, granite) == 9);
  CHECK(hs::ideal_slabs(falcon, 0) == 0);
  CHECK(hs::ideal_slabs(falcon, 16) == 1);
  CHECK(hs::ideal_slabs(falcon, 17) == 2);
  CHECK(hs::ideal_slabs(granite, 3) == 1);  // 27 of 32 slots
  CHECK(hs::ideal_slabs(granite, 4) == 2);  // 36
  // Blocks of 16 tokens: no slots, two convolution pages for each state.
  auto const small = hs::make_layout(falcon_geometry, {16, 16});
  CHECK(hs::ideal_slabs(small, 100) == 0);
  CHECK(hs::own_state_units(Kind::conv_slab_packed, small) == 98);
  CHECK(hs::own_state_units(Kind::recurrent_paged, small) == 98);
}

TEST_CASE("units of a sequence") {
  hs::SequenceDemand const demand{3332};  // seven blocks, two states
  CHECK(hs::units_needed(Kind::coarse_page, falcon, demand) == hs::UnitDemand{{9, 0}});
  CHECK(hs::units_needed(Kind::recurrent_paged, falcon, demand) == hs::UnitDemand{{15, 0}});
  CHECK(hs::units_needed(Kind::conv_slab_packed, falcon, demand) == hs::UnitDemand{{14, 0}});
  CHECK(hs::units_needed(Kind::native_dual_pool, falcon, demand) == hs::UnitDemand{{209, 2}});
  CHECK(hs::units_needed(Kind::conv_slab_packed, falcon, demand, 8) == hs::UnitDemand{{105, 0}});
  CHECK(hs::units_needed(Kind::conv_slab_packed, falcon, demand, 9) == hs::UnitDemand{{119, 0}});
  CHECK(hs::units_needed(Kind::conv_slab_packed, granite, {600, 1}) == hs::UnitDemand{{12, 0}});
  CHECK(hs::units_needed(Kind::native_dual_pool, granite, {600, 1}) == hs::UnitDemand{{38, 9}});
  CHECK(hs::units_needed(Kind::coarse_page, falcon, {0, 0}) == hs::UnitDemand{});
}

TEST_CASE("sequences that fit") {
  hs::SequenceDemand const demand{3332};
  auto usable = [](hs::PoolUnits units) {  // one null page in each pool
    for (int p = 0; p < hs::max_pools; ++p) units[p] -= units[p] == 0 ? 0 : 1;
    return units;
  };
  auto count = [&](Kind kind) {
    return hs::sequences_that_fit(
        kind, falcon, usable(plan(kind, falcon, hs::nominal_budget(falcon, 63)).units), demand);
  };
  CHECK(count(Kind::coarse_page) == 6);        // 62 pages, nine each
  CHECK(count(Kind::recurrent_paged) == 12);   // 192 pages, fifteen each
  CHECK(count(Kind::conv_slab_packed) == 14);  // 192 pages, thirteen each and two slabs
  CHECK(count(Kind::native_dual_pool) == 14);  // 3,255 / 209 attention, 28 / 2 recurrent

  // Exactly enough, and one unit less.
  for (Kind const kind : hs::organization_kinds) {
    CAPTURE(hs::organization_name(kind));
    for (std::uint64_t const n : {1U, 8U, 9U, 100U}) {
      auto const need = hs::units_needed(kind, granite, demand, n);
      hs::PoolUnits have{{static_cast<hs::Units>(need[0]), static_cast<hs::Units>(need[1])}};
      CHECK(hs::sequences_that_fit(kind, granite, have, demand) == n);
      have[hs::state_pool(kind)] -= 1;
      CHECK(hs::sequences_that_fit(kind, granite, have, demand) == n - 1);
    }
  }
  CHECK(hs::sequences_that_fit(Kind::coarse_page, falcon, {{10, 0}}, {0, 0}) == 0);
  CHECK(hs::sequences_that_fit(Kind::coarse_page, falcon, {{0, 0}}, demand) == 0);
  CHECK(hs::sequences_that_fit(Kind::coarse_page, falcon, {{0xffffffffU, 0}}, {1, 0}) ==
        0xffffffffU);
}

TEST_CASE("a split for an expected mix fills both pools at once") {
  hs::SequenceDemand const mix{3332, 2};
  auto const split = hs::split_for(falcon, mix);
  // 209 x 16,384 against 2 x 1,594,368
  CHECK(split.attention_ppm == 517807);
  auto const p =
      plan(Kind::native_dual_pool, falcon, hs::bytes_per_layer(hs::Bytes{1} << 40), split);
  double const by_attention = static_cast<double>(p.units[0]) / 209.0;
  double const by_state = static_cast<double>(p.units[1]) / 2.0;
  CHECK(by_attention == doctest::Approx(by_state).epsilon(1e-5));
  CHECK(hs::split_for(granite, {600, 1}).attention_ppm == 114055);  // 38 x 32,768 / 9 x 1,074,688
  CHECK(hs::split_for(falcon, {0, 3}).attention_ppm == 1);
  CHECK(hs::split_for(falcon, {1000, 0}).attention_ppm == 999999);
  CHECK(hs::split_for(falcon, {0, 0}) == hs::PoolSplit{});
  CHECK(hs::split_for(falcon, {0xffffffffU, 0xffffffffU}).sound());
}

TEST_CASE("a share of the bytes is exact") {
  CHECK(hs::detail::share(101154816, 527383) == 53347330);
  hs::Bytes const large = (hs::Bytes{1} << 62) - 1;
  CHECK(hs::detail::share(large, 999999) < large);
  CHECK(hs::detail::share(large, 500000) == large / 2);
  CHECK(hs::detail::share(999999, 1) == 0);
  CHECK(hs::detail::share(1000000, 1) == 1);
}

TEST_CASE("budgets that cannot work are refused with a sentence") {
  CHECK(refusal(Kind::recurrent_paged, falcon, hs::bytes_per_layer(1000)) ==
        "budget: 1000 bytes per layer leave the pool 1000, less than one unit of 524288; give more "
        "memory");
  CHECK(says(refusal(Kind::native_dual_pool, falcon, hs::bytes_per_layer(2000000)),
             "the recurrent pool 945234, less than one unit of 1594368; give more memory or move "
             "the split"));
  CHECK(says(refusal(Kind::native_dual_pool, falcon, hs::bytes_per_layer(20000)),
             "the attention pool"));
  CHECK(says(refusal(Kind::coarse_page, falcon, hs::bytes_over_all_layers(1 << 20)),
             "over all layers"));
  CHECK(says(refusal(Kind::native_dual_pool, falcon, hs::nominal_budget(falcon, 63), {0}),
             "choose 1 to 999999"));
  CHECK(says(refusal(Kind::native_dual_pool, falcon, hs::nominal_budget(falcon, 63), {1000000}),
             "1000000 parts per million"));
  // S2 numbers its slots, so it reaches the index limit sixteen times earlier than S1.
  auto const many = hs::bytes_per_layer(falcon.page_bytes() * ((hs::Bytes{1} << 31) / 16));
  CHECK(says(refusal(Kind::conv_slab_packed, falcon, many), "134217728 units"));
  CHECK(refusal(Kind::recurrent_paged, falcon, many).empty());
  auto const under = hs::bytes_per_layer(falcon.page_bytes() * ((hs::Bytes{1} << 31) / 16 - 1));
  CHECK(refusal(Kind::conv_slab_packed, falcon, under).empty());
  CHECK(says(refusal(Kind::recurrent_paged, falcon, hs::bytes_per_layer(hs::Bytes{1} << 60)),
             "32-bit indices"));
  CHECK(says(refusal(Kind::recurrent_paged, falcon, hs::bytes_per_layer(~hs::Bytes{0})),
             "exceed 2^62"));
  CHECK(hs::nominal_budget(falcon, 0).bytes == 0);
  CHECK(says(refusal(Kind::coarse_page, falcon, hs::nominal_budget(falcon, 0)), "less than one"));
}

TEST_CASE("plans take static layouts too") {
  using Static = hs::StaticLayout<falcon_geometry>;
  auto const fixed = hs::plan_budget(Kind::native_dual_pool, Static{},
                                     hs::nominal_budget(Static{}, 83), hs::falcon_split)
                         .value();
  CHECK(fixed.units == hs::PoolUnits{{4289, 39}});
  static_assert(hs::units_needed(Kind::conv_slab_packed, Static{}, {512, 1})[0] == 5);
}
