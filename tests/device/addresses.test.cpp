// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <hybridstate/device/device.hpp>
#include <hybridstate/geometry/presets.hpp>
#include <hybridstate/organization/coarse_page.hpp>
#include <hybridstate/organization/conv_slab_packed.hpp>
#include <hybridstate/organization/native_dual_pool.hpp>
#include <hybridstate/organization/recurrent_paged.hpp>
#include <set>
#include <type_traits>
#include <vector>

#include "reserved_memory.hpp"

using namespace hybridstate;

namespace {

constexpr ModelGeometry geometry_of(std::uint32_t kv_heads, std::uint32_t head_dim,
                                    std::uint32_t heads, std::uint32_t rows, std::uint32_t state,
                                    std::uint32_t groups) {
  ModelGeometry m;
  m.attention_layers = m.recurrent_layers = 2;
  m.kv_heads = kv_heads;
  m.head_dim = head_dim;
  m.ssm_heads = heads;
  m.ssm_head_dim = rows;
  m.ssm_state = state;
  m.conv_groups = groups;
  return m;
}
constexpr LayoutOptions options_of(Tokens block) {
  LayoutOptions o;
  o.block_tokens = block;
  o.checkpoint_tokens = block;
  return o;
}

constexpr ModelGeometry falcon = find_preset("falcon-h1-7b")->geometry;
constexpr ModelGeometry odd_page = geometry_of(1, 3, 7, 5, 11, 1);
constexpr ModelGeometry split_head = geometry_of(1, 8, 3, 10, 16, 1);
constexpr ModelGeometry split_row = geometry_of(1, 2, 2, 3, 40, 2);

template <class Layout>
void check_members(const Layout& layout, const MemberMap& map, bool paged) {
  CHECK(map.members() == (paged ? layout.members() : 1U));
  for (Units head = 0; head < layout.ssm_heads(); ++head)
    for (Bytes byte = 0; byte < layout.head_bytes();) {
      MemberOffset const m = map.at(head, byte);
      if (paged) {
        REQUIRE(m == layout.ssm_offset(head, byte));
        REQUIRE(m.offset < layout.page_bytes());
      } else {
        REQUIRE(m == MemberOffset{0, head * layout.head_bytes() + byte});
      }
      // A run is what it says: every byte follows, and the next one lies elsewhere.
      Bytes const run = map.run(byte);
      REQUIRE(run > 0);
      REQUIRE(byte + run <= layout.head_bytes());
      MemberOffset const last = map.at(head, byte + run - 1);
      REQUIRE(last.member == m.member);
      REQUIRE(last.offset == m.offset + run - 1);
      if (byte + run < layout.head_bytes()) REQUIRE(map.at(head, byte + run).member != m.member);
      byte += layout.head_bytes() > 4096 ? std::max<Bytes>(1, run / 3 + 1) : 1;
    }
}

/// Every byte of every state of an organization has an address of its own inside its pool.
template <class Organization>
void check_organization(const StateLayout& layout, const MemberMap& map, Units units) {
  Organization o(layout, units);
  detail::IgnoreReassign const ignore;
  std::vector<StateHandle> states;
  std::vector<std::int32_t> pages, lines;
  bool const slots = std::is_same_v<Organization, ConvSlabPacked<>> && layout.slots_per_slab() > 0;
  Units const parts = slots || map.members() != layout.members() || !requires {
    o.conv_page(StateHandle{}, 0, 0);
  } ? 1 : layout.conv_pages();
  for (int i = 0; i < 3; ++i)
    if (StateHandle const s = o.take_state(ignore)) states.push_back(s);
  REQUIRE(states.size() == 3);
  for (StateHandle s : states) {
    for (Units m = 0; m < map.members(); ++m)
      pages.push_back(static_cast<std::int32_t>(o.ssm_page(s, 0, static_cast<int>(m))));
    if constexpr (requires { o.conv_page(s, 0, 0); }) {
      for (Units p = 0; p < parts; ++p)
        lines.push_back(static_cast<std::int32_t>(parts > 1 ? o.conv_page(s, 0, static_cast<int>(p))
                                                            : o.conv_line(s, 0)));
    } else {
      lines.push_back(static_cast<std::int32_t>(o.conv_line(s, 0)));
    }
  }
  SsmPages<> ssm;
  ssm.pages = pages.data();
  ssm.row_stride = map.members();
  ssm.page_stride = static_cast<std::int64_t>(o.ssm_address().stride);
  ssm.map = map;
  ConvLines conv;
  conv.lines = lines.data();
  conv.row_stride = parts;
  conv.line_stride = static_cast<std::int64_t>(o.conv_address().stride);
  conv.part_bytes = parts > 1 ? static_cast<std::int64_t>(layout.page_bytes()) : 0;
  auto const base = static_cast<std::int64_t>(o.conv_address().base);
  auto const pool = static_cast<std::int64_t>(Bytes{o.pool(Organization::state_pool).capacity()} *
                                              o.unit_bytes(Organization::state_pool));

  std::set<std::int64_t> seen;
  bool const sparse = layout.ssm_bytes() > 20000;
  for (std::int32_t row = 0; row < 3; ++row) {
    Bytes const step = sparse ? 16 : 1;
    for (Units head = 0; head < layout.ssm_heads(); ++head)
      for (Bytes byte = 0; byte < layout.head_bytes(); byte += sparse ? 4096 : 1) {
        ByteOffset const at =
            ssm.offset(row, static_cast<std::int32_t>(head), static_cast<std::int64_t>(byte));
        MemberOffset const m = map.at(head, byte);
        REQUIRE(at.value ==
                o.ssm_page(states[static_cast<std::size_t>(row)], 0, static_cast<int>(m.member)) *
                        ssm.page_stride +
                    static_cast<std::int64_t>(m.offset));
        REQUIRE(at.value < pool);
        REQUIRE(seen.insert(at.value).second);
      }
    for (Bytes i = 0; i < layout.conv_bytes(); i += step) {
      ByteOffset const at = conv.row_offset(row, static_cast<std::int64_t>(i));
      REQUIRE(at.value >= 0);
      REQUIRE(base + at.value < pool);
      REQUIRE(seen.insert(base + at.value).second);
      if (parts == 1)
        REQUIRE(at ==
                conv.offset(lines[static_cast<std::size_t>(row)], static_cast<std::int64_t>(i)));
    }
  }
}

void check_everywhere(const ModelGeometry& model, Tokens block) {
  StateLayout const layout = make_layout(model, options_of(block));
  MemberMap const paged = paged_members(layout), whole = composite_members(layout);
  CAPTURE(layout.members());
  check_members(layout, paged, true);
  check_members(layout, whole, false);
  Units const units = 6 * (layout.members() + layout.conv_pages() + 1) * layout.recurrent_groups();
  check_organization<CoarsePage<>>(layout, whole, units);
  check_organization<RecurrentPaged<>>(layout, paged, units);
  check_organization<ConvSlabPacked<>>(layout, paged, units);
}

}  // namespace

