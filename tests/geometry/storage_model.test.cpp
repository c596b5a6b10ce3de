// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <hybridstate/geometry/presets.hpp>
#include <hybridstate/geometry/storage_model.hpp>

namespace hs = hybridstate;
using Kind = hs::OrganizationKind;

namespace {

constexpr hs::ModelGeometry falcon_geometry = hs::find_preset("falcon-h1-7b")->geometry;
constexpr hs::StateLayout falcon = hs::make_layout(falcon_geometry);
constexpr hs::StateLayout granite =
    hs::make_layout(hs::find_preset("granite-4.0-h-micro")->geometry);
constexpr hs::Bytes kib = 1024;
constexpr hs::Bytes mib = 1024 * kib;

double in_mib(hs::Bytes bytes) { return static_cast<double>(bytes) / static_cast<double>(mib); }

}  // namespace

TEST_CASE("equations (1) to (4) for Falcon-H1-7B") {
  for (std::uint64_t a : {0U, 1U, 7U, 1000U}) {
    for (std::uint64_t r : {0U, 1U, 16U, 17U, 333U}) {
      for (std::uint64_t spare : {0U, 1U, 5U}) {
        std::uint64_t const m = (r + 15) / 16 + spare;
        hs::StateSet const set{a, r, m, {}};
        CAPTURE(a);
        CAPTURE(r);
        CAPTURE(m);
        CHECK(hs::stored_bytes(Kind::coarse_page, falcon, set) == 1557 * (a + r) * kib);
        CHECK(hs::stored_bytes(Kind::recurrent_paged, falcon, set) == (512 * a + 2048 * r) * kib);
        CHECK(hs::stored_bytes(Kind::conv_slab_packed, falcon, set) ==
              (512 * a + 1536 * r + 512 * m) * kib);
        CHECK(hs::stored_bytes(Kind::native_dual_pool, falcon, set) == (512 * a + 1557 * r) * kib);
        auto const signed_kib = static_cast<std::int64_t>(kib);
        auto const sa = static_cast<std::int64_t>(a);
        auto const sr = static_cast<std::int64_t>(r);
        auto const sm = static_cast<std::int64_t>(m);
        CHECK(hs::saved_bytes(Kind::coarse_page, Kind::recurrent_paged, falcon, set) ==
              (1045 * sa - 491 * sr) * signed_kib);
        CHECK(hs::saved_bytes(Kind::recurrent_paged, Kind::conv_slab_packed, falcon, set) ==
              512 * (sr - sm) * signed_kib);
        CHECK(hs::slabs_suffice(falcon, r, m));
        if (spare == 0 && r > 0) CHECK_FALSE(hs::slabs_suffice(falcon, r, m - 1));
      }
    }
  }
}

TEST_CASE("Table A-1") {
  struct Row {
    std::uint64_t a, r, slabs;
    double s0, s1, s2;
  };
  for (Row const& row :
       {Row{1, 1, 1, 3.041016, 2.5, 2.5}, Row{16, 16, 1, 48.65625, 40.0, 32.5},
        Row{4, 16, 1, 30.410156, 34.0, 26.5}, Row{0, 16, 1, 24.328125, 32.0, 24.5}}) {
    CAPTURE(row.a);
    CAPTURE(row.r);
    hs::StateSet const set{row.a, row.r, {}, {}};
    CHECK(hs::ideal_slabs(falcon, row.r) == row.slabs);
    CHECK(in_mib(hs::stored_bytes(Kind::coarse_page, falcon, set)) ==
          doctest::Approx(row.s0).epsilon(1e-7));
    CHECK(in_mib(hs::stored_bytes(Kind::recurrent_paged, falcon, set)) == row.s1);
    CHECK(in_mib(hs::stored_bytes(Kind::conv_slab_packed, falcon, set)) == row.s2);
  }
}

