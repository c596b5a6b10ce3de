// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// Histories written by hand, with depths that can be read off them.

#include "support.hpp"

using namespace trace_test;

namespace {

/// A history as a table: prefixes are named by a stream and a depth in blocks.
class Story {
 public:
  Story(Tokens block, Tokens grid) : block_(block), analyzer_(block, grid) {}

  static std::uint64_t path(std::uint64_t stream, std::uint64_t depth) {
    return stream * 1'000'003 + depth;
  }
  void step() { ++step_; }
  void enter(std::uint64_t request, std::uint64_t stream, Tokens tokens,
             std::uint32_t preemptions = 0, std::uint32_t kept = 0) {
    TraceRecord r = make(RecordKind::enter, request);
    r.tokens = tokens;
    r.preemptions = preemptions;
    r.kept = kept;
    for (std::uint64_t d = kept + 1; d <= tokens / block_; ++d) r.chain.push_back(path(stream, d));
    analyzer_.add(r);
  }
  /// Handles name objects: attention and checkpoints separately.
  void publish(ObjectKind object, std::uint64_t stream, Tokens boundary, std::int32_t handle,
               std::uint64_t request = 99) {
    event(RecordKind::publish, object, stream, boundary, handle, request, LossCause::none);
  }
  void lose(ObjectKind object, std::uint64_t stream, Tokens boundary, std::int32_t handle,
            std::uint64_t request = 99, LossCause cause = LossCause::reassigned) {
    event(RecordKind::loss, object, stream, boundary, handle, request, cause);
  }
  /// Attention for [0, end), handles from `handle` on.
  void attention(std::uint64_t stream, Tokens begin, Tokens end, std::int32_t handle) {
    for (Tokens b = begin + block_; b <= end; b += block_)
      publish(ObjectKind::attention, stream, b, handle++);
  }
  void admit(std::uint64_t request, Tokens tokens, Tokens adopted, Depths found,
             LossCause dropped = LossCause::none) {
    TraceRecord r = make(RecordKind::admit, request);
    r.tokens = tokens;
    r.boundary = adopted;
    r.attention = found.attention;
    r.recurrent = found.recurrent;
    r.joint = found.joint;
    r.cause = dropped;
    analyzer_.add(r);
  }
  void preempt(std::uint64_t request) { analyzer_.add(make(RecordKind::preempt, request)); }
  void adopt(std::uint64_t stream, Tokens boundary, std::int32_t handle) {
    event(RecordKind::adopt, ObjectKind::checkpoint, stream, boundary, handle, 0, LossCause::none);
  }
  Analysis finish() { return analyzer_.finish(); }

 private:
  TraceRecord make(RecordKind kind, std::uint64_t request) {
    TraceRecord r;
    r.kind = kind;
    r.request = request;
    r.step = step_;
    r.sequence = sequence_++;
    return r;
  }
  void event(RecordKind kind, ObjectKind object, std::uint64_t stream, Tokens boundary,
             std::int32_t handle, std::uint64_t request, LossCause cause) {
    TraceRecord r = make(kind, request);
    r.object = object;
    r.path = path(stream, boundary / block_);
    r.boundary = boundary;
    r.handle = handle;
    r.cause = cause;
    analyzer_.add(r);
  }

  Tokens block_;
  StateHistoryAnalyzer analyzer_;
  Step step_ = 1;
  std::uint64_t sequence_ = 0;
};

constexpr auto attention = ObjectKind::attention;
constexpr auto checkpoint = ObjectKind::checkpoint;

}  // namespace

TEST_CASE("the five transitions") {
  CHECK(depth_class(0, 0) == DepthClass::zero_zero);
  CHECK(depth_class(512, 512) == DepthClass::positive_equal);
  CHECK(depth_class(0, 512) == DepthClass::zero_positive);
  CHECK(depth_class(512, 1024) == DepthClass::deeper);
  CHECK(depth_class(1024, 512) == DepthClass::shallower);
  CHECK(depth_class(512, 0) == DepthClass::shallower);
}

