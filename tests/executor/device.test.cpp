// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>

#include "cpu/harness.hpp"
#include "executor/device/forward.hpp"
#include "executor/device_error.hpp"
#include "executor/span_tables.hpp"

using namespace harness;
using device::DeviceForward;
using device::interpreted_device;

namespace {

struct Shape {
  const char* name;
  FalconH1Config config;
  MemoryOptions memory;
  Carry carry = Carry::bf16_per_token;
  LinearInput input = LinearInput::bf16;
};

ForwardOptions options_of(const Shape& s) {
  ForwardOptions o;
  o.carry = s.carry;
  o.conv_dtype = s.memory.conv;
  o.linear_input = s.input;
  o.max_tokens = 64;
  o.threads = 1;
  return o;
}

/// Every part in vector accesses, and every part without.
std::vector<Shape> shapes() {
  FalconH1Config even = small_config();
  even.hidden = 64;
  even.heads = 4;
  even.head_dim = 64;
  even.ssm_state = 64;
  FalconH1Config plain = even;
  plain.gated_norm = false;
  plain.ssm_groups = 1;
  plain.ssm_state = 128;
  plain.tied = true;
  MemoryOptions bf16;
  bf16.kv = bf16.ssm = bf16.conv = Dtype::bf16;
  bf16.max_tokens = 300;
  MemoryOptions paged = bf16;
  paged.block_tokens = 16;
  paged.heads_per_page = 2;
  MemoryOptions f32;
  f32.max_tokens = 300;
  MemoryOptions split = bf16;
  split.split_rows = 3;
  split.conv_part_bytes = 126;
  split.block_tokens = 7;
  return {{"vectors", even, paged},
          {"no norm, tied", plain, bf16},
          {"FP32", even, f32, Carry::fp32, LinearInput::fp32},
          {"any shape, states cut by pages", small_config(), split}};
}

/// The interpreter with products as cuBLASLt defines them, summed in double.
class GemmDevice final : public device::Device {
 public:
  std::string name() const override { return inner_->name(); }
  void require(std::size_t bytes) const override { inner_->require(bytes); }
  std::byte* allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  std::byte* staging(std::size_t bytes) override { return inner_->staging(bytes); }
  const void* resident(const void* host, std::size_t n) override {
    return inner_->resident(host, n);
  }
  void write(void* to, const void* from, std::size_t n) override { inner_->write(to, from, n); }
  void upload(void* to, const void* from, std::size_t n) override { inner_->upload(to, from, n); }
  void copy(void* to, const void* from, std::size_t n) override { inner_->copy(to, from, n); }
  void wait() override { inner_->wait(); }
  void download(void* to, const void* from, std::size_t n) override {
    inner_->download(to, from, n);
  }
  void run(const kernels::EmbeddingJob& job) override { inner_->run(job); }
  void run(const kernels::RmsNormJob& job) override { inner_->run(job); }
  void run(const kernels::LinearJob&) override { FAIL("an exact linear"); }
  void run(const kernels::ScaleRows& job) override { inner_->run(job); }
  void run(const kernels::RotationJob& job) override { inner_->run(job); }
  void run(const kernels::ConvolutionStepJob& job) override { inner_->run(job); }
  void run(const kernels::ConvolutionRunsJob& job) override { inner_->run(job); }
  void run(const kernels::StateUpdateJob& job) override { inner_->run(job); }
  void run(const kernels::StateScanJob& job) override { inner_->run(job); }
  void run(const kernels::AttentionJob& job) override { inner_->run(job); }
  void run(const kernels::GatedNormJob& job) override { inner_->run(job); }
  void run(const kernels::SiluProductJob& job) override { inner_->run(job); }
  void run(const kernels::GreedyRows& job) override { inner_->run(job); }
  void run(const kernels::SampleRows& job) override { inner_->run(job); }
  void run(const kernels::CopyList& job) override { inner_->run(job); }
  void run(const kernels::RoundRows& job) override { inner_->run(job); }
  void prepare_gemm() override {}
  void run(const device::GemmJob& job) override {
    auto const* const weights = static_cast<const std::uint16_t*>(job.weights);
    auto const* const x = static_cast<const std::uint16_t*>(job.x);
    for (std::size_t t = 0; t < job.tokens; ++t)
      for (std::size_t r = 0; r < job.rows; ++r) {
        double sum = 0;
        for (std::size_t k = 0; k < job.columns; ++k)
          sum += static_cast<double>(numeric::from_bf16(weights[r * job.columns + k])) *
                 static_cast<double>(numeric::from_bf16(x[t * job.columns + k]));
        job.y[static_cast<std::int64_t>(t) * job.y_stride + static_cast<std::int64_t>(r)] =
            static_cast<float>(sum * static_cast<double>(job.scale));
      }
  }

 private:
  void record(const device::RecordingKey&, const std::function<void()>& body) override { body(); }
  bool replay(const device::RecordingKey&) override { return false; }