TEST_CASE("state maps equal the organizations' facts") {
  check_everywhere(falcon, 512);
  check_everywhere(find_preset("falcon-h1-34b")->geometry, 512);
  check_everywhere(find_preset("granite-4.0-h-micro")->geometry, 512);
  check_everywhere(odd_page, 64);   // pages of 768 bytes, heads of 110
  check_everywhere(split_head, 6);  // heads over several pages, conv wider than a page
  check_everywhere(split_row, 8);   // rows over several pages
  check_everywhere(geometry_of(1, 4, 1, 2, 2, 1), 16);  // one member

  // D0: its own pool of composites.
  StateLayout const layout = make_layout(odd_page, options_of(64));
  NativeDualPool<> o(layout, PoolUnits{{40, 7}});
  StateHandle const s = o.take_state(detail::IgnoreReassign{});
  REQUIRE(s);
  auto const page = static_cast<std::int32_t>(o.ssm_page(s, 0, 0));
  SsmPages<> ssm;
  ssm.pages = &page;
  ssm.page_stride = static_cast<std::int64_t>(o.ssm_address().stride);
  ssm.map = composite_members(layout);
  ConvLines conv;
  conv.line_stride = static_cast<std::int64_t>(o.conv_address().stride);
  auto const last = static_cast<std::int64_t>(layout.head_bytes()) - 1;
  ByteOffset const end = ssm.offset(0, static_cast<std::int32_t>(layout.ssm_heads()) - 1, last);
  CHECK(end.value + 1 ==
        static_cast<std::int64_t>(o.conv_address().base) + conv.offset(page, 0).value);
}

