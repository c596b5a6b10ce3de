// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstddef>
#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/geometry/presets.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace hs = hybridstate;

namespace {

hs::StateLayout of(const char* name) { return hs::make_layout(hs::find_preset(name)->geometry); }

bool says(const std::string& sentence, const char* part) {
  return sentence.find(part) != std::string::npos;
}

// A geometry with one layer and the given KV bytes per token / heads.
hs::ModelGeometry tiny(std::uint32_t head_dim, std::uint32_t heads, std::uint32_t rows,
                       std::uint32_t columns) {
  hs::ModelGeometry m;
  m.attention_layers = 1;
  m.recurrent_layers = 1;
  m.kv_heads = 1;
  m.head_dim = head_dim;
  m.kv_dtype_bytes = 1;
  m.ssm_heads = heads;
  m.ssm_head_dim = rows;
  m.ssm_state = columns;
  m.conv_groups = 0;
  return m;
}

// Every byte of every head must lie in exactly one place, inside its member's payload.
void check_places(const hs::StateLayout& l) {
  std::vector<std::vector<bool>> pages(l.members(),
                                       std::vector<bool>(static_cast<std::size_t>(l.page_bytes())));
  bool once = true;
  bool inside = true;
  for (hs::Units h = 0; h < l.ssm_heads(); ++h) {
    for (hs::Bytes b = 0; b < l.head_bytes(); ++b) {
      auto const at = l.ssm_offset(h, b);
      REQUIRE(at.member < l.members());
      REQUIRE(at.offset < l.page_bytes());
      once = once && !pages[at.member][static_cast<std::size_t>(at.offset)];
      pages[at.member][static_cast<std::size_t>(at.offset)] = true;
      auto const span = l.member_span(at.member);
      inside = inside && at.offset < span.bytes && h >= span.first_head &&
               h < span.first_head + span.heads;
      if (l.pages_per_head() > 1) inside = inside && at.offset + span.head_byte == b;
    }
  }
  CHECK(once);
  CHECK(inside);
  hs::Bytes sum = 0;
  for (hs::Units j = 0; j < l.members(); ++j) {
    CHECK(l.member_span(j).bytes > 0);
    CHECK(l.member_span(j).bytes <= l.page_bytes());
    sum += l.member_span(j).bytes;
  }
  CHECK(sum == l.ssm_bytes());
}

template <hs::state_layout L>
std::vector<std::uint64_t> read_all(const L& l) {
  return {l.block_tokens(),
          l.checkpoint_tokens(),
          l.kv_bytes_per_token(),
          l.ssm_bytes(),
          l.conv_bytes(),
          l.head_bytes(),
          l.ssm_heads(),
          l.page_bytes(),
          l.attention_block_bytes(),
          l.heads_per_page(),
          l.pages_per_head(),
          l.split_bytes(),
          l.members(),
          l.slot_bytes(),
          l.slots_per_slab(),
          l.conv_pages(),
          l.composite_bytes(),
          l.coarse_page_bytes(),
          l.native_block_tokens(),
          l.native_unit_bytes(),
          l.native_interval(),
          l.planner_bytes(),
          l.group_layers(),
          l.attention_groups(),
          l.recurrent_groups(),
          l.attention_padding(),
          l.recurrent_padding()};
}

template <std::size_t I, hs::LayoutOptions O>
void compare_static() {
  constexpr hs::ModelGeometry m = hs::presets()[I].geometry;
  using S = hs::StaticLayout<m, O>;
  static_assert(hs::state_layout<S>);
  static_assert(std::is_empty_v<S>);
  auto const run_time = hs::make_layout(m, O);
  CAPTURE(std::string(hs::presets()[I].name));
  CHECK(read_all(S{}) == read_all(run_time));
  CHECK(hs::StateLayout(S{}) == run_time);
  CHECK(S::model() == run_time.model());
  CHECK(S::options() == run_time.options());
  for (hs::Units h = 0; h < run_time.ssm_heads(); h += 7)
    CHECK(S::ssm_offset(h, 3) == run_time.ssm_offset(h, 3));
  for (hs::Units j = 0; j < run_time.members(); ++j)
    CHECK(S::member_span(j) == run_time.member_span(j));
}

template <std::size_t... I>
void compare_static_presets(std::index_sequence<I...>) {
  (compare_static<I, hs::LayoutOptions{}>(), ...);
  (compare_static<I, hs::with_matched_native_grid({128, 256})>(), ...);
}

}  // namespace

