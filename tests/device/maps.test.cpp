// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <hybridstate/batch/views.hpp>
#include <hybridstate/device/device.hpp>
#include <hybridstate/geometry/presets.hpp>
#include <hybridstate/organization/coarse_page.hpp>
#include <hybridstate/organization/conv_slab_packed.hpp>
#include <hybridstate/organization/native_dual_pool.hpp>
#include <hybridstate/organization/recurrent_paged.hpp>
#include <type_traits>
#include <utility>
#include <vector>

using namespace hybridstate;

// Maps of whole models, vector by vector, with the static views beside the run-time ones.

namespace {

constexpr ModelGeometry preset(const char* name) { return find_preset(name)->geometry; }
constexpr ModelGeometry small(std::uint32_t head_dim, std::uint32_t heads, std::uint32_t rows,
                              std::uint32_t state) {
  ModelGeometry m;
  m.attention_layers = m.recurrent_layers = 1;
  m.kv_heads = 1;
  m.head_dim = head_dim;
  m.ssm_heads = heads;
  m.ssm_head_dim = rows;
  m.ssm_state = state;
  m.conv_groups = 1;
  return m;
}
constexpr LayoutOptions blocks_of(Tokens tokens) {
  LayoutOptions o;
  o.block_tokens = o.checkpoint_tokens = tokens;
  return o;
}

using Falcon7B = StaticLayout<preset("falcon-h1-7b")>;
using Falcon34B = StaticLayout<preset("falcon-h1-34b")>;
using Granite = StaticLayout<preset("granite-4.0-h-micro")>;
using OddPage = StaticLayout<small(3, 7, 5, 11), blocks_of(64)>;      // 768 bytes, heads of 110
using CutHead = StaticLayout<small(8, 3, 10, 16), blocks_of(6)>;      // a head over several pages
using CutRow = StaticLayout<small(2, 2, 3, 40), blocks_of(8)>;        // a row over several pages
using OneMember = StaticLayout<small(4, 1, 2, 2), blocks_of(16)>;     // one head, one page
using ManyMembers = StaticLayout<small(4, 37, 8, 8), blocks_of(11)>;  // a page per head, odd sizes

/// Marks places and says whether each was free.
class Places {
 public:
  explicit Places(std::int64_t bytes, std::int64_t grain)
      : grain_(grain), taken_(static_cast<std::size_t>(bytes / grain)) {}
  bool take(ByteOffset at) {
    if (!at || at.value % grain_ != 0) return false;
    auto const i = static_cast<std::size_t>(at.value / grain_);
    if (i >= taken_.size() || taken_[i]) return false;
    ++count_;
    return taken_[i] = true;
  }
  std::int64_t bytes() const { return count_ * grain_; }