TEST_CASE("512/512: each transition once, with what caused it") {
  Story s(512, 512);
  s.attention(1, 0, 2048, 0);  // stream 1: attention to 2,048, checkpoints at 512 and 1,536
  s.publish(checkpoint, 1, 512, 0);
  s.publish(checkpoint, 1, 1536, 1);
  s.step();
  s.enter(10, 2, 1200);  // zero -> zero: nothing of stream 2
  s.enter(11, 1, 1700);  // positive, equal: J_enter 1,536
  s.enter(12, 3, 1200);  // zero -> positive
  s.enter(13, 1, 2100);  // deeper: 1,536, then 2,048
  s.enter(14, 1, 1536);  // N - 1 = 1,535 leaves 512 at entry; then shallower: 0
  s.step();
  s.attention(3, 0, 1024, 10);
  s.publish(checkpoint, 3, 1024, 2);
  s.publish(checkpoint, 1, 2048, 3);
  s.step();
  s.admit(10, 1200, 0, {0, 0, 0});
  s.admit(11, 1700, 1536, {1536, 1536, 1536});
  s.admit(12, 1200, 1024, {1024, 1024, 1024});
  s.admit(13, 2100, 2048, {2048, 2048, 2048});
  s.step();
  s.lose(checkpoint, 1, 512, 0, 12, LossCause::carrier);
  s.admit(14, 1536, 0, {1024, 0, 0});
  Analysis const a = s.finish();
  CHECK(a.consistent());
  CHECK(a.admissions == 5);
  REQUIRE(a.episodes.size() == 5);
  Tokens const enter[] = {0, 1536, 0, 1536, 512};
  for (std::size_t i = 0; i < 5; ++i) CHECK(a.episodes[i].enter == enter[i]);
  for (std::uint64_t in_class : a.initial.classes) CHECK(in_class == 1);
  CHECK(a.initial.episodes == 5);
  CHECK(a.resume.episodes == 0);
  CHECK(a.episodes[4].decreasing_losses == 1);
  CHECK(a.episodes[4].other_losses == 1);
  CHECK(a.initial.shallower_with_other_loss == 1);
  CHECK(a.episodes[3].increasing_publications == 1);
  CHECK(a.episodes[2].increasing_publications == 1);  // attention alone raises nothing
  CHECK(a.episodes[1].increasing_publications == 0);  // 2,048 is past its last token
  CHECK(a.initial.enter == 3584);
  CHECK(a.initial.adopt == 1536 + 1024 + 2048);
  CHECK(a.losses == 1);
  CHECK(a.losses_by_cause[static_cast<int>(LossCause::carrier)] == 1);
}

TEST_CASE("16/1,792: attention by 16 tokens, checkpoints on their own grid") {
  Story s(16, 1792);
  s.attention(1, 0, 3600, 0);
  s.publish(checkpoint, 1, 1792, 0);
  s.publish(checkpoint, 1, 3584, 1);
  s.step();
  s.enter(1, 1, 3601);  // 225 blocks
  s.enter(2, 1, 3584);  // the boundary at 3,584 would leave nothing to compute
  s.step();
  // One block at 2,016 goes: A falls to 1,792 and J with it, R stays.
  s.lose(attention, 1, 2016, 2016 / 16 - 1, 7);
  s.admit(1, 3601, 1792, {1792, 3584, 1792});
  s.admit(2, 3584, 1792, {1792, 1792, 1792});
  Analysis const a = s.finish();
  CHECK(a.consistent());
  CHECK(a.episodes[0].enter == 3584);
  CHECK(a.episodes[0].now == Depths{1792, 3584, 1792});
  CHECK(a.episodes[0].gap_now() == 1792);
  CHECK(a.episodes[0].other_losses == 1);
  CHECK(a.episodes[1].enter == 1792);
  CHECK(a.episodes[1].gap_now() == 0);
  CHECK(a.episodes[1].decreasing_losses == 0);
  CHECK(a.initial.gap_before == 1792);
  CHECK(a.initial.in(DepthClass::shallower) == 1);
  CHECK(a.initial.in(DepthClass::positive_equal) == 1);
}

TEST_CASE("16/1,792: losses below the grid, and attention that returns") {
  Story s(16, 1792);
  s.attention(1, 0, 1792, 0);
  s.publish(checkpoint, 1, 1792, 0);
  s.enter(1, 1, 2000);
  s.step();
  s.lose(attention, 1, 16, 0);  // the first block: nothing is usable
  s.lose(attention, 1, 32, 1);  // nor is it less so now
  s.step();
  s.publish(attention, 1, 16, 0);  // one of two is not enough
  s.publish(attention, 1, 32, 1);
  s.step();
  s.admit(1, 2000, 1792, {1792, 1792, 1792});
  Analysis const a = s.finish();
  CHECK(a.consistent());
  CHECK(a.episodes[0].decreasing_losses == 1);
  CHECK(a.episodes[0].increasing_publications == 1);
  CHECK(a.initial.in(DepthClass::positive_equal) == 1);  // the same depth, another generation
}

TEST_CASE("M0 and M1 bracket what the admission's own step published") {
  Story s(512, 512);
  s.attention(1, 0, 512, 0);
  s.publish(checkpoint, 1, 512, 0);
  s.enter(1, 1, 2100);
  s.step();
  // Earlier in this step: attention from 1,024 on and a checkpoint at 1,536, but no 1,024..1,536.
  s.publish(attention, 1, 1024, 1);
  s.publish(checkpoint, 1, 1536, 1);
  s.admit(1, 2100, 512, {1024, 1536, 512});
  Analysis const a = s.finish();
  CHECK(a.consistent());
  CHECK(a.episodes[0].before == Depths{512, 512, 512});
  CHECK(a.episodes[0].now == Depths{1024, 1536, 512});
  CHECK(a.episodes[0].gap_before() == 0);
  CHECK(a.episodes[0].gap_now() == 1024);
  CHECK(a.initial.bracketed == 1);
  CHECK(a.initial.attention_before == 512);
  CHECK(a.initial.attention_now == 1024);
}