TEST_CASE("the published addresses of Falcon-H1-7B") {
  constexpr StateLayout layout = make_layout(falcon);
  static constexpr std::int32_t pages[] = {7, 0, 3};  // page 0 is a page
  constexpr SsmPages<> ssm{nullptr, pages, 3, 524288, paged_members(layout)};
  static_assert(ssm.offset(0, 0).value == 7 * 524288);
  static_assert(ssm.offset(0, 7, 65535).value == 8 * 524288 - 1);
  static_assert(ssm.offset(0, 8).value == 0);
  static_assert(ssm.offset(0, 23, 65534).value == 4 * 524288 - 2);
  constexpr ConvLines conv{nullptr, nullptr, 1, 32768, 0};
  static_assert(conv.offset(0, 0).value == 0);
  static_assert(conv.offset(16 * 5 + 3, 21503).value == 5 * 524288 + 3 * 32768 + 21503);
  constexpr KvStrides kv = kv_strides(layout, layout.block_tokens());
  static_assert(kv.token == 256 && kv.head == 131072 && kv.value == 262144);
  static_assert(2 * kv.value == static_cast<std::int64_t>(layout.page_bytes()));
  CHECK(true);
}

TEST_CASE("a sentinel in any argument or table entry yields no address") {
  std::byte memory[64] = {};
  std::int32_t const table[] = {0, -1, -2147483647 - 1, 2};
  SsmPages<> const ssm{memory, table, 1, 16, {8, 8, 1, 1, 1}};
  CHECK(ssm.addr_ssm(0, 0, 0) == memory);  // page 0, head 0, byte 0
  CHECK(ssm.addr_ssm(3, 0, 5) == memory + 37);
  CHECK(ssm.addr_ssm(1, 0, 0) == nullptr);
  CHECK(ssm.addr_ssm(2, 0, 0) == nullptr);
  for (std::int32_t bad : {-1, -16, -2147483647 - 1}) {
    CHECK(ssm.addr_ssm(bad, 0, 0) == nullptr);
    CHECK(ssm.addr_ssm(0, bad, 0) == nullptr);
    CHECK(ssm.addr_ssm(0, 0, bad) == nullptr);
  }
  CHECK(!ssm.offset(1, 0));
  CHECK(ssm.offset(0, 0));

  ConvLines conv{memory, table, 1, 16, 0};
  CHECK(conv.addr_conv(0, 0) == memory);
  CHECK(conv.addr_conv(2, 3) == memory + 35);
  CHECK(conv.addr_row(0, 1) == memory + 1);
  CHECK(conv.addr_row(1, 0) == nullptr);
  CHECK(conv.addr_row(2, 0) == nullptr);
  for (std::int32_t bad : {-1, -16, -2147483647 - 1}) {
    CHECK(conv.addr_conv(bad, 0) == nullptr);
    CHECK(conv.addr_conv(bad, 15) == nullptr);
    CHECK(conv.addr_conv(0, bad) == nullptr);
    CHECK(conv.addr_row(bad, 0) == nullptr);
    CHECK(conv.addr_row(0, bad) == nullptr);
  }
  conv.part_bytes =
      8;  // a state of several parts: entries 2 and 1 of the table, one of them absent
  conv.row_stride = 2;
  CHECK(conv.addr_row(0, 7) == memory + 7);
  CHECK(conv.addr_row(0, 8) == nullptr);
  CHECK(conv.addr_row(1, 9) == memory + 33);
  CHECK(conv.run(5, 100) == 3);
  CHECK(conv.run(8, 10) == 2);

  AttentionBlocks const blocks{memory, table, 1, 16, {2, 4, 8, 2}};
  CHECK(blocks.addr_key(0, 0, 0) == memory);
  CHECK(blocks.addr_value(0, 1, 1) == memory + 14);
  CHECK(blocks.addr_key(0, 0, 2) == nullptr);  // block 1 of row 0 is the entry of row 1
  CHECK(blocks.addr_value(2, 0, 0) == nullptr);
  for (std::int32_t bad : {-1, -2147483647 - 1}) {
    CHECK(blocks.addr_key(bad, 0, 0) == nullptr);
    CHECK(blocks.addr_key(0, bad, 0) == nullptr);
    CHECK(blocks.addr_key(0, 0, bad) == nullptr);
    CHECK(blocks.addr_value(bad, 0, 0) == nullptr);
    CHECK(blocks.addr_value(0, bad, 0) == nullptr);
    CHECK(blocks.addr_value(0, 0, bad) == nullptr);
  }
  // Padded rows of a batch: no table is touched.
  AttentionBlocks const empty{};
  CHECK(empty.addr_key(-1, 0, 0) == nullptr);
  CHECK(SsmPages<>{}.addr_ssm(-1, 0, 0) == nullptr);
  CHECK(ConvLines{}.addr_row(-1, 0) == nullptr);
}