TEST_CASE("sizes of the models whose geometry is tabulated") {
  struct Row {
    const char* name;
    hs::Bytes page;
    hs::Units members;
    hs::Bytes slot;
    hs::Units slots;
    hs::Bytes composite;
    hs::Bytes native_unit;
    hs::Tokens interval;
  };
  for (Row const& r : {Row{"falcon-h1-7b", 524288, 3, 32768, 16, 1594368, 16384, 1792},
                       Row{"granite-4.0-h-micro", 1048576, 1, 32768, 32, 1074688, 32768, 768},
                       Row{"falcon-h1-0.5b", 262144, 2, 16384, 16, 403968, 8192, 1024}}) {
    CAPTURE(r.name);
    auto const l = of(r.name);
    CHECK(l.page_bytes() == r.page);
    CHECK(l.attention_block_bytes() == r.page);
    CHECK(l.members() == r.members);
    CHECK(l.slot_bytes() == r.slot);
    CHECK(l.slots_per_slab() == r.slots);
    CHECK(l.composite_bytes() == r.composite);
    CHECK(l.coarse_page_bytes() == r.composite);
    CHECK(l.native_unit_bytes() == r.native_unit);
    CHECK(l.native_interval() == r.interval);
    CHECK(l.conv_pages() == 1);
  }
}

TEST_CASE("eight Falcon heads share one member page") {
  auto const l = of("falcon-h1-7b");
  CHECK(l.heads_per_page() == 8);
  CHECK(l.ssm_offset(0) == hs::MemberOffset{0, 0});
  CHECK(l.ssm_offset(7, 65535) == hs::MemberOffset{0, 524287});
  CHECK(l.ssm_offset(8) == hs::MemberOffset{1, 0});
  CHECK(l.ssm_offset(23, 12) == hs::MemberOffset{2, 7 * 65536 + 12});
  CHECK(l.member_span(2) == hs::MemberSpan{16, 8, 0, 524288});
}

TEST_CASE("the planner's nominal unit comes from the geometry") {
  CHECK(of("falcon-h1-7b").planner_bytes() == 1605632);         // 1,568 tokens
  CHECK(of("granite-4.0-h-micro").planner_bytes() == 1081344);  // 528 tokens
  CHECK(of("nemotron-nano-9b-v2").planner_bytes() == 672 * 4096);
}

TEST_CASE("the coarse page holds the larger of its two contents") {
  auto const m = tiny(64, 2, 4, 4);  // a state much smaller than an attention block
  auto const l = hs::make_layout(m);
  CHECK(l.coarse_page_bytes() == l.attention_block_bytes());
  CHECK(l.composite_bytes() < l.coarse_page_bytes());
}

TEST_CASE("the dual pool takes the grid of the shared pools") {
  auto const options = hs::with_matched_native_grid(hs::LayoutOptions{});
  auto const l = hs::make_layout(hs::find_preset("falcon-h1-7b")->geometry, options);
  CHECK(l.native_block_tokens() == 512);
  CHECK(l.native_unit_bytes() == 524288);
  CHECK(l.native_interval() == 512);
  CHECK(l.composite_bytes() == 1594368);
  CHECK(l.planner_bytes() == 1605632);  // budgets keep their meaning
  CHECK(l.page_bytes() == 524288);
}

TEST_CASE("other grids") {
  auto const m = hs::find_preset("falcon-h1-7b")->geometry;
  hs::LayoutOptions o;
  o.block_tokens = 64;  // a head as large as a page
  o.checkpoint_tokens = 1024;
  auto l = hs::make_layout(m, o);
  CHECK(l.page_bytes() == 65536);
  CHECK(l.heads_per_page() == 1);
  CHECK(l.members() == 24);
  CHECK(l.slots_per_slab() == 2);
  CHECK(l.native_interval() == 1792);
  o.block_tokens = 16;  // a head of four pages, a slot larger than a page
  l = hs::make_layout(m, o);
  CHECK(l.page_bytes() == 16384);
  CHECK(l.heads_per_page() == 0);
  CHECK(l.pages_per_head() == 4);
  CHECK(l.members() == 96);
  CHECK(l.slots_per_slab() == 0);
  CHECK(l.conv_pages() == 2);
  CHECK(l.ssm_offset(5, 40000) == hs::MemberOffset{22, 40000 - 32768});
  CHECK(l.member_span(22) == hs::MemberSpan{5, 1, 32768, 16384});
  o.interval_multiple = 32;
  CHECK(hs::make_layout(m, o).native_interval() == 1568);
}

