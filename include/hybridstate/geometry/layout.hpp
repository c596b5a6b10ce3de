// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <hybridstate/core/config.hpp>
#include <hybridstate/core/contract.hpp>
#include <hybridstate/core/error.hpp>
#include <hybridstate/core/types.hpp>
#include <hybridstate/geometry/model.hpp>
#include <string>
#include <utility>

HYBRIDSTATE_NAMESPACE_BEGIN

/// The grids that turn a model's bytes into pages. Defaults: Section 3 and Table 1 of the paper.
struct LayoutOptions {
  Tokens block_tokens = 512;            ///< tokens of one attention block of the shared pools
  Tokens checkpoint_tokens = 512;       ///< tokens between checkpoints of the shared pools
  Tokens native_block_tokens = 16;      ///< tokens of one attention unit of the dual pool
  Tokens interval_multiple = 256;       ///< the dual pool's interval is rounded up to a multiple
  Tokens native_checkpoint_tokens = 0;  ///< the dual pool's interval; 0: derived from the bytes
  Tokens planner_multiple = 16;         ///< the planner's nominal unit is rounded up to a multiple

  friend constexpr bool operator==(const LayoutOptions&, const LayoutOptions&) = default;
};

/// The same options with the dual pool on the grid of the shared pools (D0-M512 for 512/512).
constexpr LayoutOptions with_matched_native_grid(LayoutOptions options) noexcept {
  options.native_block_tokens = options.block_tokens;
  options.native_checkpoint_tokens = options.checkpoint_tokens;
  return options;
}

/// Where a byte of the SSM state lies: in which member page, and where inside that page.
struct MemberOffset {
  Units member = 0;
  Bytes offset = 0;

  friend constexpr bool operator==(const MemberOffset&, const MemberOffset&) = default;
};

/// What one member page holds: `heads` heads from `first_head`, or, when a head is larger than a
/// page, one part of `first_head` that starts at `head_byte`. `bytes` is the payload.
struct MemberSpan {
  Units first_head = 0;
  Units heads = 0;
  Bytes head_byte = 0;
  Bytes bytes = 0;

  friend constexpr bool operator==(const MemberSpan&, const MemberSpan&) = default;
};

/// The numbers behind a layout; read them through StateLayout or StaticLayout.
struct LayoutSizes {
  ModelGeometry model{};
  LayoutOptions options{};
  Bytes kv_bytes_per_token = 0;
  Bytes ssm_bytes = 0;
  Bytes conv_bytes = 0;
  Bytes head_bytes = 0;
  Units ssm_heads = 0;
  Bytes page_bytes = 0;
  Units heads_per_page = 0;
  Units pages_per_head = 0;
  Bytes split_bytes = 0;
  Units members = 0;
  Bytes slot_bytes = 0;
  Units slots_per_slab = 0;
  Units conv_pages = 0;
  Bytes coarse_page_bytes = 0;
  Bytes native_unit_bytes = 0;
  Tokens native_interval = 0;
  Tokens planner_tokens = 0;
  Units group_layers = 0;
  Units attention_groups = 0;
  Units recurrent_groups = 0;

  friend constexpr bool operator==(const LayoutSizes&, const LayoutSizes&) = default;
};

