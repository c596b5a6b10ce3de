// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <hybridstate/kernels/launch/state_update.hpp>

#include "gpu/device_memory.hpp"
#include "kernels/state_case.hpp"

using namespace hybridstate;
using namespace hybridstate::kernels;
using runtime::Carry;

namespace {

/// A case's buffers on the device.
struct DeviceCase {
  explicit DeviceCase(const StateCase& c)
      : host(c),
        inputs(c.inputs),
        dt(c.dt),
        dt_bias(c.dt_bias),
        a(c.a),
        d(c.d),
        y(c.y),
        pool(c.pool),
        source(c.source),
        destination(c.destination),
        checkpoint(c.checkpoint) {}

  RecurrenceInputs recurrence() {
    RecurrenceInputs in = host.recurrence();
    in.b = inputs.get() + (in.b - in.x);
    in.c = inputs.get() + (in.c - in.x);
    in.x = inputs.get();
    in.dt = dt.get();
    in.dt_bias = dt_bias.get();
    in.a = a.get();
    in.d = d.get();
    in.y = y.get();
    return in;
  }
  SsmPages<> view(const OnDevice<std::int32_t>& table) {
    SsmPages<> v = host.view({});
    v.base = reinterpret_cast<std::byte*>(pool.get());
    v.pages = table.get();
    return v;
  }
  void check_against(StateCase& want) {
    must(cudaDeviceSynchronize());
    pool.download(host.pool);
    y.download(host.y);
    CHECK(std::memcmp(host.pool.data(), want.pool.data(), want.pool_bytes()) == 0);
    CHECK(std::memcmp(host.y.data(), want.y.data(), want.y.size() * sizeof(float)) == 0);
  }

  StateCase host;
  OnDevice<float> inputs, dt, dt_bias, a, d, y;
  OnDevice<Line> pool;
  OnDevice<std::int32_t> source, destination, checkpoint;
};

ElementType type_of(const StateCase& c) { return c.bf16 ? ElementType::bf16 : ElementType::f32; }
Carry carry_of(const StateCase& c) { return c.bf16 ? Carry::bf16_per_token : Carry::fp32; }

}  // namespace

TEST_CASE("a decode step on the device has the CPU executor's bits") {
  if (!have_device()) return;
  for (std::uint32_t state : {64U, 128U, 256U})
    for (bool bf16 : {true, false})
      for (std::uint32_t sequences : {1U, 3U, 32U}) {
        StateCase c;
        c.bf16 = bf16;
        c.state = state;
        c.sequences = sequences;
        c.heads = 24;
        c.rows = 128;
        c.whole_heads(bf16 ? 8 : 4);
        c.draw(state + sequences);
        std::fill_n(c.source.begin(), c.map.member_count, -1);
        DeviceCase device(c);
        c.run_on_cpu({{1, &c.checkpoint}, {1, &c.destination}}, carry_of(c));
        StateUpdateJob const job{device.recurrence(),
                                 device.view(device.source),
                                 device.view(device.destination),
                                 device.view(device.checkpoint),
                                 sequences,
                                 state,
                                 type_of(c)};
        must(launch_state_update(job, nullptr));
        device.check_against(c);
      }
}

TEST_CASE("a scan on the device has the CPU executor's bits, whatever the row") {
  if (!have_device()) return;
  for (std::uint32_t state : {17U, 96U, 128U, 256U, 300U})
    for (bool bf16 : {true, false}) {
      StateCase c;
      c.bf16 = bf16;
      c.state = state;
      c.sequences = 2;
      c.heads = 4;
      c.rows = 20;
      c.tokens = 37;
      if (state % 64 == 0)
        c.whole_heads(2);
      else
        c.split_heads(3);
      c.draw(state);
      DeviceCase device(c);
      c.run_on_cpu({{c.tokens, &c.destination}}, carry_of(c));
      OnDevice<std::int32_t> const first({0, 37, 74}), kept({0, 1, 2}), after({37, 37});
      StateScanJob const job{device.recurrence(),
                             {first.get(), 2},
                             device.view(device.source),
                             {device.view(device.destination), kept.get(), after.get()},
                             state,
                             type_of(c)};
      must(launch_state_scan(job, nullptr));
      device.check_against(c);
    }
}
