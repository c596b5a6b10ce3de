// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <optional>
#include <random>
#include <utility>

#include "allocations.hpp"
#include "cache/support.hpp"
#include "test_scale.hpp"

using namespace cache_test;

namespace {

using Entries = std::vector<std::int32_t>;
constexpr hs::Tokens most_tokens = 64;
constexpr hs::Tokens tail_tokens = 2;  // of blocks of 4
constexpr hs::BatchLimits limits{6, most_tokens, 3};

/// Heads over several pages and a convolution state wider than a page: pages of 32 bytes.
hs::ModelGeometry wide_state() {
  hs::ModelGeometry m = falcon_like();
  m.head_dim = 2;
  m.ssm_heads = 2;
  return m;
}

template <class Organization>
Organization make(const hs::ModelGeometry& model, hs::Units states) {
  hs::StateLayout const layout = small_layout(model, 4, 8);
  if constexpr (Organization::pools == 2) {
    return Organization(layout, hs::PoolUnits{{40, states * layout.recurrent_groups()}});
  } else {
    hs::Units const state = (layout.members() + layout.conv_pages()) * layout.recurrent_groups();
    return Organization(layout, states * (state + 3 * layout.attention_groups()));
  }
}

/// What an organization says of one state, as documented: per group the members, then the lines.
template <class Organization>
void append_state(const Organization& o, hs::StateHandle s, Entries& row) {
  auto const& layout = o.layout();
  for (int g = 0; g < static_cast<int>(layout.recurrent_groups()); ++g) {
    int const members = Organization::whole_composites ? 1 : static_cast<int>(layout.members());
    for (int m = 0; m < members; ++m)
      row.push_back(s ? static_cast<std::int32_t>(o.ssm_page(s, g, m)) : -1);
    bool split = false;
    if constexpr (requires { o.conv_page(s, g, 0); }) {
      split = o.conv_address().stride < layout.conv_bytes();
      for (int p = 0; split && p < static_cast<int>(layout.conv_pages()); ++p)
        row.push_back(s ? static_cast<std::int32_t>(o.conv_page(s, g, p)) : -1);
    }
    if (!split) row.push_back(s ? static_cast<std::int32_t>(o.conv_line(s, g)) : -1);
  }
}

/// All tables from scratch.
template <class Cache>
Entries rebuilt(const Cache& cache, std::span<const hs::ScheduledSequence> scheduled,
                std::size_t width) {
  auto const& o = cache.organization();
  Entries all(width * limits.rows, -1);
  for (hs::ScheduledSequence const& item : scheduled) {
    hs::SequenceHandle const s = item.sequence;
    hs::TailPlace tail;
    std::int32_t block = 0;
    for (hs::AttentionHandle const a : cache.blocks(s)) {
      if (auto const offset = static_cast<std::int32_t>(cache.place(a).offset); offset > 0)
        tail = {block * static_cast<std::int32_t>(o.block_tokens()), offset};
      ++block;
    }
    Entries row{static_cast<std::int32_t>(cache.kv_valid_until(s)), tail.from, tail.shift};
    append_state(o, cache.source(s), row);
    auto const written = cache.states(s).subspan(cache.first_target(s));
    append_state(o, written.back().state, row);
    for (std::size_t k = 0; k < limits.checkpoints; ++k) {
      bool const used = k + 1 < written.size();
      row.push_back(used ? static_cast<std::int32_t>(written[k].boundary) : -1);
      append_state(o, used ? written[k].state : hs::StateHandle{}, row);
    }
    for (int g = 0; g < static_cast<int>(o.layout().attention_groups()); ++g) {
      std::size_t const columns =
          std::min<std::size_t>(most_tokens / o.block_tokens(), o.max_attention_blocks());
      Entries units(columns, -1);
      std::size_t c = 0;
      for (hs::AttentionHandle const a : cache.blocks(s))
        units[c++] = static_cast<std::int32_t>(o.attention_unit(cache.place(a).block, g));
      row.insert(row.end(), units.begin(), units.end());
    }
    REQUIRE(row.size() == width);
    std::size_t const r = item.row < 0 ? s.at() : static_cast<std::size_t>(item.row);
    std::copy(row.begin(), row.end(), all.begin() + static_cast<std::ptrdiff_t>(r * width));
  }
  return all;
}

/// The rows that differ and the smallest run that holds every difference, by comparison.
std::vector<hs::ChangedRow> differences(const Entries& a, std::span<const std::int32_t> b,
                                        std::size_t width) {
  std::vector<hs::ChangedRow> rows;
  for (std::size_t r = 0; r < limits.rows; ++r) {
    std::int32_t first = -1, last = -1;
    for (std::size_t i = 0; i < width; ++i)
      if (a[r * width + i] != b[r * width + i]) {
        last = static_cast<std::int32_t>(i);
        if (first < 0) first = last;
      }
    if (first >= 0) rows.push_back({static_cast<std::int32_t>(r), first, last - first + 1});
  }
  return rows;
}
std::vector<hs::ChangedRow> sorted(std::span<const hs::ChangedRow> rows) {
  std::vector<hs::ChangedRow> v(rows.begin(), rows.end());
  std::sort(v.begin(), v.end(), [](const auto& x, const auto& y) { return x.row < y.row; });
  return v;
}

/// A pool's bytes: who may write each in this step.
struct Memory {
  std::vector<std::byte> bytes;
  std::vector<std::int32_t> writer;
  hs::PoolMemory pool;