TEST_CASE("layer groups") {
  auto const falcon = of("falcon-h1-7b");
  CHECK(falcon.group_layers() == 44);
  CHECK(falcon.attention_groups() == 1);
  CHECK(falcon.recurrent_groups() == 1);
  auto const granite = of("granite-4.0-h-micro");
  CHECK(granite.group_layers() == 4);
  CHECK(granite.attention_groups() == 1);
  CHECK(granite.recurrent_groups() == 9);
  CHECK(granite.recurrent_padding() == 0);
  auto const bamba = of("bamba-9b");  // 3 and 29
  CHECK(bamba.group_layers() == 3);
  CHECK(bamba.recurrent_groups() == 10);
  CHECK(bamba.recurrent_padding() == 1);
  auto const zamba = of("zamba2-1.2b");  // 6 and 38
  CHECK(zamba.recurrent_groups() == 7);
  CHECK(zamba.recurrent_padding() == 4);
  CHECK(zamba.attention_padding() == 0);
  auto mirrored = tiny(64, 2, 4, 4);
  mirrored.attention_layers = 11;
  mirrored.recurrent_layers = 4;
  auto const l = hs::make_layout(mirrored);
  CHECK(l.group_layers() == 4);
  CHECK(l.attention_groups() == 3);
  CHECK(l.attention_padding() == 1);
  CHECK(l.recurrent_groups() == 1);
}

TEST_CASE("every byte of the SSM state has one place") {
  hs::LayoutOptions o;
  o.block_tokens = 8;
  o.checkpoint_tokens = 8;
  // Page bytes = 8 tokens x 2 x head_dim.
  struct Row {
    std::uint32_t head_dim, heads, rows, columns;
    hs::Units heads_per_page, pages_per_head, members;
  };
  for (Row const& r : {
           Row{64, 8, 4, 32, 4, 1, 2},    // 256-B heads, full pages
           Row{64, 7, 4, 32, 4, 1, 2},    // the last page half empty
           Row{64, 3, 4, 32, 3, 1, 1},    // one member
           Row{64, 5, 3, 50, 3, 1, 2},    // 300-B heads leave a rest in every page
           Row{64, 2, 16, 32, 1, 1, 2},   // a head exactly as large as a page
           Row{64, 2, 17, 32, 0, 2, 4},   // one row more than a page
           Row{64, 3, 40, 50, 0, 4, 12},  // 100-B rows: ten in a page of 1,024
           Row{5, 3, 7, 9, 0, 2, 6},      // an 80-B page with 18-B rows: four in a page
           Row{5, 2, 3, 63, 0, 5, 10},    // a 126-B row is larger than its 80-B page
           Row{1, 1, 1, 1, 1, 1, 1},
       }) {
    CAPTURE(r.head_dim);
    CAPTURE(r.heads);
    CAPTURE(r.rows);
    CAPTURE(r.columns);
    auto const m = tiny(r.head_dim, r.heads, r.rows, r.columns);
    REQUIRE(hs::problem(m, o) == "");
    auto const l = hs::make_layout(m, o);
    CHECK(l.heads_per_page() == r.heads_per_page);
    CHECK(l.pages_per_head() == r.pages_per_head);
    CHECK(l.members() == r.members);
    check_places(l);
  }
}

TEST_CASE("rows of a split head stay whole while a page can hold one") {
  hs::LayoutOptions o;
  o.block_tokens = 8;
  o.checkpoint_tokens = 8;
  auto const l = hs::make_layout(tiny(64, 3, 40, 50), o);
  CHECK(l.split_bytes() == 1000);
  for (hs::Bytes row = 0; row < 40; ++row) {
    auto const first = l.ssm_offset(1, row * 100);
    auto const last = l.ssm_offset(1, row * 100 + 99);
    CHECK(first.member == last.member);
    CHECK(last.offset == first.offset + 99);
  }
}