 private:
  std::int64_t grain_, count_ = 0;
  std::vector<bool> taken_;
};

/// Table entries in an order that is not that of the units, 0 among them.
std::vector<std::int32_t> shuffled(std::size_t n) {
  std::vector<std::int32_t> t(n);
  for (std::size_t i = 0; i < n; ++i) t[i] = static_cast<std::int32_t>(n - 1 - i);
  if (n > 3) std::swap(t[0], t[2]);
  return t;
}

template <class Layout, class Map>
void check_states(MemberMap run_time, Map fixed, std::int64_t stride, std::int64_t grain) {
  Layout const layout;
  constexpr std::int32_t rows = 2;
  auto const members = static_cast<std::size_t>(run_time.members());
  CHECK(fixed.members() == run_time.members());
  CHECK(fixed.whole_heads() == run_time.whole_heads());
  std::vector<std::int32_t> const pages = shuffled(rows * members);
  SsmPages<> const view{nullptr, pages.data(), run_time.members(), stride, run_time};
  SsmPages<Map> const same = view.with(fixed);
  Places places(stride * static_cast<std::int64_t>(pages.size()), grain);
  auto const head_bytes = static_cast<std::int64_t>(layout.head_bytes());
  for (std::int32_t row = 0; row < rows; ++row)
    for (std::int32_t h = 0; h < static_cast<std::int32_t>(layout.ssm_heads()); ++h)
      for (std::int64_t b = 0; b < head_bytes; b += grain) {
        ByteOffset const at = view.offset(row, h, b);
        REQUIRE(places.take(at));
        REQUIRE(same.offset(row, h, b) == at);
        REQUIRE(fixed.run(static_cast<Bytes>(b)) == run_time.run(static_cast<Bytes>(b)));
        // The fast path: one look-up per head.
        if (run_time.whole_heads()) REQUIRE(at.value == view.offset(row, h).value + b);
      }
  CHECK(places.bytes() == rows * static_cast<std::int64_t>(layout.ssm_bytes()));
  for (std::int32_t bad : {-1, -2147483647 - 1}) {
    CHECK(!same.offset(bad, 0));
    CHECK(!same.offset(0, bad));
    CHECK(!same.offset(0, 0, bad));
  }
}

template <class Fixed, class Layout>
void check_lines(ConvLines lines, std::int32_t count, std::int64_t grain) {
  std::int64_t const parts =
      lines.part_bytes == 0 ? 1 : static_cast<std::int64_t>(Layout::conv_pages());
  std::vector<std::int32_t> const table = shuffled(static_cast<std::size_t>(count * parts));
  lines.lines = table.data();
  lines.row_stride = parts;
  auto const same = lines.with<Fixed>();
  CHECK(same.line_stride == lines.line_stride);
  CHECK(same.part_bytes == lines.part_bytes);
  auto const bytes = static_cast<std::int64_t>(Layout::conv_bytes());
  Places places(lines.line_stride * count * parts + bytes, grain);
  for (std::int32_t row = 0; row < count; ++row)
    for (std::int64_t b = 0; b < bytes; b += grain) {
      REQUIRE(places.take(lines.row_offset(row, b)));
      REQUIRE(same.row_offset(row, b) == lines.row_offset(row, b));
      REQUIRE(same.run(b, bytes) == lines.run(b, bytes));
    }
  for (std::int32_t bad : {-1, -2147483647 - 1}) {
    CHECK(!same.offset(bad, 0));
    CHECK(!same.row_offset(bad, 0));
    CHECK(!same.row_offset(0, bad));
  }
}

template <class Layout, Tokens BlockTokens>
void check_attention(std::int64_t grain) {
  Layout const layout;
  std::vector<std::int32_t> const units = shuffled(6);
  std::vector<std::int32_t> const valid = {static_cast<std::int32_t>(BlockTokens) + 1, 0};
  AttentionBlocks const view{nullptr, units.data(), 3,
                             static_cast<std::int64_t>(layout.kv_bytes_per_token() * BlockTokens),
                             kv_strides(layout, BlockTokens)};
  StaticKvStrides<Layout, BlockTokens> const fixed{};
  static_assert(std::is_empty_v<StaticKvStrides<Layout, BlockTokens>>);
  auto const same = view.with(fixed);
  AttentionWrites const writes{view, valid.data()};
  auto const same_writes = writes.with(fixed);
  Places places(view.unit_stride * 6, grain);
  for (std::int32_t row = 0; row < 2; ++row)
    for (std::int32_t t = 0; t < static_cast<std::int32_t>(3 * BlockTokens); ++t)
      for (std::int32_t h = 0; h < static_cast<std::int32_t>(layout.model().kv_heads); ++h) {
        ByteOffset const key = view.key_offset(row, h, t), value = view.value_offset(row, h, t);
        REQUIRE(same.key_offset(row, h, t) == key);
        REQUIRE(same.value_offset(row, h, t) == value);
        bool const writable = t >= valid[static_cast<std::size_t>(row)];
        REQUIRE(writes.key_offset(row, h, t) == (writable ? key : ByteOffset{}));
        REQUIRE(same_writes.value_offset(row, h, t) == (writable ? value : ByteOffset{}));
        for (std::int64_t b = 0; b < view.strides.token; b += grain) {
          REQUIRE(places.take({key.value + b}));
          REQUIRE(places.take({value.value + b}));
        }
      }
  CHECK(places.bytes() == view.unit_stride * 6);
  for (std::int32_t bad : {-1, -2147483647 - 1}) {
    CHECK(!same.key_offset(bad, 0, 0));
    CHECK(!same.value_offset(0, bad, 0));
    CHECK(!same.key_offset(0, 0, bad));
    CHECK(!same_writes.key_offset(bad, 0, 9));
  }
}

template <class Layout>
void check_model(std::int64_t grain) {
  Layout const layout;
  static_assert(member_map<StaticPagedMembers<Layout>>);
  static_assert(member_map<StaticCompositeMembers<Layout>>);
  static_assert(std::is_empty_v<StaticPagedMembers<Layout>>);
  static_assert(std::is_trivially_copyable_v<SsmPages<StaticPagedMembers<Layout>>>);
  auto const page = static_cast<std::int64_t>(layout.page_bytes());
  auto const coarse = static_cast<std::int64_t>(layout.coarse_page_bytes());
  check_states<Layout>(paged_members(layout), StaticPagedMembers<Layout>{}, page, grain);
  check_states<Layout>(composite_members(layout), StaticCompositeMembers<Layout>{}, coarse, grain);
  check_attention<Layout, Layout::block_tokens()>(grain);
  check_attention<Layout, Layout::native_block_tokens()>(grain);
  StateLayout const run_time = layout;
  static std::byte anchor[1];
  check_lines<StaticPageLines<Layout>, Layout>(conv_view(RecurrentPaged<>(run_time, 9), anchor), 5,
                                               grain);
  check_lines<StaticCoarseLines<Layout>, Layout>(conv_view(CoarsePage<>(run_time, 9), anchor), 5,
                                                 grain);
  check_lines<StaticCompositeLines<Layout>, Layout>(
      conv_view(NativeDualPool<>(run_time, PoolUnits{{9, 9}}), anchor), 5, grain);
  ConvLines const packed = conv_view(ConvSlabPacked<>(run_time, 9), anchor);
  if constexpr (Layout::slots_per_slab() > 0) {
    check_lines<StaticSlotLines<Layout>, Layout>(
        packed, 2 * static_cast<std::int32_t>(Layout::slots_per_slab()) + 1, grain);
    CHECK(packed.line_stride * Layout::slots_per_slab() == page);
  } else {
    check_lines<StaticPageLines<Layout>, Layout>(packed, 5, grain);
  }
  // What a pool accepts is what 32-bit lines reach, to the unit.
  Units const slots = std::max<Units>(1, layout.slots_per_slab());
  Units const most = 0x7fffffffU / slots;
  CHECK(addressable(most, page, slots));
  CHECK(!addressable(std::int64_t{most} + 1, page, slots));
  CHECK(ConvSlabPacked<>::problem(run_time, most).empty());
  CHECK(!ConvSlabPacked<>::problem(run_time, most + 1).empty());
}

}  // namespace