  Memory(hs::Bytes layer, hs::Units layers)
      : bytes(layer * layers),
        writer(bytes.size(), -1),
        pool{bytes.data(), static_cast<std::int64_t>(layer)} {}
  /// The row takes the byte; false when it lies outside, or another row (or use) has it.
  bool take(const std::byte* at, std::int32_t row) {
    std::ptrdiff_t const i = at - bytes.data();
    if (at == nullptr || i < 0 || i >= static_cast<std::ptrdiff_t>(bytes.size())) return false;
    std::int32_t& w = writer[static_cast<std::size_t>(i)];
    return std::exchange(w, row) == -1;
  }
};

/// Everything that a step writes has an address of its own, in every layer; what is below
/// valid_until and what the organization does not hold has none.
template <class Cache>
void check_views(const Cache& cache, const hs::BatchShape& shape, const Entries& device,
                 std::span<const hs::ScheduledSequence> scheduled) {
  auto const& o = cache.organization();
  using O = std::remove_cvref_t<decltype(o)>;
  auto const& layout = o.layout();
  hs::ModelGeometry const model = layout.model();
  Memory attention(hs::layer_bytes(o, O::attention_pool), layout.group_layers());
  Memory states(hs::layer_bytes(o, O::state_pool), layout.group_layers());
  Memory& state_memory = O::pools == 2 ? states : attention;
  hs::BatchViews const views(o, shape, attention.pool, state_memory.pool, device.data());

  for (std::int32_t r = 0; r < static_cast<std::int32_t>(limits.rows); ++r) {
    hs::ScheduledSequence const* item = nullptr;
    for (hs::ScheduledSequence const& s : scheduled)
      if ((s.row < 0 ? s.sequence.value : s.row) == r) item = &s;
    auto const written =
        item == nullptr ? std::span<const hs::HeldState>{}
                        : cache.states(item->sequence).subspan(cache.first_target(item->sequence));
    for (hs::Units l = 0; l < model.recurrent_layers; ++l) {
      auto const take_state = [&](const hs::SsmPages<>& ssm, const hs::ConvLines& conv,
                                  bool there) {
        for (std::int32_t h = 0; h < static_cast<std::int32_t>(layout.ssm_heads()); ++h)
          for (std::int64_t b = 0; b < static_cast<std::int64_t>(layout.head_bytes()); ++b)
            REQUIRE((there ? state_memory.take(ssm.addr_ssm(r, h, b), r)
                           : ssm.addr_ssm(r, h, b) == nullptr));
        for (std::int64_t b = 0; b < static_cast<std::int64_t>(layout.conv_bytes()); ++b)
          REQUIRE(
              (there ? state_memory.take(conv.addr_row(r, b), r) : conv.addr_row(r, b) == nullptr));
      };
      take_state(views.ssm_destination(l), views.conv_destination(l), item != nullptr);
      for (std::uint32_t k = 0; k < limits.checkpoints; ++k) {
        bool const used = k + 1 < written.size();
        take_state(views.ssm_checkpoint(l, k), views.conv_checkpoint(l, k), used);
        CHECK(views.boundaries(k)[r * views.row_stride()] ==
              (used ? static_cast<std::int32_t>(written[k].boundary) : -1));
      }
      bool const reads = item != nullptr && cache.source(item->sequence);
      CHECK((views.ssm_source(l).addr_ssm(r, 0) != nullptr) == reads);
      CHECK((views.conv_source(l).addr_row(r, 0) != nullptr) == reads);
      // Source = destination in place: the same addresses.
      if (reads && cache.source(item->sequence) == written.back().state)
        CHECK(views.ssm_source(l).addr_ssm(r, 1, 3) == views.ssm_destination(l).addr_ssm(r, 1, 3));
    }
    auto const held =
        item == nullptr ? std::span<const hs::AttentionHandle>{} : cache.blocks(item->sequence);
    hs::Tokens const valid = item == nullptr ? 0 : cache.kv_valid_until(item->sequence);
    hs::Tokens const begin = item == nullptr ? 0 : cache.position(item->sequence);
    for (hs::Units l = 0; l < model.attention_layers; ++l)
      for (std::int32_t t = 0; t < static_cast<std::int32_t>(most_tokens); ++t) {
        hs::AttentionBlocks const read = views.attention(l);
        hs::AttentionWrites const write = views.attention_writes(l);
        auto const token = static_cast<hs::Tokens>(t);
        bool const there = token / o.block_tokens() < held.size();
        if (static_cast<hs::Units>(t) / o.block_tokens() >= shape.blocks) break;
        CHECK((read.addr_key(r, 0, t) != nullptr) == there);
        CHECK((write.addr_value(r, 0, t) != nullptr) == (there && token >= valid));
        // Of a tail only the parts up to the next token are its own for certain.
        bool const tail = there && token / o.block_tokens() + 1 == held.size() &&
                          cache.place(held.back()).block != held.back();
        if (there && token >= std::max(valid, begin) &&
            (!tail || token < hs::round_up<hs::Tokens>(begin + 1, tail_tokens)))
          for (std::byte* at : {write.addr_key(r, 0, t), write.addr_value(r, 0, t)})
            for (std::int64_t b = 0; b < read.strides.token; ++b)
              REQUIRE(attention.take(at + b, r));
      }
  }
}

struct Running {
  hs::SequenceHandle sequence;
  Ids tokens;
  bool active = true;
};

struct Seen {
  std::size_t copies = 0, checkpoints = 0;
};
/// Random admissions, forks, preemptions, resumptions, releases and steps; every step's tables
/// against the rebuilt ones.
template <class Organization>
void walk(Seen& seen, const hs::ModelGeometry& model, std::uint32_t seed, bool own_rows,
          int steps) {
  CAPTURE(seed);
  hs::CacheOptions options;
  options.max_sequences = limits.rows;
  options.max_sequence_tokens = most_tokens;
  options.reuse_beyond_joint = seed % 2 == 1;
  options.fences = seed % 3 == 0;
  if (Organization::pools == 1 && seed % 4 < 2) options.tail_tokens = tail_tokens;
  hs::JointCache cache(make<Organization>(model, 14), options);
  auto const& o = cache.organization();
  hs::BatchShape const shape = hs::batch_shape(o, limits);
  Entries memory(static_cast<std::size_t>(shape.entries()) + 1, 77);
  hs::BatchTables<Organization> tables(o, limits, memory);
  auto const width = static_cast<std::size_t>(shape.row_entries());
  Entries device(width * limits.rows, -1);
  std::mt19937 random(seed);
  auto const below = [&](std::size_t n) { return static_cast<std::uint32_t>(random() % n); };
  std::vector<Running> running;

  for (int step = 0; step < steps; ++step) {
    cache.begin_step();
    std::uint32_t const dice = below(10);
    if (dice < 4) {
      Ids tokens = ids(most_tokens, below(3) * 1000);
      if (below(2) == 0) std::fill(tokens.begin() + 8 + below(20), tokens.end(), below(50));
      auto const length = 1 + below(40);
      hs::Admission const a =
          cache.admit(hs::Prompt::of_tokens(std::span(tokens).first(length)), {1, most_tokens});
      if (a) running.push_back({a.sequence, tokens});
    } else if (!running.empty()) {
      Running& x = running[below(running.size())];
      if (dice == 4 && x.active) {
        hs::Admission const a = cache.fork(x.sequence, 2);
        if (a) running.push_back({a.sequence, x.tokens});
      } else if (dice == 5 && x.active) {
        cache.preempt(x.sequence);
        x.active = false;
      } else if (dice == 6 && !x.active) {
        auto const p = hs::Prompt::of_tokens(std::span(x.tokens).first(20));
        x.active = static_cast<bool>(cache.resume(x.sequence, p, {1, most_tokens}));
      } else if (dice == 7) {
        cache.release(x.sequence);
        running.erase(running.begin() + (&x - running.data()));
      }
    }
    std::vector<hs::ScheduledSequence> scheduled;
    std::vector<hs::Tokens> counts;
    for (Running const& x : running) {
      if (!x.active || below(5) == 0) continue;
      hs::Tokens const left = most_tokens - cache.position(x.sequence);
      if (left == 0) continue;
      hs::Tokens const n = std::min<hs::Tokens>(left, below(2) == 0 ? 1 : 1 + below(20));
      if (!cache.reserve(x.sequence, n)) continue;
      auto const row = static_cast<std::int32_t>(scheduled.size());
      scheduled.push_back({x.sequence, own_rows ? -1 : row});
      counts.push_back(n);
    }
    Entries const before(tables.entries().begin(), tables.entries().end());
    auto const changed_before = sorted(tables.changed());

    if (!scheduled.empty() && below(3) == 0) {  // a batch that is refused changes nothing
      auto twice = scheduled;
      twice.push_back({scheduled[0].sequence, scheduled[0].row});
      hs::BatchResult const refused = tables.build(cache, twice);
      CHECK(refused.refusal == hs::BatchRefusal::row_taken);
      CHECK(refused.item == scheduled.size());
      CHECK(std::equal(before.begin(), before.end(), tables.entries().begin()));
      CHECK(sorted(tables.changed()) == changed_before);
    }

    std::uint64_t const allocated = allocations;
    hs::BatchResult const result = tables.build(cache, scheduled);
    CHECK(allocations == allocated);
    REQUIRE(result);
    Entries const expected = rebuilt(cache, scheduled, width);
    REQUIRE(std::equal(expected.begin(), expected.end(), tables.entries().begin()));
    REQUIRE(sorted(tables.changed()) == differences(before, tables.entries(), width));
    for (hs::ChangedRow const& c : tables.changed()) {
      auto const at =
          static_cast<std::ptrdiff_t>(static_cast<std::size_t>(c.row) * width) + c.first;
      std::copy_n(tables.entries().begin() + at, c.count, device.begin() + at);
    }
    REQUIRE(device == expected);
    CHECK(memory.back() == 77);
    std::size_t copy = 0;
    for (hs::BlockCopy const& c : cache.copies())
      for (hs::Units g = 0; g < shape.attention_groups; ++g) {
        hs::AttentionPlace const from = cache.place(c.from), to = cache.place(c.to);
        auto const unit = [&](hs::AttentionPlace p) {
          return static_cast<std::int32_t>(o.attention_unit(p.block, static_cast<int>(g)));
        };
        hs::UnitCopy const want{g,
                                unit(from),
                                static_cast<std::int32_t>(from.offset),
                                unit(to),
                                static_cast<std::int32_t>(to.offset),
                                static_cast<std::int32_t>(c.tokens)};
        CHECK(tables.copies()[copy++] == want);
      }
    CHECK(tables.copies().size() == copy);
    seen.copies += copy;
    for (hs::ScheduledSequence const& s : scheduled)
      seen.checkpoints += cache.states(s.sequence).size() > cache.first_target(s.sequence) + 1;
    if (step % 8 == 0) check_views(cache, shape, device, scheduled);

    REQUIRE(tables.build(cache, scheduled));  // the same again
    CHECK(tables.changed().empty());
    for (std::size_t i = 0; i < scheduled.size(); ++i) {
      hs::SequenceHandle const s = scheduled[i].sequence;
      Ids const& tokens = std::find_if(running.begin(), running.end(), [&](const Running& x) {
                            return x.sequence == s;
                          })->tokens;
      cache.commit(
          s, hs::Committed::of_tokens(std::span(tokens).subspan(cache.position(s), counts[i])));
    }
    REQUIRE(tables.build(cache, scheduled));  // and after the commits
    CHECK(tables.changed().empty());
    cache.complete(cache.current_step());
  }
}

template <class Organization>
void walks() {
  int const steps = std::max(20, static_cast<int>(160 * test_scale()));
  std::uint32_t seed = 1;
  Seen seen;
  for (hs::ModelGeometry const& model : {falcon_like(), granite_like(), wide_state()})
    for (bool own_rows : {true, false})
      for (int i = 0; i < 2; ++i) walk<Organization>(seen, model, seed++, own_rows, steps);
  CHECK(seen.copies > 0);
  CHECK(seen.checkpoints > 0);
}

}  // namespace