  std::unique_ptr<Device> inner_ = interpreted_device();
};

WithTables interpreted(const OwnModel& model, const ForwardOptions& options) {
  return {std::make_unique<DeviceForward>(model.tensors(), options, interpreted_device(),
                                          ForwardLimits{4, 300, 0}),
          4};
}

}  // namespace

TEST_CASE("a device's kernels give the CPU executor's logits and states, prefill and decode") {
  for (Shape const& s : shapes()) {
    CAPTURE(std::string(s.name));
    OwnModel const model = random_model(s.config, 5, Dtype::bf16);
    auto const tokens = random_tokens(281, s.config.vocabulary, 1);
    CpuForward cpu(model.tensors(), options_of(s));
    WithTables device = interpreted(model, options_of(s));
    std::vector<std::uint32_t> const cuts = {1, 60, 37, 64, 64, 50, 1};
    Memory want(s.config, s.memory);
    Memory got(s.config, s.memory);
    auto const expected = feed(cpu, want, tokens, cuts);
    auto const computed = feed(device, got, tokens, cuts);
    REQUIRE(computed.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(same_bits(computed[i], expected[i]));
    CHECK(same_bits(got.all(got.state(0, 0)), want.all(want.state(0, 0))));
  }
}

TEST_CASE("a device reads and writes a tail where it lies in its unit") {
  Shape const s = shapes().front();
  OwnModel const model = random_model(s.config, 6, Dtype::bf16);
  auto const tokens = random_tokens(6, s.config.vocabulary, 2);
  CpuForward cpu(model.tensors(), options_of(s));
  WithTables device = interpreted(model, options_of(s));
  Memory want(s.config, s.memory);
  Memory got(s.config, s.memory);
  auto const run = [&](ForwardPass& forward, Memory& memory, std::uint32_t begin,
                       std::uint32_t count) {
    std::vector<float> logits(s.config.vocabulary);
    StateTarget const target{begin + count, memory.state(0, 0)};
    ForwardChunk chunk;
    chunk.tokens = std::span(tokens).subspan(begin, count);
    chunk.begin = begin;
    chunk.blocks = memory.blocks(0);
    chunk.tail = {0, 8};  // the second half of a unit of 16 tokens
    chunk.source = memory.state(0, 0);
    chunk.targets = {&target, 1};
    chunk.logits = true;
    forward.run({&chunk, 1}, memory.kv(), logits);
    return logits;
  };
  for (std::uint32_t const begin : {0U, 5U}) {
    std::uint32_t const count = begin == 0 ? 5 : 1;
    CHECK(same_bits(run(device, got, begin, count), run(cpu, want, begin, count)));
  }
  CHECK(std::isnan(got.key(0, 0, 0, 5, 0)));  // the first half belongs to others
  for (std::uint32_t token = 8; token < 14; ++token)
    CHECK(got.key(0, 1, 0, token, 3) == want.key(0, 1, 0, token, 3));
}

TEST_CASE("linears by cuBLASLt get BF16 inputs in the same places") {
  Shape const s = shapes().front();
  OwnModel const model = random_model(s.config, 5, Dtype::bf16);
  auto const tokens = random_tokens(24, s.config.vocabulary, 1);
  ForwardOptions options = options_of(s);
  CpuForward cpu(model.tensors(), options);
  options.linear = LinearForm::cublaslt;
  WithTables device(
      std::make_unique<DeviceForward>(model.tensors(), options, std::make_unique<GemmDevice>(),
                                      ForwardLimits{4, 300, 0}),
      4);
  Memory want(s.config, s.memory);
  Memory got(s.config, s.memory);
  auto const expected = feed(cpu, want, tokens, {15, 1});
  auto const computed = feed(device, got, tokens, {15, 1});
  REQUIRE(computed.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    float largest = 0;
    float apart = 0;
    for (std::size_t k = 0; k < expected[i].size(); ++k) {
      largest = std::max(largest, std::abs(expected[i][k]));
      apart = std::max(apart, std::abs(computed[i][k] - expected[i][k]));
    }
    CHECK(apart > 0);
    CHECK(apart < 0.05F * largest);
  }
}

TEST_CASE("cuBLASLt is refused where it is not, and for weights that it does not take") {
  OwnModel const model = random_model(small_config(), 5, Dtype::f32);
  ForwardOptions options;
  options.linear = LinearForm::cublaslt;
  ForwardLimits const limits{4, 300, 0};
  auto const make = [&](std::unique_ptr<device::Device> device) {
    DeviceForward(model.tensors(), options, std::move(device), limits);
  };
  CHECK_THROWS_WITH_AS(make(interpreted_device()), doctest::Contains("use --linear exact"),
                       DeviceError);
  CHECK_THROWS_WITH_AS(make(std::make_unique<GemmDevice>()), doctest::Contains("BF16 weights"),
                       DeviceError);
  CHECK_THROWS_WITH_AS(make_forward_pass(model.tensors(), options, limits),
                       doctest::Contains("--executor cuda"), DeviceError);
}
