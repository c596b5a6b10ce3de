// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "options/jobs.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "report/progress.hpp"

namespace hybridstate::runtime {

unsigned thread_count(unsigned wanted) {
  return wanted != 0 ? wanted : std::max(1U, std::thread::hardware_concurrency());
}

void run_jobs(const std::string& label, std::size_t count, unsigned threads,
              const std::function<bool(std::size_t)>& job) {
  Progress progress(label, count);
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  auto const work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        if (!job(i)) next = count;
      } catch (...) {
        std::lock_guard const lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        next = count;
        return;
      }
      progress.advance();
    }
  };
  std::vector<std::thread> pool;
  for (std::size_t i = 1; i < std::min<std::size_t>(threads, count); ++i) pool.emplace_back(work);
  work();
  for (std::thread& t : pool) t.join();
  progress.finish();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace hybridstate::runtime
