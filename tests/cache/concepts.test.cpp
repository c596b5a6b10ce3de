// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

// The concepts accept what they should and refuse near misses: one type for each requirement.

using namespace cache_test;

namespace {

using Good = hs::RecurrentPaged<>;
static_assert(hs::memory_organization<Good>);
static_assert(hs::memory_organization<hs::CoarsePage<>>);
static_assert(hs::memory_organization<hs::ConvSlabPacked<>>);
static_assert(hs::memory_organization<hs::NativeDualPool<>>);
static_assert(!hs::memory_organization<int>);

// A member declared again in a derived type hides the good one.
struct Derived : Good {};
static_assert(hs::memory_organization<Derived>);
#define NEAR_MISS(name, ...) \
  struct name : Good {       \
    __VA_ARGS__              \
  };                         \
  static_assert(!hs::memory_organization<name>)

NEAR_MISS(NoPools, static constexpr const char* pools = "one";);
NEAR_MISS(BlockTokensSigned, int block_tokens() const noexcept { return 4; });
NEAR_MISS(BlockTokensMayThrow, hs::Tokens block_tokens() const { return 4; });
NEAR_MISS(CheckpointTokensMutable, hs::Tokens checkpoint_tokens() noexcept { return 4; });
NEAR_MISS(UnitBytes32, std::uint32_t unit_bytes(int) const noexcept { return 4; });
NEAR_MISS(NoAttentionPayload, void attention_payload_bytes_per_token() const noexcept {});
NEAR_MISS(NoStatePayload, void state_payload_bytes() const noexcept {});
NEAR_MISS(PoolByValue, int pool(int) const noexcept { return 0; });
NEAR_MISS(AttentionPoolText, static constexpr const char* attention_pool = "0";);
NEAR_MISS(StatePoolText, static constexpr const char* state_pool = "0";);
NEAR_MISS(MaxBlocksWide, std::uint64_t max_attention_blocks() const noexcept { return 0; });
NEAR_MISS(MaxStatesWide, std::uint64_t max_states() const noexcept { return 0; });
NEAR_MISS(NeedScalar, hs::Units need(hs::Demand, hs::SlabUse = {}) const noexcept { return 0; });
NEAR_MISS(NeedMayThrow, hs::PoolUnits need(hs::Demand, hs::SlabUse = {}) const { return {}; });
NEAR_MISS(NeedWithoutUse, hs::PoolUnits need(hs::Demand) const noexcept { return {}; });
NEAR_MISS(TakesBlocksAsInt, template <class F> int take_attention(F&&) noexcept { return 0; });
NEAR_MISS(TakesStatesUnasked, hs::StateHandle take_state() noexcept { return {}; });
NEAR_MISS(GivesNothingBack, void give_back(hs::AttentionHandle) noexcept {});
NEAR_MISS(NoOwnUnits, void for_each_own_unit(hs::AttentionHandle) const noexcept {});
NEAR_MISS(NoCarrierVisit, void for_each_carrier(hs::StateHandle) const noexcept {});
NEAR_MISS(NoStatesOnCarrier, void for_each_state_on(hs::CarrierHandle) const noexcept {});
NEAR_MISS(CarriersSigned, int carriers() const noexcept { return 0; });
NEAR_MISS(CarrierUnitInt, int carrier_unit(hs::CarrierHandle) const noexcept { return 0; });
NEAR_MISS(ActiveWithoutFlag, void set_active(hs::CarrierHandle) noexcept {});
NEAR_MISS(
    AttentionUnit32, int attention_unit(hs::AttentionHandle, int) const noexcept { return 0; });
NEAR_MISS(
    SsmPageWithoutMember, std::int64_t ssm_page(hs::StateHandle, int) const noexcept { return 0; });
NEAR_MISS(ConvLine32, int conv_line(hs::StateHandle, int) const noexcept { return 0; });
NEAR_MISS(NoSsmAddress, void ssm_address() const noexcept {});
NEAR_MISS(NoConvAddress, void conv_address() const noexcept {});
NEAR_MISS(NoUnitUse, void unit_use(int) const noexcept {});
#undef NEAR_MISS

// --- reclaim orders ------------------------------------------------------------------------------

static_assert(hs::reclaim_order_base<hs::PaperOrder>);
static_assert(hs::reclaim_order_base<hs::PathSafeLru>);
static_assert(hs::reclaim_order_base<hs::GreedyDual>);
#define NEAR_MISS(name, ...)     \
  struct name : hs::PaperOrder { \
    __VA_ARGS__                  \
  };                             \
  static_assert(!hs::reclaim_order_base<name>)
struct NoFlag {};
NEAR_MISS(CountsNothing, static constexpr NoFlag counts_states_below{};);
NEAR_MISS(KeepsNothing, static constexpr NoFlag keeps_carriers{};);
NEAR_MISS(ScoresNothing, static constexpr NoFlag scores_states{};);
NEAR_MISS(AsksNothing, static constexpr NoFlag counts_requests{};);
NEAR_MISS(ResizeOfOne, void resize(hs::Units){});
NEAR_MISS(PublishedEndBool, bool published_end() const noexcept { return true; });
NEAR_MISS(PublishedEndMayThrow, hs::ListEnd published_end() const { return {}; });
NEAR_MISS(IdleEndUnasked, hs::ListEnd idle_carrier_end() const noexcept { return {}; });
#undef NEAR_MISS
struct Immovable : hs::PaperOrder {
  Immovable() = default;
  Immovable(Immovable&&) = delete;
};
static_assert(!hs::reclaim_order_base<Immovable>);

/// The least that an order may see.
struct View {
  static constexpr int pools = 1;
  hs::UnitPool units;
  hs::PrefixNode nodes;
  hs::NodeIndex node_of(hs::ObjectRef) const noexcept { return {}; }
  const hs::PrefixNode& node(hs::NodeIndex) const noexcept { return nodes; }
  hs::ObjectRef next_on_node(hs::ObjectRef) const noexcept { return {}; }
  bool reclaimable(hs::ObjectRef) const noexcept { return false; }
  const hs::UnitPool& pool(int) const noexcept { return units; }
  void reclaim(hs::ObjectRef) noexcept {}
  void reclaim_owner(int, hs::UnitIndex) noexcept {}
};
static_assert(hs::reclaim_view<View>);
static_assert(hs::reclaim_order<hs::PaperOrder, View>);
static_assert(hs::reclaim_order<hs::PathSafeLru, View>);
#define NEAR_MISS(name, ...)     \
  struct name : hs::PaperOrder { \
    __VA_ARGS__                  \
  };                             \
  static_assert(hs::reclaim_order_base<name> && !hs::reclaim_order<name, View>)
NEAR_MISS(NotToldOfReleases, void released(View&) noexcept {});
NEAR_MISS(NotToldOfReferences, void referenced(View&) noexcept {});
NEAR_MISS(NotToldOfNodes, void node_changed(View&) noexcept {});
NEAR_MISS(MakesWithoutCount, void make_keyless(View&, int) noexcept {});
NEAR_MISS(MakesAndThrows, void make_keyless(View&, int, hs::Units){});
#undef NEAR_MISS
#define NEAR_MISS(name, ...) \
  struct name : View {       \
    __VA_ARGS__              \
  };                         \
  static_assert(!hs::reclaim_view<name>)
NEAR_MISS(NodeByValue, hs::PrefixNode node(hs::NodeIndex) const noexcept { return {}; });
NEAR_MISS(NodeOfHandle, int node_of(hs::ObjectRef) const noexcept { return 0; });
NEAR_MISS(NextIsHandle, int next_on_node(hs::ObjectRef) const noexcept { return 0; });
NEAR_MISS(ReclaimableInt, int reclaimable(hs::ObjectRef) const noexcept { return 0; });
NEAR_MISS(PoolCopied, int pool(int) const noexcept { return 0; });
NEAR_MISS(ReclaimMayThrow, void reclaim(hs::ObjectRef){});
NEAR_MISS(OwnerWithoutPool, void reclaim_owner(hs::UnitIndex) noexcept {});
#undef NEAR_MISS

// --- gates and observers -------------------------------------------------------------------------

struct OpenGate {
  int refusing_pool(const hs::AdmissionView&) const noexcept { return -1; }
};
struct BoolGate {
  bool refusing_pool(const hs::AdmissionView&) const noexcept { return true; }
};
struct ThrowingGate {
  int refusing_pool(const hs::AdmissionView&) const { return -1; }
};
struct MutableGate {
  int refusing_pool(const hs::AdmissionView&) noexcept { return -1; }
};
static_assert(hs::admission_gate<OpenGate>);
static_assert(!hs::admission_gate<BoolGate>);
static_assert(!hs::admission_gate<ThrowingGate>);
static_assert(!hs::admission_gate<MutableGate>);
static_assert(hs::pricing_gate<hs::PricedGate>);
static_assert(!hs::pricing_gate<hs::FixedHeadroom>);

struct ThrowingObserver {
  static constexpr bool enabled = true;
  void on_event(const hs::Event&) {}
};
struct SilentObserver {
  void on_event(const hs::Event&) noexcept {}
};
static_assert(hs::cache_observer<Recorder>);
static_assert(!hs::cache_observer<ThrowingObserver>);
static_assert(!hs::cache_observer<SilentObserver>);

// --- the joint cache -----------------------------------------------------------------------------

using Base = hs::JointCache<Good>;
static_assert(hs::joint_cache<Base>);
static_assert(hs::joint_cache<hs::JointCache<hs::CoarsePage<>>>);
static_assert(hs::joint_cache<hs::JointCache<hs::ConvSlabPacked<>>>);
static_assert(hs::joint_cache<hs::JointCache<hs::NativeDualPool<>, hs::PathSafeLru>>);
static_assert(hs::joint_cache<hs::JointCache<hs::ConvSlabPacked<>, hs::PaperOrder, Recorder>>);
#define NEAR_MISS(name, ...) \
  struct name : Base {       \
    __VA_ARGS__              \
  };                         \
  static_assert(!hs::joint_cache<name>)
using Seq = hs::SequenceHandle;
NEAR_MISS(StepInt, int begin_step() noexcept { return 0; });
NEAR_MISS(CompletesAll, void complete() noexcept {});
NEAR_MISS(InvalidatesNoStep, void invalidate_since() noexcept {});
NEAR_MISS(NoVersion, void version() const noexcept {});
NEAR_MISS(EnterVoid, void enter(const hs::Prompt&, std::uint64_t, std::int64_t = 0) noexcept {});
NEAR_MISS(LookupMutable, hs::Match lookup(const hs::Prompt&) noexcept { return {}; });
NEAR_MISS(LookupMayThrow, hs::Match lookup(const hs::Prompt&) const { return {}; });
NEAR_MISS(FitsBool, bool fits_alone(hs::Tokens) const noexcept { return true; });
NEAR_MISS(
    AdmitsUngated,
    hs::Admission admit(const hs::Prompt&, const hs::AdmitRequest&) noexcept { return {}; });
NEAR_MISS(ResumesNothing, hs::Admission resume(Seq) noexcept { return {}; });
NEAR_MISS(PreemptMayThrow, void preempt(Seq){});
NEAR_MISS(ReleaseAll, void release() noexcept {});
NEAR_MISS(ForkWithoutRequester, hs::Admission fork(Seq) noexcept { return {}; });
NEAR_MISS(ReserveBool, bool reserve(Seq, hs::Tokens) noexcept { return true; });
NEAR_MISS(CommitNothing, void commit(Seq) noexcept {});
NEAR_MISS(AbortAll, void abort() noexcept {});
NEAR_MISS(RetireAll, void retire() noexcept {});
NEAR_MISS(CopiesByVector, std::vector<hs::BlockCopy> copies() const noexcept { return {}; });
NEAR_MISS(GridWide, std::uint64_t block_tokens() const noexcept { return 4; });
NEAR_MISS(IntervalWide, std::uint64_t checkpoint_tokens() const noexcept { return 4; });
NEAR_MISS(RunningSigned, int running() const noexcept { return 0; });
NEAR_MISS(PositionWide, std::uint64_t position(Seq) const noexcept { return 0; });
NEAR_MISS(ValidWide, std::uint64_t kv_valid_until(Seq) const noexcept { return 0; });
NEAR_MISS(BlocksMutable, std::span<hs::AttentionHandle> blocks(Seq) const noexcept { return {}; });
NEAR_MISS(
    PlaceIsHandle, hs::AttentionHandle place(hs::AttentionHandle) const noexcept { return {}; });
NEAR_MISS(StatesMutable, std::span<hs::HeldState> states(Seq) const noexcept { return {}; });
NEAR_MISS(SourceInt, int source(Seq) const noexcept { return 0; });
NEAR_MISS(TargetHandle, hs::StateHandle first_target(Seq) const noexcept { return {}; });
NEAR_MISS(
    ReferencesOfStatesOnly, std::uint32_t references(hs::StateHandle) const noexcept { return 0; });
NEAR_MISS(PublishedBool, bool published_step(hs::StateHandle) const noexcept { return true; });
NEAR_MISS(UsagePart, hs::PoolUsage usage() const noexcept { return {}; });
NEAR_MISS(AvailableScalar, hs::Units available() const noexcept { return 0; });
NEAR_MISS(CountersText, const char* counters() const noexcept { return ""; });
NEAR_MISS(InvalidateAll, void invalidate() noexcept {});
NEAR_MISS(ClearMayThrow, void clear(){});
#undef NEAR_MISS

}  // namespace

TEST_CASE("an open gate admits whatever fits") {
  Base cache(Good(small_layout(), 20));
  hs::SequenceHandle const s = start(cache, ids(3));
  CHECK(cache.admit(prompt(ids(3, 50)), {2, 0}, OpenGate{}));
  cache.release(s);
}
