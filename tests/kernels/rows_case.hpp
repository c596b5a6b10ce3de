// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <vector>

#include "executor/cpu/kernels.hpp"
#include "kernels/target.hpp"
#include "math/deterministic.hpp"

namespace rows_test {

using namespace hybridstate;
using namespace hybridstate::kernels;
namespace cpu = hybridstate::runtime::cpu;

inline const cpu::Kernels& reference() { return cpu::kernels(cpu::Isa::scalar); }

inline std::vector<float> draw(std::size_t n, std::uint64_t seed) {
  runtime::BitGenerator bits(seed);
  std::vector<float> v(n);
  for (float& f : v) f = static_cast<float>(bits.normal());
  return v;
}
/// How far apart rows lie: whole vectors allow vector accesses where n is a multiple of 4.
struct Layout {
  bool vectors = true;

  std::size_t stride(std::uint32_t n) const { return (n + 3) / 4 * 4 + (vectors ? 4 : 5); }
};
/// Rows drawn at random.
struct Floats {
  Floats(std::uint32_t rows, std::uint32_t n, Layout layout, std::uint64_t seed)
      : stride(layout.stride(n)), values(draw(std::size_t{rows} * stride, seed)) {}

  float* row(std::uint32_t r) { return values.data() + r * stride; }
  Rows<float> rows() { return {values.data(), static_cast<std::int64_t>(stride)}; }
  Rows<const float> read() { return {values.data(), static_cast<std::int64_t>(stride)}; }
  std::size_t bytes() const { return values.size() * sizeof(float); }
  bool operator==(const Floats& o) const {
    return std::memcmp(values.data(), o.values.data(), bytes()) == 0;
  }

  std::size_t stride;
  std::vector<float> values;
};

template <class E>
std::vector<E> as(const std::vector<float>& values) {
  std::vector<E> out(values.size());
  reference().store(values.data(), sizeof(E) == 2 ? runtime::Dtype::bf16 : runtime::Dtype::f32,
                    values.size(), out.data());
  return out;
}

template <class E>
constexpr ElementType type_of = sizeof(E) == 2 ? ElementType::bf16 : ElementType::f32;

/// What a kernel that writes rows of E to `out` must leave there: `want` for each row of n
/// elements, and nothing between rows.
template <class E>
struct Output {
  Output(std::uint32_t rows, std::uint32_t width)
      : n(width), stride((width + 3) / 4 * 4 + 8), want(rows * stride, -7.0F) {}

  template <class Job>
  void attach(Job& job) {
    out = as<E>(want);  // only for its size
    if constexpr (requires { job.type; }) job.type = type_of<E>;
    job.out = out.data();
    job.out_stride = static_cast<std::int64_t>(stride);
  }
  float* row(std::uint32_t r) { return want.data() + r * stride; }
  void reset() { out.assign(out.size(), as<E>({-7.0F})[0]); }
  void check() const { CHECK(same_bits(out, as<E>(want))); }