TEST_CASE("whole models: every vector has one place, static and run-time alike") {
  check_model<Falcon7B>(16);
  check_model<Falcon34B>(16);
  check_model<Granite>(16);
}

TEST_CASE("awkward geometries: every byte has one place") {
  check_model<OddPage>(1);
  check_model<CutHead>(1);
  check_model<CutRow>(1);
  check_model<OneMember>(1);
  check_model<ManyMembers>(1);
  static_assert(!StaticPagedMembers<CutHead>::whole_heads());
  static_assert(CutRow::page_bytes() % (40 * 2) != 0 && !StaticPagedMembers<CutRow>::whole_heads());
  static_assert(CutHead::conv_pages() > 1 && CutHead::slots_per_slab() == 0);
  static_assert(OneMember::members() == 1 && ManyMembers::members() > 16);
}

TEST_CASE("sixteen-byte vectors never cross an edge in the published models") {
  for (char const* name : {"falcon-h1-7b", "falcon-h1-34b", "granite-4.0-h-micro"}) {
    CAPTURE(name);
    for (std::uint32_t ssm_dtype : {2U, 4U}) {
      ModelGeometry model = find_preset(name)->geometry;
      model.ssm_dtype_bytes = ssm_dtype;
      StateLayout const layout = make_layout(model);
      ConvSlabPacked<> const o(layout, 99);
      for (Bytes bytes : {layout.page_bytes(), layout.coarse_page_bytes(), layout.ssm_bytes(),
                          layout.conv_bytes(), layout.head_bytes(), layout.native_unit_bytes(),
                          Bytes{o.conv_address().stride}})
        CHECK(bytes % 16 == 0);
      CHECK(kv_strides(layout, layout.native_block_tokens()).token % 16 == 0);
      CHECK(paged_members(layout).whole_heads());
    }
  }
}

TEST_CASE("the sizes at which 32-bit maps were seen to break") {
  constexpr Falcon7B layout;
  // BF16 states of 786,432 elements: element 2^31 is in state 2,731, byte 2^31 in state 1,366; a
  // buffer over 44 layers gets there with 62 and 31 states.
  for (std::int32_t state : {31, 32, 62, 63, 1365, 1366, 2730, 2731, 5461, 5462}) {
    for (std::int64_t layers : {1, 44}) {
      auto const stride = layers * static_cast<std::int64_t>(layout.ssm_bytes());
      SsmPages<> const view{nullptr, &state, 1, stride, composite_members(layout)};
      CHECK(view.offset(0, 23, 65535).value ==
            std::int64_t{state} * stride + 24 * std::int64_t{65536} - 1);
      CHECK(view.with(StaticCompositeMembers<Falcon7B>{}).offset(0, 23, 65535) ==
            view.offset(0, 23, 65535));
    }
  }
  // 2^32 elements of lines of 32 KiB: line 262,144. An unsigned 32-bit product would be 0.
  StaticSlotLines<Falcon7B> const lines{};
  CHECK(lines.offset(131072, 4).value == (std::int64_t{1} << 32) + 4);
  CHECK(lines.offset(262144, 4).value == (std::int64_t{1} << 33) + 4);
  CHECK(lines.offset(0x7fffffff, 0).value == std::int64_t{0x7fffffff} * 32768);
}

TEST_CASE("in place: equal maps give equal addresses, and each head's bytes are one map's alone") {
  constexpr Falcon7B layout;
  std::int32_t const pages[] = {4, 2, 0, 1, 3, 5};
  SsmPages<> const source{nullptr, pages, 3, 524288, paged_members(layout)};
  SsmPages<> const other{nullptr, pages + 3, 0, 524288, paged_members(layout)};
  for (std::int32_t h = 0; h < 24; ++h) {
    CHECK(source.offset(1, h, 2) == other.offset(0, h, 2));
    for (std::int32_t g = 0; g < 24; ++g) {
      std::int64_t const distance = source.offset(0, h).value - source.offset(1, g).value;
      CHECK((distance >= 65536 || distance <= -65536));
    }
  }
}
