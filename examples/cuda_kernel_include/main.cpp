// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
//
// An engine's own kernel on states that lie in pages: the cache says which pages, batch/ makes rows
// of them, device/ turns rows into addresses. decay.cu has the kernel; the host does the same here.
#include <cstdio>
#include <cstring>
#include <hybridstate/hybridstate.hpp>
#include <vector>

#include "decay.hpp"

using namespace hybridstate;

int main() {
  // Two sequences whose next step has begun, in the paper's packed organization.
  StateLayout const layout = make_layout(find_preset("falcon-h1-tiny-90m")->geometry);
  CacheOptions options;
  options.max_sequences = 4;
  JointCache cache(ConvSlabPacked(layout, 16), options);
  cache.begin_step();
  std::vector<ScheduledSequence> batch;
  for (TokenId first : {1U, 2U}) {
    std::vector<TokenId> const prompt(100, first);
    batch.push_back({cache.admit(Prompt::of_tokens(prompt), {}).sequence});
    if (!cache.reserve(batch.back().sequence, 100)) return 1;
  }

  // Their rows, in a table of four: the other two are padding.
  BatchLimits const limits{options.max_sequences};
  std::vector<std::int32_t> entries(
      static_cast<std::size_t>(batch_shape(cache.organization(), limits).entries()));
  BatchTables tables(cache.organization(), limits, entries);
  if (BatchResult const built = tables.build(cache, batch); !built) {
    std::printf("sequence %zu: %s\n", built.item, sentence(built.refusal));
    return 1;
  }

  // One layer of the pool, every BF16 element 3.
  std::vector<std::byte> pool(layer_bytes(cache.organization(), 0));
  std::uint16_t const three = numeric::to_bf16(3.0F);
  for (std::size_t i = 0; i < pool.size(); i += 2) std::memcpy(&pool[i], &three, 2);
  std::vector<std::byte> device_pool = pool;

  auto const states_in = [&](std::vector<std::byte>& bytes) -> States {
    PoolMemory const memory{bytes.data(), static_cast<std::int64_t>(bytes.size())};
    BatchViews const views(cache.organization(), tables.shape(), memory, memory, entries.data());
    return {views.ssm_destination(0), 4, static_cast<std::int32_t>(layout.ssm_heads()),
            static_cast<std::int32_t>(layout.head_bytes() / 2)};
  };
  States const s = states_in(pool);
  for (std::int32_t row = 0; row < s.rows; ++row)
    for (std::int32_t head = 0; head < s.heads; ++head)
      for (std::int32_t e = 0; e < s.elements; ++e) decay_element(s.pages, row, head, e, 0.5F);

  std::size_t changed = 0;
  for (std::size_t i = 0; i < pool.size(); i += 2)
    changed += std::memcmp(&pool[i], &three, 2) != 0 ? 1 : 0;
  std::printf(
      "host: %zu elements of 2 states halved in %zu changed rows; 2 padded rows untouched\n",
      changed, tables.changed().size());
  if (changed != 2 * layout.ssm_bytes() / 2) return 1;

#if defined(EXAMPLE_CUDA)
  char const* const why = decay_on_device(states_in(device_pool), device_pool, entries, 0.5F);
#else
  char const* const why = "it was built without CUDA";
#endif
  if (why != nullptr) {
    std::printf("device: not run, because %s\n", why);
    return 0;
  }
  bool const equal = device_pool == pool;
  std::printf("device: %s\n", equal ? "the same bytes" : "other bytes than on the host");
  return equal ? 0 : 1;
}