TEST_CASE("nothing has a write address below kv_valid_until") {
  std::byte memory[256] = {};
  std::int32_t const table[] = {3, 1, 0, 2};
  std::int32_t const valid[] = {5, 0};
  AttentionWrites const writes{{memory, table, 2, 32, {2, 8, 16, 4}}, valid};
  for (std::int32_t t = 0; t < 8; ++t) {
    CHECK((writes.addr_key(0, 0, t) != nullptr) == (t >= 5));
    CHECK((writes.addr_value(0, 1, t) != nullptr) == (t >= 5));
    CHECK(writes.addr_key(1, 0, t) == writes.blocks.addr_key(1, 0, t));
    CHECK(writes.addr_key(1, 0, t) != nullptr);
  }
  CHECK(writes.addr_key(0, 1, 7) == writes.blocks.addr_key(0, 1, 7));
  CHECK(writes.addr_value(0, 1, 7) == writes.blocks.addr_value(0, 1, 7));
  CHECK(writes.addr_key(-1, 0, 7) == nullptr);
  CHECK(writes.addr_key(0, -1, 7) == nullptr);
  CHECK(writes.addr_key(0, 0, -1) == nullptr);
  CHECK(writes.addr_value(-1, 0, 7) == nullptr);
  CHECK(writes.addr_value(0, -1, 7) == nullptr);
  CHECK(writes.addr_value(0, 0, -1) == nullptr);
  CHECK(AttentionWrites{}.addr_key(-1, 0, 0) == nullptr);
  AttentionWrites const all{writes.blocks, nullptr};
  CHECK(all.addr_key(0, 0, 0) == memory + 96);
}

TEST_CASE("a tail's tokens are its shift further into the unit of the last entry") {
  std::byte memory[512] = {};
  std::int32_t const table[] = {3, 1, 0, 2, -1, 4};
  // Blocks of 8 tokens of 2 bytes, two heads; quarters of 2 tokens.
  TailPlace const tails[] = {{8, 4}, {}, {8, 2}};
  AttentionBlocks blocks{memory, table, 2, 64, {2, 16, 32, 8}};
  AttentionBlocks const plain = blocks;
  blocks.tails = &tails[0].from;
  blocks.tail_stride = 2;
  for (std::int32_t t = 0; t < 12; ++t)
    for (std::int32_t head = 0; head < 2; ++head) {
      std::int64_t const shift = t >= 8 ? 8 : 0;  // quarter 2
      CHECK(blocks.key_offset(0, head, t).value == plain.key_offset(0, head, t).value + shift);
      CHECK(blocks.value_offset(0, head, t).value == plain.value_offset(0, head, t).value + shift);
      CHECK(blocks.key_offset(1, head, t) == plain.key_offset(1, head, t));
    }
  CHECK(blocks.key_offset(0, 0, 11).value == 64 + 2 * (4 + 3));
  CHECK(!blocks.key_offset(2, 0, 0));  // an absent entry has no address, tail or not
  CHECK(blocks.key_offset(2, 0, 9).value == 4 * 64 + 2 * (2 + 1));
  CHECK(!blocks.key_offset(-1, 0, 9));
  AttentionWrites const writes{blocks, nullptr};
  CHECK(writes.addr_key(0, 1, 9) == memory + 64 + 16 + 2 * 5);
}

