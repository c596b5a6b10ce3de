// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace hybridstate::runtime {

/// The logarithm of the gamma function at x > 0, relative error about 1e-15 away from its zeros.
/// Throws std::invalid_argument otherwise.
double log_gamma(double x);

/// The regularized incomplete beta function I_x(a, b) for a, b > 0 and x in [0, 1], by its
/// continued fraction. Throws std::invalid_argument outside of that.
double incomplete_beta(double a, double b, double x);

/// P(T <= t) of Student's distribution with `degrees` > 0 degrees of freedom.
double student_cdf(double t, double degrees);

/// The t with P(T <= t) = p for p in (0, 1): relative error below 1e-12 between degrees 1 and 100.
/// Equal bits on every machine. Throws std::invalid_argument outside of that range of p.
double student_quantile(double p, double degrees);

}  // namespace hybridstate::runtime