TEST_CASE("S0: tables equal those rebuilt from scratch") { walks<hs::CoarsePage<>>(); }
TEST_CASE("S1: tables equal those rebuilt from scratch") { walks<hs::RecurrentPaged<>>(); }
TEST_CASE("S2: tables equal those rebuilt from scratch") { walks<hs::ConvSlabPacked<>>(); }
TEST_CASE("D0: tables equal those rebuilt from scratch") { walks<hs::NativeDualPool<>>(); }

namespace {

using S2 = hs::ConvSlabPacked<>;
using Cache = hs::JointCache<S2>;

/// A manager with one fact wrong.
struct Mistaken : Cache {
  using Cache::Cache;
  std::optional<hs::StateHandle> source_of_all;
  hs::StateHandle source(hs::SequenceHandle s) const noexcept {
    return source_of_all ? *source_of_all : Cache::source(s);
  }
  std::optional<std::vector<hs::AttentionHandle>> blocks_of_all;
  std::span<const hs::AttentionHandle> blocks(hs::SequenceHandle s) const noexcept {
    return blocks_of_all ? std::span<const hs::AttentionHandle>(*blocks_of_all) : Cache::blocks(s);
  }
  std::optional<hs::Tokens> valid_until_of_all;
  hs::Tokens kv_valid_until(hs::SequenceHandle s) const noexcept {
    return valid_until_of_all ? *valid_until_of_all : Cache::kv_valid_until(s);
  }
};

Mistaken mistaken(hs::Tokens tails = 0) {
  hs::CacheOptions options;
  options.max_sequences = 8;
  options.tail_tokens = tails;
  return Mistaken(make<S2>(falcon_like(), 20), options);
}
template <class C>
hs::SequenceHandle admitted(C& cache, hs::TokenId first, hs::Tokens reserve) {
  hs::Admission const a = cache.admit(prompt(ids(20, first)), {1, most_tokens});
  REQUIRE(a);
  if (reserve > 0) REQUIRE(cache.reserve(a.sequence, reserve));
  return a.sequence;
}

}  // namespace

