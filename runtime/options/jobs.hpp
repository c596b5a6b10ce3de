// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace hybridstate::runtime {

/// All cores for 0, else the number itself.
unsigned thread_count(unsigned wanted);

/// Calls job(i) for i from 0 to count - 1, handed out in this order to `threads` threads, under a
/// progress bar. Once a job returns false or throws no further one is handed out; what was handed
/// out is finished, and the first exception is thrown again.
void run_jobs(const std::string& label, std::size_t count, unsigned threads,
              const std::function<bool(std::size_t)>& job);

}  // namespace hybridstate::runtime
