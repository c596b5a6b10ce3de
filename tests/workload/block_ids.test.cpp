// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "workload/block_ids.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "support.hpp"
#include "workload/mooncake.hpp"
#include "workload/paper.hpp"

using namespace hybridstate::runtime;
using hybridstate::TokenId;
using hybridstate::Tokens;
using workload_test::sentence_of;

namespace {

Request request_of(std::vector<ContentRun> content) {
  Request r;
  r.output_tokens = 1;
  for (const ContentRun& run : content) r.prompt_tokens += run.tokens;
  r.content = std::move(content);
  return r;
}

Request request_of_tokens(std::vector<TokenId> tokens) {
  Request r;
  r.output_tokens = 1;
  r.prompt_tokens = static_cast<Tokens>(tokens.size());
  r.tokens = std::move(tokens);
  return r;
}

/// Every prompt token as (kind or stream, position or token id).
using Symbol = std::pair<std::uint64_t, std::uint64_t>;
std::vector<Symbol> expand(const Request& r) {
  std::vector<Symbol> result;
  for (TokenId const t : r.tokens) result.push_back({~0ULL, t});
  if (!r.tokens.empty()) return result;
  for (const ContentRun& run : r.content)
    for (Tokens i = 0; i < run.tokens; ++i) result.push_back({run.stream, run.offset + i});
  return result;
}

/// Compares ids with contents over all blocks; also that generated ids are apart from them.
void check_against_contents(const Workload& w, Tokens block) {
  BlockIds const ids(w, block);
  REQUIRE(ids.requests() == w.requests.size());
  std::map<std::vector<Symbol>, std::uint64_t> id_of;
  std::map<std::uint64_t, std::vector<Symbol>> content_of;
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < w.requests.size(); ++r) {
    std::vector<Symbol> const symbols = expand(w.requests[r]);
    auto const blocks = ids.prompt_blocks(r);
    REQUIRE(blocks.size() == symbols.size() / block);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      auto const first = symbols.begin() + static_cast<std::ptrdiff_t>(b * block);
      std::vector<Symbol> const content(first, first + static_cast<std::ptrdiff_t>(block));
      if (id_of.emplace(content, blocks[b]).first->second != blocks[b]) ++wrong;
      if (content_of.emplace(blocks[b], content).first->second != content) ++wrong;
    }
  }
  CHECK(wrong == 0);
  for (std::size_t r = 0; r < w.requests.size(); ++r)
    for (std::uint32_t b = 0; b < 4; ++b) CHECK(content_of.count(ids.generated_block(r, b)) == 0);
}

std::vector<std::uint64_t> blocks_of(const BlockIds& ids, std::size_t request) {
  auto const span = ids.prompt_blocks(request);
  return {span.begin(), span.end()};
}

}  // namespace

TEST_CASE("ids are equal exactly where contents are: random workloads, brute force") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    BitGenerator bits(seed);
    Workload w;
    // Few streams and offsets on a coarse raster, so that equal blocks and near misses abound.
    Tokens const raster = static_cast<Tokens>(1 + bits.below(4) * 8);
    for (int r = 0; r < 24; ++r) {
      if (bits.below(5) == 0) {
        std::vector<TokenId> tokens(1 + bits.below(200));
        for (TokenId& t : tokens) t = static_cast<TokenId>(bits.below(2));
        if (bits.below(2) == 0) std::fill(tokens.begin(), tokens.end(), 1U);
        w.requests.push_back(request_of_tokens(std::move(tokens)));
        continue;
      }
      std::vector<ContentRun> runs;
      std::uint64_t const n = 1 + bits.below(8);
      for (std::uint64_t i = 0; i < n; ++i) {
        ContentRun run{bits.below(3) << 61, raster * static_cast<Tokens>(bits.below(4)),
                       raster * static_cast<Tokens>(bits.below(5))};
        // Sometimes the stretch before goes on: one piece in two runs.
        if (!runs.empty() && bits.below(3) == 0) {
          run.stream = runs.back().stream;
          run.offset = runs.back().offset + runs.back().tokens;
        }
        runs.push_back(run);
      }
      if (bits.below(3) == 0) runs.push_back({9, 5, static_cast<Tokens>(1 + bits.below(600))});
      w.requests.push_back(request_of(std::move(runs)));
    }
    for (Tokens const block : {16U, 48U, 512U, 7U, 1U}) check_against_contents(w, block);
  }
}

