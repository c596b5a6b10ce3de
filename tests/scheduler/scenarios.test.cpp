// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// Scheduler scenarios with their step tables, worked out by hand. Unless a case says otherwise, the
// cache is S0 on a grid of 8 tokens: a request of N tokens asks for ceil(N/8) blocks and as many
// states, one unit each; running, it holds its blocks and one state, two for the step after a
// boundary. A step takes 1,000 us plus 1 us per prefill token and 100 us per decoding request.

#include <doctest/doctest.h>

#include <hybridstate/organization/native_dual_pool.hpp>
#include <hybridstate/organization/recurrent_paged.hpp>
#include <string>
#include <vector>

#include "support.hpp"

using namespace scheduler_test;

TEST_CASE("one request: chunks of the token budget, then decoding") {
  // The real grid: 6 blocks and 6 states of 512 tokens.
  JointCache<CoarsePage<>> cache(
      CoarsePage<>(checked_layout(find_preset("falcon-h1-7b")->geometry).value(), 12),
      cache_options());
  Served served(workload({request(0, 1, 3000, 4)}), cache);
  check_rows(served.run(), {{1, 1, 0, "0@0+2048", 3048},
                            {2, 1, 0, "0@2048+952*", 5000},
                            {3, 1, 0, "0@3000+1d", 6100},
                            {4, 1, 0, "0@3001+1d", 7200},
                            {5, 0, 0, "0@3002+1d", 8300}});
  RequestRecord const& r = served.scheduler.record(0);
  CHECK(r.output_tokens == 4);
  CHECK(r.admitted_ns == 0);
  CHECK(r.first_token_ns == 5'000'000);  // out of the last prefill step
  CHECK(r.finished_ns == 8'300'000);
  CHECK(r.computed_tokens == 3000);
  CHECK(served.recorder.decode_tokens == 4 - 1);
  CHECK(served.scheduler.totals().submitted_tokens == 3003);
  CHECK(served.scheduler.totals().steps == 5);
}

TEST_CASE("a prompt of one token, and one output token") {
  auto cache = small_cache(3);  // its block, one working and one destination state
  Served served(workload({request(0, 1, 1, 1)}), cache);
  check_rows(served.run(), {{1, 0, 0, "0@0+1*", 1001}});
  CHECK(served.scheduler.record(0).computed_tokens == 1);
  CHECK(served.recorder.decode_tokens == 0);
}

TEST_CASE("a prompt that is an exact multiple of the budget and of the grid") {
  auto cache = small_cache(64);
  Served served(workload({request(0, 1, 32, 2)}), cache, {.cap = 4, .token_budget = 16});
  check_rows(served.run(),
             {{1, 1, 0, "0@0+16", 1016}, {2, 1, 0, "0@16+16*", 2032}, {3, 0, 0, "0@32+1d", 3132}});
}

TEST_CASE("an empty workload takes no step") {
  auto cache = small_cache(8);
  Served served(workload({}), cache);
  CHECK(served.run().empty());
  CHECK_FALSE(served.scheduler.step());
  CHECK(served.scheduler.now() == 0);
}