namespace detail {

/// In a page of `page` bytes, the part of a larger head that one page takes: whole rows, and whole
/// elements when even a row is larger.
constexpr Bytes split_bytes(const ModelGeometry& m, Bytes page) noexcept {
  Bytes const piece = m.row_bytes() <= page ? m.row_bytes() : Bytes{m.ssm_dtype_bytes};
  return page / piece * piece;
}

constexpr Issue first_issue(const ModelGeometry& m, const LayoutOptions& o) noexcept {
  using K = Issue::Kind;
  if (Issue const i = first_issue(m); !i.ok()) return i;
  if (o.block_tokens == 0) return {K::zero, "block_tokens", "an attention block holds tokens"};
  if (o.checkpoint_tokens == 0)
    return {K::zero, "checkpoint_tokens", "checkpoints lie some tokens apart"};
  if (o.native_block_tokens == 0)
    return {K::zero, "native_block_tokens", "an attention unit of the dual pool holds tokens"};
  if (o.interval_multiple == 0)
    return {K::zero, "interval_multiple", "the dual pool's interval is rounded to its multiples"};
  if (o.planner_multiple == 0)
    return {K::zero, "planner_multiple", "the planner's unit is rounded to its multiples"};
  if (o.checkpoint_tokens % o.block_tokens != 0)
    return {K::not_multiple, "checkpoint_tokens", "block_tokens", o.checkpoint_tokens,
            o.block_tokens};
  if (o.native_checkpoint_tokens != 0) {
    if (o.native_checkpoint_tokens % o.native_block_tokens != 0)
      return {K::not_multiple, "native_checkpoint_tokens", "native_block_tokens",
              o.native_checkpoint_tokens, o.native_block_tokens};
  } else if (o.interval_multiple % o.native_block_tokens != 0) {
    return {K::not_multiple, "interval_multiple", "native_block_tokens", o.interval_multiple,
            o.native_block_tokens};
  }

  std::uint64_t const g =
      m.attention_layers < m.recurrent_layers ? m.attention_layers : m.recurrent_layers;
  std::uint64_t const attention = ceil_div<std::uint64_t>(m.attention_layers, g);
  std::uint64_t const recurrent = ceil_div<std::uint64_t>(m.recurrent_layers, g);
  std::uint64_t const kv = m.kv_bytes_per_token();
  std::uint64_t const tokens =
      o.block_tokens > o.native_block_tokens ? o.block_tokens : o.native_block_tokens;
  if (saturating_product({kv, tokens, g, attention}) > largest_bytes)
    return {K::too_large, "KV bytes of one block", "over all attention layers, padding included"};
  if (saturating_product({m.composite_bytes(), g, recurrent}) > largest_bytes)
    return {K::too_large, "recurrent bytes of one state",
            "over all recurrent layers, padding included"};
  std::uint64_t const page = o.block_tokens * kv;
  if (page < m.ssm_dtype_bytes)  // a page of a few bytes could not take one element
    return {K::zero, "elements per page", "a page holds at least one SSM element"};
  std::uint64_t const members =
      m.head_bytes() <= page
          ? ceil_div<std::uint64_t>(m.rank_ssm_heads(), page / m.head_bytes())
          : saturating_product(m.rank_ssm_heads(), ceil_div(m.head_bytes(), split_bytes(m, page)));
  std::uint64_t const pages = saturating_sum(members, ceil_div(m.conv_bytes(), page));
  if (saturating_product(pages, recurrent) > largest_index || attention > largest_index)
    return {K::too_many, "pages of one state", "members and convolution pages of all layer groups"};
  if (page / std::bit_ceil(m.conv_bytes()) > largest_index)
    return {K::too_many, "slots of one slab", "page bytes / slot bytes"};
  std::uint64_t const state_tokens = ceil_div(m.composite_bytes(), kv);
  if (saturating_sum(state_tokens, o.interval_multiple) > largest_index ||
      saturating_sum(state_tokens, o.planner_multiple) > largest_index)
    return {K::too_many, "tokens of the dual pool's interval",
            "recurrent bytes / KV bytes per token, rounded up"};
  return {};
}

constexpr LayoutSizes make_sizes(const ModelGeometry& m, const LayoutOptions& o) noexcept {
  LayoutSizes s;
  s.model = m;
  s.options = o;
  s.kv_bytes_per_token = m.kv_bytes_per_token();
  s.ssm_bytes = m.ssm_bytes();
  s.conv_bytes = m.conv_bytes();
  s.head_bytes = m.head_bytes();
  s.ssm_heads = m.rank_ssm_heads();

  s.page_bytes = o.block_tokens * s.kv_bytes_per_token;
  if (s.head_bytes <= s.page_bytes) {
    Bytes const fit = s.page_bytes / s.head_bytes;
    s.heads_per_page = fit < s.ssm_heads ? static_cast<Units>(fit) : s.ssm_heads;
    s.pages_per_head = 1;
    s.split_bytes = s.head_bytes;
    s.members = ceil_div(s.ssm_heads, s.heads_per_page);
  } else {
    s.heads_per_page = 0;
    s.split_bytes = split_bytes(m, s.page_bytes);
    s.pages_per_head = static_cast<Units>(ceil_div(s.head_bytes, s.split_bytes));
    s.members = s.ssm_heads * s.pages_per_head;
  }

  s.slot_bytes = std::bit_ceil(s.conv_bytes);
  s.slots_per_slab = static_cast<Units>(s.page_bytes / s.slot_bytes);
  // Lines are numbered across pages, so slots must divide their page evenly.
  while (s.slots_per_slab > 1 && s.page_bytes % s.slots_per_slab != 0) --s.slots_per_slab;
  s.conv_pages = static_cast<Units>(ceil_div(s.conv_bytes, s.page_bytes));

  Bytes const composite = s.ssm_bytes + s.conv_bytes;
  s.coarse_page_bytes = s.page_bytes > composite ? s.page_bytes : composite;
  s.native_unit_bytes = o.native_block_tokens * s.kv_bytes_per_token;
  auto const state_tokens = static_cast<Tokens>(ceil_div(composite, s.kv_bytes_per_token));
  s.native_interval = o.native_checkpoint_tokens != 0 ? o.native_checkpoint_tokens
                                                      : round_up(state_tokens, o.interval_multiple);
  s.planner_tokens = round_up(state_tokens, o.planner_multiple);

  s.group_layers =
      m.attention_layers < m.recurrent_layers ? m.attention_layers : m.recurrent_layers;
  s.attention_groups = ceil_div(m.attention_layers, s.group_layers);
  s.recurrent_groups = ceil_div(m.recurrent_layers, s.group_layers);
  return s;
}

HYBRIDSTATE_HD constexpr MemberOffset ssm_offset(const LayoutSizes& s, Units head,
                                                 Bytes byte) noexcept {
  if (s.heads_per_page != 0)
    return {head / s.heads_per_page, head % s.heads_per_page * s.head_bytes + byte};
  return {head * s.pages_per_head + static_cast<Units>(byte / s.split_bytes), byte % s.split_bytes};
}

HYBRIDSTATE_HD constexpr MemberSpan member_span(const LayoutSizes& s, Units member) noexcept {
  if (s.heads_per_page != 0) {
    Units const first = member * s.heads_per_page;
    Units const left = s.ssm_heads - first;
    Units const heads = left < s.heads_per_page ? left : s.heads_per_page;
    return {first, heads, 0, heads * s.head_bytes};
  }
  Bytes const start = member % s.pages_per_head * s.split_bytes;
  Bytes const left = s.head_bytes - start;
  return {member / s.pages_per_head, 1, start, left < s.split_bytes ? left : s.split_bytes};
}

}  // namespace detail

