// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// What stays on a device between steps: rows of tables, and recordings of decode steps.

#include <doctest/doctest.h>

#include <hybridstate/cache/joint_cache.hpp>
#include <hybridstate/organization/conv_slab_packed.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "allocations.hpp"
#include "cpu/harness.hpp"
#include "executor/batch_rows.hpp"
#include "executor/idle_device.hpp"
#include "executor/model_executor.hpp"
#include "executor/span_tables.hpp"
#include "scheduler/clock.hpp"
#include "scheduler/scheduler.hpp"
#include "test_scale.hpp"
#include "verify/reference.hpp"

using namespace harness;
using device::DeviceForward;
using device::interpreted_device;

namespace {

/// Every kernel in vector accesses, the smallest that attention has.
FalconH1Config vector_config() {
  FalconH1Config c = small_config();
  c.hidden = 32;
  c.intermediate = 48;
  c.heads = 2;
  c.kv_heads = 1;
  c.head_dim = 64;
  c.ssm_heads = 4;
  c.ssm_state = 64;
  return c;
}

using Cache = JointCache<ConvSlabPacked<>, PaperOrder>;

constexpr Tokens block_tokens = 32;

/// Requests that grow past blocks, checkpoints and a split of attention, in a pool that they do not
/// fit into together.
struct Setting {
  Tokens tail_tokens = 0;
  Carry carry = Carry::bf16_per_token;
  SamplingOptions sampling{};
};

Workload workload_of(std::uint32_t vocabulary) {
  BitGenerator dice(17);
  Workload w;
  for (std::uint32_t i = 0; i < 7; ++i) {
    Request r;
    r.prompt_tokens = i == 0 ? 251 : static_cast<Tokens>(1 + dice.below(70));
    r.tokens = random_tokens(r.prompt_tokens, vocabulary, 100 + (i % 5));
    r.output_tokens = static_cast<Tokens>(2 + dice.below(30));
    r.arrival_ns = static_cast<std::int64_t>(i) * 3'000'000;
    w.requests.push_back(std::move(r));
  }
  return w;
}

struct BitsWitness {
  std::map<std::pair<std::uint32_t, Tokens>, std::uint64_t> seen;

  void chunk(const Chunk&, ForwardChunk&) noexcept {}
  void logits(std::uint32_t request, Tokens position, std::span<const float> row) {
    seen[{request, position}] = verify::bits_of(row);
  }
};

/// What one run served.
struct Served {
  std::vector<std::vector<TokenId>> generated;
  std::uint64_t preemptions = 0;
  std::uint64_t tails_grown = 0;
};

struct NoObserver {
  template <class S>
  void after_step(const S&, const StepPlan&) noexcept {}
};

template <class Witness, class Make, class Observer>
Served serve(const Setting& s, const Make& make, Witness& witness, Observer& observer) {
  FalconH1Config config = vector_config();
  config.layers = 1;
  OwnModel const model = random_model(config, 23, Dtype::bf16);
  FalconH1Config const& c = model.tensors().config;
  LayoutOptions layout;
  layout.block_tokens = block_tokens;
  if (s.carry == Carry::bf16_at_grid) layout.checkpoint_tokens = grid_tokens;
  CacheOptions options;
  options.key_bytes = 0;
  options.max_sequences = 12;
  options.tail_tokens = s.tail_tokens;
  Workload const workload = workload_of(c.vocabulary);
  options.max_sequence_tokens = longest_request(workload);
  Cache cache(ConvSlabPacked<>(checked_layout(geometry_for(c, s.carry), layout).value(), 15),
              options, PaperOrder{});
  TokenContent content(workload, c.vocabulary);
  ForwardOptions forward;
  forward.carry = s.carry;
  forward.max_tokens = 40;
  forward.threads = 1;
  using Executor = ModelExecutor<Cache, Witness>;
  Executor executor(cache, make(model, forward, Executor::needs(cache, forward)), forward, content,
                    s.sampling, StepTime::unit, witness);
  VirtualClock clock;
  FixedHeadroom gate;
  Scheduler scheduler(workload, cache, executor, clock, content, gate, {6, forward.max_tokens, 0},
                      observer);
  scheduler.run();
  Served served;
  for (std::uint32_t r = 0; r < workload.requests.size(); ++r) {
    auto const tokens = content.tokens(r).subspan(workload.requests[r].prompt_tokens);
    served.generated.emplace_back(tokens.begin(), tokens.end());
    served.preemptions += scheduler.record(r).preemptions;
  }
  served.tails_grown = cache.counters().tails_grown;
  return served;
}

auto on_cpu = [](const OwnModel& model, const ForwardOptions& options, const ForwardLimits&) {
  return std::unique_ptr<ForwardPass>(std::make_unique<cpu::CpuForward>(model.tensors(), options));
};
/// Also says which one it made.
auto on_interpreter(const DeviceForward** made) {
  return [made](const OwnModel& model, const ForwardOptions& options, const ForwardLimits& limits) {
    auto forward =
        std::make_unique<DeviceForward>(model.tensors(), options, interpreted_device(), limits);
    *made = forward.get();
    return std::unique_ptr<ForwardPass>(std::move(forward));
  };
}

/// Counts what decode steps uploaded.
class UploadWatch {
 public:
  UploadWatch(const DeviceForward* const* forward, const Setting& s)
      : forward_(forward),
        part_(s.tail_tokens == 0 ? block_tokens : s.tail_tokens),
        row_bytes_(s.carry == Carry::bf16_at_grid ? 20 : 12) {}