TEST_CASE("ids of the paper's workload and of a Mooncake trace, brute force") {
  PaperWorkloadOptions options;
  options.requests = 12;
  options.share = 0.6;
  options.contexts = 2;
  for (Tokens const block : {16U, 512U, 1792U})
    check_against_contents(make_paper_workload(options), block);
  std::string text;
  for (const char* l :
       {"{\"timestamp\":0,\"input_length\":1600,\"output_length\":3,\"hash_ids\":[0,1,2,3]}\n",
        "{\"timestamp\":0,\"input_length\":1600,\"output_length\":3,\"hash_ids\":[0,1,2,3]}\n",
        "{\"timestamp\":0,\"input_length\":1601,\"output_length\":3,\"hash_ids\":[0,1,2,3]}\n",
        "{\"timestamp\":0,\"input_length\":2048,\"output_length\":3,\"hash_ids\":[0,1,2,3]}\n",
        "{\"timestamp\":0,\"input_length\":1030,\"output_length\":3,\"hash_ids\":[0,2,1]}\n"})
    text += l;
  for (Tokens const block : {16U, 48U, 512U, 7U, 1792U, 448U})
    check_against_contents(parse_mooncake(text, "t"), block);
}

TEST_CASE("a trace block splits into sub-blocks that need the whole trace block equal") {
  Workload const w = parse_mooncake(
      "{\"timestamp\":0,\"input_length\":1024,\"output_length\":3,\"hash_ids\":[5,6]}\n"
      "{\"timestamp\":0,\"input_length\":1000,\"output_length\":3,\"hash_ids\":[5,6]}\n"
      "{\"timestamp\":0,\"input_length\":1000,\"output_length\":3,\"hash_ids\":[5,6]}\n"
      "{\"timestamp\":0,\"input_length\":512,\"output_length\":3,\"hash_ids\":[6]}\n",
      "t");
  BlockIds const ids(w, 16);
  std::vector<std::uint64_t> const full = blocks_of(ids, 0);
  std::vector<std::uint64_t> const partial = blocks_of(ids, 1);
  REQUIRE(full.size() == 64);
  REQUIRE(partial.size() == 62);
  CHECK(std::set<std::uint64_t>(full.begin(), full.end()).size() == 64);
  CHECK(std::equal(full.begin(), full.begin() + 32, partial.begin()));
  for (std::size_t i = 32; i < 62; ++i) CHECK(full[i] != partial[i]);  // keyed (6, 488)
  CHECK(blocks_of(ids, 2) == partial);
  CHECK(std::equal(full.begin() + 32, full.end(), blocks_of(ids, 3).begin()));
}

TEST_CASE("a clipped prompt shares with the head of what it was cut from") {
  std::string const text =
      "{\"timestamp\":0,\"input_length\":1024,\"output_length\":10,\"hash_ids\":[5,6]}\n"
      "{\"timestamp\":0,\"input_length\":900,\"output_length\":1,\"hash_ids\":[5,6]}\n";
  TraceOptions options;
  options.max_context = parse_max_context("950:clip");
  BlockIds const ids(parse_mooncake(text, "t", options), 16);
  BlockIds const whole(parse_mooncake(text, "t"), 16);
  CHECK(ids.prompt_blocks(0).size() == 58);
  CHECK(std::equal(ids.prompt_blocks(0).begin(), ids.prompt_blocks(0).end(),
                   whole.prompt_blocks(0).begin()));
  CHECK(ids.prompt_blocks(0)[40] != ids.prompt_blocks(1)[40]);
}

TEST_CASE("ids of generated blocks are fresh") {
  PaperWorkloadOptions options;
  Workload const w = make_paper_workload(options);
  BlockIds const ids(w, 512);
  std::unordered_set<std::uint64_t> prompt;
  for (std::size_t r = 0; r < ids.requests(); ++r)
    for (std::uint64_t const id : ids.prompt_blocks(r)) prompt.insert(id);
  std::unordered_set<std::uint64_t> generated;
  for (std::size_t r = 0; r < ids.requests(); ++r) {
    for (std::uint32_t b = 0; b < 20; ++b) {
      CHECK(generated.insert(ids.generated_block(r, b)).second);
      CHECK(prompt.count(ids.generated_block(r, b)) == 0);
    }
  }
  CHECK(ids.generated_block(3, 7) == ids.generated_block(3, 7));
}