TEST_CASE("Table A-2: D0 takes less and yet does not fit") {
  hs::StateSet const set{120, 16, 1, 3840};
  CHECK(in_mib(hs::attention_bytes(Kind::native_dual_pool, falcon, set)) == 60.0);
  CHECK(in_mib(hs::recurrent_bytes(Kind::native_dual_pool, falcon, set)) == 24.328125);
  CHECK(in_mib(hs::stored_bytes(Kind::native_dual_pool, falcon, set)) == 84.328125);
  CHECK(in_mib(hs::attention_bytes(Kind::conv_slab_packed, falcon, set)) == 60.0);
  CHECK(in_mib(hs::recurrent_bytes(Kind::conv_slab_packed, falcon, set)) == 24.5);
  CHECK(in_mib(hs::stored_bytes(Kind::conv_slab_packed, falcon, set)) == 84.5);
  CHECK(hs::native_blocks(falcon, 120) == 3840);
  CHECK_FALSE(hs::fits_native(falcon, 50 * mib, 50 * mib, set));
  CHECK(hs::fits_native(falcon, 60 * mib, 40 * mib, set));
  CHECK_FALSE(hs::fits_native(falcon, 76 * mib, 24 * mib, set));
  CHECK(hs::stored_bytes(Kind::conv_slab_packed, falcon, set) <= 100 * mib);
}

TEST_CASE("the packing cost of one and of sixteen checkpoints") {
  auto extra = [](std::uint64_t r) {
    return hs::saved_bytes(Kind::conv_slab_packed, Kind::native_dual_pool, falcon, {0, r, {}, {}});
  };
  CHECK(extra(1) == 491 * 1024);
  CHECK(extra(16) == 176 * 1024);
}

TEST_CASE("capacities, equations (A8) and (D2)") {
  hs::Bytes const memory = 100 * mib;
  CHECK(hs::shared_capacity(Kind::coarse_page, falcon, memory, {1, 1}) == 32);
  CHECK(hs::shared_capacity(Kind::recurrent_paged, falcon, memory, {1, 1}) == 40);
  CHECK(hs::shared_capacity(Kind::conv_slab_packed, falcon, memory, {1, 1}) == 49);
  CHECK(hs::shared_capacity(Kind::conv_slab_packed, falcon, memory, {1, 0}) == 200);
  CHECK(hs::shared_capacity(Kind::conv_slab_packed, falcon, memory, {0, 1}) == 65);
  CHECK(hs::shared_capacity(Kind::conv_slab_packed, falcon, memory, {0, 0}) == hs::unlimited);
  CHECK(hs::shared_capacity(Kind::conv_slab_packed, falcon, 0, {1, 1}) == 0);
  CHECK(hs::shared_capacity(Kind::coarse_page, falcon, memory, {hs::unlimited, 1}) == 0);

  // The search agrees with counting up.
  for (Kind const kind : {Kind::coarse_page, Kind::recurrent_paged, Kind::conv_slab_packed}) {
    for (hs::ObjectMix const mix :
         {hs::ObjectMix{3, 1}, hs::ObjectMix{1, 5}, hs::ObjectMix{0, 7}}) {
      std::uint64_t z = 0;
      while (hs::stored_bytes(kind, granite,
                              {(z + 1) * mix.attention, (z + 1) * mix.recurrent, {}, {}}) <=
             1000 * mib)
        ++z;
      CHECK(hs::shared_capacity(kind, granite, 1000 * mib, mix) == z);
    }
  }

  CHECK(hs::native_capacity(falcon, 50 * mib, 50 * mib, {32, 1}) == 32);   // 1,557 KiB bind
  CHECK(hs::native_capacity(falcon, 50 * mib, 50 * mib, {240, 1}) == 13);  // 16 KiB units bind
  CHECK(hs::native_capacity(falcon, 50 * mib, 0, {1, 0}) == 3200);
  CHECK(hs::native_capacity(falcon, 0, 50 * mib, {0, 1}) == 32);
  CHECK(hs::native_capacity(falcon, 0, 50 * mib, {1, 1}) == 0);
  CHECK(hs::native_capacity(falcon, 0, 0, {0, 0}) == hs::unlimited);
}