  std::uint64_t quiet = 0;  ///< steps that had no reason to upload a row
  std::uint64_t wrong = 0;  ///< and did, or anything besides three numbers a row, or five
  device::RecordingCounts recordings{};
  bool longer_than_a_split = false;

  template <class S>
  void after_step(const S&, const StepPlan& plan) {
    device::UploadCounts const now = (*forward_)->uploads();
    std::vector<std::int32_t> sequences;
    bool decode = !plan.chunks.empty();
    bool calm = true;
    for (Chunk const& c : plan.chunks) {
      sequences.push_back(c.sequence.value);
      decode = decode && c.decode;
      calm = calm && c.begin % part_ > 1;
      longer_than_a_split = longer_than_a_split || (c.decode && c.begin > 256);
    }
    if (decode && decode_before_ && calm && sequences == before_) {
      ++quiet;
      std::uint64_t const rows = padded_rows(static_cast<std::uint32_t>(sequences.size()), 12);
      if (now.table_rows != uploads_.table_rows || now.bytes - uploads_.bytes != row_bytes_ * rows)
        ++wrong;
    }
    before_ = sequences;
    decode_before_ = decode;
    uploads_ = now;
    recordings = (*forward_)->recordings();
  }

 private:
  const DeviceForward* const* forward_;
  Tokens part_;
  std::uint64_t row_bytes_;
  std::vector<std::int32_t> before_;
  bool decode_before_ = false;
  device::UploadCounts uploads_;
};

}  // namespace

TEST_CASE("a batch keeps its rows, all below the padded size") {
  BitGenerator dice(3);
  for (std::uint32_t const most : {1U, 5U, 40U}) {
    BatchRows rows(most);
    std::map<std::int32_t, std::int32_t> last;
    std::vector<ScheduledSequence> batch;
    for (int step = 0; step < 400; ++step) {
      std::vector<std::int32_t> slots(most);
      for (std::uint32_t i = 0; i < most; ++i) slots[i] = static_cast<std::int32_t>(i);
      bool const same = step > 0 && dice.below(3) == 0;
      if (!same) {
        batch.clear();
        for (std::uint32_t i = 0; i < most; ++i)
          if (dice.below(3) != 0) batch.push_back({SequenceHandle{slots[i]}});
      }
      for (ScheduledSequence& s : batch) s.row = -1;
      rows.assign(batch);
      auto const limit = padded_rows(static_cast<std::uint32_t>(batch.size()), most);
      REQUIRE(batch.size() <= limit);
      std::set<std::int32_t> taken;
      for (ScheduledSequence const& s : batch) {
        CHECK(s.row >= 0);
        CHECK(static_cast<std::uint32_t>(s.row) < limit);
        CHECK(taken.insert(s.row).second);
        if (same) CHECK(s.row == last[s.sequence.value]);
        last[s.sequence.value] = s.row;
      }
    }
  }
}

TEST_CASE("the recording that was used longest ago gives way") {
  device::Recordings<int> recordings;
  for (std::uint64_t i = 0; i < device::Recordings<int>::most; ++i)
    recordings.add({i}, static_cast<int>(i));
  REQUIRE(recordings.find({0}) != nullptr);
  recordings.add({1000}, 1000);
  CHECK(recordings.find({1}) == nullptr);
  for (std::uint64_t const i : {0U, 2U, 63U, 1000U}) {
    REQUIRE(recordings.find({i}) != nullptr);
    CHECK(*recordings.find({i}) == static_cast<int>(i));
  }
}