/// Every size of one model under one set of grids, computed once. All bytes are those of one layer
/// of one rank; a unit of a pool spans one layer group, so it takes group_layers() times as much
/// over all its layers. A plain aggregate of integers: it can be passed to kernels by value.
struct StateLayout {
  LayoutSizes sizes{};

  HYBRIDSTATE_HD constexpr const ModelGeometry& model() const noexcept { return sizes.model; }
  HYBRIDSTATE_HD constexpr const LayoutOptions& options() const noexcept { return sizes.options; }

  /// Tokens of one attention block of the shared pools.
  HYBRIDSTATE_HD constexpr Tokens block_tokens() const noexcept {
    return sizes.options.block_tokens;
  }
  /// Tokens between checkpoints of the shared pools; a multiple of block_tokens().
  HYBRIDSTATE_HD constexpr Tokens checkpoint_tokens() const noexcept {
    return sizes.options.checkpoint_tokens;
  }
  HYBRIDSTATE_HD constexpr Bytes kv_bytes_per_token() const noexcept {
    return sizes.kv_bytes_per_token;
  }
  HYBRIDSTATE_HD constexpr Bytes ssm_bytes() const noexcept { return sizes.ssm_bytes; }
  HYBRIDSTATE_HD constexpr Bytes conv_bytes() const noexcept { return sizes.conv_bytes; }
  HYBRIDSTATE_HD constexpr Bytes head_bytes() const noexcept { return sizes.head_bytes; }
  /// SSM heads of one rank.
  HYBRIDSTATE_HD constexpr Units ssm_heads() const noexcept { return sizes.ssm_heads; }