TEST_CASE("slab dumps, equation (E1)") {
  auto const original = hs::compare_conv(falcon, 43, 3);
  CHECK(in_mib(original.dedicated) == 21.5);
  CHECK(in_mib(original.packed) == 1.5);
  CHECK(original.saved == static_cast<std::int64_t>(20 * mib));
  auto const extension = hs::compare_conv(falcon, 69, 5);
  CHECK(in_mib(extension.dedicated) == 34.5);
  CHECK(in_mib(extension.packed) == 2.5);
  CHECK(extension.saved == static_cast<std::int64_t>(32 * mib));
  CHECK(hs::compare_conv(falcon, 1, 2).saved == -static_cast<std::int64_t>(512 * kib));
}

TEST_CASE("break-even mixes") {
  auto const s0_s1 = hs::break_even(Kind::coarse_page, Kind::recurrent_paged, falcon);
  CHECK(s0_s1.kind == hs::BreakEven::Kind::at_ratio);
  CHECK(s0_s1.attention == 491);
  CHECK(s0_s1.recurrent == 1045);
  CHECK(s0_s1.with_more_attention == Kind::recurrent_paged);
  // Order does not change the mix.
  auto const s1_s0 = hs::break_even(Kind::recurrent_paged, Kind::coarse_page, falcon);
  CHECK(s1_s0.attention == 491);
  CHECK(s1_s0.recurrent == 1045);
  CHECK(s1_s0.with_more_attention == Kind::recurrent_paged);
  // S2 costs 1,568 KiB for a checkpoint in full slabs: 11 more than S0, and 1,045 less for a block.
  auto const s0_s2 = hs::break_even(Kind::coarse_page, Kind::conv_slab_packed, falcon);
  CHECK(s0_s2.kind == hs::BreakEven::Kind::at_ratio);
  CHECK(s0_s2.attention == 1);
  CHECK(s0_s2.recurrent == 95);
  CHECK(s0_s2.with_more_attention == Kind::conv_slab_packed);
  CHECK(hs::break_even(Kind::recurrent_paged, Kind::conv_slab_packed, falcon).kind ==
        hs::BreakEven::Kind::second_always);
  CHECK(hs::break_even(Kind::native_dual_pool, Kind::conv_slab_packed, falcon).kind ==
        hs::BreakEven::Kind::first_always);
  CHECK(hs::break_even(Kind::coarse_page, Kind::coarse_page, falcon).kind ==
        hs::BreakEven::Kind::equal);

  // At the mix both take the same, and one object more decides.
  for (const hs::StateLayout* l : {&falcon, &granite}) {
    auto const b = hs::break_even(Kind::coarse_page, Kind::conv_slab_packed, *l);
    REQUIRE(b.kind == hs::BreakEven::Kind::at_ratio);
    std::uint64_t const whole = l->slots_per_slab();  // full slabs
    hs::StateSet set{b.attention * whole, b.recurrent * whole, {}, {}};
    CHECK(hs::saved_bytes(Kind::coarse_page, Kind::conv_slab_packed, *l, set) == 0);
    set.attention += 1;
    CHECK(hs::saved_bytes(Kind::coarse_page, b.with_more_attention, *l, set) > 0);
  }
}

TEST_CASE("layer groups multiply a model's objects") {
  hs::StateSet const set{2, 3, {}, {}};
  hs::Bytes const page = granite.page_bytes();
  CHECK(hs::stored_bytes(Kind::coarse_page, granite, set) == (2 + 27) * 1074688);
  CHECK(hs::stored_bytes(Kind::recurrent_paged, granite, set) == (2 + 54) * page);
  CHECK(hs::stored_bytes(Kind::conv_slab_packed, granite, set) == (2 + 27 + 1) * page);
  CHECK(hs::stored_bytes(Kind::native_dual_pool, granite, set) == 2 * page + 27 * 1074688);
  CHECK(hs::payload_bytes_over_all_layers(granite, set) == 2 * page * 4 + 3 * 38688768);
  // D0 wastes nothing where no group is padded.
  CHECK(hs::stored_bytes(Kind::native_dual_pool, granite, set) * granite.group_layers() ==
        hs::payload_bytes_over_all_layers(granite, set));
  auto const bamba = hs::make_layout(hs::find_preset("bamba-9b")->geometry);
  CHECK(hs::stored_bytes(Kind::native_dual_pool, bamba, set) * bamba.group_layers() -
            hs::payload_bytes_over_all_layers(bamba, set) ==
        3 * bamba.composite_bytes());  // one padding layer in each of three states
}

