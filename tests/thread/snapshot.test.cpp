// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <hybridstate/hybridstate.hpp>
#include <span>
#include <thread>
#include <vector>

namespace hs = hybridstate;

TEST_CASE("snapshots are whole while the writer goes on") {
  hs::ModelGeometry m;
  m.attention_layers = m.recurrent_layers = 2;
  m.kv_heads = 1;
  m.head_dim = 16;
  m.ssm_heads = 6;
  m.ssm_head_dim = 4;
  m.ssm_state = 16;
  m.d_conv = 2;
  hs::LayoutOptions o;
  o.block_tokens = o.checkpoint_tokens = 4;
  hs::JointCache<hs::ConvSlabPacked<>> cache(hs::ConvSlabPacked<>(hs::make_layout(m, o), 40));

  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> torn{0}, read{0};
  auto reader = [&] {
    hs::MetricsSnapshot before;
    while (!stop.load(std::memory_order_relaxed)) {
      hs::MetricsSnapshot const now = cache.snapshot();
      hs::CacheCounters const& c = now.counters;
      // One request a step: what belongs to one step is seen together or not at all.
      bool const whole =
          now.step == 0 || (c.admissions == now.step - 1 && c.releases == c.admissions &&
                            c.lost_blocks <= c.published_blocks && c.reserves == c.admissions);
      if (!whole || now.step < before.step || c.published_blocks < before.counters.published_blocks)
        torn.fetch_add(1);
      before = now;
      read.fetch_add(1, std::memory_order_relaxed);
    }
  };
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) readers.emplace_back(reader);

  std::vector<hs::TokenId> tokens(12);
  for (std::uint32_t i = 0; i < 20000 || (read.load() < 1000 && i < 2000000); ++i) {
    cache.begin_step();
    for (std::uint32_t t = 0; t < 12; ++t) tokens[t] = (i % 17) * 100 + t;
    hs::Admission const a = cache.admit(hs::Prompt::of_tokens(tokens), {i, 0});
    if (!a) {
      FAIL("an empty cache admits");
      break;
    }
    hs::Tokens const at = cache.position(a.sequence);
    if (cache.reserve(a.sequence, 12 - at))
      cache.commit(a.sequence, hs::Committed::of_tokens(std::span(tokens).subspan(at)));
    cache.release(a.sequence);
  }
  stop = true;
  for (auto& r : readers) r.join();
  CHECK(torn.load() == 0);
  CHECK(read.load() > 0);
  CHECK(cache.snapshot().step == cache.current_step());
}