TEST_CASE("what cannot be a batch is refused, names its item, and changes nothing") {
  using R = hs::BatchRefusal;
  Mistaken cache = mistaken();
  cache.begin_step();
  hs::SequenceHandle const a = admitted(cache, 0, 20);
  hs::SequenceHandle const b = admitted(cache, 100, 4);
  hs::SequenceHandle const unreserved = admitted(cache, 200, 0);
  Entries memory(10000);
  hs::BatchTables<S2> tables(cache.organization(), limits, memory);
  REQUIRE(tables.build(cache, std::vector<hs::ScheduledSequence>{{a}}));
  Entries const before = memory;
  auto const refuse = [&](std::vector<hs::ScheduledSequence> const& batch, R why, std::size_t item,
                          hs::BatchTables<S2>& t) {
    hs::BatchResult const result = t.build(cache, batch);
    CHECK(result.refusal == why);
    CHECK(result.item == item);
    CHECK(std::string(hs::sentence(why)).size() > 10);
  };
  refuse({{a}, {hs::SequenceHandle{}, 3}}, R::absent_sequence, 1, tables);
  refuse({{a}, {b, 6}}, R::row_out_of_range, 1, tables);
  refuse({{a, 0}, {b, 0}}, R::row_taken, 1, tables);
  refuse({{b}, {a, 4}, {a, 5}}, R::shared_destination, 2, tables);
  refuse({{a}, {unreserved}}, R::no_destination, 1, tables);
  cache.source_of_all = cache.states(b).back().state;
  refuse({{b}, {a}}, R::overwritten_source, 1, tables);
  refuse({{a}, {b}}, R::overwritten_source, 0, tables);
  cache.source_of_all = hs::StateHandle{1 << 30};
  refuse({{a}}, R::absent_state, 0, tables);
  cache.source_of_all.reset();
  cache.blocks_of_all = std::vector<hs::AttentionHandle>{hs::AttentionHandle{0}, {}};
  refuse({{a}}, R::absent_block, 0, tables);
  cache.blocks_of_all.reset();
  CHECK(memory == before);
  CHECK(tables.changed().size() == 1);

  Entries other(10000);
  hs::BatchTables<S2> no_checkpoints(cache.organization(), {6, most_tokens, 0}, other);
  refuse({{b}, {a}}, R::too_many_checkpoints, 1, no_checkpoints);
  hs::BatchTables<S2> short_rows(cache.organization(), {6, 16, 3}, other);
  refuse({{b}, {a}}, R::too_many_blocks, 1, short_rows);
  // Every refusal forgot its marks: the same tables still take a good batch.
  CHECK(tables.build(cache, std::vector<hs::ScheduledSequence>{{b}, {a}}));

  hs::BatchTables<S2> one_row(cache.organization(), {1, most_tokens, 3}, other);
  cache.commit(b, hs::Committed::of_tokens(ids(4, 100)));
  REQUIRE(advance(cache, b, ids(20, 100), 1));
  hs::SequenceHandle const fork[2] = {cache.fork(b, 2).sequence, cache.fork(b, 3).sequence};
  for (hs::SequenceHandle s : fork) REQUIRE(cache.reserve(s, 1));
  REQUIRE(cache.copies().size() == 2);
  refuse({{fork[0], 0}}, R::too_many_copies, 0, one_row);
}

