// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstring>
#include <hybridstate/kernels/rows.hpp>
#include <vector>

#include "executor/cpu/kernels.hpp"
#include "kernels/recording.hpp"
#include "math/deterministic.hpp"
#include "test_scale.hpp"

using namespace hybridstate;
using namespace hybridstate::kernels;
namespace cpu = hybridstate::runtime::cpu;

namespace {

const cpu::Kernels& reference() { return cpu::kernels(cpu::Isa::scalar); }

constexpr std::uint32_t widths[] = {1, 3, 4, 16, 17, 60, 128, 132, 255, 256, 300, 1000, 1280, 2049};

std::vector<float> draw(std::size_t n, std::uint64_t seed) {
  runtime::BitGenerator bits(seed);
  std::vector<float> v(n);
  for (float& f : v) f = static_cast<float>(bits.normal());
  return v;
}
/// Rows `stride` floats apart, drawn at random.
struct Floats {
  Floats(std::uint32_t rows, std::uint32_t n, std::uint64_t seed)
      : stride((n + 3) / 4 * 4 + 4), values(draw(std::size_t{rows} * stride, seed)) {}

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

/// Runs `kernel` in every order of threads; `check` compares, and `reset` restores what it wrote.
template <class Kernel, class Reset, class Check>
void in_every_order(const Kernel& kernel, const Reset& reset, const Check& check) {
  for (ThreadOrder const order :
       {ThreadOrder::forward, ThreadOrder::reverse, ThreadOrder::shuffled}) {
    reset();
    Interpreter(order).run(kernel);
    check();
  }
}

/// What a kernel that writes rows of E to `out` must leave there: `want` for each row of n
/// elements, and nothing between rows.
template <class E>
struct Output {
  Output(std::uint32_t rows, std::uint32_t width)
      : n(width), stride((width + 3) / 4 * 4 + 8), want(rows * stride, -7.0F) {}

  template <class Kernel>
  void attach(Kernel& kernel) {
    out = as<E>(want);  // only for its size
    kernel.out = out.data();
    kernel.out_stride = static_cast<std::int64_t>(stride);
  }
  float* row(std::uint32_t r) { return want.data() + r * stride; }
  void reset() { out.assign(out.size(), as<E>({-7.0F})[0]); }
  void check() const {
    std::vector<E> const expected = as<E>(want);
    CHECK(std::memcmp(out.data(), expected.data(), out.size() * sizeof(E)) == 0);
  }