  /// The unit of S1 and S2: exactly one attention block.
  HYBRIDSTATE_HD constexpr Bytes page_bytes() const noexcept { return sizes.page_bytes; }
  /// KV bytes of one attention block; the page has this size.
  HYBRIDSTATE_HD constexpr Bytes attention_block_bytes() const noexcept { return sizes.page_bytes; }
  /// Heads that share one member page, at most ssm_heads(); 0 when one head needs several pages.
  HYBRIDSTATE_HD constexpr Units heads_per_page() const noexcept { return sizes.heads_per_page; }
  /// Pages that one head spans; 1 unless a head is larger than a page.
  HYBRIDSTATE_HD constexpr Units pages_per_head() const noexcept { return sizes.pages_per_head; }
  /// Bytes of a head that lie together in one page: the whole head, or whole rows of a split head.
  HYBRIDSTATE_HD constexpr Bytes split_bytes() const noexcept { return sizes.split_bytes; }
  /// Member pages of the SSM state of one layer.
  HYBRIDSTATE_HD constexpr Units members() const noexcept { return sizes.members; }

  /// One convolution state in a slab: the next power of two.
  HYBRIDSTATE_HD constexpr Bytes slot_bytes() const noexcept { return sizes.slot_bytes; }
  /// Slots of one slab page; 0 when a slot is larger than a page and conv_pages() are used instead.
  HYBRIDSTATE_HD constexpr Units slots_per_slab() const noexcept { return sizes.slots_per_slab; }
  /// Pages of a convolution state that shares with no other: S1 always, S2 without slots.
  HYBRIDSTATE_HD constexpr Units conv_pages() const noexcept { return sizes.conv_pages; }

  /// SSM and convolution state side by side, SSM first: the unit of D0's recurrent pool.
  HYBRIDSTATE_HD constexpr Bytes composite_bytes() const noexcept {
    return sizes.ssm_bytes + sizes.conv_bytes;
  }
  /// The unit of S0: holds either an attention block or a composite.
  HYBRIDSTATE_HD constexpr Bytes coarse_page_bytes() const noexcept {
    return sizes.coarse_page_bytes;
  }
  /// Tokens of one attention unit of D0.
  HYBRIDSTATE_HD constexpr Tokens native_block_tokens() const noexcept {
    return sizes.options.native_block_tokens;
  }
  /// The unit of D0's attention pool.
  HYBRIDSTATE_HD constexpr Bytes native_unit_bytes() const noexcept {
    return sizes.native_unit_bytes;
  }
  /// Tokens between D0's checkpoints; a multiple of native_block_tokens().
  HYBRIDSTATE_HD constexpr Tokens native_interval() const noexcept { return sizes.native_interval; }
  /// The planner's nominal unit, in bytes: the tokens whose KV takes as much as one composite,
  /// rounded up to the planner's multiple (Appendix B.10). b63 means 63 of them per layer.
  HYBRIDSTATE_HD constexpr Bytes planner_bytes() const noexcept {
    return sizes.planner_tokens * sizes.kv_bytes_per_token;
  }

  /// Layers that one unit spans: the number of layers of the rarer kind.
  HYBRIDSTATE_HD constexpr Units group_layers() const noexcept { return sizes.group_layers; }
  /// Units of one attention block over all layers.
  HYBRIDSTATE_HD constexpr Units attention_groups() const noexcept {
    return sizes.attention_groups;
  }
  /// Layer groups of the recurrent state.
  HYBRIDSTATE_HD constexpr Units recurrent_groups() const noexcept {
    return sizes.recurrent_groups;
  }
  /// Layers that the last attention group counts but the model does not have.
  HYBRIDSTATE_HD constexpr Units attention_padding() const noexcept {
    return sizes.attention_groups * sizes.group_layers - sizes.model.attention_layers;
  }
  /// Layers that the last recurrent group counts but the model does not have.
  HYBRIDSTATE_HD constexpr Units recurrent_padding() const noexcept {
    return sizes.recurrent_groups * sizes.group_layers - sizes.model.recurrent_layers;
  }