TEST_CASE("serving through recordings gives the CPU executor's bits") {
  std::vector<Setting> settings = {{8}, {}, {0, Carry::fp32}, {8, Carry::bf16_at_grid}};
  if (test_scale() < 0.5) {
    settings.resize(1);
    MESSAGE("with tails only: HYBRIDSTATE_TEST_SCALE");
  }
  for (Setting const& s : settings) {
    CAPTURE(s.tail_tokens);
    BitsWitness want;
    BitsWitness got;
    NoObserver nothing;
    const DeviceForward* forward = nullptr;
    UploadWatch watch(&forward, s);
    Served const expected = serve(s, on_cpu, want, nothing);
    Served const served = serve(s, on_interpreter(&forward), got, watch);
    CHECK(served.generated == expected.generated);
    CHECK(got.seen == want.seen);
    CHECK(want.seen.size() > 100);
    // The run had what it is about.
    CHECK(served.preemptions > 0);
    CHECK(watch.longer_than_a_split);
    if (s.tail_tokens > 0) CHECK(served.tails_grown > 0);
    CHECK(watch.quiet > 10);
    CHECK(watch.wrong == 0);
    CHECK(watch.recordings.recorded > 2);
    CHECK(watch.recordings.replayed > 2 * watch.recordings.recorded);
    MESSAGE(watch.recordings.recorded << " recordings, " << watch.recordings.replayed
                                      << " replays, " << watch.quiet << " quiet steps, "
                                      << served.preemptions << " preemptions");

    if (s.tail_tokens == 0) continue;
    NullWitness none;  // the device chooses
    CHECK(serve(s, on_interpreter(&forward), none, nothing).generated == expected.generated);
  }
}

namespace {

struct BothLimits {
  std::uint32_t rows, sequences;
  Tokens max_position;
};
/// A model on the CPU and on the interpreted device, each with units of its own.
struct OnBoth {
  explicit OnBoth(BothLimits limits)
      : config(vector_config()),
        model(random_model(config, 9, Dtype::bf16)),
        want(config, memory(limits)),
        got(config, memory(limits)),
        cpu(model.tensors(), options()),
        device(std::make_unique<DeviceForward>(model.tensors(), options(), interpreted_device(),
                                               ForwardLimits{limits.rows, limits.max_position, 0}),
               limits.rows) {}

  static MemoryOptions memory(BothLimits limits) {
    MemoryOptions o;
    o.kv = o.ssm = o.conv = Dtype::bf16;
    o.block_tokens = 16;
    o.max_tokens = limits.max_position;
    o.sequences = limits.sequences;
    return o;
  }
  static ForwardOptions options() {
    ForwardOptions o;
    o.max_tokens = 512;
    o.threads = 1;
    return o;
  }

  FalconH1Config config;
  OwnModel model;
  Memory want, got;
  CpuForward cpu;
  WithTables device;
};

}  // namespace

TEST_CASE("rows of a decode step may be anywhere; a device chooses as the sampler does") {
  OnBoth both({.rows = 9, .sequences = 3, .max_position = 40});
  auto& [config, model, want, got, cpu, device] = both;
  auto const tokens = random_tokens(20, config.vocabulary, 4);
  std::int32_t const rows[] = {6, 0, 3};
  for (Tokens begin = 0; begin < 20; ++begin) {
    std::vector<ForwardChunk> mine, theirs;
    std::vector<StateTarget> my_targets(3), their_targets(3);
    for (std::uint32_t i = 0; i < 3; ++i) {
      ForwardChunk c;
      c.row = rows[i];
      c.tokens = std::span(tokens).subspan(begin, 1);
      c.begin = begin;
      c.logits = i != 1 || begin % 2 == 0;
      for (bool const on_device : {false, true}) {
        Memory const& m = on_device ? got : want;
        StateTarget& target = (on_device ? my_targets : their_targets)[i];
        target = {begin + 1, m.state(i, (begin + 1) % 2)};  // out of place
        c.blocks = m.blocks(i);
        c.source = m.state(i, begin % 2);
        c.targets = {&target, 1};
        (on_device ? mine : theirs).push_back(c);
      }
    }
    std::size_t const samples = begin % 2 == 0 ? 3 : 2;
    std::vector<float> expected(samples * config.vocabulary);
    cpu.run(theirs, want.kv(), expected);
    if (begin % 3 == 0) {
      SamplingOptions sampling;
      if (begin % 2 == 0) sampling = {1.5, 20, 0.95, 7};
      std::vector<TokenId> choices(samples);
      device.choose(mine, got.kv(), sampling, choices);
      for (std::size_t i = 0; i < samples; ++i)
        CHECK(choices[i] == Sampler().sample(std::span(expected).subspan(i * config.vocabulary,
                                                                         config.vocabulary),
                                             sampling, begin + 1));
    } else {
      std::vector<float> logits(expected.size());
      device.run(mine, got.kv(), logits);
      CHECK(same_bits(logits, expected));
    }
  }
  for (std::uint32_t i = 0; i < 3; ++i)
    for (std::uint32_t which : {0U, 1U})
      CHECK(same_bits(got.all(got.state(i, which)), want.all(want.state(i, which))));
  CHECK(device.forward().recordings().recorded == 3);  // logits, greedy choices, draws
  CHECK(device.forward().recordings().replayed == 17);
}