TEST_CASE("convolution slots and pages") {
  hs::LayoutOptions o;
  o.block_tokens = 8;
  o.checkpoint_tokens = 8;
  // conv bytes = heads x rows x 3 x 2 here.
  auto l = hs::make_layout(tiny(64, 8, 16, 2), o);  // 768 B: one slot fills the page
  CHECK(l.conv_bytes() == 768);
  CHECK(l.slot_bytes() == 1024);
  CHECK(l.slots_per_slab() == 1);
  CHECK(l.conv_pages() == 1);
  l = hs::make_layout(tiny(48, 8, 12, 2), o);  // 576 B in a page of 768: the slot is larger
  CHECK(l.slot_bytes() == 1024);
  CHECK(l.slots_per_slab() == 0);
  CHECK(l.conv_pages() == 1);
  l = hs::make_layout(tiny(64, 16, 16, 2), o);  // 1,536 B: two pages
  CHECK(l.slots_per_slab() == 0);
  CHECK(l.conv_pages() == 2);
  auto exact = tiny(64, 8, 16, 2);
  exact.d_conv = 5;  // 1,024 B: a power of two is its own slot
  CHECK(hs::make_layout(exact, o).slot_bytes() == 1024);
  auto const odd = hs::make_layout(tiny(100, 1, 5, 2), o);  // 30 B in a page of 1,600
  CHECK(odd.slot_bytes() == 32);
  CHECK(odd.slots_per_slab() == 50);
}

TEST_CASE("options that cannot work are refused with a sentence") {
  auto const m = hs::find_preset("falcon-h1-7b")->geometry;
  auto with = [](auto change) {
    hs::LayoutOptions o;
    change(o);
    return o;
  };
  CHECK(says(hs::problem(m, with([](auto& o) { o.block_tokens = 0; })), "block_tokens is 0"));
  CHECK(says(hs::problem(m, with([](auto& o) { o.checkpoint_tokens = 0; })),
             "checkpoint_tokens is 0"));
  CHECK(says(hs::problem(m, with([](auto& o) { o.native_block_tokens = 0; })),
             "native_block_tokens is 0"));
  CHECK(says(hs::problem(m, with([](auto& o) { o.interval_multiple = 0; })),
             "interval_multiple is 0"));
  CHECK(
      says(hs::problem(m, with([](auto& o) { o.planner_multiple = 0; })), "planner_multiple is 0"));
  CHECK(hs::problem(m, with([](auto& o) { o.checkpoint_tokens = 768; })) ==
        "layout: checkpoint_tokens is 768, which is not a multiple of block_tokens = 512; choose a "
        "multiple of 512");
  CHECK(says(hs::problem(m, with([](auto& o) { o.native_block_tokens = 48; })),
             "interval_multiple is 256, which is not a multiple of native_block_tokens = 48"));
  CHECK(says(hs::problem(m, with([](auto& o) { o.native_checkpoint_tokens = 100; })),
             "native_checkpoint_tokens is 100"));
  CHECK(hs::problem(m, with([](auto& o) { o.native_checkpoint_tokens = 160; })).empty());
  // A model's own fault comes first, under its own name.
  auto const bad = hs::with_tensor_parallel(m, 5);
  CHECK(hs::problem(bad, {}) == hs::problem(bad));
  CHECK_FALSE(hs::sound(bad, {}));
  auto const refused = hs::checked_layout(bad);
  CHECK_FALSE(static_cast<bool>(refused));
  CHECK(refused.sentence() == hs::problem(bad));
  auto accepted = hs::checked_layout(m);
  REQUIRE(static_cast<bool>(accepted));
  CHECK(accepted.value() == hs::make_layout(m));
}

TEST_CASE("sizes beyond the index range are refused") {
  auto m = tiny(1, 1U << 31, 1, 16);
  hs::LayoutOptions o;
  o.block_tokens = 16;
  o.checkpoint_tokens = 16;
  CHECK(says(hs::problem(m, o), "pages of one state"));
  m = tiny(1, 1, 1U << 31, 1U << 20);
  CHECK(says(hs::problem(m, {1U << 30, 1U << 30}), "tokens of the dual pool's interval"));
  m = tiny(1U << 30, 1, 1, 1);
  CHECK(says(hs::problem(m, {1U << 30, 1U << 30}), "slots of one slab"));
  m.head_dim = 1U << 20;
  m.attention_layers = 0xffffffffU;
  CHECK(says(hs::problem(m, {1U << 30, 1U << 30}), "KV bytes of one block"));
  m = tiny(1, 1, 1, 1);
  m.ssm_dtype_bytes = 8;
  CHECK(says(hs::problem(m, {1, 1}), "elements per page is 0"));
}

TEST_CASE("static and run-time layouts agree for every preset") {
  compare_static_presets(std::make_index_sequence<hs::presets().size()>{});
}
