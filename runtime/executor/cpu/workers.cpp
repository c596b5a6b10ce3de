// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/cpu/workers.hpp"

#include <algorithm>

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

Workers::Workers(unsigned threads)
    : ranges_(threads != 0 ? threads : std::max(1U, std::thread::hardware_concurrency())) {
  for (std::size_t i = 1; i < ranges_.size(); ++i) helpers_.emplace_back([this, i] { help(i); });
}

Workers::~Workers() {
  stop_.store(true);
  loop_.fetch_add(1);
  loop_.notify_all();
  for (std::thread& t : helpers_) t.join();
}

void Workers::take_items(std::size_t self) {
  for (std::size_t k = 0; k < ranges_.size(); ++k) {
    Range& range = ranges_[(self + k) % ranges_.size()];
    while (range.next.load() < range.end) {
      std::size_t const i = range.next.fetch_add(1);
      if (i < range.end) call_(context_, i);
    }
  }
}

void Workers::share(std::size_t count, void* context, Call call) {
  context_ = context;
  call_ = call;
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    ranges_[i].next.store(count * i / ranges_.size());
    ranges_[i].end = count * (i + 1) / ranges_.size();
  }
  busy_.store(static_cast<std::uint32_t>(helpers_.size()));
  loop_.fetch_add(1);
  loop_.notify_all();
  take_items(0);
  for (int i = 0; busy_.load() != 0; ++i) {
    if (i < looks)
      pause();
    else
      std::this_thread::yield();
  }
}

void Workers::help(std::size_t self) {
  std::uint32_t seen = 0;
  for (;;) {
    for (int i = 0; i < looks && loop_.load() == seen; ++i) pause();
    loop_.wait(seen);
    ++seen;
    if (stop_.load()) return;
    take_items(self);
    busy_.fetch_sub(1);
  }
}

}  // namespace hybridstate::runtime::cpu