TEST_CASE("a sequence that outgrows the splits of a recording gets another") {
  OnBoth both({.rows = 2, .sequences = 1, .max_position = 520});
  auto& [config, model, want, got, cpu, device] = both;
  auto const tokens = random_tokens(516, config.vocabulary, 4);
  auto const run = [&](ForwardPass& forward, Memory& m, Tokens begin, Tokens count) {
    std::vector<float> logits(config.vocabulary);
    StateTarget const target{begin + count, m.state(0, 0)};
    ForwardChunk chunk;
    chunk.tokens = std::span(tokens).subspan(begin, count);
    chunk.begin = begin;
    chunk.blocks = m.blocks(0);
    chunk.source = m.state(0, 0);
    chunk.targets = {&target, 1};
    chunk.logits = true;
    forward.run({&chunk, 1}, m.kv(), logits);
    return logits;
  };
  // In turn up to 256 tokens, then 2 splits, then 4: what lies between is computed on the CPU.
  Tokens at = 0;
  for (auto const& [skipped, decoded] : {std::pair{254U, 4U}, std::pair{251U, 5U}}) {
    for (Memory* const m : {&want, &got}) run(cpu, *m, at, skipped);
    at += skipped;
    for (Tokens const end = at + decoded; at < end; ++at)
      CHECK(same_bits(run(device, got, at, 1), run(cpu, want, at, 1)));
  }
  CHECK(device.forward().recordings().recorded == 3);
  CHECK(device.forward().recordings().replayed == 6);
}

TEST_CASE("a decode step allocates nothing") {
  OwnModel const model = random_model(vector_config(), 23, Dtype::bf16);
  FalconH1Config const& c = model.tensors().config;
  LayoutOptions layout;
  layout.block_tokens = block_tokens;
  CacheOptions options;
  options.key_bytes = 0;
  options.max_sequences = 3;
  options.max_sequence_tokens = 200;
  Cache cache(
      ConvSlabPacked<>(checked_layout(geometry_for(c, Carry::bf16_per_token), layout).value(), 60),
      options, PaperOrder{});
  Workload workload;
  for (std::uint32_t i = 0; i < 3; ++i) {
    Request r;
    r.prompt_tokens = 5;
    r.tokens = random_tokens(5, c.vocabulary, i);
    r.output_tokens = 150;
    workload.requests.push_back(std::move(r));
  }
  TokenContent content(workload, c.vocabulary);
  ForwardOptions forward;
  forward.max_tokens = 16;
  NullWitness witness;
  using Executor = ModelExecutor<Cache>;
  Executor executor(
      cache,
      std::make_unique<DeviceForward>(model.tensors(), forward, std::make_unique<IdleDevice>(),
                                      Executor::needs(cache, forward)),
      forward, content, {}, StepTime::unit, witness);
  std::vector<SequenceHandle> sequences;
  StepPlan plan;
  std::uint64_t allocated = 0;
  for (Tokens position = 0; position < 150;) {
    plan.clear(cache.begin_step());
    Tokens const count = position == 0 ? 5 : 1;
    for (std::uint32_t r = 0; r < 3; ++r) {
      if (position == 0) {
        Admission const a = cache.admit(content.known(r, 5), AdmitRequest{r, 5});
        REQUIRE(a);
        sequences.push_back(a.sequence);
      }
      REQUIRE(cache.reserve(sequences[r], count));
      cache.commit(sequences[r], content.computed(r, position, position + count), 0);
      plan.chunks.push_back({sequences[r], r, position, count, position > 0, true});
    }
    std::uint64_t const before = allocations.load();
    executor.run(plan);
    position += count;
    if (position > 7)
      allocated += allocations.load() - before;  // the first ones make the recording
    cache.complete(plan.step);
  }
  CHECK(allocated == 0);
}