TEST_CASE("an object published and lost in one step, beside an older one") {
  Story s(512, 512);
  s.attention(1, 0, 512, 0);
  s.publish(checkpoint, 1, 512, 0);
  s.enter(1, 1, 600);
  s.step();
  s.publish(checkpoint, 1, 512, 1);  // a duplicate
  s.lose(checkpoint, 1, 512, 1);     // the younger goes: no depth changes
  s.admit(1, 600, 512, {512, 512, 512});
  s.enter(2, 1, 600);
  s.publish(checkpoint, 1, 512, 2);
  s.step();
  s.lose(checkpoint, 1, 512, 0);  // the older goes: the younger still stands
  s.admit(2, 600, 512, {512, 512, 512});
  Analysis const a = s.finish();
  CHECK(a.consistent());
  CHECK(a.initial.decreasing_losses == 0);
  CHECK(a.initial.increasing_publications == 0);
  CHECK(a.initial.bracketed == 0);
}

TEST_CASE("episodes are bound by request and preemption count") {
  Story s(512, 512);
  s.enter(5, 1, 1024);
  s.step();
  s.admit(5, 1024, 0, {0, 0, 0});
  s.attention(1, 0, 1024, 0);
  s.publish(checkpoint, 1, 512, 0, 5);
  s.publish(checkpoint, 1, 1024, 1, 5);
  s.step();
  s.preempt(5);
  s.enter(5, 1, 1600, 1, 2);  // keeps two paths, adds the third
  s.step();
  s.lose(checkpoint, 1, 1024, 1, 5);  // by its own earlier demand: not another's
  s.lose(checkpoint, 1, 512, 0, 8, LossCause::invalidated);  // another's, but no allocation
  s.admit(5, 1600, 0, {1024, 0, 0});
  Analysis const a = s.finish();
  CHECK(a.consistent());
  REQUIRE(a.episodes.size() == 2);
  CHECK(a.episodes[1].preemptions == 1);
  CHECK(a.episodes[1].enter == 1024);
  CHECK(a.episodes[1].decreasing_losses == 2);
  CHECK(a.episodes[1].other_losses == 0);
  CHECK(a.initial.episodes == 1);
  CHECK(a.resume.episodes == 1);
  CHECK(a.resume.in(DepthClass::shallower) == 1);
  CHECK(a.resume.shallower_with_other_loss == 0);
}

TEST_CASE("an admission of an episode that never entered, and one that differs") {
  Story s(512, 512);
  s.admit(1, 600, 0, {0, 0, 0});  // no entry at all
  s.enter(2, 1, 600);
  s.preempt(2);  // the entry after this preemption is missing
  s.admit(2, 600, 0, {0, 0, 0});
  s.enter(3, 1, 600);
  s.admit(3, 600, 512, {512, 512, 512});  // nothing was published
  s.enter(4, 1, 600);
  s.lose(checkpoint, 7, 512, 3);
  s.adopt(7, 512, 3);
  Analysis const a = s.finish();
  CHECK(a.unbound_admissions == 2);
  CHECK(a.mismatches == 1);
  CHECK(a.unmatched_events == 2);
  CHECK(a.never_admitted == 2);
  CHECK_FALSE(a.consistent());
}

TEST_CASE("an adopted depth that stood only on this very step's supply is a difference") {
  Story s(512, 512);
  s.enter(1, 1, 600);
  s.step();
  s.attention(1, 0, 512, 0);
  s.publish(checkpoint, 1, 512, 0);
  s.admit(1, 600, 512, {512, 512, 512});  // it should have waited for the next step
  CHECK(s.finish().mismatches == 1);
}

TEST_CASE("admissions that gave their depth up") {
  Story s(512, 512);
  s.attention(1, 0, 512, 0);
  s.publish(checkpoint, 1, 512, 0);
  s.step();
  s.enter(1, 1, 600);
  s.admit(1, 600, 0, {512, 512, 512});  // the adoption was waived
  s.enter(2, 1, 600);
  s.lose(attention, 1, 512, 0, 2, LossCause::cleared);
  s.lose(checkpoint, 1, 512, 0, 2, LossCause::cleared);
  s.admit(2, 600, 0, {512, 512, 512}, LossCause::cleared);
  Analysis const a = s.finish();
  CHECK(a.consistent());
  CHECK(a.initial.waived == 2);
  CHECK(a.initial.in(DepthClass::shallower) == 2);
  CHECK(a.episodes[1].other_losses == 0);
}

TEST_CASE("the report names every figure") {
  Story s(16, 1792);
  s.attention(1, 0, 1792, 0);
  s.publish(checkpoint, 1, 1792, 0);
  s.step();
  s.enter(1, 1, 1800);
  s.admit(1, 1800, 1792, {1792, 1792, 1792});
  Analysis const a = s.finish();
  std::string const json = analysis_json(header(16, 1792), a);
  CHECK(json.find("\"positive_equal\": 1") != std::string::npos);
  CHECK(json.find("\"j_enter\": 1792") != std::string::npos);
  CHECK(json.find("\"replayed\"") == std::string::npos);
  CHECK(json == analysis_json(header(16, 1792), a));
  std::string const text = analysis_text(header(16, 1792), a);
  CHECK(text.find("equals the recorded one in 1 of 1 admissions") != std::string::npos);
}