TEST_CASE("two sequences that would write one attention block are refused") {
  using Blocks = std::vector<hs::AttentionHandle>;
  for (hs::Tokens const tails : {hs::Tokens{0}, tail_tokens}) {
    CAPTURE(tails);
    Mistaken cache = mistaken(tails);
    cache.begin_step();
    hs::SequenceHandle const a = admitted(cache, 0, 2);
    hs::SequenceHandle const b = admitted(cache, 100, 1);
    Entries memory(10000);
    hs::BatchTables<S2> tables(cache.organization(), limits, memory);
    std::vector<hs::ScheduledSequence> const batch{{a}, {b}};
    auto const refusal = [&] {
      hs::BatchResult const result = tables.build(cache, batch);
      if (!result) CHECK(result.item == 1);
      return result.refusal;
    };
    // With tails, both lie in one block of the organization: in different parts of it.
    hs::AttentionHandle const of_a = cache.blocks(a)[0], of_b = cache.blocks(b)[0];
    CHECK((cache.place(of_a).block == cache.place(of_b).block) == (tails != 0));
    CHECK(refusal() == hs::BatchRefusal::none);
    Entries const before = memory;
    cache.blocks_of_all = Blocks{of_a};
    CHECK(refusal() == hs::BatchRefusal::shared_block);
    CHECK(memory == before);
    cache.valid_until_of_all = 3;  // of 4 tokens
    CHECK(refusal() == hs::BatchRefusal::shared_block);
    cache.valid_until_of_all = 4;  // both only read it
    CHECK(refusal() == hs::BatchRefusal::none);
    cache.valid_until_of_all.reset();
    cache.blocks_of_all = Blocks{cache.place(of_a).block};
    CHECK(refusal() == hs::BatchRefusal::shared_block);
    cache.blocks_of_all.reset();
    CHECK(refusal() == hs::BatchRefusal::none);
  }
}