  std::uint32_t n;
  std::size_t stride;
  std::vector<float> want;
  std::vector<E> out;
};

template <class E, bool Vectors>
void check_rms_norm(std::uint32_t n, std::uint64_t seed) {
  constexpr std::uint32_t rows = 3, tokens = 5;
  for (int added : {0, 1, 2}) {
    Floats h(tokens, n, seed), a(tokens, n, seed + 1), b(tokens, n, seed + 2);
    std::vector<float> const weight = draw(n, seed + 3);
    std::int32_t const rows_of[rows] = {4, -1, 2};
    RmsNorm<E, Vectors> kernel;
    kernel.h = h.read();
    if (added > 0) kernel.a = a.read();
    if (added > 1) kernel.b = b.read();
    if (added > 0) kernel.sum = h.rows();
    kernel.weight = weight.data();
    kernel.epsilon = 1e-5F;
    kernel.rows_of = rows_of;
    kernel.rows = rows;
    kernel.n = n;
    Output<E> out(rows, n);
    out.attach(kernel);
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
    in_every_order(
        kernel, [&] { h.values = before.values, out.reset(); },
        [&] {
          out.check();
          CHECK(h == want);
        });
  }
}

template <class E, bool Vectors>
void check_gated_norm(std::uint32_t n, std::uint64_t seed) {
  constexpr std::uint32_t rows = 2;
  for (std::uint32_t const groups : {1U, 3U})
    for (int form = 0; form < 3; ++form) {
      std::uint32_t const width = n * groups;
      Floats y(rows, width, seed), z(rows, width, seed + 1);
      std::vector<float> const weight = draw(width, seed + 2);
      cpu::GatedNorm norm{width, groups, form == 2 ? nullptr : weight.data(), form == 1, 1e-6F};
      GatedNorm<E, Vectors> kernel;
      kernel.y = y.read();
      kernel.z = z.read();
      kernel.weight = norm.weight;
      kernel.norm_before_gate = norm.norm_before_gate;
      kernel.epsilon = norm.epsilon;
      kernel.rows = rows;
      kernel.width = width;
      kernel.groups = groups;
      Output<E> out(rows, width);
      out.attach(kernel);
      for (std::uint32_t r = 0; r < rows; ++r) {
        std::copy_n(y.row(r), width, out.row(r));
        reference().gated_norm(norm, out.row(r), z.row(r));
      }
      in_every_order(kernel, [&] { out.reset(); }, [&] { out.check(); });
    }
}

template <class E, bool Vectors>
void check_silu_product(std::uint32_t n, std::uint64_t seed) {
  constexpr std::uint32_t rows = 3;
  Floats gate(rows, n, seed), up(rows, n, seed + 1);
  EachFour<SiluProduct<E, Vectors>> kernel;
  kernel.gate = gate.read();
  kernel.up = up.read();
  kernel.rows = rows;
  kernel.n = n;
  Output<E> out(rows, n);
  out.attach(kernel);
  for (std::uint32_t r = 0; r < rows; ++r)
    reference().silu_product(gate.row(r), up.row(r), n, out.row(r));
  in_every_order(kernel, [&] { out.reset(); }, [&] { out.check(); });
}

template <class E, bool Vectors>
void check_embedding(std::uint32_t n, std::uint64_t seed) {
  std::vector<E> const table = as<E>(draw(std::size_t{9} * n, seed));
  std::int32_t const ids[] = {8, 0, -1, 3};
  Floats out(4, n, seed + 1);
  Floats const before = out;
  Floats want = out;
  for (std::uint32_t r = 0; r < 4; ++r) {
    std::fill_n(want.row(r), n, 0.0F);
    if (ids[r] < 0) continue;
    reference().load(table.data() + static_cast<std::uint32_t>(ids[r]) * n,
                     sizeof(E) == 2 ? runtime::Dtype::bf16 : runtime::Dtype::f32, n, want.row(r));
    reference().multiply(want.row(r), 5.7F, n);
  }
  EachFour<Embedding<E, Vectors>> kernel;
  kernel.table = table.data();
  kernel.ids = ids;
  kernel.multiplier = 5.7F;
  kernel.out = out.rows();
  kernel.rows = 4;
  kernel.n = n;
  in_every_order(kernel, [&] { out.values = before.values; }, [&] { CHECK(out == want); });
}

template <bool Vectors>
void check_scale(std::uint32_t n, std::uint64_t seed) {
  for (bool const columns : {false, true}) {
    Floats x(3, n, seed);
    std::vector<float> const bias = draw(n, seed + 1), factors = draw(n, seed + 2);
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
    EachFour<Scale<Vectors>> kernel;
    kernel.x = x.rows();
    kernel.scale = 0.3F;
    kernel.post = 1.7F;
    if (columns) kernel.bias = bias.data(), kernel.factors = factors.data();
    kernel.rows = 3;
    kernel.n = n;
    in_every_order(kernel, [&] { x.values = before.values; }, [&] { CHECK(x == want); });
  }
}

template <bool Vectors>
void check_round(std::uint32_t n, std::uint64_t seed) {
  Floats x(3, n, seed);
  EachFour<Round<Vectors>> kernel;
  kernel.x = x.read();
  kernel.rows = 3;
  kernel.n = n;
  Output<Bf16> out(3, n);
  out.attach(kernel);
  for (std::uint32_t r = 0; r < 3; ++r) std::copy_n(x.row(r), n, out.row(r));
  in_every_order(kernel, [&] { out.reset(); }, [&] { out.check(); });
}

template <bool Vectors>
void check_add(std::uint32_t n, std::uint64_t seed) {
  for (bool const two : {false, true}) {
    Floats h(3, n, seed), a(3, n, seed + 1), b(3, n, seed + 2);
    Floats const before = h;
    Floats want = h;
    for (std::uint32_t r = 0; r < 3; ++r)
      reference().add(want.row(r), a.row(r), two ? b.row(r) : nullptr, n);
    EachFour<Add<Vectors>> kernel;
    kernel.h = h.rows();
    kernel.a = a.read();
    if (two) kernel.b = b.read();
    kernel.rows = 3;
    kernel.n = n;
    in_every_order(kernel, [&] { h.values = before.values; }, [&] { CHECK(h == want); });
  }
}

template <bool Vectors>
void check_all(std::uint32_t n, std::uint64_t seed) {
  check_rms_norm<float, Vectors>(n, seed);
  check_rms_norm<Bf16, Vectors>(n, seed);
  check_gated_norm<float, Vectors>(n, seed);
  check_gated_norm<Bf16, Vectors>(n, seed);
  check_silu_product<float, Vectors>(n, seed);
  check_silu_product<Bf16, Vectors>(n, seed);
  check_embedding<float, Vectors>(n, seed);
  check_embedding<Bf16, Vectors>(n, seed);
  check_scale<Vectors>(n, seed);
  check_round<Vectors>(n, seed);
  check_add<Vectors>(n, seed);
}

}  // namespace

TEST_CASE("the steps of a token's row compute the CPU executor's bits") {
  std::uint64_t seed = 1;
  for (std::uint32_t const n : widths) {
    if (++seed % 2 == 0 && test_scale() < 0.5) continue;
    CAPTURE(n);
    check_all<false>(n, seed);
    if (n % 4 == 0) check_all<true>(n, seed + 100);
  }
}

TEST_CASE("a row of the gated norm may be written where it was read") {
  Floats y(2, 640, 5), z(2, 640, 6);
  std::vector<float> const weight = draw(640, 7);
  Floats want = y;
  cpu::GatedNorm const norm{640, 2, weight.data(), true, 1e-6F};
  for (std::uint32_t r = 0; r < 2; ++r) reference().gated_norm(norm, want.row(r), z.row(r));
  GatedNorm<float, true> kernel;
  kernel.y = y.read();
  kernel.z = z.read();
  kernel.weight = weight.data();
  kernel.norm_before_gate = true;
  kernel.epsilon = norm.epsilon;
  kernel.out = y.values.data();
  kernel.out_stride = y.rows().stride;
  kernel.rows = 2;
  kernel.width = 640;
  kernel.groups = 2;
  Interpreter(ThreadOrder::shuffled).run(kernel);
  CHECK(y == want);
}

TEST_CASE("the rows of Falcon-H1-7B move little more than they must") {
  constexpr std::uint32_t rows = 4, hidden = 3072, intermediate = 12288;
  std::vector<float> const weight = draw(hidden, 3);
  auto const region = [](const char* name, const auto& v, bool written) {
    auto const bytes = v.size() * sizeof(v[0]);
    return Region{name, v.data(), bytes, -1, written ? static_cast<std::int64_t>(bytes) : 0};
  };
  std::vector<float> h = draw(rows * hidden, 1), a = draw(rows * hidden, 2);
  std::vector<Bf16> out(rows * hidden);
  {
    RmsNorm<Bf16, true> k;
    k.h = {h.data(), hidden};
    k.a = {a.data(), hidden};
    k.sum = {h.data(), hidden};
    k.weight = weight.data();
    k.epsilon = 1e-5F;
    k.out = out.data();
    k.out_stride = hidden;
    k.rows = rows;
    k.n = hidden;
    check_traffic("residual and norm",
                  record(k, {region("h", h, true), region("a", a, false),
                             region("weight", weight, false), region("out", out, true)}),
                  std::uint64_t{rows} * hidden * (4 + 4 + 4 + 2) + hidden * 4);
  }
  {
    GatedNorm<Bf16, true> k;
    k.y = {h.data(), hidden};
    k.z = {a.data(), hidden};
    k.weight = weight.data();
    k.out = out.data();
    k.out_stride = hidden;
    k.rows = rows;
    k.width = hidden;
    check_traffic("gated norm",
                  record(k, {region("y", h, false), region("z", a, false),
                             region("weight", weight, false), region("out", out, true)}),
                  std::uint64_t{rows} * hidden * (4 + 4 + 2) + hidden * 4);
  }
  {
    EachFour<Scale<true>> k;
    k.x = {h.data(), hidden};
    k.factors = weight.data();
    k.rows = rows;
    k.n = hidden;
    check_traffic("scale", record(k, {region("x", h, true), region("factors", weight, false)}),
                  std::uint64_t{rows} * hidden * 8 + hidden * 4);
  }
  {
    std::vector<Bf16> table(9 * hidden);
    std::int32_t const ids[] = {8, 1, 0, 4};
    EachFour<Embedding<Bf16, true>> k;
    k.table = table.data();
    k.ids = ids;
    k.out = {h.data(), hidden};
    k.rows = rows;
    k.n = hidden;
    check_traffic("embedding",
                  record(k, {region("table", table, false),
                             region("out", h, true),
                             {"ids", ids, sizeof ids, -1, 0}}),
                  std::uint64_t{rows} * hidden * (2 + 4));
  }
  {
    std::vector<float> gate = draw(rows * intermediate, 4), up = draw(rows * intermediate, 5);
    std::vector<Bf16> product(rows * intermediate);
    EachFour<SiluProduct<Bf16, true>> k;
    k.gate = {gate.data(), intermediate};
    k.up = {up.data(), intermediate};
    k.out = product.data();
    k.out_stride = intermediate;
    k.rows = rows;
    k.n = intermediate;
    check_traffic("silu product",
                  record(k, {region("gate", gate, false), region("up", up, false),
                             region("out", product, true)}),
                  std::uint64_t{rows} * intermediate * (4 + 4 + 2));
  }
}
