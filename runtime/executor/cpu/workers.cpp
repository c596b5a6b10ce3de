// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/cpu/workers.hpp"

namespace hybridstate::runtime::cpu {
namespace {

// Loops of one forward pass follow each other within microseconds, so a helper looks for the next
// one for a while before it sleeps.
constexpr int looks = 4000;

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Workers::Workers(unsigned threads) {
  if (threads == 0) threads = std::thread::hardware_concurrency();
  for (unsigned i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
}

Workers::~Workers() {
  stop_.store(true);
  loop_.fetch_add(1);
  loop_.notify_all();
  for (std::thread& t : helpers_) t.join();
}

void Workers::take_items() {
  for (std::size_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) call_(context_, i);
}

void Workers::share(std::size_t count, void* context, Call call) {
  context_ = context;
  call_ = call;
  count_ = count;
  next_.store(0);
  busy_.store(static_cast<std::uint32_t>(helpers_.size()));
  loop_.fetch_add(1);
  loop_.notify_all();
  take_items();
  for (int i = 0; busy_.load() != 0; ++i) {
    if (i < looks)
      pause();
    else
      std::this_thread::yield();
  }
}

void Workers::help() {
  std::uint32_t seen = 0;
  for (;;) {
    for (int i = 0; i < looks && loop_.load() == seen; ++i) pause();
    loop_.wait(seen);
    ++seen;
    if (stop_.load()) return;
    take_items();
    busy_.fetch_sub(1);
  }
}

}  // namespace hybridstate::runtime::cpu