TEST_CASE("the clock jumps over idle time to the next arrival") {
  auto cache = small_cache(8);
  Served served(
      workload({request(500, 1, 8, 1), request(10'000, 2, 8, 2), request(10'001, 3, 8, 1)}), cache);
  check_rows(
      served.run(),
      {{1, 0, 0, "0@0+8*", 1508}, {2, 1, 0, "1@0+8*", 11'008}, {3, 0, 0, "1@8+1d 2@0+8*", 12'116}});
  CHECK(served.scheduler.record(0).admitted_ns == 500'000);
  CHECK(served.scheduler.record(2).admitted_ns == 11'008'000);
}

TEST_CASE("first come first served: a head that does not fit blocks the line") {
  // Request 1 needs 8 of 10 units, request 2 would fit at once.
  auto cache = small_cache(10);
  Served served(workload({request(0, 1, 16, 3), request(0, 2, 32, 1), request(0, 3, 8, 1)}), cache);
  check_rows(served.run(), {{1, 1, 2, "0@0+16*", 1016},
                            {2, 1, 2, "0@16+1d", 2116},
                            {3, 0, 2, "0@17+1d", 3216},
                            {4, 0, 0, "1@0+32* 2@0+8*", 4256}});
  CHECK(served.scheduler.totals().admission_waits == 3);
  CHECK(served.scheduler.totals().pool_failures[0] == 3);
  CHECK(served.scheduler.totals().preemptions == 0);
}

TEST_CASE("prefix-aware: who has the least to compute goes first, but not for more than 20 s") {
  StepLaw slow = simple_law();
  slow.base_ps = 10'000'000'000'000;  // ten seconds a step
  for (bool const aware : {false, true})
    for (StepLaw const& law : {simple_law(), slow}) {
      auto cache = small_cache(20);
      Served served(workload({request(0, 1, 16, 4), request(0, 2, 20, 2), request(0, 1, 20, 2)}),
                    cache, SimulatedExecutor(law, paged_scale), {1, 2048, 0, aware});
      served.run();
      auto const records = served.scheduler.take_records();
      bool const follower_first = records[2].admitted_ns < records[1].admitted_ns;
      CHECK(follower_first == (aware && law.base_ps != slow.base_ps));
      CHECK(records[2].adopted_tokens == 16);
    }
}

TEST_CASE("the token budget is shared in scheduling order") {
  auto cache = small_cache(64);
  Served served(workload({request(0, 1, 12, 3), request(0, 2, 12, 2), request(0, 3, 3, 1)}), cache,
                {.cap = 63, .token_budget = 16});
  check_rows(served.run(), {{1, 2, 1, "0@0+12* 1@0+4", 1016},
                            {2, 2, 0, "0@12+1d 1@4+8* 2@0+3*", 2127},
                            {3, 0, 0, "0@13+1d 1@12+1d", 3327}});
}

TEST_CASE("a budget smaller than the running list leaves its end for the next step") {
  auto cache = small_cache(64);
  Served served(workload({request(0, 1, 1, 3), request(0, 2, 1, 3), request(0, 3, 1, 3)}), cache,
                {.cap = 63, .token_budget = 2});
  check_rows(served.run(), {{1, 2, 1, "0@0+1* 1@0+1*", 1002},
                            {2, 2, 1, "0@1+1d 1@1+1d", 2202},
                            {3, 0, 1, "0@2+1d 1@2+1d", 3402},
                            {4, 1, 0, "2@0+1*", 4403},
                            {5, 1, 0, "2@1+1d", 5503},
                            {6, 0, 0, "2@2+1d", 6603}});
}

TEST_CASE("never more running than the cap") {
  auto cache = small_cache(64);
  Served served(workload({request(0, 1, 8, 2), request(0, 2, 8, 1), request(0, 3, 8, 1)}), cache,
                {.cap = 1});
  check_rows(served.run(), {{1, 1, 2, "0@0+8*", 1008},
                            {2, 0, 2, "0@8+1d", 2108},
                            {3, 0, 1, "1@0+8*", 3116},
                            {4, 0, 0, "2@0+8*", 4124}});
}

TEST_CASE("everything queued at time 0 starts in one step") {
  auto cache = small_cache(64);
  Served served(workload({request(0, 1, 8, 1), request(0, 2, 9, 1), request(0, 3, 10, 1)}), cache);
  check_rows(served.run(), {{1, 0, 0, "0@0+8* 1@0+9* 2@0+10*", 1027}});
}

TEST_CASE(
    "preemption: the last admitted goes, nobody comes, and it resumes at its joint boundary") {
  // Step 1 fills the pool of 10: 4 units for request 0, 6 for request 1. At step 9 request 1 takes
  // a block and a state past token 24. At step 11 request 0 needs two units and one is there:
  // request 1 goes, though it has 26 tokens computed; its boundary 24 stays cached. At step 12 it
  // needs one block, one state and the four units at 24, and five are there; request 2, which needs
  // two, must not pass it. At step 13 tokens 24 and 25 are computed again with the one that
  // follows.
  auto cache = small_cache(10);
  Served served(workload({request(0, 1, 15, 12), request(0, 2, 17, 12), request(12'500, 3, 8, 1)}),
                cache);
  check_rows(served.run(), {{1, 2, 0, "0@0+15* 1@0+17*", 1032},
                            {2, 2, 0, "0@15+1d 1@17+1d", 2232},
                            {3, 2, 0, "0@16+1d 1@18+1d", 3432},
                            {4, 2, 0, "0@17+1d 1@19+1d", 4632},
                            {5, 2, 0, "0@18+1d 1@20+1d", 5832},
                            {6, 2, 0, "0@19+1d 1@21+1d", 7032},
                            {7, 2, 0, "0@20+1d 1@22+1d", 8232},
                            {8, 2, 0, "0@21+1d 1@23+1d", 9432},
                            {9, 2, 0, "0@22+1d 1@24+1d", 10632},
                            {10, 2, 0, "0@23+1d 1@25+1d", 11832},
                            {11, 1, 1, "0@24+1d", 12932},
                            {12, 0, 2, "0@25+1d", 14032},
                            {13, 1, 0, "1@24+3* 2@0+8*", 15043},
                            {14, 0, 0, "1@27+1d", 16143}});
  auto const& totals = served.scheduler.totals();
  CHECK(totals.preemptions == 1);
  CHECK(totals.admissions == 4);
  CHECK(totals.recomputed_tokens == 2);
  CHECK(totals.pool_failures[0] == 2);  // the failed reserve and the wait of step 12
  CHECK(totals.failures_some_free[0] == 2);
  CHECK(totals.failures_preempted == 1);
  CHECK(totals.failures_deferred == 1);
  CHECK(totals.failures_alone == 0);
  CHECK(totals.granted_none_free[0] == 3);  // request 0 at step 2, both at step 10
  CHECK(served.scheduler.record(1).preemptions == 1);
  CHECK(served.scheduler.record(1).computed_tokens == 17 + 3);
  CHECK(served.scheduler.record(1).output_tokens == 12);
  CHECK(served.scheduler.record(1).admitted_ns == 0);
  // Each admission ends in a prefill step that gives a token.
  CHECK(served.recorder.decode_tokens == 12 + 12 + 1 - 4);
}

TEST_CASE("preemption: a request may be its own victim, and a step that preempted admits nobody") {
  // Both cross token 16 at step 3. Request 0 takes the two cached states; request 1 finds nothing
  // and leaves three units behind, enough for request 2, which comes one step later all the same:
  // request 1 is before it.
  auto cache = small_cache(8);
  Served served(workload({request(0, 1, 15, 4), request(0, 2, 15, 3), request(2'000, 3, 7, 1)}),
                cache);
  check_rows(served.run(), {{1, 2, 0, "0@0+15* 1@0+15*", 1030},
                            {2, 2, 0, "0@15+1d 1@15+1d", 2230},
                            {3, 1, 2, "0@16+1d", 3330},
                            {4, 0, 2, "0@17+1d", 4430},
                            {5, 0, 0, "1@16+1d 2@0+7*", 5537}});
  CHECK(served.scheduler.totals().preemptions == 1);
  CHECK(served.scheduler.totals().recomputed_tokens == 0);
}

TEST_CASE("the head waits exactly one step for a publication of its deepest joint boundary") {
  auto cache = small_cache(64);
  Served served(workload({request(0, 1, 24, 2), request(0, 1, 20, 1)}), cache);
  check_rows(served.run(), {{1, 1, 1, "0@0+24*", 1024}, {2, 0, 0, "0@24+1d 1@16+4*", 2128}});
  CHECK(served.scheduler.totals().pending_waits == 1);
  CHECK(served.scheduler.totals().admission_waits == 0);
  CHECK(served.scheduler.record(1).adopted_tokens == 16);
  CHECK(served.scheduler.record(1).admitted_ns == 1'024'000);
  CHECK(served.scheduler.record(1).computed_tokens == 4);
}

TEST_CASE("a boundary of an earlier step is adopted though deeper ones are pending") {
  // Request 0's second chunk publishes 24; request 1 can use no more than 16, published at step 1.
  auto cache = small_cache(64);
  Served served(workload({request(0, 1, 24, 1), request(0, 1, 20, 1)}), cache,
                {.cap = 63, .token_budget = 16});
  check_rows(served.run(), {{1, 1, 1, "0@0+16", 1016}, {2, 0, 0, "0@16+8* 1@16+4*", 2028}});
  CHECK(served.scheduler.totals().pending_waits == 0);
}

TEST_CASE("a cached prefix is adopted, but never the whole prompt") {
  auto cache = small_cache(64);
  Served served(
      workload({request(0, 1, 16, 1), request(5'000, 1, 16, 1), request(9'000, 1, 17, 1)}), cache);
  check_rows(served.run(),
             {{1, 0, 0, "0@0+16*", 1016}, {2, 0, 0, "1@8+8*", 6008}, {3, 0, 0, "2@16+1*", 10'001}});
  CHECK(served.scheduler.record(1).adopted_tokens == 8);
  CHECK(served.scheduler.record(1).raw_match_tokens == 16);
  CHECK(served.scheduler.record(2).adopted_tokens == 16);
}

TEST_CASE("decode crossings are published: a follow-up prompt finds them") {
  // Request 1 repeats request 0's prompt; its generated tokens are its own.
  auto cache = small_cache(64);
  Served served(workload({request(0, 1, 7, 10), request(20'000, 1, 12, 1)}), cache);
  served.run();
  CHECK(served.scheduler.record(1).adopted_tokens == 0);  // block 0 holds a generated token
  CHECK(cache.counters().published_checkpoints == 2 + 1);
}

TEST_CASE("equal prompts under different salts share nothing") {
  auto cache = small_cache(64);
  Workload w = workload({request(0, 1, 24, 1), request(5'000, 1, 24, 1)});
  w.requests[1].salt = 7;
  Served served(w, cache);
  check_rows(served.run(), {{1, 0, 0, "0@0+24*", 1024}, {2, 0, 0, "1@0+24*", 6024}});
}

TEST_CASE("a request that can never fit is refused with the numbers, and the run goes on") {
  // 64 + 1 tokens: 9 blocks, one working and one destination state.
  auto cache = small_cache(6);
  Served served(workload({request(0, 1, 8, 1), request(0, 2, 64, 1), request(0, 3, 8, 1)}), cache);
  check_rows(served.run(), {{1, 0, 0, "0@0+8* 2@0+8*", 1016}});
  CHECK(served.scheduler.totals().refused == 1);
  RequestRecord const& r = served.scheduler.record(1);
  CHECK(r.outcome == RequestOutcome::refused);
  CHECK(r.reason == "needs 11 units of pool 0, which has 6");
  CHECK(r.admitted_ns == -1);
  CHECK(r.output_tokens == 0);
}

TEST_CASE("refusals far apart are no standstill") {
  auto cache = small_cache(4);
  std::vector<Request> all;
  for (int i = 0; i < 8; ++i) all.push_back(request(10'000 * i, 1, 64, 1));
  all.push_back(request(100'000, 2, 8, 1));
  Served served(workload(all), cache);
  CHECK(served.run().back() == Row{9, 0, 0, "8@0+8*", 101'008});
  CHECK(served.scheduler.totals().refused == 8);
}

TEST_CASE("alone, a reserve that fails is cut at its first boundary") {
  // 32 + 1 tokens fit 7 units with two states, but the first step would take four: 8 units. Each
  // later try has what the boundaries before it gave back.
  auto cache = small_cache(7);
  Served served(workload({request(0, 1, 32, 1)}), cache);
  check_rows(served.run(),
             {{1, 1, 0, "0@0+8", 1008}, {2, 1, 0, "0@8+8", 2016}, {3, 0, 0, "0@16+16*", 3032}});
  CHECK(served.scheduler.record(0).outcome == RequestOutcome::completed);
  CHECK(cache.counters().failed_reserves == 2);
  CHECK(served.scheduler.totals().failures_alone == 2);
  CHECK(served.scheduler.totals().pool_failures[0] == 2);
}

TEST_CASE("headroom holds newcomers back while somebody runs, and is waived when nobody does") {
  // H is the whole pool.
  auto cache = small_cache(8);
  FixedHeadroom gate;
  gate.headroom[0] = 8;
  Served served(workload({request(0, 1, 8, 2), request(0, 2, 8, 1)}), cache, {}, gate);
  check_rows(served.run(),
             {{1, 1, 1, "0@0+8*", 1008}, {2, 0, 1, "0@8+1d", 2108}, {3, 0, 0, "1@0+8*", 3116}});
}

TEST_CASE("with H units of headroom, need + H must be there while somebody runs") {
  // Request 0 holds 2 of 8 units, request 1 needs 3 blocks and 3 states.
  for (Units headroom : {0U, 1U}) {
    auto cache = small_cache(8);
    FixedHeadroom gate;
    gate.headroom[0] = headroom;
    Served served(workload({request(0, 1, 8, 1), request(0, 2, 24, 1)}), cache, {}, gate);
    if (headroom == 0)
      check_rows(served.run(), {{1, 0, 0, "0@0+8* 1@0+24*", 1032}});
    else
      check_rows(served.run(), {{1, 0, 1, "0@0+8*", 1008}, {2, 0, 0, "1@0+24*", 2032}});
  }
}

TEST_CASE("fences: the next request waits until the device is known to be done") {
  // Each request needs 4 of 5 units. Its units are given back in step 1; with a lag of 1 or 2 they
  // are free only after step 2, in which nothing can run, so that waiting is all there is to do.
  for (std::uint32_t lag : {1U, 2U}) {
    CacheOptions options = cache_options();
    options.fences = true;
    auto cache = small_cache(5, options);
    Served served(workload({request(0, 1, 16, 1), request(0, 2, 16, 1)}), cache,
                  {.cap = 63, .token_budget = 2048, .fence_lag = lag});
    check_rows(served.run(),
               {{1, 0, 1, "0@0+16*", 1016}, {2, 0, 1, "", 1016}, {3, 0, 0, "1@0+16*", 2032}});
  }
  // Without a lag they are free at the end of their own step.
  CacheOptions options = cache_options();
  options.fences = true;
  auto cache = small_cache(5, options);
  Served served(workload({request(0, 1, 16, 1), request(0, 2, 16, 1)}), cache);
  check_rows(served.run(), {{1, 0, 1, "0@0+16*", 1016}, {2, 0, 0, "1@0+16*", 2032}});
}

TEST_CASE("fences: what is given back but fenced is waited for, not taken from others") {
  // As in the first preemption, but with a lag of 1 each unit comes back one step later. Step 3
  // needs two units for request 0 and the states given back in step 2 are behind the fence: it
  // pauses for one step, and nobody is preempted for it.
  CacheOptions options = cache_options();
  options.fences = true;
  auto cache = small_cache(10, options);
  Served served(workload({request(0, 1, 15, 4), request(0, 2, 17, 4)}), cache,
                {.cap = 63, .token_budget = 2048, .fence_lag = 1});
  check_rows(served.run(), {{1, 2, 0, "0@0+15* 1@0+17*", 1032},
                            {2, 2, 0, "0@15+1d 1@17+1d", 2232},
                            {3, 2, 0, "1@18+1d", 3332},
                            {4, 1, 0, "0@16+1d 1@19+1d", 4532},
                            {5, 0, 0, "0@17+1d", 5632}});
  CHECK(served.scheduler.totals().preemptions == 0);
  CHECK(served.scheduler.totals().capacity_ended == 0);
}

TEST_CASE("fences: a preempted request's units serve after the fence, without further victims") {
  // Two requests of 15 tokens fill the pool; both cross token 16 at step 3, when two units are
  // back.
  for (std::uint32_t lag : {1U, 2U, 3U}) {
    CacheOptions options = cache_options();
    options.fences = true;
    auto cache = small_cache(12, options);
    Served served(workload({request(0, 1, 15, 12), request(0, 2, 15, 12), request(0, 3, 15, 12)}),
                  cache, {.cap = 63, .token_budget = 2048, .fence_lag = lag});
    served.run();
    CHECK(served.scheduler.totals().capacity_ended == 0);
    CHECK(served.scheduler.totals().preemptions <= 4);
    for (std::uint32_t r = 0; r < 3; ++r) CHECK(served.scheduler.record(r).output_tokens == 12);
  }
}

TEST_CASE("two pools: the one that is short is counted and blocks") {
  // Blocks of 4 tokens, states of 8. Request 1 finds attention for itself but no state.
  using Dual = NativeDualPool<>;
  JointCache<Dual> cache(Dual(small_layout(), {{64, 3}}), cache_options());
  Served served(workload({request(0, 1, 16, 2), request(0, 2, 16, 1)}), cache);
  check_rows(served.run(),
             {{1, 1, 1, "0@0+16*", 1016}, {2, 0, 1, "0@16+1d", 2116}, {3, 0, 0, "1@0+16*", 3132}});
  CHECK(served.scheduler.totals().pool_failures[0] == 0);
  CHECK(served.scheduler.totals().pool_failures[1] == 2);
}

TEST_CASE("stepping by hand gives the same table as running") {
  auto one = small_cache(10);
  auto two = small_cache(10);
  Workload const w =
      workload({request(0, 1, 15, 12), request(0, 2, 17, 12), request(12'500, 3, 8, 1)});
  Served running(w, one);
  Served stepping(w, two);
  std::size_t steps = 0;
  while (stepping.scheduler.step()) {
    ++steps;
    CHECK(stepping.recorder.rows.size() == steps);
    std::uint32_t seen = 0;
    stepping.scheduler.for_each_running([&](Tokens known, Tokens adopted) {
      ++seen;
      CHECK(adopted < known);
    });
    CHECK(seen == stepping.scheduler.running());
  }
  check_rows(stepping.recorder.rows, running.run());
  CHECK(two.running() == 0);
  CHECK(two.usage().pool[0].referenced == 0);
}