  /// Where byte `byte` of head `head` lies. Preconditions: head < ssm_heads(), byte < head_bytes().
  HYBRIDSTATE_HD constexpr MemberOffset ssm_offset(Units head, Bytes byte = 0) const noexcept {
    return detail::ssm_offset(sizes, head, byte);
  }
  /// What member page `member` holds. Precondition: member < members().
  HYBRIDSTATE_HD constexpr MemberSpan member_span(Units member) const noexcept {
    return detail::member_span(sizes, member);
  }

  friend constexpr bool operator==(const StateLayout&, const StateLayout&) = default;
};

/// Whether checked_layout() accepts the pair; usable in constant expressions.
constexpr bool sound(const ModelGeometry& model, const LayoutOptions& options) noexcept {
  return detail::first_issue(model, options).ok();
}

/// Why the model and the options cannot work together, as one sentence; empty when they can.
inline std::string problem(const ModelGeometry& model, const LayoutOptions& options) {
  if (std::string sentence = problem(model); !sentence.empty()) return sentence;
  detail::Issue const issue = detail::first_issue(model, options);
  return issue.ok() ? std::string{} : "layout: " + detail::sentence(issue);
}

/// The layout of a sound pair. Precondition: sound(model, options).
constexpr StateLayout make_layout(const ModelGeometry& model,
                                  const LayoutOptions& options = LayoutOptions{}) {
  HYBRIDSTATE_EXPECT(sound(model, options), "a layout is made of a sound model and options", 0, 0);
  return {detail::make_sizes(model, options)};
}

/// The layout, or the sentence of problem().
inline Result<StateLayout> checked_layout(const ModelGeometry& model,
                                          const LayoutOptions& options = LayoutOptions{}) {
  std::string sentence = problem(model, options);
  if (!sentence.empty()) return Failure{std::move(sentence)};
  return make_layout(model, options);
}

/// A layout whose numbers are compile-time constants: the same spelling as StateLayout, so that a
/// template written against one accepts the other.
template <ModelGeometry Model, LayoutOptions Options = LayoutOptions{}>
struct StaticLayout {
  static_assert(sound(Model, Options), "problem(Model, Options) says what is wrong");
  /// Read it on the host; the functions below hold constants and work in kernels too.
  static constexpr StateLayout value = make_layout(Model, Options);

  constexpr operator StateLayout() const noexcept { return value; }

