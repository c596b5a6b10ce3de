// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "executor/step_plan.hpp"

namespace hybridstate::runtime {

/// The step law t = s * (a + b P + d D + e C + k K): P prefill tokens, D decoding requests, C
/// context tokens that they attend to, K bytes copied. Integer picoseconds keep simulated times
/// equal on every machine.
struct StepLaw {
  std::string name;                          ///< device preset
  std::string provenance;                    ///< "fitted" or "estimated"
  std::int64_t base_ps = 0;                  ///< a: one step
  std::int64_t prefill_token_ps = 0;         ///< b
  std::int64_t decode_request_ps = 0;        ///< d
  std::int64_t decode_context_token_ps = 0;  ///< e
  std::int64_t copied_kib_ps = 0;            ///< k, of 1,024 bytes read and written
};

/// Scale s of an organization, in thousandths: 1000 for paged layouts, 980 for contiguous
/// composites (S0, D0).
inline constexpr std::int64_t paged_scale = 1000;
inline constexpr std::int64_t contiguous_scale = 980;

/// Presets: a100-40gb (fitted on the paper's Tables E-6 and E-1, contexts below 8k tokens) and
/// a100-40gb-long (estimated split of the decode term by context). Both copy at 85 % of 1,555 GB/s,
/// read and written bytes counted (estimated): 1.51 ps a byte.
const std::vector<StepLaw>& step_laws();

/// A preset by name, or a JSON file with "base_ms", "prefill_token_us", "decode_request_ms" and
/// optional "decode_context_token_ns", "copied_kib_ns", "name". Throws DeviceError with one
/// sentence.
StepLaw find_step_law(std::string_view name_or_file);

/// Constants for another device from its bandwidth and peak rate and the model's size, by a
/// roofline: a = weight bytes / bandwidth, b = 2 parameters / rate, e = KV bytes of a token /
/// bandwidth, d = state bytes read and written / bandwidth, k = 2 / bandwidth. Marked "estimated".
struct Roofline {
  double parameters = 0;
  double weight_bytes = 0;
  double kv_bytes_per_token = 0;  ///< all layers
  double state_bytes = 0;         ///< all layers
  double bytes_per_second = 0;
  double flops_per_second = 0;
};
StepLaw estimate_step_law(std::string name, const Roofline& roofline);

/// The paper's device as a law: no device at all.
class SimulatedExecutor {
 public:
  /// `layers`: of a layer group; plans count copied bytes for one of them.
  SimulatedExecutor(StepLaw law, std::int64_t scale_thousandths, Units layers = 1)
      : law_(std::move(law)), scale_(scale_thousandths), layers_(layers) {}

  std::int64_t run(const StepPlan& plan) const noexcept {
    auto const p = static_cast<std::int64_t>(plan.prefill_tokens);
    auto const d = static_cast<std::int64_t>(plan.decode_requests);
    auto const c = static_cast<std::int64_t>(plan.decode_context_tokens);
    auto const copied = static_cast<std::int64_t>(plan.copied_bytes * layers_);
    std::int64_t const ps = law_.base_ps + p * law_.prefill_token_ps + d * law_.decode_request_ps +
                            c * law_.decode_context_token_ps + copied * law_.copied_kib_ps / 1024;
    return ps * scale_ / 1000 / 1000;  // thousandths, then picoseconds to nanoseconds
  }

 private:
  StepLaw law_;
  std::int64_t scale_;
  Units layers_;
};

static_assert(step_executor<SimulatedExecutor>);

}  // namespace hybridstate::runtime
