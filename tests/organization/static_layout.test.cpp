// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
//
// A layout known at compile time changes no fact: the same takes give the same units.
#include <doctest/doctest.h>

#include <hybridstate/hybridstate.hpp>
#include <type_traits>

using namespace hybridstate;

namespace {

constexpr ModelGeometry falcon = find_preset("falcon-h1-7b")->geometry;
constexpr ModelGeometry granite = find_preset("granite-4.0-h-micro")->geometry;

template <class Organization>
void take_some(Organization& o) {
  auto const keep = [](int, UnitIndex) {};
  o.take_attention(keep);
  StateHandle const first = o.take_state(keep);
  o.take_state(keep);
  o.take_attention(keep);
  o.give_back(first, [](CarrierHandle, bool) {});
  o.take_state(keep);
}

template <class Fixed, class Free>
void same_facts(Fixed fixed, Free free) {
  static_assert(memory_organization<Fixed> && joint_cache<JointCache<Fixed>>);
  CHECK(sizeof(Fixed) < sizeof(Free));  // the layout costs no bytes
  CHECK(fixed.block_tokens() == free.block_tokens());
  CHECK(fixed.checkpoint_tokens() == free.checkpoint_tokens());
  CHECK(fixed.ssm_address().stride == free.ssm_address().stride);
  CHECK(fixed.conv_address().base == free.conv_address().base);
  CHECK(fixed.conv_address().stride == free.conv_address().stride);
  CHECK(fixed.state_payload_bytes() == free.state_payload_bytes());
  take_some(fixed);
  take_some(free);
  CHECK(fixed.need({3, 5, {}}) == free.need({3, 5, {}}));
  for (int pool = 0; pool < Free::pools; ++pool) {
    CHECK(fixed.unit_bytes(pool) == free.unit_bytes(pool));
    CHECK(fixed.pool(pool).available() == free.pool(pool).available());
    CHECK(fixed.pool(pool).front() == free.pool(pool).front());
    for (std::int32_t u = 0; u < static_cast<std::int32_t>(free.pool(pool).capacity()); ++u) {
      CHECK(fixed.pool(pool).owner({u}) == free.pool(pool).owner({u}));
      if (free.pool(pool).owner({u}) != UnitOwner::state) continue;
      StateHandle const s{free.pool(pool).owner_handle({u})};
      for (int group = 0; group < static_cast<int>(free.layout().recurrent_groups()); ++group) {
        CHECK(fixed.ssm_page(s, group, 0) == free.ssm_page(s, group, 0));
        CHECK(fixed.conv_line(s, group) == free.conv_line(s, group));
      }
    }
  }
}

template <ModelGeometry Model>
void every_organization() {
  StaticLayout<Model> const fixed;
  StateLayout const free = make_layout(Model);
  Units const units = 80;
  same_facts(CoarsePage(fixed, units), CoarsePage(free, units));
  same_facts(RecurrentPaged(fixed, units), RecurrentPaged(free, units));
  same_facts(ConvSlabPacked(fixed, units), ConvSlabPacked(free, units));
  PoolUnits const split{{400, 40}};
  same_facts(NativeDualPool(fixed, split), NativeDualPool(free, split));
}

}  // namespace

TEST_CASE("organizations over a static layout hand out the same units") {
  every_organization<falcon>();
  every_organization<granite>();
}