  HYBRIDSTATE_HD static constexpr ModelGeometry model() noexcept { return Model; }
  HYBRIDSTATE_HD static constexpr LayoutOptions options() noexcept { return Options; }
  HYBRIDSTATE_HD static constexpr Tokens block_tokens() noexcept {
    constexpr auto constant = value.block_tokens();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Tokens checkpoint_tokens() noexcept {
    constexpr auto constant = value.checkpoint_tokens();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Bytes kv_bytes_per_token() noexcept {
    constexpr auto constant = value.kv_bytes_per_token();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Bytes ssm_bytes() noexcept {
    constexpr auto constant = value.ssm_bytes();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Bytes conv_bytes() noexcept {
    constexpr auto constant = value.conv_bytes();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Bytes head_bytes() noexcept {
    constexpr auto constant = value.head_bytes();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Units ssm_heads() noexcept {
    constexpr auto constant = value.ssm_heads();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Bytes page_bytes() noexcept {
    constexpr auto constant = value.page_bytes();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Bytes attention_block_bytes() noexcept {
    constexpr auto constant = value.attention_block_bytes();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Units heads_per_page() noexcept {
    constexpr auto constant = value.heads_per_page();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Units pages_per_head() noexcept {
    constexpr auto constant = value.pages_per_head();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Bytes split_bytes() noexcept {
    constexpr auto constant = value.split_bytes();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Units members() noexcept {
    constexpr auto constant = value.members();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Bytes slot_bytes() noexcept {
    constexpr auto constant = value.slot_bytes();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Units slots_per_slab() noexcept {
    constexpr auto constant = value.slots_per_slab();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Units conv_pages() noexcept {
    constexpr auto constant = value.conv_pages();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Bytes composite_bytes() noexcept {
    constexpr auto constant = value.composite_bytes();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Bytes coarse_page_bytes() noexcept {
    constexpr auto constant = value.coarse_page_bytes();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Tokens native_block_tokens() noexcept {
    constexpr auto constant = value.native_block_tokens();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Bytes native_unit_bytes() noexcept {
    constexpr auto constant = value.native_unit_bytes();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Tokens native_interval() noexcept {
    constexpr auto constant = value.native_interval();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Bytes planner_bytes() noexcept {
    constexpr auto constant = value.planner_bytes();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Units group_layers() noexcept {
    constexpr auto constant = value.group_layers();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Units attention_groups() noexcept {
    constexpr auto constant = value.attention_groups();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Units recurrent_groups() noexcept {
    constexpr auto constant = value.recurrent_groups();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Units attention_padding() noexcept {
    constexpr auto constant = value.attention_padding();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr Units recurrent_padding() noexcept {
    constexpr auto constant = value.recurrent_padding();
    return constant;
  }
  HYBRIDSTATE_HD static constexpr MemberOffset ssm_offset(Units head, Bytes byte = 0) noexcept {
    constexpr LayoutSizes sizes = value.sizes;
    return detail::ssm_offset(sizes, head, byte);
  }
  HYBRIDSTATE_HD static constexpr MemberSpan member_span(Units member) noexcept {
    constexpr LayoutSizes sizes = value.sizes;
    return detail::member_span(sizes, member);
  }
};

/// What templates may ask of a layout; StateLayout and every StaticLayout satisfy it.
template <class L>
concept state_layout = std::copyable<L> && requires(const L& layout, Units index, Bytes byte) {
  { layout.model() } -> std::convertible_to<ModelGeometry>;
  { layout.options() } -> std::convertible_to<LayoutOptions>;
  { layout.block_tokens() } -> std::same_as<Tokens>;
  { layout.checkpoint_tokens() } -> std::same_as<Tokens>;
  { layout.kv_bytes_per_token() } -> std::same_as<Bytes>;
  { layout.ssm_bytes() } -> std::same_as<Bytes>;
  { layout.conv_bytes() } -> std::same_as<Bytes>;
  { layout.head_bytes() } -> std::same_as<Bytes>;
  { layout.ssm_heads() } -> std::same_as<Units>;
  { layout.page_bytes() } -> std::same_as<Bytes>;
  { layout.attention_block_bytes() } -> std::same_as<Bytes>;
  { layout.heads_per_page() } -> std::same_as<Units>;
  { layout.pages_per_head() } -> std::same_as<Units>;
  { layout.split_bytes() } -> std::same_as<Bytes>;
  { layout.members() } -> std::same_as<Units>;
  { layout.slot_bytes() } -> std::same_as<Bytes>;
  { layout.slots_per_slab() } -> std::same_as<Units>;
  { layout.conv_pages() } -> std::same_as<Units>;
  { layout.composite_bytes() } -> std::same_as<Bytes>;
  { layout.coarse_page_bytes() } -> std::same_as<Bytes>;
  { layout.native_block_tokens() } -> std::same_as<Tokens>;
  { layout.native_unit_bytes() } -> std::same_as<Bytes>;
  { layout.native_interval() } -> std::same_as<Tokens>;
  { layout.planner_bytes() } -> std::same_as<Bytes>;
  { layout.group_layers() } -> std::same_as<Units>;
  { layout.attention_groups() } -> std::same_as<Units>;
  { layout.recurrent_groups() } -> std::same_as<Units>;
  { layout.attention_padding() } -> std::same_as<Units>;
  { layout.recurrent_padding() } -> std::same_as<Units>;
  { layout.ssm_offset(index, byte) } -> std::same_as<MemberOffset>;
  { layout.member_span(index) } -> std::same_as<MemberSpan>;
};

static_assert(state_layout<StateLayout>);

HYBRIDSTATE_NAMESPACE_END