TEST_CASE("an empty batch, padded rows, and rows whose sequence left") {
  Mistaken cache = mistaken();
  cache.begin_step();
  hs::SequenceHandle const a = admitted(cache, 0, 20);
  Entries memory(10000);
  hs::BatchTables<S2> tables(cache.organization(), limits, memory);
  REQUIRE(tables.build(cache, {}));
  CHECK(tables.changed().empty());
  auto const all_absent = [&] {
    return std::all_of(tables.entries().begin(), tables.entries().end(),
                       [](std::int32_t e) { return e == -1; });
  };
  CHECK(all_absent());
  REQUIRE(tables.build(cache, std::vector<hs::ScheduledSequence>{{a, 2}}));
  REQUIRE(tables.changed().size() == 1);
  CHECK(tables.changed()[0].row == 2);
  hs::BatchViews const views(cache.organization(), tables.shape(), {}, {}, memory.data());
  for (std::int32_t row : {0, 1, 3, 4, 5, -1}) {
    CHECK(!views.ssm_destination(0).offset(row, 0));
    CHECK(!views.conv_destination(1).row_offset(row, 0));
    CHECK(!views.attention_writes(1).key_offset(row, 0, 0));
    CHECK(!views.attention(0).value_offset(row, 0, 5));
  }
  CHECK(views.ssm_destination(0).offset(2, 0));
  CHECK(tables.row(2).boundary(0) == 8);
  CHECK(tables.row(2).boundary(1) == 16);
  CHECK(tables.row(2).boundary(2) == -1);
  REQUIRE(tables.build(cache, {}));
  REQUIRE(tables.changed().size() == 1);
  CHECK(tables.changed()[0].row == 2);
  CHECK(all_absent());
}

TEST_CASE("tables that cannot work are refused at construction") {
  S2 const o = make<S2>(falcon_like(), 20);
  auto const why = [&](const hs::BatchLimits& l, std::size_t entries) -> std::string {
    Entries memory(entries);
    try {
      hs::BatchTables<S2> const tables(o, l, memory);
    } catch (const hs::ConfigurationError& e) {
      return e.what();
    }
    return {};
  };
  auto const enough = static_cast<std::size_t>(hs::batch_shape(o, limits).entries());
  CHECK(why(limits, enough).empty());
  CHECK(why(limits, enough - 1).find("but the memory has") != std::string::npos);
  CHECK(why({0, 64, 0}, enough).find("0 rows") != std::string::npos);
  CHECK(why({1, 64, 0x7fffffff}, enough).find("checkpoints") != std::string::npos);
}