TEST_CASE("long streams and odd offsets pack without loss") {
  Workload w;
  w.requests.push_back(request_of({{1, 4'294'967'000U, 295}}));
  w.requests.push_back(request_of({{1, 4'294'967'001U, 294}}));
  w.requests.push_back(request_of({{2, 4'294'967'000U, 295}}));
  BlockIds const ids(w, 7);
  std::set<std::uint64_t> all;
  for (std::size_t r = 0; r < 3; ++r)
    for (std::uint64_t const id : ids.prompt_blocks(r)) all.insert(id);
  CHECK(all.size() == 42 * 3);
  CHECK(ids.block_tokens() == 7);
}

TEST_CASE("what cannot be packed is refused") {
  Workload w;
  CHECK(BlockIds(w, 16).requests() == 0);
  CHECK(!sentence_of([&] { BlockIds const ids(w, 0); }).empty());
  Request huge;
  huge.prompt_tokens = 4'000'000'000U;
  huge.content = {{1, 0, 4'000'000'000U}};
  w.requests = {huge};
  CHECK(sentence_of([&] { BlockIds const ids(w, 1); }).find("2^30 blocks") != std::string::npos);
  Request wrong = request_of({{1, 0, 100}});
  wrong.prompt_tokens = 101;
  w.requests = {wrong};
  CHECK(sentence_of([&] { BlockIds const ids(w, 16); }) ==
        "request 0 has content for 100 tokens but a prompt of 101");
  wrong = request_of_tokens({1, 2, 3});
  wrong.prompt_tokens = 2;
  w.requests = {wrong};
  CHECK(!sentence_of([&] { BlockIds const ids(w, 16); }).empty());
  w.requests = {request_of({{1, 4'294'967'295U, 100}})};
  CHECK(!sentence_of([&] { BlockIds const ids(w, 16); }).empty());
}

TEST_CASE("prompt tokens depend on content alone") {
  std::vector<TokenId> a, b, c;
  prompt_tokens(request_of({{1, 0, 100}, {2, 0, 50}}), 1000, a);
  prompt_tokens(request_of({{1, 0, 60}, {1, 60, 40}, {3, 0, 50}}), 1000, b);
  prompt_tokens(request_of({{1, 10, 90}}), 1000, c);
  REQUIRE(a.size() == 150);
  REQUIRE(b.size() == 150);
  CHECK(std::equal(a.begin(), a.begin() + 100, b.begin()));
  CHECK(!std::equal(a.begin() + 100, a.end(), b.begin() + 100));
  CHECK(std::equal(c.begin(), c.end(), a.begin() + 10));
  for (TokenId const t : a) CHECK(t < 1000);
  CHECK(std::set<TokenId>(a.begin(), a.end()).size() > 120);
  prompt_tokens(request_of_tokens({5, 1005, 7}), 1000, a);
  CHECK(a == std::vector<TokenId>{5, 5, 7});
  CHECK(!sentence_of([&] { prompt_tokens(request_of({}), 0, a); }).empty());
}

TEST_CASE("block ids of the Mooncake conversation trace") {
#ifdef HYBRIDSTATE_MOONCAKE_TRACE
  std::string const path = HYBRIDSTATE_MOONCAKE_TRACE;
#else
  std::string const path;
#endif
  if (path.empty() || !std::filesystem::exists(path)) {
    MESSAGE("skipped: the Mooncake conversation trace is absent");
    return;
  }
  Workload const w = read_mooncake(path);
  BlockIds const coarse(w, 512);
  std::unordered_set<std::uint64_t> unique;
  std::size_t total = 0;
  for (std::size_t r = 0; r < coarse.requests(); ++r) {
    total += coarse.prompt_blocks(r).size();
    unique.insert(coarse.prompt_blocks(r).begin(), coarse.prompt_blocks(r).end());
    CHECK((coarse.prompt_blocks(r).empty() ||
           coarse.prompt_blocks(r)[0] == coarse.prompt_blocks(0)[0]));
  }
  CHECK(total == 276'491);
  std::unordered_set<std::uint64_t> full;
  for (const Request& r : w.requests)
    for (const ContentRun& run : r.content)
      if (run.tokens == 512) full.insert(run.stream);
  CHECK(unique.size() == full.size());
  BlockIds const fine(w, 16);
  total = 0;
  for (std::size_t r = 0; r < fine.requests(); ++r) total += fine.prompt_blocks(r).size();
  CHECK(total == 9'044'013);
}