  std::uint32_t n;
  std::size_t stride;
  std::vector<float> want;
  std::vector<E> out;
};

template <class E, class Targets>
void check_rms_norm(Targets& targets, std::uint32_t n, Layout layout, std::uint64_t seed) {
  constexpr std::uint32_t rows = 3, tokens = 5;
  for (int added : {0, 1, 2}) {
    Floats h(tokens, n, layout, seed), a(tokens, n, layout, seed + 1),
        b(tokens, n, layout, seed + 2);
    std::vector<float> weight = draw(n, seed + 3);
    std::vector<std::int32_t> rows_of{4, -1, 2};
    RmsNormJob job;
    job.h = h.read();
    if (added > 0) job.a = a.read();
    if (added > 1) job.b = b.read();
    if (added > 0) job.sum = h.rows();
    job.weight = weight.data();
    job.epsilon = 1e-5F;
    job.rows_of = rows_of.data();
    job.rows = rows;
    job.n = n;
    Output<E> out(rows, n);
    out.attach(job);
    Floats const before = h;
    Floats want = h;
    for (std::uint32_t r = 0; r < rows; ++r) {
      if (rows_of[r] < 0) {
        std::fill_n(out.row(r), n, 0.0F);
        continue;
      }
      auto const of = static_cast<std::uint32_t>(rows_of[r]);
      if (added > 0) reference().add(want.row(of), a.row(of), added > 1 ? b.row(of) : nullptr, n);
      reference().rms_norm(want.row(of), weight.data(), 1e-5F, n, out.row(r));
    }
    for (auto& target : targets) {
      h.values = before.values;
      out.reset();
      run_on(target, job, h.values, a.values, b.values, weight, rows_of, out.out);
      out.check();
      CHECK(h == want);
    }
  }
}

template <class E, class Targets>
void check_gated_norm(Targets& targets, std::uint32_t n, Layout layout, std::uint64_t seed) {
  constexpr std::uint32_t rows = 2;
  for (std::uint32_t const groups : {1U, 3U})
    for (int form = 0; form < 3; ++form) {
      std::uint32_t const width = n * groups;
      Floats y(rows, width, layout, seed), z(rows, width, layout, seed + 1);
      std::vector<float> weight = draw(width, seed + 2);
      cpu::GatedNorm norm{width, groups, form == 2 ? nullptr : weight.data(), form == 1, 1e-6F};
      GatedNormJob job;
      job.y = y.read();
      job.z = z.read();
      job.weight = norm.weight;
      job.norm_before_gate = norm.norm_before_gate;
      job.epsilon = norm.epsilon;
      job.rows = rows;
      job.width = width;
      job.groups = groups;
      Output<E> out(rows, width);
      out.attach(job);
      for (std::uint32_t r = 0; r < rows; ++r) {
        std::copy_n(y.row(r), width, out.row(r));
        reference().gated_norm(norm, out.row(r), z.row(r));
      }
      for (auto& target : targets) {
        out.reset();
        run_on(target, job, y.values, z.values, weight, out.out);
        out.check();
      }
    }
}

template <class E, class Targets>
void check_silu_product(Targets& targets, std::uint32_t n, Layout layout, std::uint64_t seed) {
  constexpr std::uint32_t rows = 3;
  Floats gate(rows, n, layout, seed), up(rows, n, layout, seed + 1);
  SiluProductJob job;
  job.gate = gate.read();
  job.up = up.read();
  job.rows = rows;
  job.n = n;
  Output<E> out(rows, n);
  out.attach(job);
  for (std::uint32_t r = 0; r < rows; ++r)
    reference().silu_product(gate.row(r), up.row(r), n, out.row(r));
  for (auto& target : targets) {
    out.reset();
    run_on(target, job, gate.values, up.values, out.out);
    out.check();
  }
}

template <class E, class Targets>
void check_embedding(Targets& targets, std::uint32_t n, Layout layout, std::uint64_t seed) {
  std::vector<E> table = as<E>(draw(std::size_t{9} * n, seed));
  std::vector<std::int32_t> ids{8, 0, -1, 3};
  Floats out(4, n, layout, seed + 1);
  Floats const before = out;
  Floats want = out;
  for (std::uint32_t r = 0; r < 4; ++r) {
    std::fill_n(want.row(r), n, 0.0F);
    if (ids[r] < 0) continue;
    reference().load(table.data() + static_cast<std::uint32_t>(ids[r]) * n,
                     sizeof(E) == 2 ? runtime::Dtype::bf16 : runtime::Dtype::f32, n, want.row(r));
    reference().multiply(want.row(r), 5.7F, n);
  }
  EmbeddingJob job;
  job.type = type_of<E>;
  job.table = table.data();
  job.ids = ids.data();
  job.multiplier = 5.7F;
  job.out = out.rows();
  job.rows = 4;
  job.n = n;
  for (auto& target : targets) {
    out.values = before.values;
    run_on(target, job, table, ids, out.values);
    CHECK(out == want);
  }
}

template <class Targets>
void check_scale(Targets& targets, std::uint32_t n, Layout layout, std::uint64_t seed) {
  for (bool const columns : {false, true}) {
    Floats x(3, n, layout, seed);
    std::vector<float> bias = draw(n, seed + 1), factors = draw(n, seed + 2);
    Floats const before = x;
    Floats want = x;
    for (std::uint32_t r = 0; r < 3; ++r)
      for (std::uint32_t k = 0; k < n; ++k) {
        volatile float v = want.row(r)[k] * 0.3F;  // rounded after each operation
        if (columns) v = v + bias[k];
        v = v * 1.7F;
        if (columns) v = v * factors[k];
        want.row(r)[k] = v;
      }
    ScaleRows job;
    job.x = x.rows();
    job.scale = 0.3F;
    job.post = 1.7F;
    if (columns) job.bias = bias.data(), job.factors = factors.data();
    job.rows = 3;
    job.n = n;
    for (auto& target : targets) {
      x.values = before.values;
      run_on(target, job, x.values, bias, factors);
      CHECK(x == want);
    }
  }
}

template <class Targets>
void check_round(Targets& targets, std::uint32_t n, Layout layout, std::uint64_t seed) {
  Floats x(3, n, layout, seed);
  RoundRows job;
  job.x = x.read();
  job.rows = 3;
  job.n = n;
  Output<Bf16> out(3, n);
  out.attach(job);
  for (std::uint32_t r = 0; r < 3; ++r) std::copy_n(x.row(r), n, out.row(r));
  for (auto& target : targets) {
    out.reset();
    run_on(target, job, x.values, out.out);
    out.check();
  }
}

template <class Targets>
void check_add(Targets& targets, std::uint32_t n, Layout layout, std::uint64_t seed) {
  for (bool const two : {false, true}) {
    Floats h(3, n, layout, seed), a(3, n, layout, seed + 1), b(3, n, layout, seed + 2);
    Floats const before = h;
    Floats want = h;
    for (std::uint32_t r = 0; r < 3; ++r)
      reference().add(want.row(r), a.row(r), two ? b.row(r) : nullptr, n);
    AddRows job;
    job.h = h.rows();
    job.a = a.read();
    if (two) job.b = b.read();
    job.rows = 3;
    job.n = n;
    for (auto& target : targets) {
      h.values = before.values;
      run_on(target, job, h.values, a.values, b.values);
      CHECK(h == want);
    }
  }
}

template <class Targets>
void check_all(Targets& targets, std::uint32_t n, Layout layout, std::uint64_t seed) {
  check_rms_norm<float>(targets, n, layout, seed);
  check_rms_norm<Bf16>(targets, n, layout, seed);
  check_gated_norm<float>(targets, n, layout, seed);
  check_gated_norm<Bf16>(targets, n, layout, seed);
  check_silu_product<float>(targets, n, layout, seed);
  check_silu_product<Bf16>(targets, n, layout, seed);
  check_embedding<float>(targets, n, layout, seed);
  check_embedding<Bf16>(targets, n, layout, seed);
  check_scale(targets, n, layout, seed);
  check_round(targets, n, layout, seed);
  check_add(targets, n, layout, seed);
}

}  // namespace rows_test