TEST_CASE("pools past 2^31 bytes and 2^32 elements") {
  constexpr StateLayout layout = make_layout(falcon);
  constexpr std::int32_t last = 2147483646;
  static constexpr std::int32_t pages[] = {last, 4096, 8191};
  constexpr SsmPages<> ssm{nullptr, pages, 3, 524288, paged_members(layout)};
  static_assert(ssm.offset(0, 0).value == std::int64_t{last} * 524288);  // 2^50 bytes
  static_assert(ssm.offset(0, 8).value == std::int64_t{1} << 31);
  static_assert(ssm.offset(0, 23, 65534).value == (std::int64_t{1} << 32) - 2);
  // A composite pool of 5,463 states has more than 2^32 elements of 2 bytes.
  static constexpr std::int32_t row[] = {5463};
  constexpr SsmPages<> whole{nullptr, row, 1, 1594368, composite_members(layout)};
  static_assert(whole.offset(0, 23, 65534).value == std::int64_t{5463} * 1594368 + 24 * 65536 - 2);
  constexpr ConvLines conv{nullptr, nullptr, 1, 32768, 0};
  static_assert(conv.offset(262144, 0).value == std::int64_t{1} << 33);  // 2^32 elements
  static_assert(conv.offset(last, 21502).value == std::int64_t{last} * 32768 + 21502);
  constexpr AttentionBlocks blocks{nullptr, pages, 3, 524288,
                                   kv_strides(layout, layout.block_tokens())};
  static_assert(blocks.value_offset(0, 1, 511).value == std::int64_t{last} * 524288 + 524288 - 256);

  // Tables of more than 2^31 entries: row 3 begins at entry 3 * 2^30.
  constexpr std::int64_t row_stride = std::int64_t{1} << 30;
  ReservedMemory const memory((3 * row_stride + 1) * sizeof(std::int32_t));
  auto* const entries = reinterpret_cast<std::int32_t*>(memory.data());
  entries[3 * row_stride] = 7;
  CHECK(table_entry(entries, row_stride, 3, 0) == 7);
  CHECK(ConvLines{nullptr, entries, row_stride, 32768, 0}.row_offset(3, 5).value == 7 * 32768 + 5);
}

TEST_CASE("attention blocks cover a unit once") {
  for (Tokens const block : {16U, 512U, 7U}) {
    StateLayout const layout = make_layout(odd_page, options_of(64));
    KvStrides const strides = kv_strides(layout, block);
    std::vector<std::int32_t> const table = {2, 0, 1};
    auto const unit = static_cast<std::int64_t>(layout.kv_bytes_per_token() * block);
    AttentionBlocks const blocks{nullptr, table.data(), 3, unit, strides};
    std::set<std::int64_t> seen;
    auto const head_bytes = std::int64_t{odd_page.head_dim} * odd_page.kv_dtype_bytes;
    for (std::int32_t t = 0; t < static_cast<std::int32_t>(3 * block); ++t)
      for (std::int32_t h = 0; h < static_cast<std::int32_t>(odd_page.kv_heads); ++h)
        for (std::int64_t b = 0; b < head_bytes; ++b) {
          std::int64_t const key = blocks.key_offset(0, h, t).value + b;
          REQUIRE(key / unit == table[static_cast<std::size_t>(t) / block]);
          REQUIRE(seen.insert(key).second);
          REQUIRE(seen.insert(blocks.value_offset(0, h, t).value + b).second);
        }
    CHECK(static_cast<std::int64_t>(seen.size()) == 3 * unit);
    CHECK(*seen.rbegin() == 3 * unit - 1);
  }
}