TEST_CASE("attention in several groups costs a unit in each") {
  hs::ModelGeometry mirrored = falcon_geometry;  // 11 attention layers over groups of 4
  mirrored.attention_layers = 11;
  mirrored.recurrent_layers = 4;
  auto const l = hs::make_layout(mirrored);
  hs::StateSet const set{5, 2, {}, {}};
  CHECK(hs::stored_bytes(Kind::conv_slab_packed, l, set) == (15 + 6 + 1) * l.page_bytes());
  CHECK(hs::stored_bytes(Kind::native_dual_pool, l, set) ==
        15 * l.page_bytes() + 2 * l.composite_bytes());
  CHECK(hs::native_capacity(l, 96 * l.native_unit_bytes(), 0, {1, 0}) == 32);
  CHECK(hs::units_needed(Kind::recurrent_paged, l, {513, 1}) == hs::UnitDemand{{10, 0}});
  CHECK(hs::units_needed(Kind::native_dual_pool, l, {513, 1}) == hs::UnitDemand{{99, 1}});
}

TEST_CASE("a slot larger than a page costs whole pages under S2") {
  auto const l = hs::make_layout(falcon_geometry, {16, 16});
  hs::StateSet const set{10, 4, {}, {}};
  CHECK(hs::stored_bytes(Kind::conv_slab_packed, l, set) ==
        hs::stored_bytes(Kind::recurrent_paged, l, set));
  CHECK(hs::stored_bytes(Kind::conv_slab_packed, l, set) == (10 + 4 * 98) * l.page_bytes());
  CHECK(hs::shared_capacity(Kind::conv_slab_packed, l, 99 * l.page_bytes(), {1, 1}) == 1);
  CHECK(hs::break_even(Kind::recurrent_paged, Kind::conv_slab_packed, l).kind ==
        hs::BreakEven::Kind::equal);
}

TEST_CASE("all organizations side by side") {
  auto const rows = hs::compare_storage(falcon, {16, 16, {}, {}}, 100 * mib);
  CHECK(rows[0].kind == Kind::coarse_page);
  CHECK(rows[3].kind == Kind::native_dual_pool);
  CHECK(in_mib(rows[2].bytes) == 32.5);
  CHECK(in_mib(rows[3].bytes) == 32.328125);
  CHECK(rows[1].per_budget == 2.5);
  CHECK(rows[2].per_budget == doctest::Approx(100.0 / 32.5));
  CHECK(hs::compare_storage(falcon, {}, mib)[0].per_budget == 0.0);
}

TEST_CASE("numbers that do not fit stay at the largest one") {
  hs::StateSet const huge{hs::unlimited / 2, hs::unlimited / 2, {}, {}};
  for (Kind const kind : hs::organization_kinds)
    CHECK(hs::stored_bytes(kind, granite, huge) == hs::unlimited);
  // 2^64 - 1 bytes: a product that does not fit is not taken for one that just fits.
  CHECK(hs::shared_capacity(Kind::recurrent_paged, falcon, hs::unlimited, {2, 0}) ==
        (std::uint64_t{1} << 44) - 1);
}

TEST_CASE("closed forms are constant expressions of static layouts") {
  using Static = hs::StaticLayout<falcon_geometry>;
  static_assert(hs::stored_bytes(Kind::conv_slab_packed, Static{}, {16, 16, {}, {}}) == 34078720);
  static_assert(hs::shared_capacity(Kind::conv_slab_packed, Static{}, 104857600, {1, 1}) == 49);
  CHECK(hs::break_even(Kind::coarse_page, Kind::recurrent_paged, Static{}).attention == 491);
}
